package locks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const uuid = "_c_2f1b6a5e-9c0d-4e4f-8a39-0f4f6f2c1d77-"

// Two layouts on one path must not pass each other by.
func TestAnotherLayoutOnThePath(t *testing.T) {
	for what, name := range map[string]string{
		"Curator's read":            uuid + "__READ__0000000003",
		"Curator's write":           uuid + "__WRIT__0000000003",
		"the plain read":            uuid + "web-1-R-0000000003",
		"the plain write":           uuid + "web-1-W-0000000003",
		"Curator's latch":           uuid + "latch-0000000003",
		"Curator's semaphore lease": uuid + "lease-0000000003",
		"Kazoo's lock":              "2f1b6a5e9c0d4e4f8a390f4f6f2c1d77__lock__0000000003",
		"Kazoo's read lock":         "2f1b6a5e9c0d4e4f8a390f4f6f2c1d77__rlock__0000000003",
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a, b := w.client("a"), w.client("b")
				if err := b.MakeContainerPath(t.Context(), lockPath); err != nil {
					t.Fatal(err)
				}
				if _, err := b.Create(t.Context(), lockPath+"/"+name, nil, zk.FlagEphemeral); err != nil {
					t.Fatal(err)
				}
				m := w.mutex(a)
				_, err := m.Acquire(t.Context())
				wantErr(t, err, recipes.ErrLayout)
				if err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("error %v does not name the child", err)
				}
				_, err = m.TryAcquire(t.Context())
				wantErr(t, err, recipes.ErrLayout)
				if left := w.line(1); left[0] != name {
					t.Errorf("left in line: %v", left)
				}
				if err := b.Delete(t.Context(), lockPath+"/"+name, -1); err != nil {
					t.Fatal(err)
				}
				release(t, acquire(t, t.Context(), m))
				w.empty()
			})
		})
	}
}

// A child named as the leases of Kazoo's semaphore are is one where Kazoo's line
// stands beside the directory; otherwise it may be anybody's.
func TestALeaseOfKazoosSemaphoreOnThePath(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		const lease = "2f1b6a5e9c0d4e4f8a390f4f6f2c1d77"
		if err := b.MakeContainerPath(t.Context(), lockPath+"/"+lease); err != nil {
			t.Fatal(err)
		}
		m := w.mutex(a)
		release(t, acquire(t, t.Context(), m))
		if err := b.MakeContainerPath(t.Context(), lockPath+"-__lock__"); err != nil {
			t.Fatal(err)
		}
		for _, enter := range []func(context.Context) (*recipes.Lease, error){m.Acquire, m.TryAcquire} {
			_, err := enter(t.Context())
			wantErr(t, err, recipes.ErrLayout)
			if err == nil || !strings.Contains(err.Error(), lease) {
				t.Errorf("error %v does not name the child", err)
			}
			w.line(1)
		}
	})
}

// In Kazoo's layout the line is that of Kazoo's lock, and no other; its directory
// stays, for Kazoo does not make it anew.
func TestKazoosLayout(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		m := w.mutex(a, locks.WithLayout(locks.LayoutKazoo))
		l := acquire(t, t.Context(), m)
		if !strings.Contains(l.Path(), "-__lock__00") {
			t.Errorf("name %s", l.Path())
		}
		_, err := w.mutex(b).Acquire(t.Context())
		wantErr(t, err, recipes.ErrLayout)
		w.line(1) // it withdraws in the background
		if _, err := w.mutex(b, locks.WithLayout(locks.LayoutKazoo)).TryAcquire(t.Context()); !errors.Is(err, recipes.ErrBusy) {
			t.Errorf("beside one that is held: %v", err)
		}
		kazoo, err := b.Create(t.Context(), lockPath+"/2f1b6a5e9c0d4e4f8a390f4f6f2c1d77__lock__", nil, zk.FlagEphemeral|zk.FlagSequence)
		if err != nil {
			t.Fatal(err)
		}
		waiting := acquiring(t.Context(), w.mutex(b, locks.WithLayout(locks.LayoutKazoo)))
		w.line(3)
		release(t, l)
		pending(t, waiting)
		if err := b.Delete(t.Context(), kazoo, -1); err != nil {
			t.Fatal(err)
		}
		release(t, granted(t, waiting).lease)
		time.Sleep(5 * time.Minute)
		if found, _, err := b.Exists(t.Context(), lockPath); !found || err != nil {
			t.Errorf("the directory: %v, %v", found, err)
		}
		reader, err := b.Create(t.Context(), lockPath+"/2f1b6a5e9c0d4e4f8a390f4f6f2c1d77__rlock__", nil, zk.FlagEphemeral|zk.FlagSequence)
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Acquire(t.Context()) // a Kazoo Lock would overlook it
		wantErr(t, err, recipes.ErrLayout)
		if err := b.Delete(t.Context(), reader, -1); err != nil {
			t.Fatal(err)
		}
		w.empty()
	})
}

