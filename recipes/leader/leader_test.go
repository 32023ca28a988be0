package leader_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A candidate whose function returns goes to the end of the line, so three
// candidates lead in rotation.
func TestCandidatesTakeTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := cancellable(t)
		w.candidates(ctx, 3, time.Minute)
		time.Sleep(9*time.Minute + time.Second)
		cancel()
		if got := w.order(); !strings.HasPrefix(got, "abcabcabc") {
			t.Errorf("led: %s", got)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if got := w.Children(path); len(got) != 0 {
			t.Errorf("left in line: %v", got)
		}
	})
}

// After a term that fails, Run pauses and campaigns again. ErrStop ends Run. A
// term has its path and its token from the beginning. A known failure
// elsewhere: CURATOR-537.
func TestFunctionResult(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		e := w.candidate(w.Connect("a"), "a", leader.WithBackoff(retry.NTimes(2, 10*time.Second)))
		boom := errors.New("boom")
		began := time.Now()
		paths := make(map[string]bool)
		err := e.Run(t.Context(), func(ctx context.Context, l *recipes.Lease) error {
			if paths[l.Path()] || !w.Exists(l.Path()) {
				t.Errorf("term at %s, earlier terms at %v, exists: %t", l.Path(), paths, w.Exists(l.Path()))
			}
			paths[l.Path()] = true
			return w.serve(ctx, l, "a", time.Second, boom)
		})
		if !errors.Is(err, boom) || w.order() != "aaa" {
			t.Errorf("led: %s, then %v", w.order(), err)
		}
		if took, want := time.Since(began), 3*time.Second+2*10*time.Second; took != want {
			t.Errorf("three terms of a second and two pauses of 10s took %v", took)
		}
		calls := 0
		err = e.Run(t.Context(), func(context.Context, *recipes.Lease) error {
			if calls++; calls < 3 {
				return nil
			}
			return errors.Join(errors.New("enough"), leader.ErrStop)
		})
		if err != nil || calls != 3 {
			t.Errorf("%d terms, then %v", calls, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the user went away")
		err = e.Run(ctx, func(context.Context, *recipes.Lease) error {
			cancel(why)
			return errors.New("not what Run returns")
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("Run, canceled: %v", err)
		}
	})
}

// The leader is cut off from the ensemble. Its term ends a stop margin before
// its deadline, another candidate leads only after the deadline, and the first
// one campaigns again when it is connected. Run ignores what its function
// returned at the loss, and does not pause. Known failures elsewhere:
// CURATOR-15, -104, skupper #1646.
func TestLeaderIsCutOff(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		a, b := w.Connect("a"), w.Connect("b")
		w.run(ctx, w.candidate(a, "a", leader.WithBackoff(retry.Forever(20*time.Second))), "a", time.Hour, errors.New("ignored"))
		w.InLine(path, 1)
		w.run(ctx, w.candidate(b, "b"), "b", time.Minute, nil)
		w.InLine(path, 2)
		time.Sleep(time.Minute + 100*time.Millisecond)
		w.ClientNet("a").Cut()
		deadline := w.Session(a).Deadline()
		time.Sleep(time.Minute)
		first, second := w.term(0), w.term(1)
		if first.id != "a" || !errors.Is(first.cause, recipes.ErrNotHeld) || first.to.Sub(deadline.Add(-bubble.Margin)).Abs() > time.Millisecond {
			t.Errorf("first term: %+v, deadline %v", first, deadline)
		}
		if second.id != "b" || second.from.Before(deadline) {
			t.Errorf("second term: %+v, deadline of the first %v", second, deadline)
		}
		w.ClientNet("a").Heal()
		time.Sleep(5 * time.Minute)
		if got := w.order(); !strings.HasPrefix(got, "ab") || !strings.Contains(got[2:], "a") {
			t.Errorf("led: %s", got)
		}
	}, testutil.WithMembers(3))
}

