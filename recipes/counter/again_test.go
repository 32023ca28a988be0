package counter_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A CompareAndSet that reports false has read the value behind a sync. The next
// one needs its own.
func TestEachComparisonHasItsSync(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n, other := newCounter(t, w.ConnectNext()), newCounter(t, w.ConnectNext())
		for value := int64(0); value < 30; value += 10 {
			must(t, other.Set(t.Context(), value))
			if set, err := n.CompareAndSet(t.Context(), value+1, 99); set || err != nil {
				t.Fatal(set, err)
			}
			must(t, other.Set(t.Context(), value+5))
			if set, err := n.CompareAndSet(t.Context(), value+5, value+6); !set || err != nil {
				t.Fatalf("%d: %v, %v", value, set, err)
			}
		}
	})
}

// An addition has a try that is open until it finds out that a late one of the
// addition before it was executed instead. If the session ends after that,
// nothing of it is open, and it is made in the next one.
func TestNothingIsOpenAfterALateAddition(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		n := newCounter(t, c)
		add(t, n, 1, 1)
		release := make(chan struct{})
		defer nth(w, c, testutil.Hold(release), testutil.DropBefore(), testutil.Delay(time.Second))()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Add(ctx, 10); !framework.MaybeApplied(err) {
			t.Error(err)
		}
		must(t, w.DropConnections(w.SessionID(c)))
		time.AfterFunc(500*time.Millisecond, func() { close(release) })
		first := w.SessionID(c)
		var settles, ended atomic.Bool
		defer w.Control(func(r testutil.Request) testutil.Action {
			switch {
			case r.Session != first || r.Op != testutil.OpGetData:
			case r.Path != path: // it reads its receipt
				settles.Store(true)
			case settles.Load() && ended.CompareAndSwap(false, true): // it computes again
				must(t, w.ExpireSession(first))
			}
			return testutil.Pass()
		})()
		add(t, n, 100, 111)
		if !ended.Load() {
			t.Error("the session has not ended")
		}
		is(t, n, 111)
	})
}

// A directory that is removed whenever it is made does not keep the ensemble
// busy: all but the first try come after a pause.
func TestADirectoryThatIsRemovedAgainAndAgain(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	defer random.None()()              // no pause of almost nothing
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := newCounter(t, w.ConnectNext())
		missing := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: path + "-receipts/", Times: 5}, testutil.Fail(testutil.CodeNoNode))
		defer w.Control(missing.Control)()
		began := time.Now()
		add(t, n, 1, 1)
		if took := time.Since(began); took < 100*time.Millisecond || missing.Count() != 5 {
			t.Errorf("%d tries in %v", missing.Count()+1, took)
		}
	})
}

// A directory that is gone each time after it was made ends the call, with its
// name.
func TestADirectoryThatIsGoneEachTime(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := newCounter(t, w.ConnectNext())
		missing := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: path + "-receipts/", Times: -1}, testutil.Fail(testutil.CodeNoNode))
		defer w.Control(missing.Control)()
		_, err := n.Add(t.Context(), 1)
		if !errors.Is(err, zk.ErrNoNode) || !strings.Contains(err.Error(), "directory "+path+"-receipts was made 9 times") || missing.Count() != 10 {
			t.Errorf("%d creates: %v", missing.Count(), err)
		}
	})
}

// A call that gives up since no server answers fails those that have waited for
// as long, and none that came later.
func TestALaterCallHasItsOwnTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		const patience = 10 * time.Second
		n := newCounter(t, w.Connect("ours", framework.WithRetry(retry.UntilElapsed(patience, time.Second))))
		value := int64(1)
		add(t, n, 1, value)
		for range 2 {
			w.ClientNet("ours").Cut()
			time.Sleep(time.Minute)
			earlier, later := make(chan error, 1), make(chan error, 1)
			call := func(returned chan<- error) {
				_, err := n.Add(t.Context(), 1)
				returned <- err
			}
			go call(earlier)
			time.Sleep(patience / 2)
			go call(later)
			if err := bubble.Await(t, "the earlier call", earlier); !errors.Is(err, zk.ErrNoServer) || framework.MaybeApplied(err) {
				t.Error(err)
			}
			w.ClientNet("ours").Heal()
			must(t, bubble.Await(t, "the later call", later))
			value++
			is(t, n, value)
		}
	})
}
