package leader_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
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
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Run took the errors of the work for errors of its campaign: a leader that
// could not read some znode, or used another client that was closed, never led
// again.
func TestWorkErrorsDoNotEndRun(t *testing.T) {
	for _, workErr := range []error{framework.ErrClosed, recipes.ErrLayout, recipes.ErrExhausted, zk.ErrNoAuth, recipes.ErrNotHeld} {
		inEachView(t, func(t *testing.T, w *world) {
			e := w.candidate(w.Connect("a"), "a")
			terms := 0
			err := e.Run(t.Context(), func(context.Context, *recipes.Lease) error {
				if terms++; terms < 3 {
					return workErr
				}
				return leader.ErrStop
			})
			if err != nil || terms != 3 {
				t.Errorf("%v: %d terms, then %v", workErr, terms, err)
			}
		})
	}
	// Errors of the health check do not end it either.
	inEachView(t, func(t *testing.T, w *world) {
		checks := 0
		check := func(context.Context) error {
			if checks++; checks < 3 {
				return zk.ErrNoAuth
			}
			return nil
		}
		e := w.candidate(w.Connect("a"), "a", leader.WithHealthCheck(time.Hour, check))
		err := e.Run(t.Context(), func(context.Context, *recipes.Lease) error { return leader.ErrStop })
		if err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// CURATOR-504: each reconnect, and each predecessor that left, created another
// znode, and each new znode woke the next candidate. The znodes in line must
// stay the same.
func TestNothingIsCreatedTwice(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		w.candidates(ctx, 2, 1000*time.Hour)
		middle, leave := cancellable(t)
		w.run(middle, w.candidate(w.Connect("middle"), "middle"), "middle", 1000*time.Hour, nil)
		w.InLine(path, 3)
		for _, id := range []string{"y", "z"} {
			w.run(ctx, w.candidate(w.Connect(id), id), id, 1000*time.Hour, nil)
		}
		w.InLine(path, 5)
		stood := w.Children(path)
		creates := w.Requests()[testutil.OpCreate]
		for range 20 {
			for _, s := range w.Sessions() {
				must(t, w.DropConnections(s.ID))
			}
			time.Sleep(3 * time.Second)
		}
		if now := w.Children(path); !slices.Equal(now, stood) {
			t.Errorf("in line: %v, want %v as before the reconnects", now, stood)
		}
		leave()
		w.InLine(path, 4)
		time.Sleep(time.Second)
		w.InLine(path, 4)
		if n := w.Requests()[testutil.OpCreate] - creates; n != 0 {
			t.Errorf("%d creates", n)
		}
		if got := w.order(); got != "a" {
			t.Errorf("led: %s", got)
		}
	}, testutil.WithMembers(3))
}

// CURATOR-358: Participants and Leader failed if a candidate left between the
// list and the read of its znode. They must leave it out.
func TestCandidateLeavesDuringARead(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead
	inEachView(t, func(t *testing.T, w *world) {
		var leave []context.CancelFunc
		for i, id := range []string{"a", "b", "c", "d"} {
			ctx, cancel := cancellable(t)
			leave = append(leave, cancel)
			w.run(ctx, w.candidate(w.Connect(id), id), id, 1000*time.Hour, nil)
			w.InLine(path, i+1)
		}
		asker := w.candidate(w.Connect("asker"), "x")
		leaveDuring := func(i int, op testutil.Op, ask func() error) {
			t.Helper()
			free := make(chan struct{})
			read := testutil.NewFault(testutil.Match{Op: op, Path: path + "/"}, testutil.Hold(free))
			defer w.ClientNet("asker").Control(read.Control)()
			replied := make(chan error, 1)
			go func() { replied <- ask() }()
			bubble.Await(t, "the read", read.Hit())
			leave[i]()
			w.InLine(path, 3-i)
			close(free)
			must(t, <-replied)
		}
		leaveDuring(0, testutil.OpMultiRead, func() error {
			all, err := asker.Participants(t.Context())
			if len(all) != 3 || string(all[0].Data) != "b" {
				t.Errorf("participants: %+v", all)
			}
			return err
		})
		leaveDuring(1, testutil.OpGetData, func() error {
			now, err := asker.Leader(t.Context())
			if string(now.Data) != "c" || !now.Holder {
				t.Errorf("leader: %+v", now)
			}
			return err
		})
	})
}

// When the backoff is used up, Run returns the last error of the work.
func TestRunReturnsTheLastWorkError(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		e := w.candidate(w.Connect("a"), "a", leader.WithBackoff(retry.Never()))
		err := e.Run(t.Context(), func(context.Context, *recipes.Lease) error { return zk.ErrNoAuth })
		if !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("Run: %v", err)
		}
	})
}

