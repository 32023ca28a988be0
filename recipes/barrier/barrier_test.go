package barrier_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func simple(t *testing.T, c *framework.Client) *barrier.Barrier {
	t.Helper()
	b, err := barrier.New(c, path, recipes.WithData([]byte("operator")))
	must(t, err)
	return b
}

func waiting(ctx context.Context, b *barrier.Barrier) <-chan error {
	result := make(chan error, 1)
	go func() { result <- b.Wait(ctx) }()
	return result
}

func waited(t *testing.T, from <-chan error) {
	t.Helper()
	must(t, bubble.Await(t, "Wait", from))
}

// The directory is gone each time after it was made. The call fails, and names
// it.
func TestADirectoryThatIsGoneEachTime(t *testing.T) {
	for name, test := range map[string]struct {
		creates, dir string
		call         func(t *testing.T, c *framework.Client) error
	}{
		"Set": {path, "/app", func(t *testing.T, c *framework.Client) error { return simple(t, c).Set(t.Context()) }},
		"Enter": {path + "/", path, func(t *testing.T, c *framework.Client) error {
			_, err := double(t, c, 1).Enter(t.Context())
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				missing := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: test.creates, Times: -1}, testutil.Fail(testutil.CodeNoNode))
				defer w.Control(missing.Control)()
				err := test.call(t, w.ConnectNext())
				if !errors.Is(err, zk.ErrNoNode) || !strings.Contains(err.Error(), "directory "+test.dir+" was made 9 times") || missing.Count() != 10 {
					t.Errorf("%d creates: %v", missing.Count(), err)
				}
			})
		})
	}
}

// All wait while the barrier is there, whoever has set it, from every view.
func TestBarrier(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		c, other := w.ConnectNext(), w.ConnectNext()
		a, b := simple(t, c), simple(t, other)
		waited(t, waiting(t.Context(), a))
		must(t, b.Remove(t.Context()))
		for range 3 {
			must(t, a.Set(t.Context()))
			must(t, b.Set(t.Context()))
			if data, _ := w.Data(path); string(data) != "operator" {
				t.Errorf("data %q", data)
			}
			all := []<-chan error{waiting(t.Context(), a), waiting(t.Context(), b), waiting(t.Context(), b)}
			pending(t, all...)
			must(t, b.Remove(t.Context()))
			for _, one := range all {
				waited(t, one)
			}
		}
		w.NothingLeft(path)
	})
}

// A Wait, an Enter or a Leave that is given up leaves no watch, also where a
// server has no recursive ones.
func TestWaitLeavesNoWatch(t *testing.T) {
	for name, wait := range map[string]func(t *testing.T, w *bubble.World, ctx context.Context) <-chan error{
		"Wait": func(t *testing.T, w *bubble.World, ctx context.Context) <-chan error {
			must(t, simple(t, w.ConnectNext()).Set(t.Context()))
			return waiting(ctx, simple(t, w.ConnectNext()))
		},
		"Enter": func(t *testing.T, w *bubble.World, ctx context.Context) <-chan error {
			result := make(chan error, 1)
			d := double(t, w.ConnectNext(), 2)
			go func() {
				_, err := d.Enter(ctx)
				result <- err
			}()
			return result
		},
		"Leave of the last one": func(t *testing.T, w *bubble.World, ctx context.Context) <-chan error {
			return leaving(ctx, enterTogether(t, double(t, w.ConnectNext(), 2), double(t, w.ConnectNext(), 2))[1])
		},
		"Leave": func(t *testing.T, w *bubble.World, ctx context.Context) <-chan error {
			return leaving(ctx, enterTogether(t, double(t, w.ConnectNext(), 2), double(t, w.ConnectNext(), 2))[0])
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothKindsOfWatches(t, func(t *testing.T, w *bubble.World) {
				ctx, cancel := context.WithCancel(t.Context())
				result := wait(t, w, ctx)
				pending(t, result)
				if w.WatchCount() == 0 {
					t.Error("it does not watch")
				}
				cancel()
				wantErr(t, bubble.Await(t, name, result), context.Canceled)
				time.Sleep(2 * bubble.Timeout)
				if left := w.Watches(); len(left) > 0 {
					t.Errorf("watches are left: %v", left)
				}
			})
		})
	}
}

