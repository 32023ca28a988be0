package discovery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A consumer sees instances come, change and go, the last one as well.
func TestService(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, consumer := w.ConnectNext(), w.ConnectNext()
		d, e := open(t, c), open(t, consumer)
		s := billing(t, e)
		shows(t, s, "")
		r := register(t, d, a("x"))
		shows(t, s, "a=x")
		b := register(t, d, instance{Name: "billing", ID: "b", Payload: "y"})
		register(t, d, instance{Name: "other", ID: "c"})
		shows(t, s, "a=x b=y")
		must(t, r.Update(t.Context(), instance{Payload: "z"}))
		shows(t, s, "a=z b=y")
		must(t, b.Update(t.Context(), instance{Payload: "y", Disabled: true}))
		shows(t, s, "a=z b=y(disabled)")
		names, err := e.Names(t.Context())
		if err != nil || !slices.Equal(names, []string{"billing", "other"}) {
			t.Errorf("%v, %v", names, err)
		}
		all, err := e.Instances(t.Context(), "billing")
		if err != nil || show(all) != "a=z b=y(disabled)" {
			t.Errorf("%v, %v", show(all), err)
		}
		if all, err := e.Instances(t.Context(), "nobody"); err != nil || len(all) != 0 {
			t.Errorf("%v, %v", all, err)
		}
		must(t, r.Close(t.Context()))
		shows(t, s, "b=y(disabled)")
		must(t, b.Close(t.Context()))
		shows(t, s, "")
		if got := s.Status(); got.State != cache.Synced || got.Instances != 0 || got.Err != nil {
			t.Errorf("%+v", got)
		}
		e.Close()
		if _, err := s.All(t.Context()); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if _, err := s.Fresh(t.Context()); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// A missing directory is no service; a missing chroot is an error.
func TestNothingThere(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		d := open(t, w.ConnectNext())
		names, err := d.Names(t.Context())
		if err != nil || len(names) != 0 {
			t.Errorf("%v, %v", names, err)
		}
		c, err := w.OpenTo("below", w.Servers()+"/nowhere")
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		d = open(t, c)
		if _, err := d.Names(t.Context()); err == nil || !strings.Contains(err.Error(), "chroot") {
			t.Error(err)
		}
		if _, err := d.Instances(t.Context(), "billing"); err == nil || !strings.Contains(err.Error(), "chroot") {
			t.Error(err)
		}
	})
}

// The registry is lost for an hour: consumers go on, and know since when.
func TestStale(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, consumer := w.ConnectNext(), w.Connect("consumer")
		d := open(t, c)
		r := register(t, d, a("x"))
		s := billing(t, open(t, consumer))
		var told atomic.Value
		defer s.Listen(func(all []instance, status discovery.Status) { told.Store(status.State.String() + ": " + show(all)) })()
		before := time.Now()
		w.ClientNet("consumer").Cut()
		bubble.AwaitTrue(t, "stale", func() bool { return s.Status().State == cache.Stale })
		since := s.Status().Since
		if since.Before(before) || s.Status().Err == nil {
			t.Errorf("%+v", s.Status())
		}
		must(t, r.Close(t.Context()))
		time.Sleep(time.Hour)
		for range 3 {
			one, err := s.Pick(t.Context())
			if err != nil || one.ID != "a" {
				t.Errorf("%v, %v", one, err)
			}
		}
		shows(t, s, "a=x")
		if got := s.Status(); got.State != cache.Stale || got.Since != since || got.Instances != 1 {
			t.Errorf("%+v", got)
		}
		if got := told.Load(); got != "STALE: a=x" {
			t.Errorf("told %q", got)
		}
		if _, err := s.Fresh(within(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("fresh without a connection: %v", err)
		}
		w.ClientNet("consumer").Heal()
		all, err := s.Fresh(t.Context())
		if err != nil || len(all) != 0 {
			t.Errorf("%v, %v", all, err)
		}
		bubble.AwaitTrue(t, "the listener is told", func() bool { return told.Load() == "SYNCED: " })
	})
}

// A consumer that never had a connection waits, and says what for.
func TestNeverConnected(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.ClientNet("ours").Cut()
		c, err := w.OpenTo("ours", w.Servers())
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		s, err := open(t, c).Service("billing")
		must(t, err)
		if _, err := s.Pick(within(t, time.Second)); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "SYNCING") {
			t.Error(err)
		}
	})
}

