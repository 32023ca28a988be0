package recipes_test

import (
	"context"
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// What a user can make without an Acquire is not held, and nothing about it panics.
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
