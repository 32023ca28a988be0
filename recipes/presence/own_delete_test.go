package presence_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// yielding announces a Node that yields, and whose health check fails while ill
// is true.
func yielding(t *testing.T, c *framework.Client, ill *atomic.Bool) *presence.Node {
	t.Helper()
	return announce(t, c, path, "a", presence.WithYield(), presence.WithHealthCheck(100*time.Millisecond, func(context.Context) error {
		if ill.Load() {
			return errors.New("ill")
		}
		return nil
	}))
}

// The health check fails, the answer to the delete is lost, and the check
// passes again. A Node that yields does not take its own delete for that of an
// operator.
func TestYieldToNoDeleteOfItsOwn(t *testing.T) {
	for name, action := range map[string]testutil.Action{"executed": testutil.HoldReply(nil), "not executed": testutil.Hold(nil)} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, net := w.Connect("ours"), w.ClientNet("ours")
				var ill atomic.Bool
				n := yielding(t, c, &ill)
				lost := testutil.NewFault(testutil.Match{Op: testutil.OpDelete}, action)
				defer net.Control(func(r testutil.Request) testutil.Action {
					a := lost.Control(r)
					if a != testutil.Pass() {
						go func() { // the check passes again before there is a connection
							net.Cut()
							net.Drop()
							ill.Store(false)
							time.Sleep(time.Second)
							net.Heal()
						}()
					}
					return a
				})()
				ill.Store(true)
				time.Sleep(3 * bubble.Timeout)
				if lost.Count() != 1 {
					t.Fatalf("%d deletes were lost", lost.Count())
				}
				standing(t, w, c, n, "a")

				must(t, w.Connect("operator").Delete(t.Context(), path, -1))
				awaitState(t, n, presence.Removed) // and that of an operator counts
			})
		})
	}
}

// The health check fails, the delete is lost with its connection, and the check
// passes again. The znode is written before it counts, so that the delete is
// refused if it comes after all. It would be taken for an operator's.
func TestADeleteOfItsOwnThatComesLate(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, net := w.Connect("ours"), w.ClientNet("ours")
		var ill atomic.Bool
		n := yielding(t, c, &ill)
		before, _ := w.Stat(path)
		late := testutil.NewFault(testutil.Match{Op: testutil.OpDelete}, testutil.Hold(nil))
		defer net.Control(late.Control)()
		ill.Store(true)
		bubble.Await(t, "the delete", late.Hit())
		ill.Store(false)
		net.Drop()
		awaitState(t, n, presence.Standing)
		if err := w.Session(c).Delete(t.Context(), path, before.Version); !errors.Is(err, zk.ErrBadVersion) { // as the late one does
			t.Error(err)
		}
		time.Sleep(time.Minute)
		standing(t, w, c, n, "a")
	})
}

// The same, and the data that are to be written are too large: those before
// them are written.
func TestADeleteOfItsOwnThatComesLateAndDataTooLarge(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, net := w.Connect("ours"), w.ClientNet("ours")
		var ill atomic.Bool
		n := yielding(t, c, &ill)
		before, _ := w.Stat(path)
		late := testutil.NewFault(testutil.Match{Op: testutil.OpDelete}, testutil.Hold(nil))
		look := testutil.NewFault(testutil.Match{Op: testutil.OpGetData}, testutil.DelayReply(10*time.Millisecond))
		defer net.Control(func(r testutil.Request) testutil.Action {
			if late.Count() > 0 {
				return look.Control(r)
			}
			return late.Control(r)
		})()
		ill.Store(true)
		bubble.Await(t, "the delete", late.Hit())
		ill.Store(false)
		net.Drop()
		bubble.Await(t, "the look", look.Hit())
		if err := n.Set(t.Context(), make([]byte, 2<<20)); !errors.Is(err, framework.ErrTooLarge) {
			t.Error(err)
		}
		awaitState(t, n, presence.Standing)
		if err := w.Session(c).Delete(t.Context(), path, before.Version); !errors.Is(err, zk.ErrBadVersion) { // as the late one does
			t.Error(err)
		}
		time.Sleep(time.Minute)
		standing(t, w, c, n, "a")
	})
}

// The same delete of a Node that closes must not hit the znode of the next one.
func TestADeleteOfTheNodeBeforeThatComesLate(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, net := w.Connect("ours"), w.ClientNet("ours")
		n := announce(t, c, path, "a")
		before, _ := w.Stat(path)
		late := testutil.NewFault(testutil.Match{Op: testutil.OpDelete}, testutil.Hold(nil))
		defer net.Control(late.Control)()
		go func() {
			<-late.Hit()
			net.Drop()
		}()
		must(t, n.Close(t.Context()))
		time.Sleep(time.Minute)
		next := announce(t, c, path, "b", presence.WithYield())
		if err := w.Session(c).Delete(t.Context(), path, before.Version); !errors.Is(err, zk.ErrBadVersion) { // as the late one does
			t.Error(err)
		}
		time.Sleep(time.Minute)
		standing(t, w, c, next, "b")
	})
}

