package presence_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// What goes on failing is tried again after pauses that grow, from a fraction
// of a second to 30s. They are random, and the long ones are 15s on average.
// The servers remove an empty directory once a minute: one create more.
func TestPausesGrow(t *testing.T) {
	for name, tt := range map[string]struct {
		op   testutil.Op   // of what fails
		code testutil.Code // 0: it succeeds, and somebody deletes the znode
	}{
		"a create is refused":                         {testutil.OpCreate, testutil.CodeNoAuth},
		"the outcome of a create is unclear":          {testutil.OpCreate, testutil.CodeRequestTimeout},
		"somebody deletes the znode again":            {testutil.OpCreate, 0},
		"the delete of a Node that closes is refused": {testutil.OpDelete, testutil.CodeNoAuth},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.ConnectNext(), w.ConnectNext()
				n := announce(t, c, path, "a")
				var tries atomic.Int64
				stop := w.Control(func(r testutil.Request) testutil.Action {
					if r.Op != tt.op || r.Path != path {
						return testutil.Pass()
					}
					tries.Add(1)
					if tt.code == 0 {
						time.AfterFunc(time.Millisecond, func() { _ = other.Delete(t.Context(), path, -1) })
						return testutil.Pass()
					}
					return testutil.Fail(tt.code)
				})
				if tt.op == testutil.OpCreate {
					must(t, other.Delete(t.Context(), path, -1))
				} else {
					go func() { _ = n.Close(t.Context()) }()
				}
				time.Sleep(time.Minute)
				soon := tries.Swap(0)
				time.Sleep(time.Hour)
				if later := tries.Load(); soon < 6 || soon > 30 || later < 180 || later > 380 {
					t.Errorf("%d times in the first minute, %d in an hour", soon, later)
				}
				stop()
				closed(t, w, n)
			})
		})
	}
}

// A takeover that fails again and again is tried after such pauses as well.
// They used not to grow. The end of the other session ends a pause.
func TestPausesOfATakeoverGrow(t *testing.T) {
	for _, code := range []testutil.Code{testutil.CodeNoAuth, testutil.CodeRequestTimeout} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			theirs := announce(t, w.ConnectNext(), path, "theirs")
			c := w.Connect("ours")
			var tries atomic.Int64
			stop := w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
				if r.Op != testutil.OpMulti {
					return testutil.Pass()
				}
				tries.Add(1)
				return testutil.Fail(code)
			})
			n, err := presence.New(c, path, []byte("ours"), presence.WithTakeover(func([]byte) bool { return true }))
			must(t, err)
			must(t, n.Start())
			time.Sleep(time.Minute)
			soon := tries.Swap(0)
			time.Sleep(time.Hour)
			if later := tries.Load(); soon < 6 || soon > 30 || later < 180 || later > 380 {
				t.Errorf("after %v: %d times in the first minute, %d in an hour", code, soon, later)
			}
			must(t, theirs.Close(t.Context()))
			began := time.Now()
			standing(t, w, c, n, "ours")
			if took := time.Since(began); took > time.Second {
				t.Errorf("after %v: the name was free for %v", code, took)
			}
			stop()
		})
	}
}

// A znode that has stood for a minute is back at once when somebody deletes it.
// One that has not is back after pauses, which go on growing.
func TestTheNextRemovalAfterAMinute(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.ConnectNext(), w.ConnectNext()
		announce(t, c, path, "a")
		// longest returns the longest time until the znode was back.
		longest := func(times int, stands time.Duration) (longest time.Duration) {
			for range times {
				time.Sleep(stands)
				must(t, other.Delete(t.Context(), path, -1))
				began := time.Now()
				bubble.AwaitTrue(t, "the znode", func() bool { return w.Exists(path) })
				longest = max(longest, time.Since(began))
			}
			return longest
		}
		if took := longest(30, time.Second); took < time.Second || took > 31*time.Second {
			t.Errorf("deleted again and again: back after %v", took)
		}
		if took := longest(12, 58*time.Second); took < 5*time.Second {
			t.Errorf("deleted after almost a minute: back after %v", took)
		}
		if took := longest(12, time.Minute+time.Second); took > 100*time.Millisecond {
			t.Errorf("deleted after a minute: back after %v", took)
		}
	})
}

// The pauses begin anew once another session has had the znode.
func TestPausesBeginAnewBehindAnotherSession(t *testing.T) {
	for _, code := range []testutil.Code{testutil.CodeNoAuth, testutil.CodeRequestTimeout} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, other, net := w.Connect("ours"), w.ConnectNext(), w.ClientNet("ours")
			n := announce(t, c, path, "a")
			for range 5 {
				stop := net.Control(func(r testutil.Request) testutil.Action {
					if r.Op == testutil.OpCreate && r.Path == path {
						return testutil.Fail(code)
					}
					return testutil.Pass()
				})
				must(t, other.Delete(t.Context(), path, -1))
				time.Sleep(10 * time.Minute)
				theirs := announce(t, other, path, "b")
				stop()
				awaitState(t, n, presence.Taken)
				once := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: path}, testutil.Fail(code))
				stop = net.Control(once.Control)
				must(t, theirs.Close(t.Context()))
				bubble.Await(t, "the create", once.Hit())
				began := time.Now()
				standing(t, w, c, n, "a")
				if took := time.Since(began); took > 500*time.Millisecond {
					t.Errorf("after %v: back after %v", code, took)
				}
				stop()
			}
		})
	}
}

