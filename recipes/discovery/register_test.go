package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A disconnect of an instant costs Curator's instance its znode, whose session
// lives. Ours stands, and no consumer sees anything.
func TestADisconnectCostsNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, consumer := w.Connect("ours"), w.ConnectNext()
		r := register(t, open(t, c), a("x"))
		s := billing(t, open(t, consumer))
		var told atomic.Int32
		defer s.Listen(func([]instance, discovery.Status) { told.Add(1) })()
		time.Sleep(time.Second)
		before, _ := w.Stat(path)
		w.ResetRequests()
		told.Store(0)
		for range 5 {
			w.ClientNet("ours").Cut()
			bubble.AwaitTrue(t, "suspended", func() bool { return r.Status().State == presence.Suspended })
			w.ClientNet("ours").Heal()
			bubble.AwaitTrue(t, "standing", func() bool { return r.Status().State == presence.Standing })
			time.Sleep(time.Second)
		}
		if after, _ := w.Stat(path); after != before {
			t.Errorf("%+v became %+v", before, after)
		}
		for op, n := range w.Cost() {
			if op == testutil.OpCreate || op == testutil.OpDelete || op == testutil.OpMulti || op == testutil.OpSetData {
				t.Errorf("%d %v", n, op)
			}
		}
		if n := told.Load(); n != 0 {
			t.Errorf("a consumer was told %d times", n)
		}
	})
}

// An update while there is no connection is what comes back after an expiry
// (CURATOR-181).
func TestAnUpdateWhileSuspended(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		r := register(t, open(t, c), a("old"))
		w.ClientNet("ours").Cut()
		bubble.AwaitTrue(t, "suspended", func() bool { return r.Status().State == presence.Suspended })
		if err := r.Update(within(t, time.Second), instance{Address: "h", Payload: "new"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an update without a connection: %v", err)
		}
		w.Expire(c)
		w.ClientNet("ours").Heal()
		stands(t, w, c, "new")
		if data, _ := w.Data(path); !strings.Contains(string(data), fmt.Sprintf(`"registrationTimeUTC":%d`, r.Instance().Registered.UnixMilli())) {
			t.Errorf("another time: %s", data)
		}
		must(t, r.Close(t.Context()))
		w.NothingLeft(dir)
	})
}

// Close comes at each request, as it arrives at the ensemble or as its answer
// is lost, with an expiry behind it: no ghost stays (CURATOR-164).
func TestCloseAtEveryStep(t *testing.T) {
	for _, kind := range []discovery.ServiceType{discovery.Dynamic, discovery.DynamicSequential} {
		for first, action := range []testutil.Action{testutil.Pass(), testutil.DropBefore(), testutil.DropAfter(), testutil.DelayReply(time.Second)} {
			step := bubble.Few[int32](3, 1)
			for at := int32(first) % step; ; at += step {
				var struck atomic.Bool
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					c := w.Connect("ours")
					d := open(t, c)
					i := a("one")
					i.Type = kind
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					registered := make(chan *registration, 1)
					var count atomic.Int32
					ended := make(chan error, 1)
					w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
						if r.Op == testutil.OpPing || count.Add(1) != at+1 {
							return testutil.Pass()
						}
						struck.Store(true)
						go func() {
							select {
							case r := <-registered:
								ended <- r.Close(context.Background())
							default:
								cancel()
								ended <- nil
							}
						}()
						return action
					})
					r, err := d.Register(ctx, i)
					if err == nil {
						registered <- r
						if r.Update(ctx, instance{Payload: "two"}) == nil {
							w.Expire(c)
						}
					}
					time.Sleep(20 * time.Second)
					if struck.Load() {
						must(t, <-ended)
					}
					if r != nil {
						must(t, r.Close(t.Context()))
					}
					time.Sleep(time.Minute)
					if left := w.Children(dir); len(left) > 0 {
						t.Errorf("left: %v, at request %d", left, at)
					}
				})
				if !struck.Load() || t.Failed() {
					break
				}
			}
		}
	}
}