// The znode of a term stays until its work has returned, however late: after
// Resign, and after a loss that the session survives. Known failures elsewhere:
// Kubernetes #728, etcd #22123.
func TestWorkReturnsBeforeTheNextLeads(t *testing.T) {
	bubble.Usual(t, bubble.ProofWrite) // the heartbeat is not a write
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		a := w.Connect("a")
		e := w.candidate(a, "a")
		stopping := make(chan struct{})
		returned := make(chan time.Time, 1)
		go func() {
			_ = e.Run(ctx, func(ctx context.Context, l *recipes.Lease) error {
				<-ctx.Done()
				close(stopping)
				time.Sleep(time.Hour)
				returned <- time.Now()
				return leader.ErrStop
			})
		}()
		w.InLine(path, 1)
		w.run(ctx, w.candidate(w.Connect("b"), "b"), "b", time.Minute, nil)
		w.InLine(path, 2)
		select {
		case <-e.Resign():
			t.Error("the work has not returned")
		case <-time.After(time.Minute):
		}
		<-stopping
		<-e.Resign()
		at := <-returned
		time.Sleep(time.Second)
		if next := w.term(0); next.from.Before(at) {
			t.Errorf("b leads %v before a has returned", at.Sub(next.from))
		}
	})
	inBubble(t, func(t *testing.T, w *world) {
		a := w.Connect("a")
		l, err := w.candidate(a, "a").Acquire(t.Context())
		must(t, err)
		time.Sleep(bubble.Timeout + 100*time.Millisecond)
		w.ClientNet("a").Cut()
		<-l.Lost()
		w.ClientNet("a").Heal() // within the stop margin: the session survives
		time.Sleep(time.Hour)
		if w.Session(a).Err() != nil || len(w.Children(path)) != 1 {
			t.Errorf("in line: %v, session: %v", w.Children(path), w.Session(a).Err())
		}
		if err := l.Release(t.Context()); !errors.Is(err, recipes.ErrNotHeld) {
			t.Errorf("Release of a lost term: %v", err)
		}
		w.InLine(path, 0)
	}, testutil.WithSessionTimeouts(time.Second, time.Minute))
}

// Resign ends the current term, and no later one. Known failures elsewhere:
// CURATOR-518, -671.
func TestResign(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		all := w.candidates(ctx, 2, time.Hour)
		time.Sleep(time.Second)
		<-all[1].Resign() // does not lead: no effect
		if got := w.order(); got != "a" {
			t.Fatalf("led: %s", got)
		}
		for range 3 {
			<-all[0].Resign()
			time.Sleep(time.Second)
			<-all[1].Resign()
			time.Sleep(time.Second)
		}
		if got := w.order(); got != "abababa" {
			t.Errorf("led: %s", got)
		}
		if cause := w.term(0).cause; !errors.Is(cause, leader.ErrResigned) {
			t.Errorf("cause: %v", cause)
		}
	})
}

// WithMaxTerm ends a term only while another candidate waits. Then all lead in
// rotation. A known failure elsewhere: Curator.
func TestMaxTerm(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		w.candidates(ctx, 1, 1000*time.Hour, leader.WithMaxTerm(time.Minute))
		time.Sleep(time.Hour)
		if got := w.order(); got != "a" {
			t.Errorf("led alone: %s", got)
		}
		began := time.Now()
		for _, id := range []string{"b", "c"} {
			w.run(ctx, w.candidate(w.Connect(id), id, leader.WithMaxTerm(time.Minute)), id, 1000*time.Hour, nil)
			time.Sleep(time.Second)
		}
		time.Sleep(6 * time.Minute)
		if got := w.order(); !strings.HasPrefix(got, "abacbac") && !strings.HasPrefix(got, "abcabca") {
			t.Errorf("led together: %s", got)
		}
		if first := w.term(0); !errors.Is(first.cause, leader.ErrTermOver) || first.to.Sub(began) > time.Second {
			t.Errorf("first term: %+v, another candidate joined at %v", first, began)
		}
		if second := w.term(1); second.to.Sub(second.from) < time.Minute || second.to.Sub(second.from) > time.Minute+time.Second {
			t.Errorf("second term lasted %v", second.to.Sub(second.from))
		}
	})
}

