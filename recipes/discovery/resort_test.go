package discovery_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

const offered = time.Minute

// rescue is a service of which a consumer with a last resort knows, and clients
// that register instances, each with a session.
type rescue struct {
	*bubble.World
	t       *testing.T
	service *service
	told    []string
	owners  map[string]*framework.Client
}

func newRescue(t *testing.T, w *bubble.World) *rescue {
	s := billing(t, open(t, w.Connect("consumer"), discovery.WithLastResort(offered)))
	r := &rescue{World: w, t: t, service: s, owners: map[string]*framework.Client{}}
	t.Cleanup(s.Listen(func(all []instance, status discovery.Status) {
		if marked := !status.LastResort.IsZero(); marked != slices.ContainsFunc(all, func(i instance) bool { return i.LastResort }) {
			t.Errorf("the status is %+v, of %+v", status, all)
		}
		r.told = append(r.told, show(all))
	}))
	return r
}

func (r *rescue) register(i instance) *registration {
	r.t.Helper()
	r.owners[i.ID] = r.ConnectNext()
	return register(r.t, open(r.t, r.owners[i.ID], discovery.WithLastResort(offered)), i)
}

func (r *rescue) takeTold() string {
	synctest.Wait()
	told := fmt.Sprintf("%q", r.told)
	r.told = nil
	return told
}

func billed(id string) instance { return instance{Name: "billing", ID: id, Payload: "x"} }

// A service loses all instances. Those that have vanished within a session
// timeout are still offered, and marked, and none that was disabled. Later, or
// when one is there again, none of them is. A registry that loses everybody at
// once is more often ill than right (Dubbo's issue 1508, Seata's 6162).
func TestLastResort(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		r := newRescue(t, w)
		off := billed("off")
		off.Disabled = true
		for _, i := range []instance{billed("a"), billed("b"), billed("early"), off} {
			r.register(i)
		}
		time.Sleep(time.Second)
		r.takeTold()
		must(t, r.owners["early"].Close())
		time.Sleep(2 * bubble.Timeout)
		r.takeTold()
		vanish := func() {
			for _, id := range []string{"off", "a", "b"} {
				must(t, r.owners[id].Close())
				time.Sleep(100 * time.Millisecond)
			}
		}
		vanish()
		shows(t, r.service, "a=x(gone) b=x(gone)")
		if one, err := r.service.Pick(t.Context()); err != nil || !one.LastResort {
			t.Errorf("picked %+v, %v", one, err)
		}
		s := r.service.Status()
		if left := time.Until(s.LastResort); s.Instances != 2 || s.Disabled != 0 || left > offered || left < offered-2*time.Second {
			t.Errorf("the status is %+v", s)
		}
		time.Sleep(offered)
		shows(t, r.service, "")
		if _, err := r.service.Pick(t.Context()); !errors.Is(err, discovery.ErrNoInstance) || !r.service.Status().LastResort.IsZero() {
			t.Errorf("%v, %+v", err, r.service.Status())
		}
		if got, want := r.takeTold(), `["a=x b=x" "b=x" "a=x(gone) b=x(gone)" ""]`; got != want {
			t.Errorf("told of %s, want %s", got, want)
		}

		for _, i := range []instance{billed("a"), billed("b")} {
			r.register(i)
		}
		time.Sleep(time.Second)
		for _, id := range []string{"a", "b"} {
			must(t, r.owners[id].Close())
		}
		shows(t, r.service, "a=x(gone) b=x(gone)")
		r.register(billed("new"))
		shows(t, r.service, "new=x")
		time.Sleep(2 * offered)
		shows(t, r.service, "new=x")
	})
}