// Two processes with one ID: the second one is told, and overwrites nothing.
func TestTwoProcessesWithOneID(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		first, second := w.ConnectNext(), w.ConnectNext()
		r := register(t, open(t, first), a("first"))
		before, _ := w.Stat(path)
		d := open(t, second)
		_, err := d.Register(within(t, time.Hour), a("second"))
		want := fmt.Sprintf("session 0x%x", w.SessionID(first))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "billing/a") {
			t.Errorf("%v does not name %s", err, want)
		}
		if after, _ := w.Stat(path); after != before {
			t.Errorf("%+v became %+v", before, after)
		}
		w.Expire(first)
		register(t, d, a("second")) // whoever comes first
		bubble.AwaitTrue(t, "the first to be told", func() bool { return r.Status().State == presence.Taken })
		stands(t, w, second, "second")
	})
}

func TestSequentialInstancesOfOneID(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		d := open(t, c)
		i := a("x")
		i.Type = discovery.DynamicSequential
		r := register(t, d, i)
		register(t, d, i)
		if names := w.Children(dir); len(names) != 2 || !strings.Contains(names[0], "-a0") {
			t.Error(names)
		}
		s := billing(t, d)
		shows(t, s, "a=x a=x")
		must(t, r.Close(t.Context()))
		shows(t, s, "a=x")
	})
}

// The ensemble removes the directory of a service, or somebody does, and the
// next instance comes.
func TestTheDirectoryIsReaped(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers) // waits for the end of a container
	for _, kind := range []discovery.ServiceType{discovery.Dynamic, discovery.Static} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, consumer := w.ConnectNext(), w.ConnectNext()
			d := open(t, c)
			s := billing(t, open(t, consumer))
			for round := range 3 {
				i := a(fmt.Sprint(round))
				i.Type = kind
				r := register(t, d, i)
				shows(t, s, fmt.Sprint("a=", round))
				must(t, r.Close(t.Context()))
				shows(t, s, "")
				time.Sleep(5 * time.Minute)
				if w.Exists(root) {
					t.Error("the directories are not containers")
				}
			}
		})
	}
}

func TestPersistentInstances(t *testing.T) {
	for _, kind := range []discovery.ServiceType{discovery.Static, discovery.Permanent} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			first, second := w.ConnectNext(), w.ConnectNext()
			d, e := open(t, first, recipes.WithACL(zk.WorldACL(zk.PermAll)...)), open(t, second)
			i := a("x")
			i.Type = kind
			r := register(t, d, i)
			must(t, first.Close())
			if stat, ok := w.Stat(path); !ok || stat.EphemeralOwner != 0 {
				t.Fatalf("%+v, %t", stat, ok)
			}
			time.Sleep(time.Second)
			q := register(t, e, i) // a restart
			if got, want := q.Instance().Registered, r.Instance().Registered; !got.Equal(want) {
				t.Errorf("%v, but the znode has the time of the first one, %v", got, want)
			}
			i.Payload = "other"
			if _, err := e.Register(t.Context(), i); !errors.Is(err, zk.ErrNodeExists) || !strings.Contains(err.Error(), path) {
				t.Errorf("another instance of the ID: %v", err)
			}
			must(t, q.Update(t.Context(), i))
			if data, _ := w.Data(path); !strings.Contains(string(data), `"payload":"other"`) {
				t.Errorf("%s", data)
			}
			if s := q.Status(); s.State != presence.Standing {
				t.Errorf("%+v", s)
			}
			// Somebody else makes it anew: that one is left alone.
			must(t, second.Delete(t.Context(), path, -1))
			_, err := second.Create(t.Context(), path, []byte("theirs"), zk.FlagPersistent)
			must(t, err)
			if err := q.Update(t.Context(), i); !errors.Is(err, zk.ErrNoNode) {
				t.Errorf("an update of another's znode: %v", err)
			}
			must(t, q.Close(t.Context()))
			if data, _ := w.Data(path); string(data) != "theirs" {
				t.Errorf("%s", data)
			}
			must(t, second.Delete(t.Context(), path, -1))
			r = register(t, e, i)
			must(t, r.Close(t.Context()))
			must(t, r.Close(t.Context()))
			if w.Exists(path) || r.Status().State != presence.Closed {
				t.Errorf("after Close: %v", r.Status())
			}
			if _, err := e.Register(t.Context(), i, presence.WithYield()); err == nil || !strings.Contains(err.Error(), "option") {
				t.Errorf("an option of a node: %v", err)
			}
		})
	}
}