// Run waited for a health check that hung, so a process that no longer worked
// stayed the leader. A check that hangs has failed.
func TestHealthCheckHangs(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		ctx, cancel := cancellable(t)
		hang := make(chan struct{})
		calls := 0
		check := func(context.Context) error {
			if calls++; calls == 3 {
				<-hang // even when its context has ended
			}
			return nil
		}
		a := w.candidate(w.Connect("a"), "a", leader.WithHealthCheck(time.Second, check))
		ended := w.run(ctx, a, "a", time.Hour, nil)
		w.InLine(path, 1)
		w.run(ctx, w.candidate(w.Connect("b"), "b"), "b", time.Hour, nil)
		w.InLine(path, 2)
		time.Sleep(time.Minute)
		first := w.term(0)
		if !errors.Is(first.cause, leader.ErrUnhealthy) || first.to.Sub(first.from) != 2*time.Second {
			t.Errorf("first term: %+v, lasted %v", first, first.to.Sub(first.from))
		}
		if got := w.order(); got != "ab" || len(w.Children(path)) != 1 {
			t.Errorf("led: %s; in line: %v", got, w.Children(path))
		}
		close(hang)
		w.InLine(path, 2) // healthy again
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

// Observe left a watch on the znode of each former leader until its session
// ended.
func TestObserveLeavesNoWatches(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		ctx, cancel := cancellable(t)
		watching, stop := context.WithCancel(ctx)
		leaders := w.candidate(w.Connect("watcher"), "x").Observe(watching)
		all := w.candidates(ctx, 2, 1000*time.Hour)
		for i := range 20 {
			<-all[i%2].Resign()
			time.Sleep(time.Second)
			synctest.Wait()
			<-leaders
			for watched, n := range w.Watches() {
				if !w.Exists(watched) || n > 3 {
					t.Fatalf("after %d leaders: %d watches on %s, which exists: %v", i+2, n, watched, w.Exists(watched))
				}
			}
		}
		stop()
		cancel()
		w.InLine(path, 0)
		time.Sleep(time.Second)
		for watched := range w.Watches() {
			if watched != path { // Observe waited for a leader there
				t.Errorf("a watch is left on %s", watched)
			}
		}
	})
}

// After a term that was lost or resigned, the next campaign begins at once,
// whatever the function returned.
func TestEndedTermCostsNoPause(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		c := w.Connect("a")
		e := w.candidate(c, "a", leader.WithBackoff(retry.Forever(time.Hour)))
		w.run(ctx, e, "a", 1000*time.Hour, errors.New("interrupted"))
		w.InLine(path, 1)
		time.Sleep(time.Second)
		<-e.Resign()
		time.Sleep(time.Second)
		if got := w.order(); got != "aa" {
			t.Fatalf("led after Resign: %s", got)
		}
		w.Expire(c)
		time.Sleep(bubble.Timeout)
		if got := w.order(); got != "aaa" {
			t.Errorf("led after the loss: %s", got)
		}
	})
}