// Curator fails all instances for one znode that it cannot read (CURATOR-574).
func TestOneThatCannotBeRead(t *testing.T) {
	core, lines := observer.New(zap.WarnLevel)
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, consumer := w.ConnectNext(), w.ConnectNext(framework.WithLogger(zap.New(core)))
		d, e := open(t, c), open(t, consumer)
		register(t, d, a("x"))
		s := billing(t, e)
		for id, data := range map[string]string{"empty": "", "java": "\xac\xed\x00\x05", "list": "[]", "nameless": `{"id":"x"}`} {
			_, err := c.Create(t.Context(), dir+"/"+id, []byte(data), zk.FlagPersistent)
			must(t, err)
		}
		_, err := c.Create(t.Context(), dir+"/empty/below", []byte("x"), zk.FlagPersistent)
		must(t, err)
		shows(t, s, "a=x")
		status := s.Status()
		if len(status.Unreadable) != 4 || status.Instances != 1 || !strings.Contains(errors.Join(status.Unreadable...).Error(), dir+"/java") {
			t.Errorf("%+v", status)
		}
		b := register(t, d, instance{Name: "billing", ID: "b"})
		for i := range 3 { // each is logged once
			must(t, b.Update(t.Context(), instance{Payload: fmt.Sprint(i)}))
			shows(t, s, fmt.Sprint("a=x b=", i))
		}
		if n := lines.FilterMessageSnippet("not an instance").Len(); n != 4 {
			t.Errorf("%d lines", n)
		}
		all, err := e.Instances(t.Context(), "billing")
		if err != nil || len(all) == 0 || all[0].ID != "a" {
			t.Errorf("%v, %v", all, err)
		}
		must(t, c.Delete(t.Context(), dir+"/java", -1))
		_, err = c.Set(t.Context(), dir+"/list", []byte(`{"name":"billing","id":"list"}`), -1)
		must(t, err)
		time.Sleep(time.Second)
		if status := s.Status(); len(status.Unreadable) != 2 {
			t.Errorf("%+v", status)
		}
	})
}

// A payload that panics, or ends its goroutine, as it is read.
type bomb struct{ text string }

func (b *bomb) UnmarshalJSON(text []byte) error {
	if strings.Contains(string(text), "bomb") {
		panic(string(text))
	}
	b.text = string(text)
	return nil
}

func TestAPayloadThatPanics(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		register(t, open(t, c), a("x"))
		register(t, open(t, c), instance{Name: "billing", ID: "b", Payload: "a bomb"})
		d, err := discovery.New(c, root, discovery.JSON[bomb](""))
		must(t, err)
		defer d.Close()
		s, err := d.Service("billing")
		must(t, err)
		all, err := s.All(t.Context())
		if err != nil || len(all) != 1 || all[0].Payload.text != `"x"` || len(s.Status().Unreadable) != 1 {
			t.Errorf("%v, %v, %+v", all, err, s.Status())
		}
	})
}

// A payload that takes until released to be read, and looks at its own service.
type slow struct{}

var slowness atomic.Pointer[struct {
	service  *discovery.Service[slow]
	released chan struct{}
}]

func (slow) MarshalJSON() ([]byte, error) { return []byte(`"x"`), nil }

func (*slow) UnmarshalJSON([]byte) error {
	s := slowness.Load()
	_ = s.service.Status()
	<-s.released
	return nil
}

