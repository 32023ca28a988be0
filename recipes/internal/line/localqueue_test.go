package line_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A caller's context ends at the very moment at which it is chosen: the choice
// is passed on to the next waiter in-process, with no request.
func TestAChosenWaiterThatLeavesPassesTheChoiceOn(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := newLine(t, w.ConnectNext(), exclusive)
		first, second, third := queue(t, l), queue(t, l), queue(t, l)
		<-first.Ready()
		names := w.Children("/line")
		synctest.Wait() // for the list behind the first create, which found no directory
		w.ResetRequests()
		third.GiveUp() // in the local queue
		first.GiveUp() // chosen
		synctest.Wait()
		<-second.Ready()
		p, ok := second.Take()
		if !ok || !p.Held() || p.Path() != "/line/"+names[0] {
			t.Errorf("passed on: %v, held %v, at %s, was %s", ok, p.Held(), p.Path(), names[0])
		}
		if got := w.Requests(); len(got) != 0 {
			t.Errorf("requests: %v", got)
		}
		leave(t, p)
		empty(w, l)
	})
}

// The same with no other waiter: the znode goes.
func TestAChosenWaiterThatLeavesTakesTheZnodeWithIt(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := newLine(t, w.ConnectNext(), exclusive)
		q := queue(t, l)
		<-q.Ready()
		q.GiveUp()
		synctest.Wait()
		empty(w, l)
		p := acquire(t, l)
		leave(t, p)
		empty(w, l)
	})
}

// The session is over between the choice and the moment at which the caller
// takes its share.
func TestAShareThatIsLostBeforeItIsTaken(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		l := newLine(t, c, exclusive)
		taken, left, next := queue(t, l), queue(t, l), queue(t, l)
		expire := func() {
			t.Helper()
			if err := w.ExpireSession(session(t, c)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second) // until it is known
		}
		<-taken.Ready()
		expire()
		if p, ok := taken.Take(); ok || p.Held() {
			t.Error("a lost place was taken")
		} else if err := release(t.Context(), p); !errors.Is(err, line.ErrNotHeld) {
			t.Errorf("Leave: %v", err)
		}
		<-left.Ready()
		expire()
		left.GiveUp()
		<-next.Ready()
		p, ok := next.Take()
		if !ok {
			t.Fatal("the next was not granted")
		}
		leave(t, p)
		empty(w, l)
	})
}

// A waiter that was chosen in a session that was lost keeps its place in the
// local queue.
func TestAWaiterWhoseShareIsLostBeforeItIsTakenIsStillTheFirst(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := newLine(t, w.ConnectNext(), exclusive)
		first, later, p := chosenAndLost(t, w, l)
		if !first.Again(false) {
			t.Error("refused")
		}
		leave(t, p)
		select {
		case <-first.Ready():
		case <-later.Ready():
			t.Fatal("a later one was granted before")
		}
		p, ok := first.Take()
		if !ok {
			t.Fatal("the place was not to be taken")
		}
		later.GiveUp()
		leave(t, p)
		empty(w, l)
	})
}

// chosenAndLost returns a waiter that was chosen in a session that is over, a
// later one, and another client's share, behind which the later one stands.
func chosenAndLost(t *testing.T, w *bubble.World, l *line.Line) (first, later *line.Queued, held *line.Share) {
	t.Helper()
	first = queue(t, l)
	<-first.Ready()
	later = queue(t, l)
	other := newLine(t, w.ConnectNext(), exclusive)
	waiting := make(chan *line.Share)
	go func() {
		waiting <- acquire(t, other)
	}()
	synctest.Wait()
	if err := w.ExpireSession(session(t, (*framework.Client)(l.Client()))); err != nil {
		t.Fatal(err)
	}
	held = <-waiting
	time.Sleep(5 * time.Second)
	if n := len(w.Children("/line")); n != 2 {
		t.Fatalf("%d in line", n)
	}
	return first, later, held
}

