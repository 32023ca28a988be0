package leader_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Leader returns ErrNoLeader if nobody leads. Candidates that leave during the
// call are left out. Known failures elsewhere: CURATOR-358, -436.
func TestLeaderAndParticipants(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := cancellable(t)
		asker := w.candidate(w.Connect("asker"), "x")
		if _, err := asker.Leader(ctx); !errors.Is(err, leader.ErrNoLeader) {
			t.Errorf("Leader of an empty election: %v", err)
		}
		if all, err := asker.Participants(ctx); err != nil || len(all) != 0 {
			t.Errorf("Participants of an empty election: %v, %v", all, err)
		}
		w.candidates(ctx, 3, time.Hour)
		now, err := asker.Leader(ctx)
		if err != nil || string(now.Data) != "a" || !now.Holder {
			t.Errorf("Leader: %+v, %v", now, err)
		}
		all, err := asker.Participants(ctx)
		ids := ""
		for i, p := range all {
			ids += string(p.Data)
			if p.Holder != (i == 0) || p.Mode != recipes.Exclusive {
				t.Errorf("participant %d: %+v", i, p)
			}
		}
		if err != nil || ids != "abc" {
			t.Errorf("Participants: %s, %v", ids, err)
		}
		if _, err := asker.TryAcquire(ctx); !errors.Is(err, recipes.ErrBusy) {
			t.Errorf("TryAcquire: %v", err)
		}
		cancel()
		w.InLine(path, 0)
		if l, err := asker.TryAcquire(t.Context()); err != nil {
			t.Errorf("TryAcquire of an empty election: %v", err)
		} else {
			must(t, l.Release(t.Context()))
		}
	})
}

// Observe reports the current leader at once, may skip some, never misses the
// last one, is not woken by candidates that join, and continues in a new
// session.
func TestObserve(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		watcher := w.Connect("watcher")
		watching, stop := context.WithCancel(ctx)
		leaders := w.candidate(watcher, "x").Observe(watching)
		if p := <-leaders; p.Path != "" {
			t.Errorf("reported %+v while nobody leads", p)
		}
		all := w.candidates(ctx, 1, 1000*time.Hour)
		if p := <-leaders; string(p.Data) != "a" {
			t.Errorf("reported %+v", p)
		}
		w.ResetRequests()
		for _, id := range []string{"b", "c", "d"} {
			all = append(all, w.candidate(w.Connect(id), id))
			w.run(ctx, all[len(all)-1], id, 1000*time.Hour, nil)
			time.Sleep(time.Second)
		}
		if n := w.Requests()[testutil.OpGetChildren2]; n != 3 {
			t.Errorf("%d lists while three joined: the observer was woken", n)
		}
		for _, e := range all[:3] {
			<-e.Resign()
			time.Sleep(time.Second)
		}
		if p := <-leaders; string(p.Data) != "d" {
			t.Errorf("missed the last leader: reported %+v", p)
		}
		w.Expire(watcher)
		<-all[3].Resign()
		time.Sleep(bubble.Timeout)
		if p := <-leaders; string(p.Data) != "a" {
			t.Errorf("missed a leader between two sessions: reported %+v", p)
		}
		stop()
		if p, ok := <-leaders; ok {
			t.Errorf("reported %+v after its context ended", p)
		}
		later := w.candidate(watcher, "x").Observe(ctx)
		<-later
		must(t, watcher.Close())
		if p, ok := <-later; ok {
			t.Errorf("reported %+v after Close", p)
		}
	})
}

// An observer looks once in a session timeout, on average: events can be lost.
func TestAQuietObserverLooksOncePerTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		w.candidates(ctx, 1, 1000*time.Hour)
		watcher := w.Connect("watcher")
		<-w.candidate(watcher, "x").Observe(ctx)
		mine := w.SessionID(watcher)
		var looks atomic.Int32
		w.Control(func(r testutil.Request) testutil.Action {
			if r.Session == mine && r.Op == testutil.OpExists {
				looks.Add(1)
			}
			return testutil.Pass()
		})
		const timeouts = 200
		time.Sleep(timeouts * bubble.Timeout)
		if n := looks.Load(); n < timeouts*9/10 || n > timeouts*11/10 {
			t.Errorf("%d looks in %d session timeouts", n, timeouts)
		}
	})
}