// The backoff counts consecutive failures.
func TestGoodTermResetsThePauses(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		boom := errors.New("boom")
		plan := []error{boom, boom, nil, boom, boom, nil, boom, boom, boom, nil}
		terms := 0
		e := w.candidate(w.Connect("a"), "a", leader.WithBackoff(retry.NTimes(2, time.Second)))
		err := e.Run(t.Context(), func(context.Context, *recipes.Lease) error {
			terms++
			return plan[terms-1]
		})
		if !errors.Is(err, boom) || terms != 9 {
			t.Errorf("%d terms, then %v", terms, err)
		}
	})
}

// When Run has returned or panicked, none of its goroutines is running.
func TestRunWaitsForItsGoroutines(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		var inside atomic.Int32
		check := func(context.Context) error {
			inside.Add(1)
			defer inside.Add(-1)
			time.Sleep(900 * time.Millisecond)
			return nil
		}
		for _, ret := range []error{leader.ErrStop, nil} {
			e := w.candidate(w.Connect("a"), "a", leader.WithHealthCheck(time.Second, check))
			func() {
				defer func() { _ = recover() }()
				_ = e.Run(t.Context(), func(context.Context, *recipes.Lease) error {
					time.Sleep(1500 * time.Millisecond)
					if ret == nil {
						panic("boom")
					}
					return ret
				})
			}()
			if n := inside.Load(); n != 0 {
				t.Errorf("%d health checks after Run", n)
			}
		}
		w.InLine(path, 0)
	})
}

// Run ends at once, and with the reason, also in a pause, and asks nobody then.
func TestRunEndsInAPause(t *testing.T) {
	gone := errors.New("the user went away")
	for _, during := range []string{"pause", "term"} {
		for closes, want := range map[bool]error{false: gone, true: framework.ErrClosed} {
			inBubble(t, func(t *testing.T, w *world) {
				c := w.Connect("a")
				checks := 0
				check := func(context.Context) error { checks++; return nil }
				e := w.candidate(c, "a", leader.WithBackoff(retry.NTimes(1, time.Hour)), leader.WithHealthCheck(time.Minute, check))
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				end := func() {
					if closes {
						must(t, c.Close())
					} else {
						cancel(gone)
					}
				}
				time.AfterFunc(30*time.Second, end)
				began := time.Now()
				err := e.Run(ctx, func(ctx context.Context, _ *recipes.Lease) error {
					synctest.Wait()
					if during == "term" {
						<-ctx.Done()
					}
					return errors.New("no work")
				})
				bubble.WantErr(t, err, want)
				if took := time.Since(began); took != 30*time.Second || !closes && checks != 2 {
					t.Errorf("in a %s, %v: after %v and %d checks", during, want, took, checks)
				}
			})
		}
	}
}

// Run returns if its client's chroot does not exist: nobody will create it.
func TestRunWithoutItsChroot(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		e := w.candidate(w.ConnectTo("a", w.Servers()+"/missing"), "a")
		err := e.Run(t.Context(), func(context.Context, *recipes.Lease) error { return nil })
		bubble.WantErr(t, err, zk.ErrNoNode)
	})
}

// Before a campaign, too, a check that ends late has failed, and the next one
// is after a pause. Its context ends when the interval is over.
func TestSlowHealthCheckBeforeACampaign(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		checks, began := 0, time.Now()
		check := func(ctx context.Context) error {
			if left, _ := ctx.Deadline(); time.Until(left) != time.Second {
				t.Errorf("check %d has %v", checks, time.Until(left))
			}
			if checks++; checks == 1 {
				time.Sleep(2 * time.Second)
			}
			return nil
		}
		e := w.candidate(w.Connect("a"), "a", leader.WithHealthCheck(time.Second, check), leader.WithBackoff(retry.Forever(time.Minute)))
		err := e.Run(t.Context(), func(context.Context, *recipes.Lease) error { return leader.ErrStop })
		if took := time.Since(began).Truncate(time.Second); err != nil || took != 62*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// A leader past its maximum term that may not list the line goes on to lead,
// and looks again once a second.
func TestMaxTermWithoutAList(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		a := w.Connect("a")
		w.run(ctx, w.candidate(a, "a", leader.WithMaxTerm(time.Minute)), "a", 1000*time.Hour, nil)
		w.InLine(path, 1)
		time.Sleep(65 * time.Second)
		mine, refused := w.SessionID(a), 0
		allow := w.Control(func(r testutil.Request) testutil.Action {
			if r.Session == mine && r.Op == testutil.OpGetChildren2 {
				refused++
				return testutil.Fail(testutil.CodeNoAuth)
			}
			return testutil.Pass()
		})
		w.run(ctx, w.candidate(w.Connect("b"), "b"), "b", 1000*time.Hour, nil)
		w.InLine(path, 2)
		time.Sleep(10*time.Second + time.Second/2)
		synctest.Wait()
		if got := w.order(); got != "a" || refused != 11 {
			t.Errorf("led: %s; %d lists in ten seconds, want one a second", got, refused)
		}
		allow()
		time.Sleep(time.Second)
		if got := w.order(); got != "ab" {
			t.Errorf("led: %s", got)
		}
	})
}

