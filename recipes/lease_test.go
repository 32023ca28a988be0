package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A lease reports its path and can guard a transaction. Known failures
// elsewhere: CURATOR-607, -662.
func TestMultiIsGuarded(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		for _, path := range []string{"/config", "/state"} {
			if _, err := b.Create(t.Context(), path, []byte("old"), zk.FlagPersistent); err != nil {
				t.Fatal(err)
			}
		}
		l := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		results, err := l.Multi(t.Context(), bubble.Set("/config", "new"), bubble.Set("/state", "new"))
		if err != nil || len(results) != 2 || results[0].Stat == nil {
			t.Fatalf("Multi: %v, %v", results, err)
		}

		// A failing op is not mistaken for the guard.
		results, err = l.Multi(t.Context(), bubble.Set("/config", "newer"), bubble.Set("/nothing", ""))
		if !errors.Is(err, zk.ErrNoNode) || errors.Is(err, recipes.ErrNotHeld) || len(results) != 2 || !errors.Is(results[1].Error, zk.ErrNoNode) {
			t.Errorf("Multi with a failing op: %v, %v", results, err)
		}
		if !l.Held() {
			t.Error("lost by a failing op")
		}

		// A request to release changes the znode's version.
		if err := mutexOf(t, b).Revoke(t.Context(), recipes.Participant{Path: l.Path()}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Multi(t.Context(), bubble.Set("/state", "revoked")); err != nil {
			t.Errorf("Multi after a request to release: %v", err)
		}

		// The znode is deleted, and the client does not know yet.
		if err := b.Delete(t.Context(), l.Path(), -1); err != nil {
			t.Fatal(err)
		}
		_, err = l.Multi(t.Context(), bubble.Set("/config", "stale"))
		bubble.WantErr(t, err, recipes.ErrNotHeld, zk.ErrNoNode)
		if framework.MaybeApplied(err) {
			t.Error("no op was applied")
		}
		if data, _ := w.Data("/config"); string(data) != "new" {
			t.Errorf("/config has %q", data)
		}
		synctest.Wait()
		bubble.Lost(t, l)
		bubble.WantErr(t, l.Err(), zk.ErrNoNode)
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)

		w.ResetRequests()
		_, err = l.Multi(t.Context(), bubble.Set("/config", "stale"))
		bubble.WantErr(t, err, recipes.ErrNotHeld)
		if n := w.Requests()[testutil.OpMulti]; n != 0 {
			t.Error("a multi was sent under a lost lease")
		}
		released := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		bubble.Release(t, released)
		_, err = released.Multi(t.Context(), bubble.Set("/config", "stale"))
		bubble.WantErr(t, err, recipes.ErrNotHeld, recipes.ErrReleased)
		w.NothingLeft(lockPath)
	})
}

// A guarded multi of an expired session is not executed in the next session.
func TestMultiAcrossAnExpiry(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		if _, err := a.Create(t.Context(), "/config", []byte("old"), zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
		l := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		w.ClientNet("a").Cut()
		w.Expire(a)
		time.AfterFunc(2*time.Second, w.ClientNet("a").Heal)
		_, err := l.Multi(t.Context(), bubble.Set("/config", "stale"))
		if err == nil || !framework.MaybeApplied(err) {
			t.Errorf("Multi without a reply: %v", err)
		}
		time.Sleep(time.Minute)
		_, err = l.Multi(t.Context(), bubble.Set("/config", "stale"))
		bubble.WantErr(t, err, recipes.ErrNotHeld, framework.ErrSessionLost)
		if data, _ := w.Data("/config"); string(data) != "old" {
			t.Errorf("/config has %q", data)
		}
		// The ops of Guard fail in a plain multi, too.
		_, err = a.Multi(t.Context(), l.Guard(bubble.Set("/config", "stale"))...)
		bubble.WantErr(t, err, zk.ErrNoNode)
		w.NothingLeft(lockPath)
	})
}

// A failed release may be repeated. The client never waits behind its own stale
// znode. Known failures elsewhere: CURATOR-486, -678.
func TestReleaseIsBounded(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		m := mutexOf(t, a)
		l := bubble.Acquire(t, t.Context(), m)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		bubble.WantErr(t, l.Release(ended), context.Canceled)
		bubble.WantErr(t, l.Err(), recipes.ErrReleased)
		bubble.Release(t, bubble.Acquire(t, t.Context(), mutexOf(t, b)))
		bubble.Release(t, l) // nil: it was held until its first release

		// Without a connection Release returns in time, and continues when
		// there is one.
		l = bubble.Acquire(t, t.Context(), m)
		w.ClientNet("a").Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		bubble.WantErr(t, l.Release(ctx), context.DeadlineExceeded)
		// The next caller of this process does not wait behind it forever.
		next := bubble.Acquiring(t.Context(), m)
		bubble.Pending(t, next)
		w.ClientNet("a").Heal()
		bubble.Release(t, bubble.Granted(t, next).Lease)
		bubble.Release(t, l)
		w.NothingLeft(lockPath)
	})
}