// A candidate whose health check fails stops leading, and does not lead until
// the check passes. A known failure elsewhere: etcd #17470.
func TestHealthCheck(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		var full atomic.Bool
		sick := errors.New("the disk is full")
		check := func(context.Context) error {
			if full.Load() {
				return sick
			}
			return nil
		}
		a := w.candidate(w.Connect("a"), "a", leader.WithHealthCheck(time.Second, check), leader.WithBackoff(retry.Forever(time.Minute)))
		w.run(ctx, a, "a", time.Hour, nil)
		w.InLine(path, 1)
		w.run(ctx, w.candidate(w.Connect("b"), "b"), "b", 10*time.Minute, nil)
		w.InLine(path, 2)
		full.Store(true)
		fell := time.Now()
		time.Sleep(5 * time.Minute)
		first := w.term(0)
		if !errors.Is(first.cause, leader.ErrUnhealthy) || !errors.Is(first.cause, sick) || first.to.Sub(fell) > time.Second {
			t.Errorf("first term: %+v, unhealthy since %v", first, fell)
		}
		if got := w.order(); got != "ab" || len(w.Children(path)) != 1 {
			t.Errorf("led: %s; in line: %v", got, w.Children(path))
		}
		full.Store(false)
		time.Sleep(8 * time.Minute)
		if got := w.order(); got != "aba" {
			t.Errorf("led: %s", got)
		}
	})
}

// A candidate that became unhealthy while it waited led for one interval: its
// health was checked before it joined the line, and then after the first
// interval of the term.
func TestHealthIsCheckedWhenATermBegins(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		first, leave := cancellable(t)
		w.run(first, w.candidate(w.Connect("a"), "a"), "a", 1000*time.Hour, nil)
		w.InLine(path, 1)
		var sick atomic.Bool
		check := func(context.Context) error {
			if sick.Load() {
				return errors.New("sick")
			}
			return nil
		}
		b := w.candidate(w.Connect("b"), "b", leader.WithHealthCheck(time.Minute, check), leader.WithBackoff(retry.Forever(time.Hour)))
		w.run(ctx, b, "b", time.Hour, nil)
		w.InLine(path, 2)
		w.run(ctx, w.candidate(w.Connect("c"), "c"), "c", time.Hour, nil)
		w.InLine(path, 3)
		sick.Store(true)
		time.Sleep(2 * time.Hour)
		leave()
		time.Sleep(time.Second)
		if got := w.order(); got != "abc" {
			t.Fatalf("led: %s", got)
		}
		if second := w.term(1); !errors.Is(second.cause, leader.ErrUnhealthy) || second.to.Sub(second.from) > 0 {
			t.Errorf("second term: %+v", second)
		}
	})
}

// Resign waited for the term's function to return, so it waited forever when
// that function called it with a context that does not end with the term.
func TestResignWithinTheTerm(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		e := w.candidate(w.Connect("a"), "a")
		terms := 0
		err := e.Run(within(t, time.Hour), func(ctx context.Context, _ *recipes.Lease) error {
			if terms++; terms == 3 {
				return leader.ErrStop
			}
			returned := e.Resign()
			select {
			case <-returned:
				t.Error("Resign says that the function has returned")
			case <-ctx.Done():
			}
			if cause := context.Cause(ctx); !errors.Is(cause, leader.ErrResigned) {
				t.Errorf("cause: %v", cause)
			}
			return errors.New("ignored after Resign")
		})
		if err != nil || terms != 3 {
			t.Errorf("%d terms, then %v", terms, err)
		}
		<-e.Resign() // no term: returns at once
		w.InLine(path, 0)
	})
}

// Run with a nil function panicked, and only when the election was won.
func TestRunNeedsAFunction(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		if err := w.candidate(w.Connect("a"), "a").Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Run: %v", err)
		}
	})
}

// The tree is deleted, and the ensemble is stopped and restarted. Soon
// afterwards there is a leader, and each candidate has one znode. Known
// failures elsewhere: CURATOR-724, -165, CURATOR-171.
func TestSurvivesDisasters(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		w.wiped = true
		w.candidates(ctx, 3, 1000*time.Hour)
		operator := w.Connect("operator")
		creates := func() int { return w.Requests()[testutil.OpCreate] }
		before := creates()
		for range 5 {
			for _, name := range w.Children(path) {
				_ = operator.Delete(ctx, path+"/"+name, -1)
			}
			_ = operator.Delete(ctx, path, -1)
			w.settled(3)
		}
		for range 3 {
			for i := range 3 {
				must(t, w.Stop(i))
			}
			time.Sleep(bubble.Timeout / 2)
			for i := range 3 {
				must(t, w.Restart(i))
			}
			must(t, w.WaitServing(ctx))
			w.settled(3)
		}
		for range 3 {
			for _, s := range w.Sessions() {
				must(t, w.ExpireSession(s.ID))
			}
			w.settled(3)
		}
		if n := creates() - before; n > 100 {
			t.Errorf("%d creates for 11 disasters and 3 candidates", n)
		}
	}, testutil.WithMembers(3))
}

