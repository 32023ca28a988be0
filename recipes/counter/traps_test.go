package counter_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
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
	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// nth does something to the multis of a client's session, in their order. Those
// behind pass.
func nth(w *bubble.World, c *framework.Client, actions ...testutil.Action) (stop func()) {
	var count atomic.Int32
	id := w.SessionID(c)
	return w.Control(func(r testutil.Request) testutil.Action {
		if r.Op == testutil.OpMulti && r.Session == id {
			if i := int(count.Add(1)) - 1; i < len(actions) {
				return actions[i]
			}
		}
		return testutil.Pass()
	})
}

// The program that counts twice with Curator's DistributedAtomicLong and
// Kazoo's Counter: two increments, the answer to one is lost.
func TestALostAnswerCountsOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		n := newCounter(t, c)
		add(t, n, 1, 1)
		defer nth(w, c, testutil.DropAfter())()
		add(t, n, 1, 2)
		is(t, n, 2)
	})
}

// An addition is given up while it is open, and is executed late: while the
// next one has an open try as well. The receipt is at the next version then,
// but not by the second addition.
func TestALateAdditionIsNotTakenForTheNext(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		n := newCounter(t, c)
		add(t, n, 1, 1)
		release := make(chan struct{})
		stop := nth(w, c, testutil.Hold(release), testutil.DropBefore(), testutil.Delay(time.Second))
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Add(ctx, 10); !errors.Is(err, context.DeadlineExceeded) || !framework.MaybeApplied(err) {
			t.Error(err)
		}
		must(t, w.DropConnections(w.SessionID(c)))
		time.AfterFunc(500*time.Millisecond, func() { close(release) })
		add(t, n, 100, 111)
		is(t, n, 111)
	})
}

// The same, but the first addition is never executed.
func TestAnAdditionThatWasGivenUpIsNotExecutedLater(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		n := newCounter(t, c)
		add(t, n, 1, 1)
		release := make(chan struct{})
		defer nth(w, c, testutil.Hold(release))()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Add(ctx, 10); !framework.MaybeApplied(err) {
			t.Error(err)
		}
		must(t, w.DropConnections(w.SessionID(c)))
		add(t, n, 100, 101)
		close(release)
		time.Sleep(time.Minute)
		is(t, n, 101)
	})
}

// One counter in two views of a client, by turns: they share its receipt.
func TestTwoViewsOfACounter(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		view, err := c.Namespace("ids")
		must(t, err)
		n := newCounter(t, c)
		m, err := counter.New(view, "/order")
		must(t, err)
		add(t, n, 1, 1)
		add(t, m, 1, 2)
		w.ResetRequests()
		for i := range int64(4) {
			add(t, n, 1, 3+2*i)
			add(t, m, 1, 4+2*i)
		}
		if cost := w.Cost(); cost[testutil.OpMulti] != 8 || len(cost) != 1 {
			t.Error(cost)
		}
		for i, k := range []*counter.Counter{n, m} {
			for j, action := range []testutil.Action{testutil.DropAfter(), testutil.DropBefore()} {
				stop := nth(w, c, action)
				add(t, k, 1, int64(11+2*i+j))
				stop()
			}
		}
		time.Sleep(2 * time.Minute)
		w.NothingLeft(path + "-receipts")
	})
}

// An error names paths as its caller's view shows them, also where a value in
// another view has made the write.
func TestErrorsOfACounterInTwoViews(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		view, err := c.Namespace("ids")
		must(t, err)
		n := newCounter(t, c)
		m, err := counter.New(view, "/order")
		must(t, err)
		add(t, n, 1, 1)
		w.Latency(10 * time.Millisecond)
		stop := w.Control(testutil.NewFault(testutil.Match{Op: testutil.OpMulti, Times: -1}, testutil.Fail(testutil.CodeNoAuth)).Control)
		var calls sync.WaitGroup
		for _, k := range []*counter.Counter{n, m, n, m} { // the last three share a write
			calls.Go(func() {
				_, err := k.Add(t.Context(), 1)
				bubble.WantErr(t, err, zk.ErrNoAuth)
				if strings.Count(err.Error(), " "+k.Path()) != 2 {
					t.Errorf("%q does not name %s twice", err, k.Path())
				}
			})
			synctest.Wait()
		}
		calls.Wait()
		stop()
		time.Sleep(2 * time.Minute)
		w.NothingLeft(path + "-receipts")
	})
}