// Instance is what is read back, whatever the time was given as.
func TestTheInstanceThatIsReadBack(t *testing.T) {
	for _, kind := range []discovery.ServiceType{discovery.Dynamic, discovery.DynamicSequential, discovery.Static} {
		for _, at := range []time.Time{{}, time.Date(2025, 1, 2, 3, 4, 5, 678912345, time.FixedZone("", 3600)), time.Unix(-1, 1)} {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				time.Sleep(1234567 * time.Nanosecond)
				d := open(t, w.ConnectNext())
				i := a("x")
				i.Type, i.Registered = kind, at
				r := register(t, d, i)
				for _, updated := range []instance{{}, a("y"), i} {
					if updated.Name != "" {
						must(t, r.Update(t.Context(), updated))
					}
					all, err := d.Instances(t.Context(), "billing")
					if err != nil || len(all) != 1 || all[0].Registered != r.Instance().Registered {
						t.Errorf("%s of %v: %+v is read as %+v, %v", kind, at, r.Instance(), all, err)
					}
				}
			})
		}
	}
}

// A persistent instance that Java has written in another way is an equal one:
// with other numbers, in another order, with what older releases lack.
func TestAPersistentInstanceThatJavaWrote(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		d, err := discovery.New(c, root, discovery.JSON[float64]("java.lang.Double"))
		must(t, err)
		must(t, c.MakePersistentPath(t.Context(), dir))
		_, err = c.Create(t.Context(), path, []byte(`{"enabled":true,"id":"a","name":"billing","address":"h","port":8080.0,"payload":1.0E10,"registrationTimeUTC":7,"serviceType":"STATIC"}`), zk.FlagPersistent)
		must(t, err)
		i := discovery.Instance[float64]{Name: "billing", ID: "a", Address: "h", Port: 8080, Payload: 1e10, Type: discovery.Static}
		r, err := d.Register(t.Context(), i)
		if err != nil || r.Instance().Registered.UnixMilli() != 7 {
			t.Fatalf("%+v, %v", r, err)
		}
		i.Port = 8081
		if _, err := d.Register(t.Context(), i); !errors.Is(err, zk.ErrNodeExists) {
			t.Errorf("with another port: %v", err)
		}
	})
}

// Every fault strikes at every request of a persistent instance, also with the
// end of its caller's context. What was answered is so; what has failed is not,
// unless the error says that it may be; and a second call settles it.
func TestPersistentInstanceUnderEveryFault(t *testing.T) {
	cancel := func(s *bubble.Strike) { s.Cancel() }
	all := bubble.Faults(
		bubble.Fault{Name: "canceled", Happen: cancel, Fails: true},
		bubble.Fault{Name: "canceled and late", Action: testutil.Delay(20 * time.Second), Happen: cancel, Fails: true},
		bubble.Fault{Name: "canceled and answered late", Action: testutil.DelayReply(2 * time.Second), Happen: cancel, Fails: true},
		bubble.Fault{Name: "late, on a broken connection", Action: testutil.Delay(12 * time.Second), Happen: func(s *bubble.Strike) { s.Net.Drop() }},
	)
	bubble.EveryFault(t, all, 1, func(t *testing.T, at bubble.At) (requests int) {
		bubble.Run(t, func(t *testing.T, w *bubble.World) { requests = persistentUnder(t, w, at) }, testutil.WithMembers(3))
		return requests
	})
}

