package locks_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// If the second of three locks cannot be acquired, the first one is released,
// and the error is the second's.
func TestAllIsRolledBack(t *testing.T) {
	errEnough := errors.New("waited for long enough")
	tests := []struct {
		story string
		spoil func(t *testing.T, w *bubble.World, second *recipes.Lease) // while the All waits for the second
		want  []error
	}{
		{
			story: "its wait is canceled",
			spoil: func(*testing.T, *bubble.World, *recipes.Lease) {},
			want:  []error{context.DeadlineExceeded, errEnough},
		},
		{
			story: "another recipe uses its path",
			spoil: func(t *testing.T, w *bubble.World, second *recipes.Lease) {
				path := "/app/b/_c_00000000-0000-4000-8000-000000000000-latch-"
				c := w.Connect("c")
				if _, err := c.Create(t.Context(), path, nil, zk.FlagEphemeral|zk.FlagSequence); err != nil {
					t.Fatal(err)
				}
				for _, name := range w.InLine("/app/b", 3) { // it looks at the line once its znode has changed
					_, _ = c.Set(t.Context(), "/app/b/"+name, nil, -1)
				}
				bubble.Release(t, second)
			},
			want: []error{recipes.ErrLayout},
		},
	}
	for _, test := range tests {
		t.Run(test.story, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				a, b := w.Connect("a"), w.Connect("b")
				second := bubble.Acquire(t, t.Context(), mutexAt(t, b, "/app/b"))
				ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errEnough)
				defer cancel()
				start := time.Now()
				waiting := bubble.Acquiring(ctx, all(t, mutexAt(t, a, "/app/a"), mutexAt(t, a, "/app/b"), mutexAt(t, a, "/app/c")))
				time.Sleep(time.Second)
				bubble.Pending(t, waiting)
				first := bubble.Acquiring(t.Context(), mutexAt(t, b, "/app/a"))
				bubble.Pending(t, first)
				test.spoil(t, w, second)
				g := <-waiting
				if g.Lease != nil || g.Err == nil {
					t.Fatalf("Acquire: %v, %v", g.Lease, g.Err)
				}
				bubble.WantErr(t, g.Err, test.want...)
				if !strings.HasPrefix(g.Err.Error(), "locks: acquire /app/b: ") {
					t.Errorf("error %q does not say where", g.Err)
				}
				if errors.Is(g.Err, context.DeadlineExceeded) && g.At.Sub(start) != 5*time.Second {
					t.Errorf("returned after %v", g.At.Sub(start))
				}
				bubble.Release(t, bubble.Granted(t, first).Lease)
				if w.Exists("/app/c") {
					t.Error("the third lock was tried")
				}
				bubble.Release(t, second)
				synctest.Wait()
				for _, name := range w.Children("/app/b") {
					if !strings.Contains(name, "latch") {
						t.Errorf("left in line: %s", name)
					}
				}
				if left := w.Children("/app/a"); len(left) > 0 {
					t.Errorf("left in line: %v", left)
				}
			})
		})
	}
}