func TestAPayloadThatBlocks(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		d, err := discovery.New(c, root, discovery.JSON[slow](""))
		must(t, err)
		defer d.Close()
		_, err = d.Register(t.Context(), discovery.Instance[slow]{Name: "billing", ID: "a"})
		must(t, err)
		s, err := d.Service("billing")
		must(t, err)
		released := make(chan struct{})
		slowness.Store(&struct {
			service  *discovery.Service[slow]
			released chan struct{}
		}{s, released})
		var told atomic.Int32
		defer s.Listen(func([]discovery.Instance[slow], discovery.Status) { told.Add(1) })()
		began := time.Now()
		_, pickErr := s.Pick(within(t, 10*time.Second))
		_, allErr := s.All(within(t, 10*time.Second))
		_, freshErr := s.Fresh(within(t, 10*time.Second))
		_, instancesErr := d.Instances(within(t, 10*time.Second), "billing")
		for _, err := range []error{pickErr, allErr, freshErr, instancesErr} {
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), path) {
				t.Error(err)
			}
		}
		if status := s.Status(); status.Instances != 0 || len(status.Unreadable) != 1 {
			t.Errorf("%+v", status)
		}
		if took := time.Since(began); took != 41*time.Second || told.Load() != 0 {
			t.Errorf("%v, told %d times", took, told.Load())
		}
		close(released)
		if one, err := s.Pick(t.Context()); err != nil || one.ID != "a" {
			t.Errorf("%v, %v", one, err)
		}
		synctest.Wait()
		if status := s.Status(); status.Instances != 1 || len(status.Unreadable) != 0 || told.Load() != 1 {
			t.Errorf("%+v, told %d times", status, told.Load())
		}
	})
}

// An operator disables an instance by what stands in its znode (CURATOR-275).
func TestDisabledFromOutside(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, operator := w.ConnectNext(), w.ConnectNext()
		d := open(t, c)
		register(t, d, a("x"))
		s := billing(t, d)
		codec := discovery.JSON[json.RawMessage]("")
		_, err := operator.Update(t.Context(), path, func(data []byte, _ *zk.Stat) ([]byte, error) {
			i, err := codec.Decode(data)
			i.Disabled = true
			written, encodeErr := codec.Encode(i)
			if want := strings.TrimSuffix(string(data), "}") + `,"enabled":false}`; string(written) != want {
				t.Errorf("%s, want %s", written, want)
			}
			return written, errors.Join(err, encodeErr)
		})
		must(t, err)
		shows(t, s, "a=x(disabled)")
		if _, err := s.Pick(t.Context()); !errors.Is(err, discovery.ErrNoInstance) {
			t.Errorf("picked: %v", err)
		}
		if got := s.Status(); got.Disabled != 1 || got.Instances != 1 {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Minute)
		shows(t, s, "a=x(disabled)")
	})
}

// One listener blocks for good, one panics: nobody else notices.
func TestAListenerThatBlocks(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		d := open(t, c)
		s := billing(t, d)
		blocked := make(chan struct{})
		defer close(blocked)
		defer s.Listen(func([]instance, discovery.Status) { <-blocked })()
		defer s.Listen(func([]instance, discovery.Status) { panic("why not") })()
		var told atomic.Pointer[string]
		var times atomic.Int32
		stop := s.Listen(func(all []instance, status discovery.Status) {
			text := fmt.Sprintf("%v %d: %s", status.State, status.Instances, show(all))
			told.Store(&text)
			times.Add(1)
		})
		expect := func(want string, n int32) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := *told.Load(); got != want || times.Load() != n {
				t.Errorf("told %q, the %d. time, want %q, the %d.", got, times.Load(), want, n)
			}
		}
		expect("SYNCED 0: ", 1)
		r := register(t, d, a("x"))
		expect("SYNCED 1: a=x", 2)
		register(t, d, instance{Name: "other", ID: "c"})
		expect("SYNCED 1: a=x", 2)
		shows(t, s, "a=x")
		must(t, r.Update(t.Context(), instance{Payload: "y"}))
		expect("SYNCED 1: a=y", 3)
		stop()
		must(t, r.Close(t.Context()))
		expect("SYNCED 1: a=y", 3)
		d.Close()
	})
}