// While an addition waits for a connection, the znode is made anew, and has the
// version that is known.
func TestACounterThatIsMadeAnew(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	for name, sent := range map[string]bool{"before the first try": false, "after a lost try": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("ours"), w.ConnectNext()
				n := newCounter(t, c)
				add(t, n, 100, 100)
				net := w.ClientNet("ours")
				if sent {
					lost := testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.DropBefore())
					defer net.Control(func(r testutil.Request) testutil.Action {
						action := lost.Control(r)
						if action != testutil.Pass() {
							net.Cut()
						}
						return action
					})()
				} else {
					net.Cut()
					net.Drop()
					bubble.AwaitTrue(t, "suspended", func() bool { return c.State() == framework.Suspended })
				}
				time.AfterFunc(3*time.Second, func() {
					err := other.Delete(t.Context(), path, -1)
					_, createErr := other.Create(t.Context(), path, nil, zk.FlagPersistent)
					if err = errors.Join(err, createErr); err != nil {
						t.Error(err)
					}
					time.AfterFunc(time.Second, net.Heal)
				})
				add(t, n, 1, 1)
			})
		})
	}
}

// The receipt goes while a try is open: nobody can know whether it was
// executed. The next addition has another receipt.
func TestAReceiptThatIsDeleted(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	for name, action := range map[string]testutil.Action{
		"executed": testutil.DropAfter(), "executed, and deleted later": testutil.DropAfter(), "not executed": testutil.DropBefore(), "refused": testutil.Pass(),
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				admin := w.ConnectNext()
				c := w.Connect("ours")
				n := newCounter(t, c)
				add(t, n, 1, 1)
				before := w.Children(path + "-receipts")
				defer nth(w, c, action)()
				var once atomic.Bool
				remove := func() { must(t, admin.Delete(context.Background(), path+"-receipts/"+before[0], -1)) }
				if name == "refused" {
					remove()
				}
				isDue := func(r testutil.Request) bool { return r.Op == testutil.OpCreateSession }
				if name == "executed, and deleted later" {
					isDue = func(r testutil.Request) bool {
						return r.Op == testutil.OpGetData && r.Path == path+"-receipts/"+before[0]
					}
				}
				defer w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
					if isDue(r) && once.CompareAndSwap(false, true) {
						go remove()
						return testutil.Delay(time.Second)
					}
					return testutil.Pass()
				})()
				after, err := n.Add(t.Context(), 1)
				if name == "refused" {
					if after != 2 || err != nil {
						t.Errorf("%d, %v", after, err)
					}
				} else if !framework.MaybeApplied(err) || !errors.Is(err, zk.ErrNoNode) {
					t.Error(err)
				}
				if !once.Load() && name != "refused" {
					t.Error("the fault did not strike")
				}
				must(t, n.Set(t.Context(), 0))
				add(t, n, 1, 1)
				if now := w.Children(path + "-receipts"); len(now) != 1 || now[0] == before[0] {
					t.Errorf("%v, before %v", now, before)
				}
			})
		})
	}
}

// The session ends while a try is open, and while none is.
func TestASessionThatEnds(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprint("open ", open), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.ConnectNext()
				n := newCounter(t, c)
				add(t, n, 1, 1)
				if open {
					defer nth(w, c, testutil.HoldReply(nil))()
					time.AfterFunc(time.Second, func() { w.Expire(c) })
				} else {
					w.Expire(c)
					time.Sleep(time.Second)
				}
				after, err := n.Add(t.Context(), 1)
				if !open && (after != 2 || err != nil) || open && (!errors.Is(err, framework.ErrSessionLost) || !framework.MaybeApplied(err)) {
					t.Errorf("%d, %v", after, err)
				}
				is(t, n, 2)
			})
		})
	}
}