// The last waiter leaves and another comes at once: the acquisition that was
// told to stop fails, but not the other waiter.
func TestAnAcquisitionThatWasStoppedFailsNobodyElse(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := newLine(t, w.ConnectNext(), exclusive)
		held := acquire(t, newLine(t, w.ConnectNext(), exclusive))
		unuse, err := l.Use()
		if err != nil {
			t.Fatal(err)
		}
		q := queue(t, l)
		for range 200 {
			synctest.Wait()
			select {
			case <-q.Ready():
				t.Fatal("failed by another's end, or granted beside the holder")
			default:
			}
			q.GiveUp()
			q = queue(t, l)
		}
		leave(t, held)
		<-q.Ready()
		unuse()
		p, ok := q.Take()
		if !ok {
			t.Fatal("not granted")
		}
		leave(t, p)
		empty(w, l)
	})
}

// The process is paused between the choice and the moment at which the caller
// takes its place: nothing has told of the loss yet, and only the clock knows.
func TestAShareThatIsOverdueBeforeItIsTaken(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		paused := make(chan struct{})
		c := w.ConnectNext()
		sess, err := c.Session()
		if err != nil {
			t.Fatal(err)
		}
		// What follows the session's deadline stands still: the oldest hold is told
		// first.
		if _, err := sess.Hold(func(error) { <-paused }); err != nil {
			t.Fatal(err)
		}
		l := newLine(t, c, exclusive)
		q := queue(t, l)
		<-q.Ready()
		w.CutClient(sess.ID())
		time.Sleep(framework.DefaultSessionTimeout)
		if p, ok := q.Take(); ok || !errors.Is(p.Err(), framework.ErrSessionLost) {
			t.Errorf("taken %v, err %v", ok, p.Err())
		} else if err := release(t.Context(), p); !errors.Is(err, line.ErrNotHeld) {
			t.Errorf("Leave: %v", err)
		}
		w.RestoreClient(sess.ID())
		close(paused)
		time.Sleep(framework.DefaultSessionTimeout)
		empty(w, l)
	})
}

// The turn has come, but the session is in doubt, and the caller gives up
// before it is proven: the znode goes as soon as there is a server again.
func TestACancelBeforeTheSessionIsProven(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext(framework.WithErrorPolicy(framework.ErrorPolicyConnection))
		l := newLine(t, c, exclusive)
		id := session(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.GrantAfter(ctx, func() {
			w.CutClient(id)
			if err := w.DropConnections(id); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("granted in doubt, or %v", err)
		}
		if names := w.Children("/line"); len(names) != 1 {
			t.Fatalf("in line: %v", names)
		}
		w.RestoreClient(id)
		if err := c.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		empty(w, l)
	})
}

// A try was granted and lost that before it looked, as after a pause of the
// process. It was put before the waiters that had come since, whose znode stood
// in line, and waited there as if it were no try.
func TestATryThatIsLostBeforeItIsTaken(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := newLine(t, w.ConnectNext(), exclusive)
		first, later, p := chosenAndLost(t, w, l)
		if first.Again(true) {
			t.Error("a try waits for others")
		}
		later.GiveUp()
		synctest.Wait()
		if !first.Again(true) {
			t.Error("a try was refused by a local queue in which nobody waits")
		}
		<-first.Ready()
		if _, ok := first.Take(); ok {
			t.Error("a try was granted beside the holder")
		}
		leave(t, p)
		empty(w, l)
	})
}

// The turn comes at the moment at which it is lost, or at which the last waiter
// leaves: it is given to nobody, and its znode goes.
func TestAGrantThatComesTooLate(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := newLine(t, w.ConnectNext(), exclusive)
		lost := errors.New("lost")
		admitted, err := l.LetIn(t.Context(), func(lose func(error), _ func()) { lose(lost) })
		if admitted || !errors.Is(err, lost) {
			t.Errorf("lost: admitted %v, %v", admitted, err)
		}
		empty(w, l)
		admitted, err = l.LetIn(t.Context(), func(_ func(error), leave func()) { leave() })
		if admitted || err != nil {
			t.Errorf("nobody waits: admitted %v, %v", admitted, err)
		}
		empty(w, l)
		// Nothing keeps the session's heartbeat quick: one for each third of the
		// timeout.
		w.ResetRequests()
		time.Sleep(10 * framework.DefaultSessionTimeout)
		if n := w.Requests()[testutil.OpSync]; n > 31 {
			t.Errorf("%d heartbeats in ten time-outs, while nothing is held", n)
		}
	})
}