// An observer whose context ends leaves no watch on the leader's znode.
func TestAnObserverThatEndsLeavesNoWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		forever, _ := cancellable(t)
		w.candidates(forever, 1, 1000*time.Hour)
		time.Sleep(time.Second) // until the leader watches its znode
		watches := w.WatchCount()
		ctx, cancel := cancellable(t)
		leaders := w.candidate(w.Connect("watcher"), "x").Observe(ctx)
		<-leaders
		time.Sleep(time.Minute)
		if n := w.WatchCount(); n != watches+1 {
			t.Errorf("%d watches, and %d without the observer", n, watches)
		}
		cancel()
		for range leaders { // until it is closed
			t.Error("another leader")
		}
		time.Sleep(3 * bubble.Timeout)
		if n := w.WatchCount(); n != watches {
			t.Errorf("%d watches, want %d as before", n, watches)
		}
	})
}

// When its reads are refused, Observe tries again once a second: more often
// would load the ensemble, and less often would report a leader late.
func TestRefusedObserverBacksOff(t *testing.T) {
	for what, refuse := range map[string]func(r testutil.Request, gets int) bool{
		"the list":  func(r testutil.Request, _ int) bool { return r.Op == testutil.OpGetChildren2 },
		"the watch": func(r testutil.Request, gets int) bool { return r.Op == testutil.OpGetData && gets%2 == 0 },
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				ctx, _ := cancellable(t)
				w.candidates(ctx, 1, 1000*time.Hour)
				watcher := w.Connect("watcher")
				mine, gets, looks := w.SessionID(watcher), 0, 0
				w.Control(func(r testutil.Request) testutil.Action {
					if r.Session != mine {
						return testutil.Pass()
					}
					switch r.Op {
					case testutil.OpGetData:
						gets++
					case testutil.OpGetChildren2:
						looks++
					}
					if refuse(r, gets) {
						return testutil.Fail(testutil.CodeNoAuth)
					}
					return testutil.Pass()
				})
				w.candidate(watcher, "x").Observe(ctx)
				time.Sleep(time.Minute + time.Second/10)
				synctest.Wait()
				if looks != 61 {
					t.Errorf("%d tries in a minute, want one a second", looks)
				}
			})
		})
	}
}

// When a server did not send an event, Observe, and a leader past its maximum
// term, waited for it forever.
func TestLostEventIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		leaders := w.candidate(w.Connect("watcher"), "x").Observe(ctx)
		if p := <-leaders; p.Path != "" {
			t.Errorf("first leader: %+v", p)
		}
		w.ClientNet("watcher").LoseEvents(true)
		w.ClientNet("a").LoseEvents(true)
		a := w.candidate(w.Connect("a"), "a", leader.WithMaxTerm(time.Minute))
		w.run(ctx, a, "a", 1000*time.Hour, nil)
		time.Sleep(bubble.Timeout * 5 / 4)
		synctest.Wait()
		if p := <-leaders; string(p.Data) != "a" {
			t.Errorf("second leader: %+v", p)
		}
		time.Sleep(2 * time.Minute)
		w.run(ctx, w.candidate(w.Connect("b"), "b"), "b", 1000*time.Hour, nil)
		time.Sleep(2 * bubble.Timeout * 5 / 4)
		synctest.Wait()
		if got := w.order(); got != "ab" {
			t.Errorf("led: %s", got)
		}
		select {
		case p := <-leaders:
			if string(p.Data) != "b" {
				t.Errorf("third leader: %+v", p)
			}
		default:
			t.Error("missed the third leader")
		}
	})
}