// Four processes of four goroutines each add, and lose answers all the time.
func TestSumsAreExact(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(time.Millisecond)
		const each = 25
		var all sync.WaitGroup
		var mu sync.Mutex
		seen := map[int64]bool{}
		for i := range 4 {
			name := fmt.Sprint("process ", i)
			n, count := newCounter(t, w.Connect(name)), 0
			stop := w.ClientNet(name).Control(func(r testutil.Request) testutil.Action {
				if r.Op != testutil.OpMulti {
					return testutil.Pass()
				}
				mu.Lock()
				defer mu.Unlock()
				count++
				return []testutil.Action{testutil.Pass(), testutil.Pass(), testutil.DropAfter(), testutil.Pass(), testutil.DropBefore()}[count%5]
			})
			defer stop()
			for range 4 {
				all.Go(func() {
					for range each {
						after, err := n.Add(t.Context(), 1)
						mu.Lock()
						if err != nil || seen[after] {
							t.Errorf("%d, %v", after, err)
						}
						seen[after] = true
						mu.Unlock()
					}
				})
			}
		}
		all.Wait()
		is(t, newCounter(t, w.ConnectNext()), 4*4*each)
	}, testutil.WithMembers(3))
}

// A neighbor is quicker several times: then the process takes the mutex, and
// leaves it again.
func TestManyConflicts(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		neighbor := w.ConnectNext()
		n := newCounter(t, w.Connect("ours"))
		add(t, n, 1, 1)
		var count atomic.Int32
		locked := make(chan struct{})
		lock := sync.OnceFunc(func() { close(locked) })
		quicker := func(r testutil.Request) testutil.Action {
			switch {
			case r.Does(testutil.OpCreate, path+"-lock/"):
				lock()
			case r.Does(testutil.OpSetData, path) && count.Add(1) <= 6:
				data, stat, err := neighbor.Get(context.Background(), path)
				if err == nil {
					data[7] += 10
					_, err = neighbor.Set(context.Background(), path, data, stat.Version)
				}
				if err != nil {
					t.Error(err)
				}
			}
			return testutil.Pass()
		}
		defer w.ClientNet("ours").Control(quicker)()
		add(t, n, 1, 62)
		bubble.Await(t, "the mutex", locked)
		w.Empty(path + "-lock")
	})
}

// A process has joined those in line for the mutex, and then has many conflicts
// itself: it has the mutex already.
func TestManyConflictsUnderTheMutex(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other := w.ConnectNext()
		n := newCounter(t, w.Connect("ours"))
		add(t, n, 1, 1)
		mutex, err := locks.NewMutex(other, path+"-lock")
		must(t, err)
		lease := bubble.Acquire(t, t.Context(), mutex)
		time.Sleep(500 * time.Millisecond) // it is time to look, and the value is known
		var count atomic.Int32
		defer w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
			if r.Does(testutil.OpSetData, path) && count.Add(1) <= 6 {
				_, err := other.Set(context.Background(), path, make([]byte, 8), -1)
				if err != nil {
					t.Error(err)
				}
			}
			return testutil.Pass()
		})()
		time.AfterFunc(time.Second, func() {
			if err := lease.Release(context.Background()); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		add(t, n, 1, 1)
		if took := time.Since(began); took < time.Second || took > 3*time.Second || count.Load() < 7 {
			t.Errorf("it took %v and %d tries", took, count.Load())
		}
		w.Empty(path + "-lock")
	})
}

// The mutex is waited for no longer than a session timeout.
func TestTheMutexIsNotReleased(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other, c := w.ConnectNext(), w.Connect("ours")
		n := newCounter(t, c)
		add(t, n, 1, 1)
		mutex, err := locks.NewMutex(other, path+"-lock")
		must(t, err)
		lease := bubble.Acquire(t, t.Context(), mutex)
		time.Sleep(500 * time.Millisecond) // it is time to look, and the value is known
		began := time.Now()
		add(t, n, 1, 2)
		if took, want := time.Since(began), w.Session(c).Timeout(); took < want || took > want+time.Second {
			t.Errorf("it took %v, want %v", took, want)
		}
		bubble.Release(t, lease)
		w.Empty(path + "-lock")
	})
}

// A counter at version -1 would be overwritten, since any version matches. Only
// a Set writes, which overwrites anyway.
func TestACounterAtVersionMinusOne(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		create(t, w.ConnectNext(), path, "")
		c, _ := lied(t, w, wire.OpGetData, func(a tamper.Answer) {
			if a.Path == path {
				const fromEnd = 68 - 32 // of the version in the stat
				binary.BigEndian.PutUint32(a.Frame[len(a.Frame)-fromEnd:], 1<<32-1)
			}
		})
		n := newCounter(t, c)
		_, addErr := n.Add(t.Context(), 1)
		_, onceErr := n.AddOnce(t.Context(), "a", 1)
		_, swapErr := n.CompareAndSet(t.Context(), 0, 1)
		for _, err := range []error{addErr, onceErr, swapErr} {
			if !errors.Is(err, zk.ErrBadVersion) || framework.MaybeApplied(err) {
				t.Error(err)
			}
		}
		if data, _ := w.Data(path); len(data) > 0 {
			t.Errorf("%x", data)
		}
		must(t, n.Set(t.Context(), 5))
		is(t, n, 5)
	})
}

