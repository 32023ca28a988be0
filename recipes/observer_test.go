package recipes_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// Keyed.Close, and the release of an All, called Observer.Released for each
// lease before they released the next one: a slow function kept the other
// locks.
func TestSlowReleasedKeepsNoOtherLock(t *testing.T) {
	ways := map[string]func(t *testing.T, c *framework.Client) (release func() error){
		"Keyed.Close": func(t *testing.T, c *framework.Client) func() error {
			k, err := locks.NewKeyed(c, "/lock")
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"1", "2", "3"} {
				bubble.Acquire(t, t.Context(), k.Key(key))
			}
			return func() error { return k.Close(t.Context()) }
		},
		"All": func(t *testing.T, c *framework.Client) func() error {
			l := bubble.Acquire(t, t.Context(), allOf(t, c))
			return func() error { return l.Release(t.Context()) }
		},
		"failing All": func(t *testing.T, c *framework.Client) func() error {
			other := allOf(t, c) // the third lock is acquired below
			return func() error {
				_, err := other.TryAcquire(t.Context())
				bubble.WantErr(t, err, recipes.ErrBusy)
				return nil
			}
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				free := make(chan struct{})
				a := w.Connect("a", recipes.WithObserver(recipes.Observer{
					Released: func(context.Context, recipes.Release) { <-free },
				}))
				release := way(t, a)
				if name == "failing All" {
					m, err := locks.NewMutex(w.Connect("b"), "/lock/3")
					if err != nil {
						t.Fatal(err)
					}
					defer bubble.Release(t, bubble.Acquire(t, t.Context(), m))
				}
				done := make(chan error, 1)
				go func() { done <- release() }()
				time.Sleep(time.Second)
				synctest.Wait()
				for _, dir := range []string{"/lock/1", "/lock/2"} {
					if left := w.Children(dir); len(left) > 0 {
						t.Errorf("%s is still held while Released is slow: %v", dir, left)
					}
				}
				close(free)
				if err := bubble.Await(t, "the release", done); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func allOf(t *testing.T, c *framework.Client) recipes.Acquirer {
	t.Helper()
	var parts []recipes.Acquirer
	for _, path := range []string{"/lock/1", "/lock/2", "/lock/3"} {
		m, err := locks.NewMutex(c, path)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, m)
	}
	all, err := locks.All(parts...)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Do called Observer.Overran before the release. Until the release the znode of
// a lost term stays if the session survives: nobody could lead while Overran
// was slow.
func TestSlowOverranKeepsNoTerm(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		free := make(chan struct{})
		var once sync.Once
		release := func() { once.Do(func() { close(free) }) }
		defer release()
		called := make(chan struct{}, 1)
		a := w.Connect("a", framework.WithErrorPolicy(framework.ErrorPolicyConnection),
			recipes.WithObserver(recipes.Observer{Overran: func(context.Context, recipes.Overrun) {
				called <- struct{}{}
				<-free
			}}))
		e, err := leader.New(a, "/lead")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			done <- recipes.Do(t.Context(), e, func(ctx context.Context, l *recipes.Lease) error {
				w.ClientNet("a").Drop()
				<-ctx.Done()
				time.Sleep(2 * bubble.Timeout)
				return nil
			})
		}()
		bubble.Await(t, "Overran", called)
		time.Sleep(time.Second)
		synctest.Wait()
		if left := w.Children("/lead"); len(left) > 0 {
			t.Errorf("the term's znode is left while Overran is slow: %v", left)
		}
		release()
		bubble.WantErr(t, bubble.Await(t, "Do", done), recipes.ErrNotHeld)
	})
}

// A lease that found its client closed before the session had reported it had
// the deadline of a live session.
func TestDeadlineAfterClose(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		// Under ErrorPolicyConnection a disconnect is a loss. One goroutine
		// reports losses, to the oldest hold first: this hold blocks it.
		c := w.Connect("a", framework.WithErrorPolicy(framework.ErrorPolicyConnection))
		free, blocked := make(chan struct{}), make(chan struct{})
		sess, err := c.Session()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sess.Hold(func(error) { close(blocked); <-free }); err != nil {
			t.Fatal(err)
		}
		m, err := locks.NewMutex(c, "/lock")
		if err != nil {
			t.Fatal(err)
		}
		l := bubble.Acquire(t, t.Context(), m)
		w.ClientNet("a").Drop()
		bubble.Await(t, "the session's reports to block", blocked)
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		<-c.Done()
		began := time.Now()
		if l.Held() {
			t.Error("held after Close")
		}
		bubble.WantErr(t, l.Err(), framework.ErrClosed)
		if after := l.Deadline().Sub(began); after > 0 {
			t.Errorf("deadline %v after Close", after)
		}
		close(free)
		if err := bubble.Await(t, "Close", closed); err != nil {
			t.Error(err)
		}
	})
}