// settled waits until n candidates are in line and one of them leads.
func (w *world) settled(n int) {
	w.T.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(100 * time.Millisecond) {
		w.mu.Lock()
		leading := 0
		for _, l := range w.leading {
			if l.Held() {
				leading++
			}
		}
		w.mu.Unlock()
		if leading == 1 && len(w.Children(path)) == n {
			return
		}
	}
	w.T.Fatalf("no leader after a minute; in line: %v", w.Children(path))
}

// An election is not re-entrant: a candidate that acquires during its own term
// waits.
func TestNoReentry(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		e := w.candidate(w.Connect("a"), "a")
		l, err := e.Acquire(t.Context())
		must(t, err)
		ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
		defer cancel()
		if _, err := e.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire during a term: %v", err)
		}
		must(t, l.Release(t.Context()))
	})
}

// Run ends when it runs already, when the client closes, and without
// permission. No znode stays in line after Close, a cancel or a failed
// campaign, even if a create was under way. If an ACL forbids the path, the
// campaign or the wait ends with that error. A term cannot end without having
// begun, because one function call is the whole term. Known failures elsewhere:
// CURATOR-3, -18, etcd #21128, CURATOR-365, Kubernetes #1187.
func TestRunEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		idle := func(context.Context, *recipes.Lease) error { return nil }
		c := w.Connect("a")
		e := w.candidate(c, "a")
		ended := w.run(t.Context(), e, "a", time.Hour, nil)
		w.InLine(path, 1)
		if err := e.Run(t.Context(), idle); err == nil || !strings.Contains(err.Error(), "runs already") {
			t.Errorf("second Run: %v", err)
		}
		must(t, c.Close())
		if err := <-ended; !errors.Is(err, framework.ErrClosed) {
			t.Errorf("Run, closed: %v", err)
		}
		if cause := w.term(0).cause; !errors.Is(cause, framework.ErrClosed) {
			t.Errorf("cause: %v", cause)
		}
		if left := w.Children(path); len(left) > 0 {
			t.Errorf("in line after Close: %v", left)
		}

		owner := w.Connect("owner", framework.WithAuth("digest", []byte("a:b")), framework.WithACL(zk.DigestACL(zk.PermAll, "a", "b")...))
		must(t, owner.MakeContainerPath(t.Context(), "/closed"))
		forbidden, err := leader.New(w.Connect("b"), "/closed/x")
		must(t, err)
		if err := forbidden.Run(t.Context(), idle); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("Run, forbidden: %v", err)
		}
	})
}

// A panic of the function passes through Run, which removes the term's znode.
func TestPanicPasses(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		e := w.candidate(w.Connect("a"), "a", leader.WithMaxTerm(time.Minute))
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			_ = e.Run(t.Context(), func(context.Context, *recipes.Lease) error { panic("boom") })
		}()
		w.InLine(path, 0)
		must(t, e.Run(t.Context(), func(context.Context, *recipes.Lease) error { return leader.ErrStop }))
	})
}

// The constructor refuses a relative path. A known failure elsewhere:
// CURATOR-136.
func TestNewRejectsBadInput(t *testing.T) {
	c, err := framework.New("127.0.0.1:1")
	must(t, err)
	defer c.Close()
	for want, build := range map[string]func() error{
		`"relative"`: func() error { _, err := leader.New(c, "relative"); return err },
		"layout 7":   func() error { _, err := leader.New(c, path, leader.WithLayout(7)); return err },
		"term -1s":   func() error { _, err := leader.New(c, path, leader.WithMaxTerm(-time.Second)); return err },
		"backoff":    func() error { _, err := leader.New(c, path, leader.WithBackoff(nil)); return err },
		"every 0s": func() error {
			_, err := leader.New(c, path, leader.WithHealthCheck(0, func(context.Context) error { return nil }))
			return err
		},
		"no client":    func() error { _, err := leader.New(nil, path); return err },
		"ACL: empty":   func() error { _, err := leader.New(c, path, recipes.WithACL()); return err },
		"__REVOKE__":   func() error { _, err := leader.New(c, path, leader.WithID("__REVOKE__")); return err },
		`path "/a//b"`: func() error { _, err := leader.New(c, "/a//b"); return err },
		"option <nil>": func() error { _, err := leader.New(c, path, nil); return err },
	} {
		if err := build(); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "leader: ") {
			t.Errorf("error %v, want one that contains %s", err, want)
		}
	}
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