// A thousand services of ten instances with a shared cache: one watch, and few
// requests.
func TestAThousandServices(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, consumer := w.ConnectNext(), w.ConnectNext()
		for n := range 1000 {
			name := fmt.Sprint("service-", n)
			must(t, c.MakePersistentPath(t.Context(), root+"/"+name))
			var ops []any
			for k := range 10 {
				ops = append(ops, &zk.CreateRequest{Path: fmt.Sprint(root, "/", name, "/", k), Data: fmt.Appendf(nil, `{"name":%q,"id":"%d"}`, name, k), Acl: zk.WorldACL(zk.PermAll)})
			}
			_, err := c.Multi(t.Context(), ops...)
			must(t, err)
		}
		d := open(t, consumer, discovery.WithSharedCache())
		w.ResetRequests()
		var all []*service
		for n := range 1000 {
			s, err := d.Service(fmt.Sprint("service-", n))
			must(t, err)
			all = append(all, s)
		}
		for _, s := range all {
			if got, err := s.All(t.Context()); err != nil || len(got) != 10 {
				t.Fatalf("%d, %v", len(got), err)
			}
		}
		synctest.Wait()
		if n := w.Total(); n > 100 || !maps.Equal(w.Watches(), map[string]int{root: 2}) { // of data and of children
			t.Errorf("%d requests, watches %v", n, w.Watches())
		}
		w.ResetRequests()
		must(t, c.Delete(t.Context(), root+"/service-7/3", -1))
		time.Sleep(time.Second)
		if got, err := all[7].All(t.Context()); err != nil || len(got) != 9 {
			t.Errorf("%d, %v", len(got), err)
		}
		if n := w.Cost(); n[testutil.OpMultiRead]+n[testutil.OpGetData]+n[testutil.OpGetChildren] > 3 { // one may be the recheck's
			t.Errorf("%v", n)
		}
	})
}

// What is below an instance is not read.
func TestBelowAnInstance(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead: a recheck is one request then
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		register(t, open(t, c), instance{Name: "billing", ID: "a", Type: discovery.Static})
		s := billing(t, open(t, w.ConnectNext()))
		w.ResetRequests()
		for i := range 5 {
			_, err := c.Create(t.Context(), fmt.Sprint(root, "/billing/a/", i), nil, zk.FlagPersistent)
			must(t, err)
			time.Sleep(100 * time.Millisecond)
		}
		if got, err := s.All(t.Context()); err != nil || len(got) != 1 {
			t.Errorf("%v, %v", got, err)
		}
		if n := w.Cost(); n[testutil.OpMultiRead]+n[testutil.OpGetData]+n[testutil.OpGetChildren]+n[testutil.OpGetChildren2] > 1 { // one may be the recheck's
			t.Errorf("%v", n)
		}
	})
}

// picks returns how often each instance is picked in n picks.
func picks(t *testing.T, s *service, n int) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for range n {
		one, err := s.Pick(t.Context())
		must(t, err)
		counts[one.ID]++
	}
	return counts
}

func TestStrategies(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		d := open(t, w.ConnectNext())
		regs := map[string]*registration{}
		for _, id := range []string{"a", "b", "c", "d"} {
			regs[id] = register(t, d, instance{Name: "billing", ID: id})
		}
		robin, random, sticky := billing(t, d), billing(t, d, discovery.Random), billing(t, d, discovery.Sticky)
		for range 3 {
			if got := picks(t, robin, 4); len(got) != 4 {
				t.Errorf("one after the other: %v", got)
			}
		}
		if got := picks(t, random, 4000); len(got) != 4 || got["a"] < 800 || got["b"] < 800 || got["c"] < 800 || got["d"] < 800 {
			t.Errorf("at random: %v", got)
		}
		for range 3 {
			before, err := sticky.Pick(t.Context())
			must(t, err)
			if got := picks(t, sticky, 100); got[before.ID] != 100 {
				t.Errorf("not %s alone: %v", before.ID, got)
			}
			must(t, regs[before.ID].Update(t.Context(), instance{Payload: "changed"}))
			time.Sleep(time.Second)
			if got := picks(t, sticky, 100); got[before.ID] != 100 {
				t.Errorf("not %s alone after an update: %v", before.ID, got)
			}
			must(t, regs[before.ID].Close(t.Context()))
			time.Sleep(time.Second)
			if got := picks(t, sticky, 100); len(got) != 1 || got[before.ID] != 0 {
				t.Errorf("%v after %s has gone", got, before.ID)
			}
		}
		// Not all clients begin with the same one.
		first := map[string]bool{}
		for _, id := range []string{"e", "f", "g"} {
			regs[id] = register(t, d, instance{Name: "billing", ID: id})
		}
		time.Sleep(time.Second)
		for _, strategy := range []discovery.Strategy{discovery.RoundRobin, discovery.Sticky} {
			clear(first)
			for range 100 {
				one, err := billing(t, d, strategy).Pick(t.Context())
				must(t, err)
				first[one.ID] = true
			}
			if len(first) != 4 {
				t.Errorf("strategy %d begins with %v", strategy, first)
			}
		}
		must(t, regs["e"].Update(t.Context(), instance{Disabled: true}))
		time.Sleep(time.Second)
		if got := picks(t, robin, 6); len(got) != 3 || got["e"] != 0 {
			t.Errorf("%v while e is disabled", got)
		}
	})
}