// A sequential Node closes, and the answer to its delete is lost. The Node of
// the same client whose path is that without the number stays.
func TestASequentialNodeIsClosedAlone(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		fixed := announce(t, c, path, "fixed", presence.WithYield())
		counted := announce(t, c, path, "counted", presence.WithSequential())
		lost := testutil.NewFault(testutil.Match{Op: testutil.OpDelete}, testutil.DropAfter())
		defer w.ClientNet("ours").Control(lost.Control)()
		must(t, counted.Close(t.Context()))
		time.Sleep(10 * time.Minute)
		if s := fixed.Status().State; s != presence.Standing || lost.Count() != 1 {
			t.Errorf("%v after %d deletes that were lost", s, lost.Count())
		}
		standing(t, w, c, fixed, "fixed")
	})
}

// A Node closes, and the event of its own delete is lost. Another session takes
// the name. The next Node of the client took what was read of the old znode for
// the present one, said that it stood, and wrote to the other session's znode.
// The simulator found it.
func TestTheEventOfAnOwnDeleteIsLost(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other, net := w.Connect("ours"), w.Connect("other"), w.ClientNet("ours")
		n := announce(t, c, path, "ours")
		net.LoseEvents(true)
		must(t, n.Close(t.Context()))
		net.LoseEvents(false)
		theirs := announce(t, other, path, "theirs")
		next, err := presence.New(c, path, []byte("next"))
		must(t, err)
		must(t, next.Start())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := next.Set(ctx, []byte("written")); err == nil {
			t.Error("the data of the other session's znode were set")
		}
		if s := next.Status(); s.State != presence.Taken || s.Session != w.SessionID(other) {
			t.Errorf("status %+v", s)
		}
		standing(t, w, other, theirs, "theirs")
		must(t, next.Close(t.Context()))
	})
}

// A container is no other session's znode: it is not taken over.
func TestAContainerIsNotTakenOver(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		must(t, c.MakeContainerPath(t.Context(), path))
		n, err := presence.New(c, path, nil, presence.WithTakeover(func([]byte) bool {
			t.Error("asked about a container")
			return true
		}))
		must(t, err)
		must(t, n.Start())
		if s := awaitState(t, n, presence.Taken); s.Session != 0 {
			t.Errorf("%+v", s)
		}
		time.Sleep(2 * bubble.Timeout)
		if n.Status().State != presence.Taken || !w.Exists(path) {
			t.Errorf("%+v", n.Status())
		}
		must(t, n.Close(t.Context()))
	})
}

// Close of a Node that is closed has nothing to wait for.
func TestCloseOfAClosedNode(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := announce(t, w.ConnectNext(), path, "a")
		must(t, n.Close(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 {
			must(t, n.Close(ctx))
		}
	})
}

// Nobody is told of members before they are known.
func TestARosterThatIsClosedBeforeItKnows(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("follower")
		w.ClientNet("follower").Cut()
		w.ClientNet("follower").Drop()
		g, err := presence.NewGroup(c, dir)
		must(t, err)
		r := g.Follow()
		var told heard
		defer r.Listen(told.hear)()
		r.Close()
		time.Sleep(time.Second)
		if got := told.take(); got != "" {
			t.Errorf("told %q", got)
		}
		w.ClientNet("follower").Heal()
	})
}

// A sequential Node whose creates are refused has no path, and closes without a
// request.
func TestASequentialNodeThatWasNeverMade(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		refused := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.Fail(testutil.CodeNoAuth))
		defer w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
			refused.Control(r)
			if r.Op == testutil.OpCreate { // the next one as well, which may follow at once
				return testutil.Fail(testutil.CodeNoAuth)
			}
			return testutil.Pass()
		})()
		n, err := presence.New(c, path, nil, presence.WithSequential())
		must(t, err)
		must(t, n.Start())
		bubble.Await(t, "the create", refused.Hit())
		synctest.Wait()
		w.ResetRequests()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, n.Close(ctx))
		if cost := w.Cost(); len(cost) > 0 || n.Path() != "" {
			t.Errorf("%v for %q", cost, n.Path())
		}
	})
}