// Any goroutine may release a lease. A known failure elsewhere: CURATOR-347.
func TestReleaseIsConcurrent(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		for range 20 {
			l := bubble.Acquire(t, t.Context(), m)
			results := make(chan error)
			for range 5 {
				go func() { results <- l.Release(t.Context()) }()
			}
			for range 5 {
				if err := <-results; err != nil {
					t.Error(err)
				}
			}
		}
		w.NothingLeft(lockPath)
	})
}

// A lease that is lost during its Release is not reported as released.
func TestLeaseIsLostDuringItsRelease(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		l := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		w.ClientNet("a").Cut()
		deadline := l.Deadline()
		results := make(chan error)
		go func() { results <- l.Release(t.Context()) }()
		if at := bubble.Lost(t, l); !at.Equal(deadline.Add(-bubble.Margin)) {
			t.Errorf("lost %v before the deadline", deadline.Sub(at))
		}
		// Even if the reply arrives later.
		w.ClientNet("a").Heal()
		bubble.WantErr(t, <-results, recipes.ErrNotHeld, framework.ErrSessionLost)
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld)
		bubble.WantErr(t, l.Err(), framework.ErrSessionLost)
		w.NothingLeft(lockPath)
	})
}

// The caller gets the first error, not the error of the cleanup. If the lease
// was also lost, that error is joined to it. A known failure elsewhere:
// CURATOR-41.
func TestDo(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		m := mutexOf(t, a)
		errWork := errors.New("no work today")
		do := func(ctx context.Context, fn func(context.Context, *recipes.Lease) error) error {
			return recipes.Do(ctx, m, fn)
		}

		err := do(t.Context(), func(ctx context.Context, l *recipes.Lease) error {
			if held, ok := m.Held(ctx); !ok || held != l {
				t.Error("fn's context does not carry the lease")
			}
			return do(ctx, func(context.Context, *recipes.Lease) error { return nil })
		})
		if err != nil {
			t.Errorf("nested: %v", err)
		}

		err = do(t.Context(), func(context.Context, *recipes.Lease) error { return errWork })
		if !errors.Is(err, errWork) || errors.Is(err, recipes.ErrNotHeld) {
			t.Errorf("a failing fn: %v", err)
		}

		err = do(t.Context(), func(_ context.Context, l *recipes.Lease) error { return l.Release(t.Context()) })
		if err != nil {
			t.Errorf("fn that releases the lease: %v", err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		err = do(ctx, func(ctx context.Context, _ *recipes.Lease) error {
			cancel()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || len(w.Children(lockPath)) != 0 {
			t.Errorf("context canceled in fn: %v, in line %v", err, w.Children(lockPath))
		}

		func() {
			defer func() {
				if got := recover(); got != "oh" {
					t.Errorf("recovered %v", got)
				}
			}()
			_ = do(t.Context(), func(context.Context, *recipes.Lease) error { panic("oh") })
		}()
		if left := w.Children(lockPath); len(left) > 0 {
			t.Errorf("after a panic: %v in line", left)
		}

		// A loss is an error even if fn returns nil, and is joined with fn's
		// error. fn has the stop margin to return.
		for _, own := range []error{nil, errWork} {
			err = do(t.Context(), func(ctx context.Context, l *recipes.Lease) error {
				w.ClientNet("a").Cut()
				<-ctx.Done()
				bubble.WantErr(t, context.Cause(ctx), recipes.ErrNotHeld, framework.ErrSessionLost)
				if left := time.Until(l.Deadline()); left != bubble.Margin {
					t.Errorf("%v left to stop, want %v", left, bubble.Margin)
				}
				return own
			})
			bubble.WantErr(t, err, recipes.ErrNotHeld, framework.ErrSessionLost)
			if own != nil && (!errors.Is(err, own) || !strings.HasPrefix(err.Error(), own.Error())) {
				t.Errorf("failing fn under a lost lease: %v", err)
			}
			w.ClientNet("a").Heal()
		}

		busy := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("b")))
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = do(ctx, func(context.Context, *recipes.Lease) error {
			t.Error("fn was called without a lease")
			return nil
		})
		bubble.WantErr(t, err, context.DeadlineExceeded)
		bubble.Release(t, busy)
		w.NothingLeft(lockPath)
	})
}