// A part that is lost while All waits for the next one is acquired again,
// unless that cannot succeed.
func TestPartIsLostWhileWaitingForTheNext(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	tests := []struct {
		story string
		opts  []locks.Option
		lose  func(t *testing.T, w *bubble.World, c *framework.Client)
		want  error // nil: it is granted
	}{
		{
			story: "its session expires",
			lose: func(t *testing.T, w *bubble.World, c *framework.Client) {
				w.Expire(c)
			},
		},
		{
			story: "its client is cut off for a while",
			lose: func(_ *testing.T, w *bubble.World, _ *framework.Client) {
				w.ClientNet("a").Cut()
				time.Sleep(12 * time.Second)
				w.ClientNet("a").Heal()
			},
		},
		{
			story: "its znode is deleted",
			lose: func(t *testing.T, w *bubble.World, _ *framework.Client) {
				if err := w.Connect("c").Delete(t.Context(), "/app/a/"+w.Children("/app/a")[0], -1); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			story: "its maximum hold time is over",
			opts:  []locks.Option{recipes.WithMaxHold(3 * time.Second)},
			lose:  func(*testing.T, *bubble.World, *framework.Client) {},
			want:  recipes.ErrMaxHold,
		},
		{
			story: "its client closes",
			lose: func(_ *testing.T, _ *bubble.World, c *framework.Client) {
				if err := c.Close(); err != nil {
					panic(err)
				}
			},
			want: framework.ErrClosed,
		},
	}
	for _, test := range tests {
		t.Run(test.story, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				a, b := w.Connect("a"), w.Connect("b")
				second := bubble.Acquire(t, t.Context(), mutexAt(t, b, "/app/b"))
				waiting := bubble.Acquiring(t.Context(), all(t, mutexAt(t, a, "/app/a", test.opts...), mutexAt(t, a, "/app/b", test.opts...)))
				time.Sleep(time.Second)
				bubble.Pending(t, waiting)
				test.lose(t, w, a)
				time.Sleep(15 * time.Second)
				if test.want != nil {
					g := <-waiting
					bubble.WantErr(t, g.Err, test.want)
					bubble.Release(t, second)
					w.NothingLeft()
					return
				}
				bubble.Pending(t, waiting)
				first := bubble.Acquiring(t.Context(), mutexAt(t, b, "/app/a"))
				bubble.Pending(t, first) // All has the first part again
				bubble.Release(t, second)
				g := bubble.Granted(t, waiting)
				if !g.Lease.Held() {
					t.Error("granted, but not held")
				}
				bubble.Pending(t, first)
				bubble.Release(t, g.Lease)
				bubble.Release(t, bubble.Granted(t, first).Lease)
				w.NothingLeft()
			})
		})
	}
}

// late is an acquirer that takes its time, and that ctx does not end.
type late struct{ recipes.Acquirer }

func (l late) FullPath() string { return recipes.FullPath(l.Acquirer) }

func (l late) Acquire(ctx context.Context) (*recipes.Lease, error) {
	time.Sleep(5 * time.Second)
	return l.Acquirer.Acquire(context.WithoutCancel(ctx))
}

// A part is lost while the last one is on its way, which is granted all the
// same: All fails if the first cannot be had again, and holds nothing.
func TestPartIsLostBeforeTheLastIsGranted(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := all(t, mutexAt(t, c, "/app/a", recipes.WithMaxHold(3*time.Second)), late{mutexAt(t, c, "/app/b")}).Acquire(ctx)
		bubble.WantErr(t, err, recipes.ErrNotHeld, recipes.ErrMaxHold)
		w.NothingLeft()
	})
}

// A joined lease is lost when any part is lost, for that part's reason. The
// other parts are kept until it is released, since the work may still be
// stopping.
func TestJoinedLeaseIsLostWithAPart(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		l := bubble.Acquire(t, t.Context(), all(t, mutexAt(t, a, "/app/a"), mutexAt(t, a, "/app/b"), mutexAt(t, a, "/app/c")))
		time.Sleep(time.Second) // until its znodes are watched
		if err := b.Delete(t.Context(), l.Parts()[1].Path(), -1); err != nil {
			t.Fatal(err)
		}
		bubble.Lost(t, l)
		if l.Held() || !l.Parts()[0].Held() || l.Parts()[1].Held() || !l.Parts()[2].Held() {
			t.Errorf("held: %v, parts %v %v %v", l.Held(), l.Parts()[0].Held(), l.Parts()[1].Held(), l.Parts()[2].Held())
		}
		bubble.WantErr(t, l.Err(), zk.ErrNoNode)
		bubble.WantErr(t, context.Cause(l.Context()), recipes.ErrNotHeld, zk.ErrNoNode)
		if want := "part /app/b: "; !strings.HasPrefix(l.Err().Error(), want) {
			t.Errorf("error %q, want it to begin with %q", l.Err(), want)
		}
		_, err := mutexAt(t, b, "/app/a").TryAcquire(t.Context())
		bubble.WantErr(t, err, recipes.ErrBusy)
		err = l.Release(t.Context())
		bubble.WantErr(t, err, recipes.ErrNotHeld, zk.ErrNoNode)
		if !strings.HasPrefix(err.Error(), "recipes: release /app/a, /app/b, /app/c: not held: part /app/b: znode") {
			t.Errorf("error %q", err)
		}
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld) // still
		bubble.Release(t, bubble.Acquire(t, t.Context(), mutexAt(t, b, "/app/a")))
		w.NothingLeft()
	})
}

func TestJoinedLeaseIsLostInTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		l := bubble.Acquire(t, t.Context(), all(t, mutexAt(t, a, "/app/a"), mutexAt(t, a, "/app/b")))
		next := bubble.Acquiring(t.Context(), all(t, mutexAt(t, b, "/app/b"), mutexAt(t, b, "/app/a")))
		time.Sleep(time.Minute)
		w.ClientNet("a").Cut()
		deadline := l.Deadline()
		if at := bubble.Lost(t, l); !at.Equal(deadline.Add(-bubble.Margin)) {
			t.Errorf("lost %v before the deadline, want %v", deadline.Sub(at), bubble.Margin)
		}
		if !l.Deadline().Equal(deadline) {
			t.Errorf("the deadline moved by %v", l.Deadline().Sub(deadline))
		}
		then := bubble.Granted(t, next)
		if then.At.Before(deadline) {
			t.Errorf("the next was granted %v before the deadline", deadline.Sub(then.At))
		}
		if then.Lease.Token().Compare(l.Token()) <= 0 {
			t.Errorf("token %v after %v", then.Lease.Token(), l.Token())
		}
		w.ClientNet("a").Heal()
		bubble.WantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, framework.ErrSessionLost)
		bubble.Release(t, then.Lease)
		w.NothingLeft()
	})
}

func TestJoinedLeaseIsRevokedByAPart(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		for _, part := range []int{0, 1} {
			l := bubble.Acquire(t, t.Context(), all(t, mutexAt(t, a, "/app/a"), mutexAt(t, a, "/app/b")))
			revoked := l.Revoked()
			synctest.Wait()
			select {
			case <-revoked:
				t.Fatal("Revoked is closed before any request")
			default:
			}
			for _, part := range []int{part, 1 - part} { // the second request changes nothing
				p := recipes.Participant{Path: l.Parts()[part].Path()}
				if err := mutexAt(t, b, []string{"/app/a", "/app/b"}[part]).Revoke(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				<-revoked
			}
			if !l.Held() || l.Revoked() != revoked {
				t.Error("lost by a request to release")
			}
			bubble.Release(t, l)
		}
		bubble.Release(t, acquireRevocable(t, all(t, mutexAt(t, a, "/app/a"), mutexAt(t, a, "/app/b")))) // without a request nothing is left either
		w.NothingLeft()
	})
}

// All of one lock is revoked by that.
func TestTheOnlyPartIsRevoked(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		l := bubble.Acquire(t, t.Context(), all(t, mutexAt(t, w.Connect("a"), "/app/a")))
		revoked := l.Revoked()
		if err := mutexAt(t, w.Connect("b"), "/app/a").Revoke(t.Context(), recipes.Participant{Path: l.Parts()[0].Path()}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-revoked:
		default:
			t.Error("not revoked")
		}
		bubble.Release(t, l)
	})
}

func acquireRevocable(t *testing.T, a recipes.Acquirer) *recipes.Lease {
	l := bubble.Acquire(t, t.Context(), a)
	l.Revoked()
	return l
}

func TestReleaseOfAJoinedLeaseIsBounded(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		l := bubble.Acquire(t, t.Context(), all(t, mutexAt(t, a, "/app/a"), mutexAt(t, a, "/app/b"), mutexAt(t, a, "/app/c")))
		w.ClientNet("a").Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		bubble.WantErr(t, l.Release(ctx), context.DeadlineExceeded)
		if took := time.Since(start); took != time.Second {
			t.Errorf("Release took %v", took)
		}
		w.ClientNet("a").Heal()
		bubble.Release(t, l)
		w.NothingLeft()
	})
}