// The create of a sequential Node loses its answer, and the retry policy gives
// up before the znode was found again. Close returned nil while the znode was
// there: the Node did not know its name. A Node that was made later, under
// another name, also leaves nothing of that.
func TestASequentialCreateLosesItsAnswer(t *testing.T) {
	for _, made := range []bool{false, true} {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			c, net := w.Connect("ours", framework.WithRetry(retry.NTimes(2, 50*time.Millisecond))), w.ClientNet("ours")
			must(t, c.MakeContainerPath(t.Context(), dir))
			lost := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.DropAfter())
			stop := net.Control(lost.Control)
			n, err := presence.New(c, dir+"/m-", []byte("a"), presence.WithSequential())
			must(t, err)
			must(t, n.Start())
			bubble.Await(t, "the create", lost.Hit())
			net.Cut()
			time.Sleep(2 * time.Second) // shorter than the session lives
			stop()
			if len(w.Children(dir)) != 1 || n.Path() != "" {
				t.Fatalf("the test shows nothing: %v, path %q", w.Children(dir), n.Path())
			}
			// The session's own search is slower than Close.
			slow := testutil.NewFault(testutil.Match{Op: testutil.OpDelete, Times: 1}, testutil.Delay(time.Second))
			defer net.Control(slow.Control)()
			net.Heal()
			if made {
				awaitState(t, n, presence.Standing)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			must(t, n.Close(ctx))
			if left := w.Children(dir); len(left) > 0 {
				t.Errorf("Close has returned nil, and there is %v", left)
			}
		})
	}
}

// The health check fails, and the Node is about to delete its znode. An
// operator, who deletes it before it can, drains the service all the same.
func TestYieldWhileItsOwnDeleteFails(t *testing.T) {
	for name, action := range map[string]func(release <-chan struct{}) testutil.Action{
		"refused":         func(<-chan struct{}) testutil.Action { return testutil.Fail(testutil.CodeNoAuth) },
		"on its way":      testutil.Hold,
		"another version": testutil.Hold,
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other, net := w.Connect("ours"), w.ConnectNext(), w.ClientNet("ours")
				var ill atomic.Bool
				n := yielding(t, c, &ill)
				release := make(chan struct{})
				failing := testutil.NewFault(testutil.Match{Op: testutil.OpDelete}, action(release))
				stop := net.Control(failing.Control)
				ill.Store(true)
				bubble.Await(t, "the delete", failing.Hit())
				if name == "another version" {
					_, err := other.Set(t.Context(), path, []byte("b"), -1)
					must(t, err)
					look := testutil.NewFault(testutil.Match{Op: testutil.OpSync}, testutil.Delay(50*time.Millisecond))
					defer net.Control(look.Control)()
					close(release)
					bubble.Await(t, "the next look", look.Hit())
				}
				must(t, other.Delete(t.Context(), path, -1))
				if name == "on its way" {
					close(release)
				}
				stop()
				awaitState(t, n, presence.Removed)
				ill.Store(false)
				time.Sleep(time.Minute)
				if w.Exists(path) {
					t.Error("it has come back")
				}
				closed(t, w, n)
			})
		})
	}
}

// A delete of the Node's own whose answer was lost comes so late that the next
// znode is there, but not yet written. The Node does not yield to it.
func TestADeleteOfItsOwnThatComesBehindACreate(t *testing.T) {
	for name, illAgain := range map[string]bool{"well": false, "ill again": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, net := w.Connect("ours"), w.ClientNet("ours")
				var ill atomic.Bool
				n := yielding(t, c, &ill)
				lost := testutil.NewFault(testutil.Match{Op: testutil.OpDelete}, testutil.Hold(nil))
				stop := net.Control(lost.Control)
				ill.Store(true)
				bubble.Await(t, "the delete", lost.Hit())
				net.Drop()
				bubble.AwaitTrue(t, "another delete", func() bool { return !w.Exists(path) })
				stop()
				var made atomic.Bool
				release := make(chan struct{})
				look := testutil.NewFault(testutil.Match{Op: testutil.OpSync, Path: path}, testutil.Hold(release))
				defer net.Control(func(r testutil.Request) testutil.Action {
					made.CompareAndSwap(false, r.Op == testutil.OpCreate || r.Op == testutil.OpMulti)
					if made.Load() {
						return look.Control(r)
					}
					return testutil.Pass()
				})()
				ill.Store(false)
				bubble.Await(t, "the look behind the create", look.Hit())
				if illAgain {
					ill.Store(true)
					time.Sleep(time.Second)
				}
				must(t, w.ConnectNext().Delete(t.Context(), path, 0)) // as the lost one would do it
				close(release)
				time.Sleep(time.Second)
				ill.Store(false)
				standing(t, w, c, n, "a")
				closed(t, w, n)
			})
		})
	}
}
