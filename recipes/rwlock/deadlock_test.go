package rwlock_test

import (
	"errors"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// Without re-entry an Acquire in the context of a lease of the same lock fails
// at once, on both sides. It fails with ErrUpgrade only if the lease is a
// reader's.
func TestWithoutReentry(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		rw, err := rwlock.New(w.Connect("a"), "/app/lock", recipes.WithoutReentry())
		if err != nil {
			t.Fatal(err)
		}
		read := bubble.Acquire(t, t.Context(), rw.Reader())
		_, err = rw.Reader().Acquire(read.Context())
		bubble.WantErr(t, err, recipes.ErrDeadlock)
		_, err = rw.Writer().Acquire(read.Context())
		bubble.WantErr(t, err, rwlock.ErrUpgrade, recipes.ErrDeadlock)
		bubble.Release(t, read)

		write := bubble.Acquire(t, t.Context(), rw.Writer())
		if _, err := rw.Writer().Acquire(write.Context()); !errors.Is(err, recipes.ErrDeadlock) || errors.Is(err, rwlock.ErrUpgrade) {
			t.Errorf("writer in the context of a write lease: %v", err)
		}
		down := bubble.Acquire(t, write.Context(), rw.Reader()) // a downgrade is not a re-entry
		bubble.Release(t, write, down)
		w.Empty("/app/lock")
	})
}

// The methods of a zero RWLock fail, and do not panic.
func TestZeroRWLock(t *testing.T) {
	var rw rwlock.RWLock
	for _, side := range []recipes.Acquirer{rw.Reader(), rw.Writer()} {
		if _, err := side.Acquire(t.Context()); err == nil {
			t.Error("acquired")
		}
		if _, err := side.TryAcquire(t.Context()); err == nil {
			t.Error("acquired")
		}
	}
	if _, err := rw.Participants(t.Context()); err == nil {
		t.Error("participants")
	}
	if rw.Path() != "" || rw.FullPath() != "" || rw.Revoke(t.Context(), recipes.Participant{}) == nil {
		t.Error("has a path")
	}
}