// A receipt whose versions are used up is replaced: the next ones are negative,
// and -1 would refuse nothing.
func TestAReceiptAtItsLastVersion(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, lies := lied(t, w, wire.OpMulti, func(a tamper.Answer) {
			const version = 20 + 9 + 32 // behind the heads of the answer and of the result, in the stat
			if len(a.Frame) > version+4 && binary.BigEndian.Uint32(a.Frame[20:]) == uint32(wire.OpSetData) {
				binary.BigEndian.PutUint32(a.Frame[version:], 1<<31-1)
			}
		})
		n := newCounter(t, c)
		add(t, n, 1, 1)
		first := w.Children(path + "-receipts")
		add(t, n, 1, 2)
		add(t, n, 1, 3)
		synctest.Wait()
		if now := w.Children(path + "-receipts"); len(now) != 1 || now[0] == first[0] || lies.Load() < 3 || w.Requests()[testutil.OpSync] > 0 { // which follows a refusal
			t.Errorf("%v, at first %v, %d lies", now, first, lies.Load())
		}
	})
}

// lied returns a client that gets wrong answers to an operation.
func lied(t *testing.T, w *bubble.World, op wire.Op, lie func(tamper.Answer)) (*framework.Client, *atomic.Int32) {
	t.Helper()
	var lies atomic.Int32
	net := w.ClientNet("lied to")
	c, err := w.Open("lied to", framework.WithDialer(tamper.Wrap(net.Dial, func(a tamper.Answer) tamper.Instead {
		if a.Op == op {
			a.Path = w.View.Path(a.Path)
			a.Frame = slices.Clone(a.Frame)
			lie(a)
			lies.Add(1)
		}
		return tamper.Pass(a)
	})))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.WaitConnected(t.Context()))
	return c, &lies
}

// An id counts once, from any process, in any session, also while its first
// addition is open.
func TestAddOnceAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ours := w.Connect("ours")
		n, other := newCounter(t, ours), newCounter(t, w.ConnectNext())
		release := make(chan struct{})
		stop := w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
			if r.Does(testutil.OpCreate, path+"-once/") && r.Op == testutil.OpMulti {
				return testutil.Hold(release)
			}
			return testutil.Pass()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.AddOnce(ctx, "a", 1); !framework.MaybeApplied(err) {
			t.Error(err)
		}
		stop()
		for range 2 {
			if r, err := other.AddOnce(t.Context(), "a", 1); r.Value != 1 || err != nil {
				t.Errorf("%+v, %v", r, err)
			}
		}
		close(release)
		w.Expire(ours)
		if r, err := n.AddOnce(t.Context(), "a", 1); r.Value != 1 || !r.Repeated || err != nil {
			t.Errorf("%+v, %v", r, err)
		}
		is(t, other, 1)
	})
}

// What was counted is Repeated, even if it could not be counted now.
func TestAddOnceThatCouldNotBeMadeNow(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		n := newCounter(t, c)
		_, err := n.AddOnce(t.Context(), "a", 1)
		must(t, err)
		_, err = c.Set(t.Context(), path, []byte("text"), -1)
		must(t, err)
		time.Sleep(2 * time.Second)
		if r, err := n.AddOnce(t.Context(), "a", 1); (r != counter.OnceResult{Value: 1, Repeated: true}) || err != nil {
			t.Errorf("%+v, %v", r, err)
		}
		if _, err := n.AddOnce(t.Context(), "b", 1); !errors.Is(err, counter.ErrData) {
			t.Error(err)
		}
		dir := strings.TrimSuffix(markerOf(t, w, "a"), "/a")
		_, err = c.Set(t.Context(), dir+"/a", []byte("text"), -1)
		must(t, err)
		if _, err := n.AddOnce(t.Context(), "a", 1); err == nil || !framework.MaybeApplied(err) || !strings.Contains(err.Error(), `other data: "text"`) {
			t.Error(err)
		}
	})
}

