package live

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

// following is a zkr services --follow that runs.
type following struct {
	t         *testing.T
	out, errs said
	end       context.CancelCauseFunc
	ended     chan error
}

func startServices(t *testing.T, c *framework.Client, name string, asJSON bool) *following {
	t.Helper()
	f := &following{t: t, ended: make(chan error, 1)}
	ctx, end := context.WithCancelCause(t.Context())
	f.end = end
	s := services{root: "/services", json: asJSON, out: &f.out, errs: &f.errs}
	go func() { f.ended <- s.follow(ctx, c, name) }()
	return f
}

// expect waits until all is quiet, and compares what was printed.
func (f *following) expect(want, wantErrs string) {
	f.t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	if got, gotErrs := f.out.take(), f.errs.take(); got != want || gotErrs != wantErrs {
		f.t.Errorf("printed %q and %q, want %q and %q", got, gotErrs, want, wantErrs)
	}
}

// stop ends it as a signal does.
func (f *following) stop() {
	f.t.Helper()
	why := errors.New("interrupted")
	f.end(why)
	if err := bubble.Await(f.t, "the end", f.ended); !errors.Is(err, why) {
		f.t.Error(err)
	}
}

// Services and instances that come, change and go, also while the connection
// is lost, and before there is any. What is no instance is named.
func TestServicesFollow(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, owner := w.Connect("follower"), w.ConnectNext()
		d, err := discovery.New(owner, "/services", discovery.JSON[string](""))
		if err != nil {
			t.Fatal(err)
		}
		register := func(name, id string, port int) *discovery.Registration[string] {
			t.Helper()
			r, err := d.Register(t.Context(), discovery.Instance[string]{Name: name, ID: id, Address: "h", Port: port})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		unregister := func(r *discovery.Registration[string]) {
			t.Helper()
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		names, billing := startServices(t, c, "", false), startServices(t, c, "billing", false)
		names.expect("", "")
		billing.expect("", "")
		b := register("billing", "b", 1)
		names.expect("added     billing\n", "")
		billing.expect("added     b  h:1\n", "")
		changed := b.Instance()
		changed.Port = 2
		if err := b.Update(t.Context(), changed); err != nil {
			t.Error(err)
		}
		names.expect("", "")
		billing.expect("changed   b  h:2\n", "")
		late := startServices(t, c, "billing", true)
		time.Sleep(time.Second)
		synctest.Wait()
		data, _ := w.Data("/services/billing/b")
		var event serviceEvent
		if err := json.Unmarshal([]byte(late.out.take()), &event); err != nil || event.Event != "instance" || event.Name != "billing" ||
			event.Znode != "/services/billing/b" || string(event.Instance) != string(data) || event.Time.IsZero() {
			t.Errorf("%+v, %v", event, err)
		}
		late.stop()
		if _, err := owner.Create(t.Context(), "/services/billing/bad", []byte("{"), zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
		billing.expect("", "zkr: /services/billing/bad: not an instance: unexpected end of JSON input\n")
		register("other", "a", 1)
		names.expect("added     other\n", "")
		billing.expect("", "")

		w.ClientNet("follower").Cut()
		w.ClientNet("follower").Drop()
		unregister(b)
		register("billing", "c", 3)
		unregister(register("billing", "d", 4)) // comes and goes unseen
		billing.expect("", "")
		w.ClientNet("follower").Heal()
		time.Sleep(bubble.Timeout)
		billing.expect("removed   b  h:2\nadded     c  h:3\n", "")
		if err := w.ExpireSession(w.SessionID(owner)); err != nil {
			t.Error(err)
		}
		time.Sleep(bubble.Timeout)
		synctest.Wait()
		if got := billing.out.take(); !strings.HasPrefix(got, "removed   c  h:3\n") || !strings.HasSuffix(got, "added     c  h:3\n") {
			t.Errorf("after a lost session: %q", got)
		}
		names.stop()
		billing.stop()
	})
}

// An instance that may not be read hides no other. A service that may not be
// read ends it.
func TestServicesFollowWhatMayNotBeRead(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, owner := w.ConnectNext(), w.ConnectNext(framework.WithAuth("digest", []byte("a:b")))
		if err := owner.MakeContainerPath(t.Context(), "/services/web"); err != nil {
			t.Fatal(err)
		}
		for id, acl := range map[string][]zk.ACL{"a": zk.WorldACL(zk.PermAll), "b": zk.AuthACL(zk.PermAll)} {
			text := []byte(`{"name":"web","id":"` + id + `","serviceType":"STATIC"}`)
			if _, err := owner.Create(t.Context(), "/services/web/"+id, text, zk.FlagPersistent, acl...); err != nil {
				t.Fatal(err)
			}
		}
		f := startServices(t, c, "web", false)
		f.expect("instance  a  STATIC\n", "zkr: read /services/web/b: not allowed by the ACL: neither they nor what is below them is printed\n")
		if _, err := owner.SetACL(t.Context(), "/services/web/b", zk.WorldACL(zk.PermAll), -1); err != nil {
			t.Fatal(err)
		}
		f.stop()
		if _, err := owner.SetACL(t.Context(), "/services/web", zk.AuthACL(zk.PermAll), -1); err != nil {
			t.Fatal(err)
		}
		f = startServices(t, c, "web", false)
		if err := bubble.Await(t, "the end", f.ended); !errors.Is(err, zk.ErrNoAuth) {
			t.Error(err)
		}
		var usage *cli.Exit
		f = startServices(t, c, "..", false)
		if err := bubble.Await(t, "the end", f.ended); !errors.As(err, &usage) || usage.Code != cli.ExitUsage {
			t.Error(err)
		}
	})
}