// RoundRobin is even over instances that stay, whichever come and go.
func TestRoundRobinWhileInstancesComeAndGo(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		d := open(t, w.ConnectNext())
		for _, id := range []string{"a", "c", "e"} {
			register(t, d, instance{Name: "billing", ID: id})
		}
		s := billing(t, d)
		last := ""
		for range 20 {
			r := register(t, d, instance{Name: "billing", ID: "b"})
			time.Sleep(time.Second)
			for range 5 {
				one, err := s.Pick(t.Context())
				must(t, err)
				if one.ID == last {
					t.Errorf("%s twice", last)
				}
				last = one.ID
			}
			must(t, r.Close(t.Context()))
			time.Sleep(time.Second)
		}
		if got := picks(t, s, 300); got["a"] != 100 || got["c"] != 100 || got["e"] != 100 {
			t.Error(got)
		}
	})
}

// One that failed twice in 30 seconds is left out for 30, and all are used if
// all have failed.
func TestFailed(t *testing.T) {
	for _, strategy := range []discovery.Strategy{discovery.RoundRobin, discovery.Random, discovery.Sticky} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			d := open(t, w.ConnectNext())
			var r *registration
			for _, id := range []string{"a", "b", "c"} {
				r = register(t, d, instance{Name: "billing", ID: id})
			}
			s := billing(t, d, strategy)
			other := billing(t, d)
			pick := func(id string) (one discovery.Picked[string]) { // by Sticky it may be another one all the time
				for range 1000 {
					var err error
					if one, err = s.Pick(t.Context()); err != nil || one.ID == id {
						must(t, err)
						return one
					}
				}
				return one
			}
			bad := pick("c")
			bad.Failed()
			time.Sleep(31 * time.Second)
			bad.Failed()
			if got := s.Status().Failed; got != 0 {
				t.Error("out after two failures in 31 seconds")
			}
			time.Sleep(29 * time.Second)
			bad.Failed()
			if got := s.Status().Failed; got != 1 {
				t.Errorf("%d are out after two failures in 29 seconds", got)
			}
			if got := picks(t, s, 300); got[bad.ID] != 0 {
				t.Errorf("%v without %s", got, bad.ID)
			}
			if got := other.Status().Failed; got != 0 {
				t.Error("out for another Service")
			}
			must(t, r.Update(t.Context(), instance{Payload: "new"}))
			time.Sleep(28 * time.Second)
			if got := picks(t, s, 300); got[bad.ID] != 0 {
				t.Errorf("%v without %s", got, bad.ID)
			}
			time.Sleep(3 * time.Second)
			if got := s.Status().Failed; got != 0 {
				t.Error("out for more than 30 seconds")
			}
			for _, id := range []string{"a", "b", "c"} { // of a sticky one, as it goes from one to the next
				one := pick(id)
				one.Failed()
				one.Failed()
			}
			if got := s.Status().Failed; got != 3 {
				t.Errorf("%d have failed", got)
			}
			if got := picks(t, s, 300); len(got) != 3 {
				t.Errorf("all have failed, and these are used: %v", got)
			}
			// One that is registered again is another one.
			must(t, r.Close(t.Context()))
			register(t, d, instance{Name: "billing", ID: "c"})
			time.Sleep(time.Second)
			if got := picks(t, s, 10); got["c"] != 10 {
				t.Errorf("a new instance, and these are used: %v", got)
			}
		})
	}
}

func TestPickOnNone(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		d := open(t, w.ConnectNext())
		s := billing(t, d)
		if _, err := s.Pick(t.Context()); !errors.Is(err, discovery.ErrNoInstance) || !strings.Contains(err.Error(), dir) {
			t.Error(err)
		}
		r := register(t, d, a("x"))
		time.Sleep(time.Second)
		picks(t, s, 1)
		must(t, r.Close(t.Context()))
		time.Sleep(time.Second)
		if one, err := s.Pick(t.Context()); !errors.Is(err, discovery.ErrNoInstance) {
			t.Errorf("%v, %v", one, err)
		}
	})
}