// Whatever happens while it waits, Wait returns when the barrier is removed,
// and not before.
func TestWaitGoesOn(t *testing.T) {
	for name, happen := range map[string]func(t *testing.T, w *bubble.World, c, other *framework.Client){
		"a reconnect":   func(_ *testing.T, w *bubble.World, _, _ *framework.Client) { w.ClientNet("waits").Drop() },
		"a new session": func(_ *testing.T, w *bubble.World, c, _ *framework.Client) { w.Expire(c) },
		"an outage": func(_ *testing.T, w *bubble.World, _, _ *framework.Client) {
			w.ClientNet("waits").Cut()
			time.Sleep(time.Minute)
			w.ClientNet("waits").Heal()
		},
		"it is written": func(t *testing.T, _ *bubble.World, _, other *framework.Client) {
			_, err := other.Set(t.Context(), path, nil, -1)
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("waits", patient), w.ConnectNext()
				b := simple(t, other)
				must(t, b.Set(t.Context()))
				result := waiting(t.Context(), simple(t, c))
				pending(t, result)
				happen(t, w, c, other)
				pending(t, result)
				time.Sleep(time.Minute)
				must(t, b.Remove(t.Context()))
				waited(t, result)
				w.NothingLeft(path)
			})
		})
	}
}

// A barrier that is removed and set again while one who waits for it has no
// connection, or loses its session, the first one or the second, lets it pass.
// No watch stays on the barrier that has come since.
func TestSetAgainWhileNobodySees(t *testing.T) {
	for sessions := range 3 { // that end before, or meanwhile
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, other := w.Connect("waits", patient), w.ConnectNext()
			b, network := simple(t, other), w.ClientNet("waits")
			must(t, b.Set(t.Context()))
			result := waiting(t.Context(), simple(t, c))
			pending(t, result)
			if sessions == 2 {
				w.Expire(c)
				pending(t, result)
			}
			network.Cut()
			network.Drop()
			if sessions > 0 {
				must(t, w.ExpireSession(w.SessionID(c)))
			}
			must(t, b.Remove(t.Context()))
			must(t, b.Set(t.Context()))
			pending(t, result)
			network.Heal()
			waited(t, result)
			time.Sleep(2 * bubble.Timeout)
			if left := w.Watches(); len(left) > 0 {
				t.Errorf("watches are left: %v", left)
			}
		})
	}
}

// A barrier that is removed and set again at once lets those pass who waited,
// also if events are lost.
func TestSetAgainAtOnce(t *testing.T) {
	for _, lose := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, other := w.Connect("waits", patient), w.ConnectNext()
			b := simple(t, other)
			must(t, b.Set(t.Context()))
			result := waiting(t.Context(), simple(t, c))
			pending(t, result)
			w.ClientNet("waits").LoseEvents(lose)
			_, err := other.Multi(t.Context(), &zk.DeleteRequest{Path: path, Version: -1}, &zk.CreateRequest{Path: path})
			must(t, err)
			waited(t, result)
			w.ClientNet("waits").LoseEvents(false)
			result = waiting(t.Context(), simple(t, c))
			pending(t, result)
			must(t, b.Remove(t.Context()))
			waited(t, result)
		})
	}
}

// A barrier that was set before Wait is called, or Remove, is seen, although
// the client's member lags.
func TestAMemberLags(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("lags")
		member := w.MemberOf(w.SessionID(c))
		if member == w.Leader() {
			t.Skip("its member is the leader")
		}
		other := w.ConnectTo("other", w.Address(w.Leader()))
		w.Lag(member)
		must(t, simple(t, other).Set(t.Context()))
		result := waiting(t.Context(), simple(t, c))
		pending(t, result)
		w.Unlag(member)
		pending(t, result)
		must(t, simple(t, c).Remove(t.Context()))
		waited(t, result)
	}, testutil.WithMembers(3))
}