func persistentUnder(t *testing.T, w *bubble.World, at bubble.At) (requests int) {
	strikes := w.Strikes(at)
	defer strikes.End()
	patient := framework.WithRetry(retry.Forever(500 * time.Millisecond))
	d, net := open(t, w.Connect("ours", patient)), w.ClientNet("ours")
	var mu sync.Mutex
	stop := func() {}
	net.Control(func(r testutil.Request) testutil.Action {
		mu.Lock()
		defer mu.Unlock()
		return strikes.Control(net, r, stop)
	})
	there := func() string {
		data, _ := w.Data(path)
		i, _ := discovery.JSON[string]("").Decode(data)
		return i.Payload
	}
	do := func(what, before, after string, call func(context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		mu.Lock()
		stop = cancel
		mu.Unlock()
		err := call(ctx)
		if now := there(); err == nil && now != after || err != nil && !at.Fails && (before != "" || !framework.MaybeApplied(err)) {
			t.Errorf("at request %d: %s: %v, and there is %q", at.N, what, err, now)
		}
		time.Sleep(time.Minute) // what is late comes
		now := there()
		if framework.MaybeApplied(err) && now != before && now != after || err != nil && !framework.MaybeApplied(err) && now != before || err == nil && now != after {
			t.Errorf("at request %d: %s: %v, and there is %q", at.N, what, err, now)
		}
		if err != nil {
			if err = call(t.Context()); err != nil || there() != after {
				t.Errorf("at request %d: %s again: %v, and there is %q", at.N, what, err, there())
			}
		}
	}
	i := a("one")
	i.Type = discovery.Static
	var r *registration
	do("register", "", "one", func(ctx context.Context) (err error) {
		r, err = d.Register(ctx, i)
		return err
	})
	do("update", "one", "two", func(ctx context.Context) error { return r.Update(ctx, instance{Payload: "two"}) })
	do("close", "two", "", func(ctx context.Context) error { return r.Close(ctx) })
	requests = strikes.End()
	time.Sleep(2 * time.Minute)
	w.NothingLeft(dir)
	return requests
}

// The create of a persistent instance is executed, and what follows fails.
func TestAPersistentInstanceThatMayStay(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("ours"), w.ConnectNext()
		d, net := open(t, c), w.ClientNet("ours")
		i := a("x")
		i.Type = discovery.Static
		late := testutil.NewFault(testutil.Match{Op: testutil.OpGetData}, testutil.DelayReply(2*time.Second))
		stop := net.Control(late.Control)
		_, err := d.Register(within(t, time.Second), i)
		if !errors.Is(err, context.DeadlineExceeded) || !framework.MaybeApplied(err) || !w.Exists(path) {
			t.Errorf("the read is late: %v", err)
		}
		stop()
		must(t, other.Delete(t.Context(), path, -1))

		lost := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.DropAfter())
		defer net.Control(func(r testutil.Request) testutil.Action {
			action := lost.Control(r)
			if action != testutil.Pass() {
				net.Cut()
				time.AfterFunc(time.Second, func() {
					if _, err := other.Set(t.Context(), path, []byte("theirs"), -1); err != nil {
						t.Error(err)
					}
					net.Heal()
				})
			}
			return action
		})()
		_, err = d.Register(t.Context(), i)
		if !errors.Is(err, zk.ErrNodeExists) || !framework.MaybeApplied(err) {
			t.Errorf("somebody else has changed it: %v", err)
		}
		if _, err := d.Register(t.Context(), i); !errors.Is(err, zk.ErrNodeExists) || framework.MaybeApplied(err) {
			t.Errorf("another instance: %v", err)
		}
	})
}

// The directory of a persistent instance is removed each time before the create
// comes: that ends.
func TestADirectoryThatIsAlwaysRemoved(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreate && r.Path == path {
				return testutil.Fail(testutil.CodeNoNode)
			}
			return testutil.Pass()
		})
		i := a("x")
		i.Type = discovery.Static
		if _, err := open(t, c).Register(t.Context(), i); !errors.Is(err, zk.ErrNoNode) {
			t.Error(err)
		}
	})
}

// An instance that is ill is withdrawn; one that an operator deletes stays away
// if it yields.
func TestOptionsOfANode(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		d := open(t, c, presence.WithYield())
		var ill atomic.Bool
		r := register(t, d, a("x"), presence.WithHealthCheck(time.Second, func(context.Context) error {
			if ill.Load() {
				return errors.New("ill")
			}
			return nil
		}))
		s := billing(t, d)
		ill.Store(true)
		time.Sleep(2 * time.Second)
		shows(t, s, "")
		ill.Store(false)
		time.Sleep(2 * time.Second)
		shows(t, s, "a=x")
		must(t, c.Delete(t.Context(), path, -1))
		time.Sleep(time.Minute)
		shows(t, s, "")
		if got := r.Status().State; got != presence.Removed {
			t.Error(got)
		}
	})
}

// The instances of a service are counted together, unless they have a label.
func TestLabels(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		labels, ofCaches := make(chan string, 10), make(chan string, 10)
		c := w.ConnectNext(framework.Together(
			presence.WithObserver(presence.Observer{
				StateChanged: func(p presence.StateChange) {
					if p.From == "" {
						labels <- w.View.Path(p.Label)
					}
				},
			}),
			cache.WithObserver(cache.Observer{
				StateChanged: func(c cache.StateChange) {
					if c.From == "" {
						ofCaches <- w.View.Path(c.Cache.Label)
					}
				},
			}),
		))
		plain, labeled := open(t, c), open(t, c, recipes.WithLabel("shop"))
		for _, tt := range []struct {
			d    *discovery.Discovery[string]
			opts []presence.Option
			want string
		}{
			{plain, nil, dir},
			{labeled, nil, "shop"},
			{labeled, []presence.Option{recipes.WithLabel("here")}, "here"},
		} {
			r := register(t, tt.d, a("x"), tt.opts...)
			if got := bubble.Await(t, "the label", labels); got != tt.want {
				t.Errorf("label %q, want %q", got, tt.want)
			}
			must(t, r.Close(t.Context()))
		}
		for _, want := range []string{dir, "shop"} {
			billing(t, map[string]*discovery.Discovery[string]{dir: plain, "shop": labeled}[want])
			if got := bubble.Await(t, "the label of the cache", ofCaches); got != want {
				t.Errorf("label %q of the cache, want %q", got, want)
			}
		}
	})
}