// A function that returns nil at once led 8,600 terms a second, without a word,
// or virtual time stood still. Terms begin a second apart, as those of zkr
// elect, and that is logged once. A term that lasted longer, or was resigned,
// costs no pause.
func TestShortTermsPause(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		core, logs := observer.New(zap.WarnLevel)
		ctx, cancel := cancellable(t)
		e := w.candidate(w.Connect("a", framework.WithLogger(zap.New(core))), "a")
		var began []time.Time
		lead := func(ctx context.Context, _ *recipes.Lease) error {
			began = append(began, time.Now())
			switch n := len(began); {
			case n%20 == 0:
				time.Sleep(3 * time.Second)
			case n%20 == 10:
				e.Resign()
			case n%2 == 0:
				time.Sleep(300 * time.Millisecond)
			}
			if len(began) == 100 {
				cancel()
			}
			return nil
		}
		bubble.WantErr(t, e.Run(ctx, lead), context.Canceled)
		for i := range began[1:] {
			n, least, most := i+1, time.Second, time.Second+10*time.Millisecond
			switch {
			case n%20 == 0:
				least, most = 3*time.Second, 3*time.Second+10*time.Millisecond
			case n%20 == 10:
				least, most = 0, 10*time.Millisecond
			}
			if apart := began[i+1].Sub(began[i]); apart < least || apart > most {
				t.Errorf("term %d began %v after the one before, want from %v to %v", n+1, apart, least, most)
			}
		}
		if n := logs.FilterMessageSnippet("has returned at once").Len(); n != 1 || logs.Len() != 1 {
			t.Errorf("logged: %v", logs.All())
		}
	})
}

// A short term is also followed by its pause where its release fails, or finds
// that the term was lost after its function had returned: the next campaign
// began after the first pause of the backoff, or without any.
func TestShortTermsPauseWithoutARelease(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, w *world, operator *framework.Client){
		"no answer": func(_ *testing.T, w *world, _ *framework.Client) {
			w.Once(testutil.OpDelete, path, testutil.DropAfter())
		},
		"lost": func(t *testing.T, w *world, operator *framework.Client) {
			must(t, operator.Delete(t.Context(), path+"/"+w.InLine(path, 1)[0], -1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				e := w.candidate(w.Connect("a", framework.WithRetry(retry.NTimes(0, 0))), "a", leader.WithBackoff(retry.Forever(time.Millisecond)))
				operator := w.Connect("operator")
				w.ClientNet("a").Latency(10*time.Millisecond, 10*time.Millisecond)
				var began []time.Time
				must(t, e.Run(t.Context(), func(ctx context.Context, _ *recipes.Lease) error {
					if began = append(began, time.Now()); len(began) == 5 {
						return leader.ErrStop
					}
					spoil(t, w, operator)
					return ctx.Err()
				}))
				for i := range began[1:] {
					if apart := began[i+1].Sub(began[i]); apart < time.Second || apart > 2*time.Second {
						t.Errorf("term %d began %v after the one before", i+2, apart)
					}
				}
			})
		})
	}
}