// Instances that may not be read were left out without a word: the service was
// synced, and complete. They hurt no other, Status names them, and listeners
// are told. Of a service that may not be read itself nothing is known.
func TestInstancesThatMayNotBeRead(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		auth, only := framework.WithAuth("digest", []byte("a:b")), recipes.WithACL(zk.AuthACL(zk.PermAll)...)
		owner := w.ConnectNext(auth)
		secret, found := open(t, owner, only), open(t, w.ConnectNext())
		r := register(t, secret, a("x"))
		s := billing(t, found)
		var told []discovery.Status
		defer s.Listen(func(_ []instance, status discovery.Status) { told = append(told, status) })()
		shows(t, s, "")
		if _, err := s.Pick(t.Context()); !errors.Is(err, discovery.ErrNoInstance) || !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), path) {
			t.Errorf("Pick: %v", err)
		}
		b := a("y")
		b.ID = "b"
		register(t, open(t, owner), b)
		shows(t, s, "b=y")
		must(t, r.Close(t.Context()))
		time.Sleep(3 * time.Hour) // a server may send no event of it
		shows(t, s, "b=y")
		var counts []int
		for _, status := range told {
			counts = append(counts, len(status.Unreadable))
		}
		if !slices.Equal(counts, []int{1, 1, 0}) || !errors.Is(told[0].Unreadable[0], zk.ErrNoAuth) || !strings.Contains(told[0].Unreadable[0].Error(), path) {
			t.Errorf("told of %+v", told)
		}

		_, err := owner.SetACL(t.Context(), dir, zk.AuthACL(zk.PermAll), -1)
		must(t, err)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		_, all := s.All(t.Context())
		_, fresh := s.Fresh(t.Context())
		_, pick := s.Pick(t.Context())
		_, list := found.Instances(t.Context(), "billing")
		for _, err := range []error{all, fresh, pick, list, errors.Join(s.Status().Unreadable...), errors.Join(told[len(told)-1].Unreadable...)} {
			if !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v", err)
			}
		}
	})
}

// Instances and Names show what was there when they were called, whichever
// server answers.
func TestListsOfAServerThatLags(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		far := (w.Leader() + 1) % 3
		found, other := open(t, w.ConnectTo("reader", w.Address(far))), open(t, w.ConnectTo("other", w.Address(w.Leader())))
		for name, list := range map[string]func() (int, error){
			"instances": func() (int, error) { all, err := found.Instances(t.Context(), "instances"); return len(all), err },
			"names":     func() (int, error) { all, err := found.Names(t.Context()); return len(all), err },
		} {
			w.Lag(far)
			r := register(t, other, instance{Name: name})
			time.AfterFunc(time.Second, func() { w.Unlag(far) })
			if n, err := list(); n == 0 || err != nil {
				t.Errorf("%d %s: %v", n, name, err)
			}
			must(t, r.Close(t.Context()))
			must(t, w.Connect("sweeper").Delete(t.Context(), root+"/"+name, -1))
		}
	}, testutil.WithMembers(3))
}

// A server loses the event of an instance that comes. A Service finds it in
// about a session timeout, or in the time that cache.WithRecheck sets.
func TestAServiceFindsWhatNoEventTells(t *testing.T) {
	for _, tt := range []struct {
		opts []presence.Option
		most time.Duration
	}{{nil, 2 * bubble.Timeout}, {[]presence.Option{cache.WithRecheck(time.Minute)}, time.Minute + bubble.Timeout}} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			d, e := open(t, w.ConnectNext()), open(t, w.Connect("consumer"), tt.opts...)
			s := billing(t, e)
			for _, id := range []string{"a", "b"} {
				w.ClientNet("consumer").LoseEvents(true)
				register(t, d, instance{Name: "billing", ID: id, Payload: "x"})
				w.ClientNet("consumer").LoseEvents(false)
				time.Sleep(tt.most)
				all, err := s.All(t.Context())
				if must(t, err); len(all) == 0 || all[len(all)-1].ID != id {
					t.Errorf("%v after %v", show(all), tt.most)
				}
			}
			must(t, register(t, e, instance{Name: "billing", ID: "c"}).Close(t.Context()))
		})
	}
}