// The tree of a service is deleted, as by a mistake: all instances are offered.
// A service that may not be read shows what was known, as without this option.
func TestLastResortOfADeletedService(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		owner := w.ConnectNext(framework.WithAuth("digest", []byte("owner:secret")))
		static := billed("a")
		static.Type = discovery.Static
		register(t, open(t, owner), static)
		r := newRescue(t, w)
		must(t, owner.Delete(t.Context(), path, -1))
		must(t, owner.Delete(t.Context(), dir, -1))
		shows(t, r.service, "a=x(gone)")
		register(t, open(t, owner), static)
		shows(t, r.service, "a=x")
		_, err := owner.SetACL(t.Context(), dir, zk.AuthACL(zk.PermAll), -1)
		must(t, err)
		time.Sleep(3 * time.Hour)
		if s := r.service.Status(); !s.LastResort.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

// A program starts from a file, and the ensemble that answers was rebuilt, and
// has no instances: those of the file are offered.
func TestLastResortOfASnapshot(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		owner := w.ConnectNext()
		static := billed("a")
		static.Type = discovery.Static
		register(t, open(t, owner), static)
		file := cache.WithSnapshot(filepath.Join(t.TempDir(), "snapshot"))
		before := open(t, owner, file)
		shows(t, billing(t, before), "a=x")
		before.Close()
		must(t, owner.Delete(t.Context(), path, -1))
		must(t, owner.Delete(t.Context(), dir, -1))
		_, err := owner.Create(t.Context(), dir, nil, zk.FlagPersistent)
		must(t, err)
		w.ClientNet("consumer").Cut()
		c, err := w.Open("consumer")
		must(t, err)
		defer c.Close()
		s := billing(t, open(t, c, file, discovery.WithLastResort(offered)))
		shows(t, s, "a=x")
		w.ClientNet("consumer").Heal()
		bubble.AwaitTrue(t, "SYNCED", func() bool { return s.Status().State == cache.Synced })
		shows(t, s, "a=x(gone)")
	})
}

// Neither a znode that is no instance nor one that may not be read counts as an
// instance that is there. One that may not be read any longer has not vanished.
func TestLastResortBesideUnreadableZnodes(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		r := newRescue(t, w)
		r.register(billed("a"))
		other := w.ConnectNext()
		for _, name := range []string{"/garbage", "/secret"} {
			_, err := other.Create(t.Context(), dir+name, []byte("{"), zk.FlagPersistent)
			must(t, err)
		}
		hide := func(path string) {
			_, err := other.SetACL(t.Context(), path, zk.WorldACL(zk.PermAdmin), -1)
			must(t, err)
			time.Sleep(3 * time.Hour) // a recheck finds it
		}
		hide(dir + "/secret")
		shows(t, r.service, "a=x")
		r.takeTold()
		must(t, r.owners["a"].Close())
		shows(t, r.service, "a=x(gone)")
		if s := r.service.Status(); len(s.Unreadable) != 2 {
			t.Errorf("unreadable: %v", s.Unreadable)
		}
		r.register(billed("b"))
		shows(t, r.service, "b=x")
		hide(dir + "/b")
		shows(t, r.service, "")
		if got, want := r.takeTold(), `["a=x(gone)" "b=x" ""]`; got != want {
			t.Errorf("told of %s, want %s", got, want)
		}
	})
}

// An instance that is closed is not offered: it was disabled first. That takes
// no longer than the context of Close allows, and does without a connection.
func TestClosedInstancesAreNoLastResort(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		r := newRescue(t, w)
		reg := r.register(billed("a"))
		must(t, reg.Update(t.Context(), instance{Payload: "y"}))
		time.Sleep(time.Second)
		r.takeTold()
		began := time.Now()
		must(t, reg.Close(t.Context()))
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Close takes %v", took)
		}
		shows(t, r.service, "")
		if got, want := r.takeTold(), `["a=y(disabled)" ""]`; got != want {
			t.Errorf("told of %s, want %s", got, want)
		}

		for _, kind := range []discovery.ServiceType{discovery.Dynamic, discovery.Static} {
			b := billed("b")
			b.Type = kind
			reg = r.register(b)
			began = time.Now()
			must(t, reg.Close(within(t, 100*time.Millisecond)))
			if took := time.Since(began); took > 100*time.Millisecond || w.Exists(dir+"/b") {
				t.Errorf("Close of a %v instance takes %v, and its context 100ms; left: %t", kind, took, w.Exists(dir+"/b"))
			}
			shows(t, r.service, "")
		}

		net := w.ClientNet("cut")
		reg = register(t, open(t, w.Connect("cut"), discovery.WithLastResort(offered)), billed("c"))
		net.Cut()
		began = time.Now()
		_ = reg.Close(within(t, 3*time.Second))
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("Close takes %v", took)
		}
		net.Heal()
		time.Sleep(time.Minute)
		if w.Exists(dir + "/c") {
			t.Error("the instance is left")
		}
	})
}

// Without the option nothing that has vanished is offered, and Close disables
// nothing.
func TestNoLastResort(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		reg := register(t, open(t, w.ConnectNext()), a("x"))
		s := billing(t, open(t, w.ConnectNext()))
		var told []string
		defer s.Listen(func(all []instance, _ discovery.Status) { told = append(told, show(all)) })()
		synctest.Wait()
		must(t, reg.Close(t.Context()))
		shows(t, s, "")
		if got := fmt.Sprintf("%q", told); got != `["a=x" ""]` {
			t.Errorf("told of %s", got)
		}
	})
}