// The pause after a short term ends with the context and with the client, and
// the candidate is out of line meanwhile.
func TestShortTermPauseEnds(t *testing.T) {
	for closes, want := range map[bool]error{false: context.Canceled, true: framework.ErrClosed} {
		inBubble(t, func(t *testing.T, w *world) {
			ctx, cancel := cancellable(t)
			c := w.Connect("a")
			ended := w.run(ctx, w.candidate(c, "a"), "a", 0, nil)
			time.Sleep(500 * time.Millisecond)
			began := time.Now()
			if left := w.Children(path); len(left) > 0 || w.order() != "a" {
				t.Errorf("in line: %v; led: %s", left, w.order())
			}
			if closes {
				must(t, c.Close())
			} else {
				cancel()
			}
			bubble.WantErr(t, bubble.Await(t, "Run to return", ended), want)
			if took := time.Since(began); took > 0 {
				t.Errorf("after %v", took)
			}
		})
	}
}

// A candidate leads one term with each znode, also where Acquires, or Run and
// Acquire, wait for one Election: the next term is behind all candidates that
// wait. It was handed off in-process, up to sixteen times past them.
func TestATermIsNotHandedOff(t *testing.T) {
	inEachView(t, func(t *testing.T, w *world) {
		ctx, cancel := cancellable(t)
		a := w.candidate(w.Connect("a"), "a")
		var acquiring sync.WaitGroup
		acquire := func(id string) {
			acquiring.Go(func() {
				for ctx.Err() == nil {
					term, err := a.Acquire(ctx)
					if err != nil {
						return
					}
					_ = w.serve(term.Context(), term, id, time.Second, nil)
					bubble.Release(t, term)
				}
			})
		}
		acquire("a")
		acquire("A")
		w.InLine(path, 1)
		b := w.run(ctx, w.candidate(w.Connect("b"), "b"), "b", time.Second, nil)
		w.InLine(path, 2)
		run := w.run(ctx, a, "r", time.Second, nil)
		time.Sleep(time.Minute)
		cancel()
		<-b
		<-run
		acquiring.Wait()
		order := w.order()
		for i := 2; i < len(order); i++ {
			if (order[i] == 'b') == (order[i-1] == 'b') {
				t.Fatalf("led: %s, want b every second time", order)
			}
		}
		if len(order) < 50 || !strings.Contains(order, "r") || !strings.Contains(order, "A") {
			t.Errorf("led: %s", order)
		}
		tokens := map[string]bool{}
		for i := range order {
			if text := w.term(i).token.String(); strings.HasSuffix(text, "00000000") {
				tokens[text] = true
			}
		}
		if len(tokens) != len(order) {
			t.Errorf("%d terms with %d tokens that no handoff has made", len(order), len(tokens))
		}
	})
}

// An Election keeps nothing of a term that is over.
func TestRunKeepsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.Connect("a")
		e := w.candidate(c, "a")
		must(t, e.Run(t.Context(), func(context.Context, *recipes.Lease) error { return leader.ErrStop }))
		must(t, c.Close()) // so that nothing runs that Count looks at
		if n := w.Count(e); n["*leader.term"] != 0 || n["*leader.Election"] != 1 {
			t.Errorf("%d terms are kept, of %d elections", n["*leader.term"], n["*leader.Election"])
		}
	})
}

// Without WithBackoff the pauses are of 200ms at most at first, and of 10s at
// most later.
func TestDefaultBackoff(t *testing.T) {
	var first, later time.Duration
	pauses := leader.DefaultBackoff()
	for range 5000 {
		first, later = max(first, leader.DefaultBackoff().NextBackOff()), max(later, pauses.NextBackOff())
	}
	if first < 190*time.Millisecond || first > 200*time.Millisecond || later < 9*time.Second || later > 10*time.Second {
		t.Errorf("%v at first, then %v", first, later)
	}
}
