package leader_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// The selector's layout is the mutex's line, on purpose; the latch's is another,
// and the two do not pass each other by.
func TestLayouts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		c := w.Connect("a")
		m, err := locks.NewMutex(w.Connect("b"), path)
		must(t, err)
		l, err := m.Acquire(ctx)
		must(t, err)
		selector := w.candidate(c, "a", leader.WithLayout(leader.LayoutSelector))
		if _, err := selector.TryAcquire(ctx); !errors.Is(err, recipes.ErrBusy) {
			t.Errorf("beside a mutex: %v", err)
		}
		if _, err := w.candidate(c, "a").Acquire(ctx); !errors.Is(err, recipes.ErrLayout) {
			t.Errorf("a latch beside a mutex: %v", err)
		}
		err = w.candidate(c, "a").Run(ctx, func(context.Context, *recipes.Lease) error { return nil })
		if !errors.Is(err, recipes.ErrLayout) {
			t.Errorf("Run went on: %v", err)
		}
		must(t, l.Release(ctx))
		w.InLine(path, 0) // those of the other layout withdraw in the background
		term, err := selector.Acquire(ctx)
		must(t, err)
		if !strings.Contains(term.Path(), "-lock-") {
			t.Errorf("the selector's znode is %s", term.Path())
		}
		must(t, term.Release(ctx))
		latch, err := w.candidate(c, "a").Acquire(ctx)
		must(t, err)
		if !strings.Contains(latch.Path(), "-latch-") {
			t.Errorf("the latch's znode is %s", latch.Path())
		}
		must(t, latch.Release(ctx))
	})
}

// Kazoo's layout is the line of its lock, and so of a mutex in it.
func TestKazoosLayout(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		c := w.Connect("a")
		kazoo := w.candidate(c, "a", leader.WithLayout(leader.LayoutKazoo))
		term, err := kazoo.Acquire(ctx)
		must(t, err)
		if !strings.Contains(term.Path(), "-__lock__") {
			t.Errorf("the znode is %s", term.Path())
		}
		m, err := locks.NewMutex(w.Connect("b"), path, locks.WithLayout(locks.LayoutKazoo))
		must(t, err)
		if _, err := m.TryAcquire(ctx); !errors.Is(err, recipes.ErrBusy) {
			t.Errorf("a mutex beside it: %v", err)
		}
		for _, layout := range []leader.Layout{leader.LayoutLatch, leader.LayoutSelector} {
			if _, err := w.candidate(c, "b", leader.WithLayout(layout)).Acquire(ctx); !errors.Is(err, recipes.ErrLayout) {
				t.Errorf("layout %d beside it: %v", layout, err)
			}
		}
		if who, err := kazoo.Leader(ctx); err != nil || string(who.Data) != "a" {
			t.Errorf("led by %v, %v", who, err)
		}
		must(t, term.Release(ctx))
	})
}
