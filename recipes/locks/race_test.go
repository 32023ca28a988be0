package locks_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// Held looked at the clock while the client was closing, before the session had
// heard of it, and blamed the session for the loss.
func TestALossByCloseIsCalledSo(t *testing.T) {
	for what, look := range map[string]func(l *recipes.Lease){
		"Held": func(l *recipes.Lease) { l.Held() },
		"Release": func(l *recipes.Lease) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = l.Release(ctx)
		},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			busy := make(chan struct{})
			c := w.client("a", framework.WithObserver(framework.Observer{StateChanged: func(s framework.StateChange) {
				if s.To == framework.Suspended {
					<-busy // the session's own goroutine is slow
				}
			}}))
			l := acquire(t, t.Context(), w.mutex(c))
			w.Client("a").Drop()
			synctest.Wait()
			closed := make(chan error)
			go func() { closed <- c.Close() }()
			<-c.Done()
			look(l)
			if err := l.Err(); !errors.Is(err, framework.ErrClosed) {
				t.Errorf("%s: the lease ended with %v", what, err)
			}
			close(busy)
			<-closed
			wantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, framework.ErrClosed)
		})
	}
}

// A nested Acquire met its outer lease just as that was released, and failed, as
// if something had been lost: what was released matches nothing.
func TestReentryRacesTheRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		m := w.mutex(w.client("a"))
		ctx := recipes.WithOwner(t.Context(), recipes.NewOwner())
		for range 3000 {
			outer := acquire(t, ctx, m)
			var wg sync.WaitGroup
			wg.Go(func() { release(t, outer) })
			for range 4 {
				wg.Go(func() { release(t, acquire(t, ctx, m)) })
			}
			wg.Wait()
		}
		w.empty()
	})
}

// The data belonged to the caller still: a change of it made the lock's own values
// disagree, or raced with the create.
func TestDataIsCopied(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.client("a")
		data := []byte("host a")
		m := w.mutex(c, locks.WithData(data))
		copy(data, "XXXX")
		l := acquire(t, t.Context(), m)
		if got, _ := w.Data(l.Path()); string(got) != "host a" {
			t.Errorf("data %q", got)
		}
		release(t, l)
		time.Sleep(time.Second)
		w.empty()
	})
}
