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

// The selector's layout is that of the mutex, so that both stand in one line.
// The latch's layout is another, and each refuses the other's path.
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
			t.Errorf("with a mutex on the path: %v", err)
		}
		if _, err := w.candidate(c, "a").Acquire(ctx); !errors.Is(err, recipes.ErrLayout) {
			t.Errorf("latch with a mutex on the path: %v", err)
		}
		err = w.candidate(c, "a").Run(ctx, func(context.Context, *recipes.Lease) error { return nil })
		if !errors.Is(err, recipes.ErrLayout) {
			t.Errorf("Run: %v", err)
		}
		must(t, l.Release(ctx))
		w.InLine(path, 0) // the znodes of the other layout are removed in the background
		term, err := selector.Acquire(ctx)
		must(t, err)
		if !strings.Contains(term.Path(), "-lock-") {
			t.Errorf("selector's znode: %s", term.Path())
		}
		must(t, term.Release(ctx))
		latch, err := w.candidate(c, "a").Acquire(ctx)
		must(t, err)
		if !strings.Contains(latch.Path(), "-latch-") {
			t.Errorf("latch's znode: %s", latch.Path())
		}
		must(t, latch.Release(ctx))
	})
}

// Kazoo's election stands in line with its lock, and with a mutex in Kazoo's
// layout.
func TestKazooLayout(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, _ := cancellable(t)
		c := w.Connect("a")
		kazoo := w.candidate(c, "a", leader.WithLayout(leader.LayoutKazoo))
		term, err := kazoo.Acquire(ctx)
		must(t, err)
		if !strings.Contains(term.Path(), "-__lock__") {
			t.Errorf("znode: %s", term.Path())
		}
		m, err := locks.NewMutex(w.Connect("b"), path, locks.WithLayout(locks.LayoutKazoo))
		must(t, err)
		if _, err := m.TryAcquire(ctx); !errors.Is(err, recipes.ErrBusy) {
			t.Errorf("mutex in Kazoo's layout: %v", err)
		}
		for _, layout := range []leader.Layout{leader.LayoutLatch, leader.LayoutSelector} {
			if _, err := w.candidate(c, "b", leader.WithLayout(layout)).Acquire(ctx); !errors.Is(err, recipes.ErrLayout) {
				t.Errorf("layout %d on the same path: %v", layout, err)
			}
		}
		if now, err := kazoo.Leader(ctx); err != nil || string(now.Data) != "a" {
			t.Errorf("leader: %v, %v", now, err)
		}
		must(t, term.Release(ctx))
	})
}