// It comes while one waits.
func TestAnotherLayoutComesLater(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		held := acquire(t, t.Context(), w.mutex(a))
		waiting := acquiring(t.Context(), w.mutex(b))
		home := acquiring(t.Context(), w.mutex(b))
		w.line(2)
		stranger, err := a.Create(t.Context(), lockPath+"/"+uuid+"latch-", nil, zk.FlagEphemeral|zk.FlagSequence)
		if err != nil {
			t.Fatal(err)
		}
		release(t, held)
		wantErr(t, (<-waiting).err, recipes.ErrLayout)
		wantErr(t, (<-home).err, recipes.ErrLayout)
		if err := a.Delete(t.Context(), stranger, -1); err != nil {
			t.Fatal(err)
		}
		w.empty()
	})
}

// Children of no known form harm nobody.
func TestForeignChildrenAreIgnored(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.client("a")
		if err := a.MakeContainerPath(t.Context(), lockPath); err != nil {
			t.Fatal(err)
		}
		foreign := []string{"config", "_c_x", "lock", "lock-12", "clock-0000000001", "0000000000", "x-lock-00000000000"}
		for _, name := range foreign {
			if _, err := a.Create(t.Context(), lockPath+"/"+name, nil, zk.FlagPersistent); err != nil {
				t.Fatal(err)
			}
		}
		m := w.mutex(a)
		l := acquire(t, t.Context(), m)
		release(t, l)
		l, err := m.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		release(t, l)
		w.line(len(foreign))
	})
}

// A Curator mutex, and go-zookeeper's, stand in the same line.
func TestOthersOfTheSameLayoutCount(t *testing.T) {
	for _, prefix := range []string{uuid, "_c_2f1b6a5e9c0d4e4f8a390f4f6f2c1d77-", ""} {
		inBubble(t, func(t *testing.T, w *world) {
			a, b := w.client("a"), w.client("b")
			if err := b.MakeContainerPath(t.Context(), lockPath); err != nil {
				t.Fatal(err)
			}
			other, err := b.Create(t.Context(), lockPath+"/"+prefix+"lock-", nil, zk.FlagEphemeral|zk.FlagSequence)
			if err != nil {
				t.Fatal(err)
			}
			m := w.mutex(a)
			waiting := acquiring(t.Context(), m)
			w.line(2)
			pending(t, waiting)
			if err := b.Delete(t.Context(), other, -1); err != nil {
				t.Fatal(err)
			}
			release(t, granted(t, waiting).lease)
			w.empty()
		})
	}
}

// Equal numbers, which today's servers give once they have run out.
func TestEqualNumbersAreTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.client("a"), w.client("b")
		if err := b.MakeContainerPath(t.Context(), lockPath); err != nil {
			t.Fatal(err)
		}
		// The next number of the directory, taken by name: it counts this create too.
		twin := fmt.Sprintf("%s/%slock-%010d", lockPath, uuid, 1)
		if _, err := b.Create(t.Context(), twin, nil, zk.FlagEphemeral); err != nil {
			t.Fatal(err)
		}
		_, err := w.mutex(a).Acquire(t.Context())
		wantErr(t, err, recipes.ErrExhausted)
		if err := b.Delete(t.Context(), twin, -1); err != nil {
			t.Fatal(err)
		}
		w.empty()
	})
}

// The server removes an empty container between its making and the
// create. It is made again, but not for ever.
func TestTheDirectoryVanishesAgainAndAgain(t *testing.T) {
	for times, want := range map[int32]error{8: nil, 100: zk.ErrNoNode} {
		inBubble(t, func(t *testing.T, w *world) {
			a, b := w.client("a"), w.client("b")
			var creates atomic.Int32
			w.Control(func(r testutil.Request) testutil.Action {
				if r.Op != testutil.OpCreate || !strings.HasPrefix(r.Path, lockPath+"/") || creates.Add(1) > times {
					return testutil.Pass()
				}
				gone := make(chan struct{})
				go func() {
					_ = b.Delete(context.Background(), lockPath, -1) // at first it is not there
					close(gone)
				}()
				return testutil.Hold(gone)
			})
			l, err := w.mutex(a).Acquire(t.Context())
			if err == nil {
				release(t, l)
			}
			if !errors.Is(err, want) || creates.Load() != min(times+1, 10) {
				t.Errorf("vanished %d times: %d creates, then %v", times, creates.Load(), err)
			}
			w.empty()
		})
	}
}

func TestNoAuthEndsAWaitAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.client("b", framework.WithAuth("digest", []byte("user:password")))
		acl := zk.DigestACL(zk.PermAll, "user", "password")
		if err := b.MakeContainerPath(t.Context(), "/app"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Create(t.Context(), lockPath, nil, zk.FlagPersistent, acl...); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err := w.mutex(w.client("a")).Acquire(t.Context())
		wantErr(t, err, zk.ErrNoAuth)
		if took := time.Since(start); took > time.Second {
			t.Errorf("Acquire took %v", took)
		}
		l := acquire(t, t.Context(), w.mutex(b, locks.WithACL(acl...)))
		synctest.Wait()
		release(t, l)
		w.empty()
	})
}