func TestRevoke(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		mine := mutexOf(t, a, recipes.WithData([]byte("host a")))
		theirs := mutexOf(t, b)
		for _, early := range []bool{true, false} {
			l := bubble.Acquire(t, t.Context(), mine)
			revoked := make(<-chan struct{})
			if early {
				revoked = l.Revoked()
				synctest.Wait()
			} else {
				time.Sleep(time.Second) // until its znode is watched
			}
			all, err := theirs.Participants(t.Context())
			if err != nil || len(all) != 1 {
				t.Fatalf("Participants: %v, %v", all, err)
			}
			select {
			case <-revoked:
				t.Fatal("Revoked is closed before any request")
			default:
			}
			start := time.Now()
			if err := theirs.Revoke(t.Context(), all[0]); err != nil {
				t.Fatal(err)
			}
			if !early {
				revoked = l.Revoked()
			}
			<-revoked
			if took := time.Since(start); took != 0 {
				t.Errorf("asked early %v: Revoked closed after %v", early, took)
			}
			if !l.Held() {
				t.Error("lost by a request to release")
			}
			bubble.Release(t, l)
			bubble.WantErr(t, theirs.Revoke(t.Context(), all[0]), zk.ErrNoNode)
		}
		if err := theirs.Revoke(t.Context(), recipes.Participant{Path: "/elsewhere/x"}); err == nil {
			t.Error("Revoke accepted a path outside of the line")
		}
		w.NothingLeft(lockPath)
	})
}

// Revoked works after a reconnect and after other changes of the data.
func TestRevokedAcrossAReconnect(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		l := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		revoked := l.Revoked()
		if l.Revoked() != revoked {
			t.Error("Revoked returned another channel")
		}
		time.Sleep(time.Second)
		if _, err := b.Set(t.Context(), l.Path(), []byte("something else"), -1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.ClientNet("a").Cut()
		if err := mutexOf(t, b).Revoke(t.Context(), recipes.Participant{Path: l.Path()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(bubble.Timeout / 5)
		w.ClientNet("a").Drop()
		w.ClientNet("a").Heal()
		select {
		case <-revoked:
		case <-time.After(5 * time.Second):
			t.Error("missed the request")
		}
		bubble.Release(t, l)
		w.NothingLeft(lockPath)
	})
}

func TestParticipants(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		m := mutexOf(t, a, recipes.WithData([]byte("host 0")))
		if all, err := m.Participants(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("without a directory: %v, %v", all, err)
		}
		start := time.Now()
		l := bubble.Acquire(t, t.Context(), m)
		var sessions []int64
		var waiting []<-chan bubble.Grant
		for i := 1; i < 4; i++ {
			time.Sleep(time.Second)
			c := w.Connect(fmt.Sprint("client ", i))
			sessions = append(sessions, w.SessionID(c))
			waiting = append(waiting, bubble.Acquiring(t.Context(), mutexOf(t, c, recipes.WithData(fmt.Appendf(nil, "host %d", i)))))
			w.InLine(lockPath, i+1)
		}
		if _, err := a.Create(t.Context(), lockPath+"/notes", nil, zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
		all, err := m.Participants(t.Context())
		if err != nil || len(all) != 4 {
			t.Fatalf("Participants: %v, %v", all, err)
		}
		for i, p := range all {
			since := p.Since.Sub(start.Truncate(time.Millisecond))
			if p.Holder != (i == 0) || string(p.Data) != fmt.Sprint("host ", i) || p.Mode != recipes.Exclusive ||
				since < time.Duration(i)*time.Second || since > time.Duration(i)*time.Second+500*time.Millisecond {
				t.Errorf("participant %d: %+v", i, p)
			}
			if i > 0 && p.Session != sessions[i-1] {
				t.Errorf("participant %d: session %x, want %x", i, p.Session, sessions[i-1])
			}
		}
		if all[0].Path != l.Path() {
			t.Errorf("the holder's path: %s, want %s", all[0].Path, l.Path())
		}
		bubble.Release(t, l)
		for _, next := range waiting {
			bubble.Release(t, bubble.Granted(t, next).Lease)
		}
		if err := a.Delete(t.Context(), lockPath+"/notes", -1); err != nil {
			t.Error(err)
		}
		w.NothingLeft(lockPath)
	})
}

// A Multi that was answered does not keep the znode from the next goroutine.
func TestHandoffAfterAMulti(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		if _, err := a.Create(t.Context(), "/config", nil, zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
		l := bubble.Acquire(t, t.Context(), mutexOf(t, a))
		next := bubble.Acquiring(t.Context(), mutexOf(t, a))
		bubble.Pending(t, next)
		if _, err := l.Multi(t.Context(), bubble.Set("/config", "new")); err != nil {
			t.Error(err)
		}
		bubble.Release(t, l)
		handed := bubble.Granted(t, next).Lease
		if handed.Path() != l.Path() {
			t.Errorf("granted %s after %s", handed.Path(), l.Path())
		}
		bubble.Release(t, handed)
	})
}