// An id that was counted with another amount is not counted, and the error says
// what it was counted with: also if nothing could be counted now, or a try of
// this call may be open. A marker without an amount fits any.
func TestAnotherAmount(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ctx, c := t.Context(), w.Connect("ours")
		n, other := newCounter(t, c), newCounter(t, w.ConnectNext())
		refused := func(id string, amount, counted int64) {
			t.Helper()
			r, err := n.AddOnce(ctx, id, amount)
			want := fmt.Sprintf("id %q was counted with another amount: %d, not %d", id, counted, amount)
			if (r != counter.OnceResult{}) || !errors.Is(err, counter.ErrAmount) || framework.MaybeApplied(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v, %v", r, err)
			}
		}
		_, err := n.AddOnce(ctx, "a", 7)
		must(t, err)
		for _, amount := range []int64{8, 0, -7, math.MaxInt64} { // the last one overflows now
			refused("a", amount, 7)
		}
		is(t, n, 7)
		_, err = c.Set(ctx, path, []byte("text"), -1)
		must(t, err)
		time.Sleep(2 * time.Second)
		refused("a", 8, 7)
		must(t, n.Set(ctx, 0))

		lost := testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.DropBefore())
		defer w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
			action := lost.Control(r)
			if action != testutil.Pass() {
				if _, err := other.AddOnce(ctx, "b", -5); err != nil {
					t.Error(err)
				}
			}
			return action
		})()
		refused("b", 5, -5)
		is(t, n, -5)

		marker := markerOf(t, w, "a")
		for data, want := range map[string]counter.OnceResult{"70": {Value: 70, Repeated: true}, "70 8": {Value: 70, Repeated: true}} {
			_, err = c.Set(ctx, marker, []byte(data), -1)
			must(t, err)
			if r, err := n.AddOnce(ctx, "a", 8); r != want || err != nil {
				t.Errorf("%q: %+v, %v", data, r, err)
			}
		}
		for _, data := range []string{"", "70 ", "70 8 9", " 8"} {
			_, err = c.Set(ctx, marker, []byte(data), -1)
			must(t, err)
			if _, err := n.AddOnce(ctx, "a", 8); errors.Is(err, counter.ErrAmount) || !framework.MaybeApplied(err) {
				t.Errorf("%q: %v", data, err)
			}
		}
	})
}

// A process that is far from the ensemble adds although one that is near does
// so all the time.
func TestAProcessThatIsFar(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		near, far := newCounter(t, w.Connect("near")), newCounter(t, w.Connect("far"))
		w.ClientNet("near").Latency(100*time.Microsecond, 100*time.Microsecond)
		w.ClientNet("far").Latency(10*time.Millisecond, 10*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		defer all.Wait()
		for range 2 {
			all.Go(func() {
				for ctx.Err() == nil {
					if _, err := near.Add(ctx, 1); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(bubble.Few(200*time.Millisecond, time.Second))
		for range bubble.Few(2, 5) {
			began := time.Now()
			_, err := far.Add(t.Context(), 1)
			if took := time.Since(began); err != nil || took > 2*time.Second {
				t.Errorf("%v, it took %v", err, took)
			}
		}
		cancel()
	})
}

// A batch looks once for others in line for the mutex, however many tries it
// needs, and not within 100 ms of the look before.
func TestOneLookForOthers(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n, other := newCounter(t, w.ConnectNext()), newCounter(t, w.ConnectNext())
		add(t, n, 1, 1)
		time.Sleep(90 * time.Millisecond)
		w.ResetRequests()
		add(t, n, 1, 2)
		if cost := w.Cost(); cost[testutil.OpMulti] != 1 || w.Total() != 1 {
			t.Errorf("%v", cost)
		}
		time.Sleep(500 * time.Millisecond) // it is time to look, and the value is known
		add(t, other, 1, 3)
		w.ResetRequests()
		add(t, n, 1, 4)
		if cost := w.Cost(); cost[testutil.OpMulti] != 2 || cost[testutil.OpExists] != 1 {
			t.Errorf("%v", cost)
		}
	})
}

// What a marker says is the value and the amount, in decimal. What follows an
// addition with an id knows the counter, so it makes no read and no vain try.
func TestWhatAMarkerSays(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := newCounter(t, w.ConnectNext())
		for range 5 {
			must(t, n.Set(t.Context(), 1000)) // the version is not that of the markers' directory
		}
		want := counter.OnceResult{Value: 1234}
		for range 2 {
			if r, err := n.AddOnce(t.Context(), "a", 234); r != want || err != nil {
				t.Errorf("%+v, %v, want %+v", r, err, want)
			}
			want.Repeated = true
		}
		if data, ok := w.Data(markerOf(t, w, "a")); !ok || string(data) != "1234 234" {
			t.Errorf("%q", data)
		}
		if r, err := n.AddOnce(t.Context(), "b", 1); r.Value != 1235 || err != nil {
			t.Errorf("%+v, %v", r, err)
		}
		w.ResetRequests()
		add(t, n, 1, 1236)
		if cost := w.Cost(); w.Total() != 1 {
			t.Errorf("%v", cost)
		}
	})
}