// Nobody is told of the loss of a place that has left, and everybody else once.
func TestOnLossIsCalledOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		l := newLine(t, c, exclusive)
		p := acquire(t, l)
		shared, err := p.Again(l)
		if err != nil {
			t.Fatal(err)
		}
		told := map[string]int{}
		p.OnLoss(func(*line.Loss) { told["left"]++ })
		shared.OnLoss(func(*line.Loss) { told["held"]++ })
		leave(t, p)
		if _, err := p.Again(l); !errors.Is(err, line.ErrNotHeld) {
			t.Errorf("a place that has left was shared: %v", err)
		}
		shared.Deleted()
		shared.Deleted()
		if err := w.ExpireSession(session(t, c)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		shared.OnLoss(func(*line.Loss) { told["late"]++ })
		if want := map[string]int{"held": 1, "late": 1}; !maps.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
		if _, err := shared.Again(l); !errors.Is(err, line.ErrNotHeld) {
			t.Errorf("a lost place was shared: %v", err)
		}
		if err := release(t.Context(), shared); !errors.Is(err, line.ErrNotHeld) {
			t.Errorf("Leave: %v", err)
		}
		empty(w, l)
	})
}

// A guarded Multi that was sent behind the delete of a Release finds no znode,
// and may hear of it first. It made the Release fail, and the Observer count a
// loss.
func TestTheOwnRemovalIsNoLoss(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := newLine(t, w.ConnectNext(), exclusive)
		p := acquire(t, l)
		p.OnLoss(func(loss *line.Loss) { t.Errorf("lost: %v", loss.Err) })
		answer := make(chan struct{})
		stop := w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpDelete {
				return testutil.HoldReply(answer)
			}
			return testutil.Pass()
		})
		defer stop()
		left := make(chan error)
		go func() { left <- release(t.Context(), p) }()
		synctest.Wait()
		if n := len(w.Children("/line")); n != 0 {
			t.Fatalf("%d in line", n)
		}
		p.Deleted()
		close(answer)
		if err := <-left; err != nil {
			t.Errorf("Leave: %v", err)
		}
		empty(w, l)
	})
}

// The engine knows nothing of what makes a lock exclusive: with another
// predicate it is a shared/exclusive one.
func TestOtherRules(t *testing.T) {
	either := func(mine, theirs string) bool { return mine == "exclusive" || theirs == "exclusive" }
	reading := line.Rule{
		Kind: "rw", Name: "shared", Conflicts: either,
		Base: layout.CuratorReadName, Set: layout.Set{Family: layout.CuratorRW},
	}
	writing := reading
	writing.Name, writing.Base = "exclusive", layout.CuratorWriteName
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.ConnectNext(), w.ConnectNext()
		wait := func(c *framework.Client, rule line.Rule) <-chan *line.Share {
			shares := make(chan *line.Share, 1)
			l := newLine(t, c, rule)
			go func() { shares <- acquire(t, l) }()
			synctest.Wait()
			return shares
		}
		leave := func(s *line.Share) {
			t.Helper()
			leave(t, s)
			synctest.Wait()
		}
		waits := func(who string, shares <-chan *line.Share) {
			t.Helper()
			synctest.Wait()
			if len(shares) > 0 {
				t.Errorf("%s does not wait", who)
			}
		}
		one, two := <-wait(a, reading), <-wait(b, reading) // both at once
		writer := wait(a, writing)
		behind := wait(b, reading) // behind the writer, though only readers hold
		waits("the writer", writer)
		leave(one)
		waits("the writer", writer)
		waits("a reader behind it", behind)
		leave(two)
		held := <-writer
		waits("a reader behind the writer", behind)
		all, err := held.Line().Participants(t.Context())
		if err != nil || len(all) != 2 || !all[0].Holder || all[1].Holder || !all[1].Shared {
			t.Errorf("participants: %+v, %v", all, err)
		}
		leave(held)
		leave(<-behind)
		empty(w, held.Line())
	})
}
