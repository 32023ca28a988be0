package recipes_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// What a user can make without an Acquire is not held, and nothing about it
// panics.
func TestALeaseOfNothingIsNotHeld(t *testing.T) {
	for story, l := range map[string]*recipes.Lease{
		"zero":             new(recipes.Lease),
		"of no part":       recipes.Join(t.Context()),
		"of a nil part":    recipes.Join(t.Context(), nil),
		"of parts of none": recipes.Join(t.Context(), new(recipes.Lease), recipes.Join(t.Context())),
	} {
		if l.Held() {
			t.Errorf("%s: held", story)
		}
		op := &zk.DeleteRequest{Path: "/a", Version: -1}
		if guarded := l.Guard(op); len(guarded) != 2 || guarded[0] == op {
			t.Errorf("%s: guarded by %v", story, guarded)
		}
		if got := l.Token(); !got.IsZero() {
			t.Errorf("%s: token %v", story, got)
		}
		if l.Path() != "" || !l.Deadline().IsZero() {
			t.Errorf("%s: path %q, deadline %v", story, l.Path(), l.Deadline())
		}
		if _, err := l.Multi(t.Context(), op); !errors.Is(err, recipes.ErrNotHeld) {
			t.Errorf("%s: multi: %v", story, err)
		}
		err := l.Do(t.Context(), func(context.Context, *recipes.Lease) error { return nil })
		if !errors.Is(err, recipes.ErrNotHeld) {
			t.Errorf("%s: do: %v", story, err)
		}
		bound, cancel := l.Bind(t.Context())
		_, _, _ = l.Parts(), l.Revoked(), l.Lost()
		_, _, _ = l.Err(), l.LockPath(), l.Context().Err()
		_ = l.Release(t.Context())
		cancel()
		if bound.Err() == nil {
			t.Errorf("%s: its context goes on", story)
		}
	}
}

// A joined lease is lost with its first part. Its deadline is that of the part
// that others can be granted first, which may be another one.
func TestDeadlineOfAJoinedLease(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		long := bubble.Acquire(t, t.Context(), lineOf(t, w.Connect("long", framework.WithSessionTimeout(20*time.Second)), "a", recipes.WithMaxHold(time.Minute)))
		short := bubble.Acquire(t, t.Context(), lineOf(t, w.Connect("short", framework.WithSessionTimeout(5*time.Second)), "b"))
		joined := recipes.Join(t.Context(), long, short)
		bubble.Lost(t, joined)
		if late := joined.Deadline().Sub(short.Deadline()); late > 0 {
			t.Errorf("%v later than that of a part", late)
		}
		err := joined.Release(t.Context())
		bubble.WantErr(t, err, recipes.ErrNotHeld, recipes.ErrMaxHold)

		a, b := bubble.Acquire(t, t.Context(), lineOf(t, w.Connect("a"), "a")), bubble.Acquire(t, t.Context(), lineOf(t, w.Connect("b"), "b"))
		joined = recipes.Join(t.Context(), a, b)
		bubble.Release(t, a) // by itself: others may be granted it at once
		if left := time.Until(joined.Deadline()); left > 0 || joined.Held() {
			t.Errorf("held %v, and for another %v", joined.Held(), left)
		}
		_ = joined.Release(t.Context())
		w.Empty(path)
	})
}

// An Acquire that fails returns a nil lease. Join does not overlook it.
func TestJoinOfANilPart(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := bubble.Acquire(t, t.Context(), lineOf(t, w.Connect("a"), "a"))
		joined := recipes.Join(t.Context(), l, nil)
		if joined.Held() || joined.Err() == nil {
			t.Errorf("held %v, %v", joined.Held(), joined.Err())
		}
		_ = joined.Release(t.Context())
		w.Empty(path)
	})
}

// An owner that joins leases which were acquired without it re-enters them from
// then on, until it releases the whole.
func TestOwnerReentersWhatItHasJoined(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m := mutexOf(t, w.Connect("a"))
		l := bubble.Acquire(t, t.Context(), m)
		owned := recipes.WithOwner(t.Context(), recipes.NewOwner())
		_, err := m.TryAcquire(owned)
		bubble.WantErr(t, err, recipes.ErrBusy)
		whole := recipes.Join(owned, l)
		again, err := m.TryAcquire(owned)
		if err != nil || again.Path() != l.Path() {
			t.Fatalf("%v, %v", again, err)
		}
		bubble.Release(t, again, whole)
		w.NothingLeft()
	})
}