// What cannot be is an error that names the argument.
func TestBadArguments(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		codec := discovery.JSON[string]("")
		for want, make := range map[string]func() error{
			"client: nil": func() error { _, err := discovery.New(nil, root, codec); return err },
			`path ""`:     func() error { _, err := discovery.New(c, "", codec); return err },
			`path "x"`:    func() error { _, err := discovery.New(c, "x", codec); return err },
			"option":      func() error { _, err := discovery.New(c, root, codec, nil); return err },
			"layout": func() error {
				_, err := discovery.New(c, root, codec, presence.WithLayout(presence.LayoutParty))
				return err
			},
		} {
			if err := make(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		d := open(t, c)
		r := register(t, d, a("x"))
		bad := func(want string, change func(*instance)) {
			t.Helper()
			i := a("x")
			i.ID = "b"
			change(&i)
			if _, err := d.Register(within(t, time.Second), i); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", i, err, want)
			}
		}
		for _, name := range []string{"a/b", "/", "..", "a\x00b", "/a"} {
			bad("ID", func(i *instance) { i.ID = name })
			bad("name", func(i *instance) { i.Name = name })
			if _, err := d.Service(name); err == nil || !strings.Contains(err.Error(), "name") {
				t.Errorf("service %q: %v", name, err)
			}
			if _, err := d.Instances(t.Context(), name); err == nil || !strings.Contains(err.Error(), "name") {
				t.Errorf("instances of %q: %v", name, err)
			}
		}
		bad("name", func(i *instance) { i.Name = "" })
		bad("port -1", func(i *instance) { i.Port = -1 })
		bad("port 65536", func(i *instance) { i.SSLPort = 65536 })
		bad(`type "X"`, func(i *instance) { i.Type = "X" })
		bad("payload", func(i *instance) { i.Raw = []byte("{") })
		bad("another node", func(i *instance) { i.ID = "a" })
		for _, i := range []instance{{ID: "b"}, {Name: "b"}, {Type: discovery.Static}, {Port: -1}, {Raw: []byte("{")}} {
			if err := r.Update(t.Context(), i); err == nil {
				t.Errorf("update to %+v", i)
			}
		}
		for _, opt := range []discovery.ServiceOption{nil, discovery.Strategy(-1), discovery.Strategy(3)} {
			if _, err := d.Service("billing", opt); err == nil {
				t.Errorf("option %v", opt)
			}
		}
		if names := w.Children(dir); !slices.Equal(names, []string{"a"}) {
			t.Error(names)
		}
	})
}

func TestZeroValues(t *testing.T) {
	var d discovery.Discovery[string]
	d.Close()
	_, err1 := d.Names(t.Context())
	_, err2 := d.Instances(t.Context(), "billing")
	_, err3 := d.Register(t.Context(), a("x"))
	_, err4 := d.Service("billing")
	var r registration
	err5 := r.Update(t.Context(), a("x"))
	var s service
	_, err6 := s.All(t.Context())
	_, err7 := s.Pick(t.Context())
	_, err8 := s.Fresh(t.Context())
	for i, err := range []error{err1, err2, err3, err4, err5, err6, err7, err8} {
		if err == nil {
			t.Errorf("call %d succeeded", i+1)
		}
	}
	must(t, r.Close(t.Context()))
	if r.Status().State != presence.Closed || s.Status().Err == nil || r.Instance().Name != "" {
		t.Errorf("%v, %v", r.Status(), s.Status())
	}
	s.Listen(nil)()
	s.Listen(func([]instance, discovery.Status) {})()
	discovery.Picked[string]{}.Failed()
}