// An addition that another client has made says that the counter has changed:
// what follows reads it, and makes no vain try.
func TestAfterARepeatedAddition(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n, other := newCounter(t, w.ConnectNext()), newCounter(t, w.ConnectNext())
		add(t, n, 1, 1)
		for _, n := range []*counter.Counter{other, n} {
			if r, err := n.AddOnce(t.Context(), "a", 1); r.Value != 2 || err != nil {
				t.Errorf("%+v, %v", r, err)
			}
		}
		w.ResetRequests()
		add(t, n, 1, 3)
		if cost := w.Cost(); cost[testutil.OpMulti] != 1 || cost[testutil.OpGetData] != 1 {
			t.Errorf("%v", cost)
		}
	})
}

// A marker that refuses an addition is removed before it is read: its id is
// forgotten, so the addition is made.
func TestAMarkerThatIsRemovedBeforeItIsRead(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		admin, n := w.ConnectNext(), newCounter(t, w.Connect("ours"))
		_, err := n.AddOnce(t.Context(), "a", 1)
		must(t, err)
		late := testutil.NewFault(testutil.Match{Op: testutil.OpGetData, Path: markerOf(t, w, "a")}, testutil.Delay(time.Second))
		defer w.ClientNet("ours").Control(late.Control)()
		added := make(chan counter.OnceResult, 1)
		go func() {
			r, err := n.AddOnce(t.Context(), "a", 1)
			must(t, err)
			added <- r
		}()
		bubble.Await(t, "the read", late.Hit())
		must(t, admin.Delete(t.Context(), markerOf(t, w, "a"), -1))
		if got, want := bubble.Await(t, "AddOnce", added), (counter.OnceResult{Value: 2}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// A neighbor writes to the receipt, or removes it, while it is read to find out
// whether a try was executed. Nobody can know then.
func TestAReceiptThatCannotTell(t *testing.T) {
	for name, meddle := range map[string]func(admin *framework.Client, receipt string) error{
		"removed": func(admin *framework.Client, receipt string) error {
			return admin.Delete(context.Background(), receipt, -1)
		},
		"written": func(admin *framework.Client, receipt string) error {
			_, err := admin.Set(context.Background(), receipt, []byte("text"), -1)
			return err
		},
		"written as we do": func(admin *framework.Client, receipt string) error {
			_, err := admin.Set(context.Background(), receipt, []byte("2 2"), -1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, admin := w.Connect("ours"), w.ConnectNext()
				n := newCounter(t, c)
				add(t, n, 1, 1)
				receipts := w.Children(path + "-receipts")
				defer nth(w, c, testutil.DropAfter())()
				late := testutil.NewFault(testutil.Match{Op: testutil.OpSync}, testutil.Delay(time.Second))
				defer w.ClientNet("ours").Control(late.Control)()
				added := make(chan error, 1)
				go func() {
					_, err := n.Add(t.Context(), 1)
					added <- err
				}()
				bubble.Await(t, "the sync", late.Hit())
				must(t, meddle(admin, path+"-receipts/"+receipts[0]))
				if err := bubble.Await(t, "Add", added); !framework.MaybeApplied(err) {
					t.Error(err)
				}
				is(t, n, 2)
				add(t, n, 1, 3)
			})
		})
	}
}