// While nobody leads, the server removes the election's directory, a container.
// This must wake those that watch its children: otherwise Observe never reports
// a later leader.
func TestObserveOutlivesTheDirectory(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers) // waits for the end of a container
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		e := w.candidate(w.Connect("a"), "a")
		l := bubble.Acquire(t, ctx, e)
		leaders := w.candidate(w.Connect("watcher"), "x").Observe(ctx)
		if now := bubble.Await(t, "the first leader", leaders); string(now.Data) != "a" {
			t.Errorf("leader: %q, want a", now.Data)
		}
		for range 3 {
			bubble.Release(t, l)
			if now := bubble.Await(t, "the report that nobody leads", leaders); now.Path != "" {
				t.Errorf("leader: %+v, want none", now)
			}
			bubble.AwaitTrue(t, "the directory to be removed", func() bool { return !w.Exists(path) })
			l = bubble.Acquire(t, ctx, e)
			if now := bubble.Await(t, "the next leader", leaders); now.Path != l.Path() {
				t.Errorf("leader: %s, want %s", now.Path, l.Path())
			}
		}
		bubble.Release(t, l)
	}, testutil.WithContainerInterval(10*time.Second))
}

// Observe compared sessions, so it did not report a new term of the same client
// in the same session.
func TestObserveReportsNextTermOfSameClient(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		c := w.Connect("a")
		l := bubble.Acquire(t, ctx, w.candidate(c, "a"))
		leaders := w.candidate(w.Connect("watcher"), "x").Observe(ctx)
		bubble.Await(t, "the first leader", leaders)
		for range 5 {
			next := bubble.Acquiring(context.Background(), w.candidate(c, "a"))
			bubble.Pending(t, next)
			bubble.Release(t, l)
			l = bubble.Granted(t, next).Lease
			var now recipes.Participant
			bubble.AwaitTrue(t, "the report of the next term", func() bool {
				select {
				case now = <-leaders: // may be the moment without a leader
				default:
				}
				return now.Path == l.Path()
			})
		}
		bubble.Release(t, l)
	})
}

// A change between the read of the leader and the watch on its znode, or a new
// session, is told at once. The end of Observe is no error, so nothing is
// logged.
func TestObserveLooksAgainAtOnce(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	for what, change := range map[string]func(w *world, watcher *framework.Client, a *recipes.Lease){
		"the leader left":   func(w *world, _ *framework.Client, a *recipes.Lease) { bubble.Release(w.T, a) },
		"the session ended": func(w *world, watcher *framework.Client, a *recipes.Lease) { w.Expire(watcher); bubble.Release(w.T, a) },
	} {
		for _, watching := range []bool{true, false} {
			inBubble(t, func(t *testing.T, w *world) {
				ctx, _ := cancellable(t)
				a := bubble.Acquire(t, ctx, w.candidate(w.Connect("a"), "a"))
				b := bubble.Acquiring(ctx, w.candidate(w.Connect("b"), "b"))
				w.InLine(path, 2)
				core, logged := observer.New(zap.WarnLevel)
				watcher := w.Connect("watcher", framework.WithLogger(zap.New(core)))
				mine, gets := w.SessionID(watcher), 0
				asked, free := make(chan struct{}), make(chan struct{})
				w.Control(func(r testutil.Request) testutil.Action {
					if r.Session == mine && r.Op == testutil.OpGetData {
						if gets++; gets == 2 && !watching {
							close(asked)
							return testutil.Hold(free)
						}
					}
					return testutil.Pass()
				})
				observing, stop := context.WithCancel(ctx)
				leaders := w.candidate(watcher, "x").Observe(observing)
				<-leaders
				if watching {
					synctest.Wait()
					close(asked)
				}
				<-asked
				change(w, watcher, a)
				began := time.Now()
				close(free)
				if p := <-leaders; string(p.Data) != "b" || time.Since(began) >= time.Second {
					t.Errorf("%s: %q after %v", what, p.Data, time.Since(began))
				}
				logged.TakeAll()
				stop()
				synctest.Wait()
				if _, open := <-leaders; open || logged.Len() > 0 {
					t.Errorf("%s: open %v after the end, logged %v", what, open, logged.All())
				}
				bubble.Release(t, bubble.Granted(t, b).Lease)
			})
		}
	}
}