// So do they once the znode stands.
func TestPausesBeginAnewOnceItStands(t *testing.T) {
	for _, code := range []testutil.Code{testutil.CodeNoAuth, testutil.CodeRequestTimeout} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, other, net := w.Connect("ours"), w.ConnectNext(), w.ClientNet("ours")
			n := announce(t, c, path, "a")
			for range 5 {
				time.Sleep(time.Minute + time.Second) // its removal is the first again
				stop := net.Control(func(r testutil.Request) testutil.Action {
					if r.Op == testutil.OpCreate && r.Path == path {
						return testutil.Fail(code)
					}
					return testutil.Pass()
				})
				must(t, other.Delete(t.Context(), path, -1))
				time.Sleep(10 * time.Minute)
				stop()
				standing(t, w, c, n, "a")
				time.Sleep(time.Minute + time.Second)
				once := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: path}, testutil.Fail(code))
				stop = net.Control(once.Control)
				must(t, other.Delete(t.Context(), path, -1))
				bubble.Await(t, "the create", once.Hit())
				began := time.Now()
				standing(t, w, c, n, "a")
				if took := time.Since(began); took > 500*time.Millisecond {
					t.Errorf("after %v: back after %v", code, took)
				}
				stop()
			}
		})
	}
}

// A Node looks at its znode once in a session timeout, also while another
// session has it: an event can be lost.
func TestANodeLooksOncePerTimeout(t *testing.T) {
	for _, taken := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			if taken {
				announce(t, w.Connect("other"), path, "a")
			}
			n, err := presence.New(w.Connect("ours"), path, nil)
			must(t, err)
			must(t, n.Start())
			want := presence.Standing
			if taken {
				want = presence.Taken
			}
			awaitState(t, n, want)
			var looks atomic.Int64
			defer w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
				if r.Path == path {
					looks.Add(1)
				}
				return testutil.Pass()
			})()
			const timeouts = 100
			time.Sleep(timeouts * bubble.Timeout)
			if n := looks.Load(); n < timeouts*9/10 || n > timeouts*11/10 {
				t.Errorf("taken %t: %d looks in %d session timeouts", taken, n, timeouts)
			}
			must(t, n.Close(t.Context()))
		})
	}
}

// A Close whose requests fail, and may have been executed, tries again every
// 0.15 seconds, more or less.
func TestPausesOfAClose(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		n := announce(t, c, path, "a")
		var tries atomic.Int32
		stop := w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
			if r.Op != testutil.OpSync || r.Path != path {
				return testutil.Pass()
			}
			tries.Add(1)
			return testutil.Fail(testutil.CodeRequestTimeout)
		})
		go func() { _ = n.Close(t.Context()) }()
		time.Sleep(time.Minute)
		stop()
		if n := tries.Load(); n < 380 || n > 420 {
			t.Errorf("%d times in a minute", n)
		}
		closed(t, w, n)
	})
}

// While a Node is ill it looks for its znode ten times per session timeout if
// the delete is refused, once if a create may be executed late, and otherwise
// never.
func TestPausesOfAnIllNode(t *testing.T) {
	for name, tt := range map[string]struct {
		op          testutil.Op
		action      testutil.Action
		least, most int64
	}{
		"the delete is refused":   {testutil.OpDelete, testutil.Fail(testutil.CodeNoAuth), 90, 110},
		"a create may come late":  {testutil.OpCreate, testutil.DropAfter(), 7, 15},
		"the delete was answered": {testutil.OpDelete, testutil.Pass(), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.ConnectNext()
				w.Latency(time.Millisecond)
				var faults, looks atomic.Int64
				stop := w.Control(func(r testutil.Request) testutil.Action {
					switch {
					case r.Op == testutil.OpSync:
						looks.Add(1)
					case r.Does(tt.op, path) && (faults.Add(1) == 1 || tt.least > 50):
						return tt.action
					}
					return testutil.Pass()
				})
				var checks atomic.Int64
				n := announce(t, c, path, "a", presence.WithHealthCheck(time.Hour, func(context.Context) error {
					if checks.Add(1) > 1 {
						return errors.New("ill")
					}
					return nil
				}))
				time.Sleep(time.Hour)
				awaitState(t, n, presence.Pending)
				looks.Store(0)
				time.Sleep(10 * w.Session(c).Timeout())
				if got := looks.Load(); got < tt.least || got > tt.most {
					t.Errorf("%d looks, want %d to %d", got, tt.least, tt.most)
				}
				stop()
				closed(t, w, n)
			})
		})
	}
}