// A caller that leaves during a pause is told that it has left, and not why
// there was a pause.
func TestACallerLeavesDuringAPause(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := newCounter(t, w.ConnectNext(framework.WithRetry(retry.Forever(time.Second))))
		add(t, n, 1, 1)
		receipt := path + "-receipts/" + w.Children(path + "-receipts")[0]
		must(t, w.ConnectNext().Delete(t.Context(), receipt, -1))
		ctx, cancel := context.WithCancel(t.Context())
		defer w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpMulti { // a pause follows, before another receipt is made
				time.AfterFunc(time.Millisecond, cancel)
			}
			return testutil.Pass()
		})()
		if _, err := n.Add(ctx, 1); !errors.Is(err, context.Canceled) || framework.MaybeApplied(err) {
			t.Errorf("%v", err)
		}
		is(t, n, 1)
	})
}

// What begins again does so after a pause of the client's retry policy.
func TestThePauseBeforeABatchBeginsAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := newCounter(t, w.ConnectNext(framework.WithRetry(retry.Forever(time.Second))))
		add(t, n, 1, 1)
		must(t, w.ConnectNext().Delete(t.Context(), path+"-receipts/"+w.Children(path + "-receipts")[0], -1))
		began := time.Now()
		add(t, n, 1, 2)
		if took := time.Since(began); took < time.Second || took > 1500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// What begins again does so as often as the retry policy allows, and then fails
// with the reason.
func TestABatchThatBeginsAgainForever(t *testing.T) {
	for _, operation := range []int{0, 1} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			n := newCounter(t, w.ConnectNext(framework.WithRetry(retry.NTimes(3, time.Second))))
			add(t, n, 1, 1)
			var tries atomic.Int32
			stop := w.Control(func(r testutil.Request) testutil.Action {
				if r.Op != testutil.OpMulti {
					return testutil.Pass()
				}
				tries.Add(1)
				return testutil.FailOperation(operation, testutil.CodeNoNode)
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := n.Add(ctx, 1)
			stop()
			if !errors.Is(err, zk.ErrNoNode) || tries.Load() < 4 || tries.Load() > 8 {
				t.Errorf("operation %d refused %d times: %v", operation, tries.Load(), err)
			}
			is(t, n, 1)
		})
	}
}

// A caller that leaves at any time of a first addition is told that it has
// left, and not what an answer before that has said.
func TestACallerLeavesAtAnyTime(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, n *counter.Counter) error{
		"add": func(ctx context.Context, n *counter.Counter) error {
			_, err := n.Add(ctx, 1)
			return err
		},
		"add once": func(ctx context.Context, n *counter.Counter) error {
			_, err := n.AddOnce(ctx, "id", 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.EachView(t, func(t *testing.T, v bubble.View) {
				for left, after := true, 5*time.Millisecond; left; after += 10 * time.Millisecond {
					bubble.RunBelow(t, v, func(t *testing.T, w *bubble.World) {
						n, other := newCounter(t, w.ConnectNext()), newCounter(t, w.ConnectNext())
						must(t, other.Set(t.Context(), 1))
						defer w.Control(func(testutil.Request) testutil.Action { return testutil.Delay(10 * time.Millisecond) })()
						ctx, cancel := context.WithTimeout(t.Context(), after)
						defer cancel()
						err := call(ctx, n)
						if left = err != nil; left && !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("after %v: %v", after, err)
						}
					})
				}
			})
		})
	}
}

// The ensemble is rebuilt by the same script, with another value.
func TestListenInARebuiltEnsemble(t *testing.T) {
	for when, others := range bubble.Rebuilt {
		t.Run(when, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				script := func(others int, value byte) func(c *framework.Client) {
					return func(c *framework.Client) {
						bubble.Padding(t, others)(c)
						bubble.Tree(t, "/ids", "", path, string([]byte{7: value}))(c)
					}
				}
				w.Provision(script(10, 7))
				values := make(chan int64, 10)
				_, err := newCounter(t, w.Connect("listener")).Listen(t.Context(), func(value int64, err error) {
					must(t, err)
					values <- value
				})
				must(t, err)
				if got := bubble.Await(t, "the value", values); got != 7 {
					t.Errorf("%d", got)
				}
				w.Rebuild(script(others, 3), "listener")
				if got := bubble.Await(t, "the new value", values); got != 3 {
					t.Errorf("%d", got)
				}
			})
		})
	}
}