// A thousand instances of a process share transactions, also after an expiry,
// and a disconnect costs none.
func TestAThousandInstances(t *testing.T) {
	bubble.Usual(t, bubble.SmallRequest, bubble.NoBatching) // makes large requests; counts shared requests
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		d := open(t, c)
		w.ResetRequests()
		count := func(when string, most int) {
			t.Helper()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			writes := 0
			for op, n := range w.Cost() {
				if op == testutil.OpCreate || op == testutil.OpDelete || op == testutil.OpMulti || op == testutil.OpSetData || op == testutil.OpCreateContainer {
					writes += n
				}
			}
			if t.Logf("%s: %d transactions, %d instances %v", when, writes, len(w.Children(dir)), w.Cost()); writes > most || len(w.Children(dir)) != 1000 {
				t.Errorf("more than %d", most)
			}
			w.ResetRequests()
		}
		done := make(chan error, 1000)
		for n := range 1000 {
			i := a("x")
			i.ID = fmt.Sprint(n)
			go func() {
				_, err := d.Register(t.Context(), i)
				done <- err
			}()
		}
		for range 1000 {
			must(t, <-done)
		}
		count("registered", 100) // goroutines come one after the other, under the race detector slowly
		w.ClientNet("ours").Drop()
		count("disconnected", 0)
		w.Expire(c)
		count("expired", 10)
	})
}

// While the client is closed, nothing can be registered, and what was is gone.
func TestTheClientCloses(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		d := open(t, c)
		r := register(t, d, a("x"))
		s := billing(t, d)
		must(t, c.Close())
		synctest.Wait() // the cache hears of it a little later
		if _, err := d.Register(t.Context(), instance{Name: "billing"}); !errors.Is(err, framework.ErrClosed) {
			t.Error(err)
		}
		if _, err := s.Pick(t.Context()); !errors.Is(err, framework.ErrClosed) {
			t.Error(err)
		}
		must(t, r.Close(t.Context()))
		if w.Exists(path) {
			t.Error("it stands")
		}
	})
}

// Whichever read of a list the ensemble refuses, the caller is told so; many
// reads in one request are made one by one then. One that leaves meanwhile is
// left out.
func TestInstancesRefused(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	survived := bubble.EachRefused(t, func(t *testing.T, w *bubble.World) (*framework.Client, func(context.Context) error) {
		register(t, open(t, w.ConnectNext()), a("x"))
		c := w.ConnectNext()
		d := open(t, c)
		return c, func(ctx context.Context) error {
			_, err := d.Instances(ctx, "billing")
			return err
		}
	})
	if !slices.Equal(survived, []testutil.Op{testutil.OpMultiRead}) {
		t.Errorf("refused without an error: %v", survived)
	}
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other, c := open(t, w.ConnectNext()), w.ConnectNext()
		leaves, d := register(t, other, a("x")), open(t, c)
		register(t, other, instance{Name: "billing", ID: "b"})
		id, gone := w.SessionID(c), make(chan struct{})
		held := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead}, testutil.Hold(gone))
		stop := w.Control(func(r testutil.Request) testutil.Action {
			if r.Session != id {
				return testutil.Pass()
			}
			return held.Control(r)
		})
		go func() {
			synctest.Wait()
			must(t, leaves.Close(t.Context()))
			close(gone)
		}()
		all, err := d.Instances(t.Context(), "billing")
		stop()
		if err != nil || held.Count() != 1 || len(all) != 1 || all[0].ID != "b" {
			t.Errorf("%v, error %v", all, err)
		}
	})
}

// A persistent instance whose create has no answer, and that another process
// deletes, does not come back.
func TestARegisterIsExecutedOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("ours"), w.ConnectNext()
		d := open(t, c)
		i := a("x")
		i.Type = discovery.Permanent
		must(t, c.MakeContainerPath(t.Context(), path[:strings.LastIndexByte(path, '/')]))
		lost, release := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.DropAfter()), make(chan struct{})
		w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreateSession {
				return testutil.Hold(release)
			}
			return lost.Control(r)
		})
		registered := make(chan error, 1)
		go func() {
			_, err := d.Register(t.Context(), i)
			registered <- err
		}()
		bubble.Await(t, "the create", lost.Hit())
		synctest.Wait()
		must(t, other.Delete(t.Context(), path, -1))
		close(release)
		if err := bubble.Await(t, "Register", registered); !framework.MaybeApplied(err) || w.Exists(path) {
			t.Errorf("%v, exists %v", err, w.Exists(path))
		}
	})
}
