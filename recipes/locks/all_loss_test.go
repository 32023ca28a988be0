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
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// Whatever keeps the second of three from being acquired, the first is given up,
// and the error is the second's.
func TestAllIsRolledBack(t *testing.T) {
	errEnough := errors.New("waited for long enough")
	tests := []struct {
		story string
		spoil func(t *testing.T, w *world, second *recipes.Lease) // while the All waits for the second
		want  []error
	}{
		{
			story: "its wait is cancelled",
			spoil: func(*testing.T, *world, *recipes.Lease) {},
			want:  []error{context.DeadlineExceeded, errEnough},
		},
		{
			story: "another recipe stands there",
			spoil: func(t *testing.T, w *world, second *recipes.Lease) {
				path := "/app/b/_c_00000000-0000-4000-8000-000000000000-latch-"
				if _, err := w.client("c").Create(t.Context(), path, nil, zk.FlagEphemeral|zk.FlagSequence); err != nil {
					t.Fatal(err)
				}
				release(t, second)
			},
			want: []error{recipes.ErrLayout},
		},
	}
	for _, test := range tests {
		t.Run(test.story, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a, b := w.client("a"), w.client("b")
				second := acquire(t, t.Context(), w.at(b, "/app/b"))
				ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errEnough)
				defer cancel()
				start := time.Now()
				waiting := acquiring(ctx, all(t, w.at(a, "/app/a"), w.at(a, "/app/b"), w.at(a, "/app/c")))
				time.Sleep(time.Second)
				pending(t, waiting)
				first := acquiring(t.Context(), w.at(b, "/app/a"))
				pending(t, first)
				test.spoil(t, w, second)
				g := <-waiting
				if g.lease != nil || g.err == nil {
					t.Fatalf("Acquire: %v, %v", g.lease, g.err)
				}
				wantErr(t, g.err, test.want...)
				if !strings.HasPrefix(g.err.Error(), "locks: acquire /app/b: ") {
					t.Errorf("error %q does not say where", g.err)
				}
				if errors.Is(g.err, context.DeadlineExceeded) && g.at.Sub(start) != 5*time.Second {
					t.Errorf("it returned after %v", g.at.Sub(start))
				}
				release(t, granted(t, first).lease)
				if w.Exists("/app/c") {
					t.Error("the third was begun")
				}
				release(t, second)
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

// A part that is lost while the next is waited for is acquired again, as a waiter
// joins its line again; unless there is no sense in that.
func TestAPartIsLostWhileTheNextIsWaitedFor(t *testing.T) {
	tests := []struct {
		story string
		opts  []locks.Option
		lose  func(t *testing.T, w *world, c *framework.Client)
		want  error // nil: it is granted all the same
	}{
		{
			story: "its session expires",
			lose: func(t *testing.T, w *world, c *framework.Client) {
				if err := w.ExpireSession(w.session(c)); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			story: "its client is cut off, and comes again",
			lose: func(_ *testing.T, w *world, _ *framework.Client) {
				w.ClientNet("a").Cut()
				time.Sleep(12 * time.Second)
				w.ClientNet("a").Heal()
			},
		},
		{
			story: "its znode is deleted",
			lose: func(t *testing.T, w *world, _ *framework.Client) {
				if err := w.client("c").Delete(t.Context(), "/app/a/"+w.Children("/app/a")[0], -1); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			story: "it is held for as long as it may be",
			opts:  []locks.Option{locks.WithMaxHold(3 * time.Second)},
			lose:  func(*testing.T, *world, *framework.Client) {},
			want:  recipes.ErrMaxHold,
		},
		{
			story: "its client closes",
			lose: func(_ *testing.T, _ *world, c *framework.Client) {
				if err := c.Close(); err != nil {
					panic(err)
				}
			},
			want: framework.ErrClosed,
		},
	}
	for _, test := range tests {
		t.Run(test.story, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a, b := w.client("a"), w.client("b")
				second := acquire(t, t.Context(), w.at(b, "/app/b"))
				waiting := acquiring(t.Context(), all(t, w.at(a, "/app/a", test.opts...), w.at(a, "/app/b", test.opts...)))
				time.Sleep(time.Second)
				pending(t, waiting)
				test.lose(t, w, a)
				time.Sleep(15 * time.Second)
				if test.want != nil {
					g := <-waiting
					wantErr(t, g.err, test.want)
					release(t, second)
					w.clean()
					return
				}
				pending(t, waiting)
				first := acquiring(t.Context(), w.at(b, "/app/a"))
				pending(t, first) // it has the first part again
				release(t, second)
				g := granted(t, waiting)
				if !g.lease.Held() {
					t.Error("granted, and not held")
				}
				pending(t, first)
				release(t, g.lease)
				release(t, granted(t, first).lease)
				w.clean()
			})
		})
	}
}

// The whole is lost with any part of it, for that part's reason; the others are
// kept until it is released, for the work may still be stopping.
func TestAWholeIsLostWithAPart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		l := acquire(t, t.Context(), all(t, w.at(a, "/app/a"), w.at(a, "/app/b"), w.at(a, "/app/c")))
		time.Sleep(time.Second) // its znodes are being watched
		if err := b.Delete(t.Context(), l.Parts()[1].Path(), -1); err != nil {
			t.Fatal(err)
		}
		lost(t, l)
		if l.Held() || !l.Parts()[0].Held() || l.Parts()[1].Held() || !l.Parts()[2].Held() {
			t.Errorf("held: %v, parts %v %v %v", l.Held(), l.Parts()[0].Held(), l.Parts()[1].Held(), l.Parts()[2].Held())
		}
		wantErr(t, l.Err(), zk.ErrNoNode)
		wantErr(t, context.Cause(l.Context()), recipes.ErrNotHeld, zk.ErrNoNode)
		if want := "part /app/b: "; !strings.HasPrefix(l.Err().Error(), want) {
			t.Errorf("error %q, want it to begin with %q", l.Err(), want)
		}
		_, err := w.at(b, "/app/a").TryAcquire(t.Context())
		wantErr(t, err, recipes.ErrBusy)
		err = l.Release(t.Context())
		wantErr(t, err, recipes.ErrNotHeld, zk.ErrNoNode)
		if !strings.HasPrefix(err.Error(), "recipes: release /app/a, /app/b, /app/c: not held: part /app/b: znode") {
			t.Errorf("error %q", err)
		}
		wantErr(t, l.Release(t.Context()), recipes.ErrNotHeld) // for good
		release(t, acquire(t, t.Context(), w.at(b, "/app/a")))
		w.clean()
	})
}

func TestAWholeIsLostInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		l := acquire(t, t.Context(), all(t, w.at(a, "/app/a"), w.at(a, "/app/b")))
		next := acquiring(t.Context(), all(t, w.at(b, "/app/b"), w.at(b, "/app/a")))
		time.Sleep(time.Minute)
		w.ClientNet("a").Cut()
		deadline := l.Deadline()
		if at := lost(t, l); !at.Equal(deadline.Add(-margin)) {
			t.Errorf("lost %v before the deadline, want %v", deadline.Sub(at), margin)
		}
		if !l.Deadline().Equal(deadline) {
			t.Errorf("the deadline has moved by %v", l.Deadline().Sub(deadline))
		}
		then := granted(t, next)
		if then.at.Before(deadline) {
			t.Errorf("the next was granted %v before the deadline", deadline.Sub(then.at))
		}
		if then.lease.Token().Compare(l.Token()) <= 0 {
			t.Errorf("token %v after %v", then.lease.Token(), l.Token())
		}
		w.ClientNet("a").Heal()
		wantErr(t, l.Release(t.Context()), recipes.ErrNotHeld, framework.ErrSessionLost)
		release(t, then.lease)
		w.clean()
	})
}

func TestAWholeIsRevokedByAPart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		for _, part := range []int{0, 1} {
			l := acquire(t, t.Context(), all(t, w.at(a, "/app/a"), w.at(a, "/app/b")))
			revoked := l.Revoked()
			synctest.Wait()
			select {
			case <-revoked:
				t.Fatal("revoked by nobody")
			default:
			}
			p := recipes.Participant{Path: l.Parts()[part].Path()}
			if err := w.at(b, []string{"/app/a", "/app/b"}[part]).Revoke(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			<-revoked
			if !l.Held() || l.Revoked() != revoked {
				t.Error("a request is only that")
			}
			release(t, l)
		}
		release(t, acquireRevocable(t, all(t, w.at(a, "/app/a"), w.at(a, "/app/b")))) // nobody asks: nothing is left
		w.clean()
	})
}

func acquireRevocable(t *testing.T, a recipes.Acquirer) *recipes.Lease {
	l := acquire(t, t.Context(), a)
	l.Revoked()
	return l
}

func TestReleaseOfAWholeIsBoundedAndGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.client("a")
		l := acquire(t, t.Context(), all(t, w.at(a, "/app/a"), w.at(a, "/app/b"), w.at(a, "/app/c")))
		w.ClientNet("a").Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		wantErr(t, l.Release(ctx), context.DeadlineExceeded)
		if took := time.Since(start); took != time.Second {
			t.Errorf("it took %v", took)
		}
		w.ClientNet("a").Heal()
		release(t, l)
		w.clean()
	})
}
