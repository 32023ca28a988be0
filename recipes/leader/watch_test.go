package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestLeaderAndParticipants(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := cancellable(t)
		stranger := w.candidate(w.Connect("stranger"), "x")
		if _, err := stranger.Leader(ctx); !errors.Is(err, leader.ErrNoLeader) {
			t.Errorf("Leader of nothing: %v", err)
		}
		if all, err := stranger.Participants(ctx); err != nil || len(all) != 0 {
			t.Errorf("Participants of nothing: %v, %v", all, err)
		}
		w.candidates(ctx, 3, time.Hour)
		now, err := stranger.Leader(ctx)
		if err != nil || string(now.Data) != "a" || !now.Holder {
			t.Errorf("Leader: %+v, %v", now, err)
		}
		all, err := stranger.Participants(ctx)
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
		if _, err := stranger.TryAcquire(ctx); !errors.Is(err, recipes.ErrBusy) {
			t.Errorf("TryAcquire: %v", err)
		}
		cancel()
		w.InLine(path, 0)
		if l, err := stranger.TryAcquire(t.Context()); err != nil {
			t.Errorf("TryAcquire alone: %v", err)
		} else {
			must(t, l.Release(t.Context()))
		}
	})
}

// Observe tells of the present leader at once, may leave out some, never misses the
// last, is not woken by those who only join, and lives across sessions.
func TestObserve(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		watcher := w.Connect("watcher")
		watching, stop := context.WithCancel(ctx)
		leaders := w.candidate(watcher, "x").Observe(watching)
		if p := <-leaders; p.Path != "" {
			t.Errorf("nobody leads, but %+v", p)
		}
		all := w.candidates(ctx, 1, 1000*time.Hour)
		if p := <-leaders; string(p.Data) != "a" {
			t.Errorf("observed %+v", p)
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
			t.Errorf("the last leader was missed: %+v", p)
		}
		w.Expire(watcher)
		<-all[3].Resign()
		time.Sleep(bubble.Timeout)
		if p := <-leaders; string(p.Data) != "a" {
			t.Errorf("missed in between two sessions: %+v", p)
		}
		stop()
		if p, ok := <-leaders; ok {
			t.Errorf("stopped, but %+v", p)
		}
		later := w.candidate(watcher, "x").Observe(ctx)
		<-later
		must(t, watcher.Close())
		if p, ok := <-later; ok {
			t.Errorf("closed, but %+v", p)
		}
	})
}

// An observer that is refused looks again once a second: more often would load the
// ensemble with requests that fail, and less often would miss who leads by then.
func TestAnObserverThatIsRefusedRests(t *testing.T) {
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
					t.Errorf("%d looks in a minute, want one each second", looks)
				}
			})
		})
	}
}

// An observer, and a leader whose longest term was over, heard of nothing any more
// once a server had failed to send them an event.
func TestALostEventIsMadeUpFor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		leaders := w.candidate(w.Connect("watcher"), "x").Observe(ctx)
		if p := <-leaders; p.Path != "" {
			t.Errorf("the first leader: %+v", p)
		}
		w.ClientNet("watcher").LoseEvents(true)
		w.ClientNet("a").LoseEvents(true)
		a := w.candidate(w.Connect("a"), "a", leader.WithMaxTerm(time.Minute))
		w.run(ctx, a, "a", 1000*time.Hour, nil)
		time.Sleep(bubble.Timeout * 5 / 4)
		synctest.Wait()
		if p := <-leaders; string(p.Data) != "a" {
			t.Errorf("the second leader: %+v", p)
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
				t.Errorf("the third leader: %+v", p)
			}
		default:
			t.Error("the third leader was missed")
		}
	})
}