// Remove does not remove what was set after it, although its answer is lost.
func TestRemoveOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("ours"), w.ConnectNext()
		must(t, simple(t, c).Set(t.Context()))
		lost := testutil.NewFault(testutil.Match{Op: testutil.OpDelete}, testutil.DropAfter())
		w.ClientNet("ours").Control(lost.Control)
		removed := make(chan error, 1)
		go func() { removed <- simple(t, c).Remove(t.Context()) }()
		bubble.Await(t, "the delete", lost.Hit())
		for w.Exists(path) { // it has been received, but not executed
			time.Sleep(time.Microsecond)
		}
		must(t, simple(t, other).Set(t.Context()))
		must(t, bubble.Await(t, "Remove", removed))
		if !w.Exists(path) {
			t.Error("it has removed what was set later")
		}
	})
}

// A Wait ends with its context, and with its client.
func TestWaitEnds(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		b := simple(t, c)
		must(t, b.Set(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, b.Wait(ctx), context.DeadlineExceeded)
		result := waiting(t.Context(), b)
		pending(t, result)
		must(t, c.Close())
		wantErr(t, bubble.Await(t, "Wait", result), framework.ErrClosed)
	})
}

// Every fault at every request: Set, Remove and Wait do what they say.
func TestBarrierUnderEveryFault(t *testing.T) {
	everyFault(t, func(t *testing.T, w *bubble.World, f bubble.Fault, clients [2]client) {
		b, other := simple(t, clients[0].Client), simple(t, clients[1].Client)
		again(t, f, clients[0], func(ctx context.Context) error {
			err := b.Set(ctx)
			if framework.MaybeApplied(err) && ctx.Err() == nil { // it is not repeated
				err = b.Set(ctx)
			}
			return err
		})
		removing := make(chan struct{})
		result := make(chan error, 1)
		go func() {
			again(t, f, clients[1], other.Wait)
			select {
			case <-removing:
				result <- nil
			default:
				result <- errors.New("it was not removed")
			}
		}()
		time.Sleep(time.Second)
		close(removing)
		again(t, f, clients[0], b.Remove)
		must(t, bubble.Await(t, "Wait", result))
	})
}

// The barrier that a Wait has seen is gone when the ensemble is rebuilt, also
// if another one has the same czxid there.
func TestWaitInARebuiltEnsemble(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		script := bubble.Tree(t, "/app", "", path, "")
		w.Provision(script)
		c := w.Connect("waiter")
		result, before := waiting(t.Context(), simple(t, c)), w.SessionID(c)
		pending(t, result)
		w.Rebuild(script, "waiter")
		w.AwaitNext(c, before)
		waited(t, result)
		again := waiting(t.Context(), simple(t, c))
		pending(t, again)
		must(t, simple(t, c).Remove(t.Context()))
		waited(t, again)
	})
}

// A barrier that was set once, without an answer, and removed does not come
// back.
func TestSetOnce(t *testing.T) {
	for name, action := range map[string]testutil.Action{"executed": testutil.DropAfter(), "not executed": testutil.DropBefore()} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("ours"), w.ConnectNext()
				must(t, c.MakePersistentPath(t.Context(), path[:strings.LastIndexByte(path, '/')]))
				lost := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, action)
				net, release := w.ClientNet("ours"), make(chan struct{})
				net.Control(func(r testutil.Request) testutil.Action {
					if r.Op == testutil.OpCreateSession {
						return testutil.Hold(release)
					}
					return lost.Control(r)
				})
				set := make(chan error, 1)
				go func() { set <- simple(t, c).Set(t.Context()) }()
				bubble.Await(t, "the create", lost.Hit())
				synctest.Wait()
				if w.Exists(path) != (name == "executed") {
					t.Error("it is in place:", w.Exists(path))
				}
				must(t, simple(t, other).Remove(t.Context()))
				close(release)
				if err := bubble.Await(t, "Set", set); !framework.MaybeApplied(err) || w.Exists(path) {
					t.Errorf("%v, in place: %v", err, w.Exists(path))
				}
				must(t, simple(t, c).Set(t.Context()))
				must(t, simple(t, other).Remove(t.Context()))
			})
		})
	}
}
