package untrusted

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// inLine runs a scenario with a holder of a mutex, a waiter and a neighbor.
func inLine(t *testing.T, play func(t *testing.T, w *bubble.World, held *recipes.Lease, waiting <-chan bubble.Grant, neighbor *framework.Client)) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(time.Millisecond)
		neighbor := w.Connect("neighbor", framework.WithAuth("digest", []byte("neighbor:secret")))
		if _, err := neighbor.Create(t.Context(), "/guarded", nil, 0); err != nil {
			t.Fatal(err)
		}
		held := bubble.Acquire(t, t.Context(), mutex(t, w))
		waiting := bubble.Acquiring(t.Context(), mutex(t, w))
		w.InLine(root, 2)
		time.Sleep(time.Second) // until the holder watches its znode
		bubble.Pending(t, waiting)
		play(t, w, held, waiting, neighbor)
	})
}

// mutex returns the mutex of another client.
func mutex(t *testing.T, w *bubble.World, opts ...locks.Option) *locks.Mutex {
	t.Helper()
	m, err := locks.NewMutex(w.ConnectNext(), root, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func guarded(l *recipes.Lease) error {
	_, err := l.Multi(context.Background(), &zk.SetDataRequest{Path: "/guarded", Data: []byte(l.Path()), Version: -1})
	return err
}

// A neighbor deletes a holder's znode: the next contender is let in at once.
// The holder learns of it in a round trip, and none of its guarded writes is
// applied.
func TestADeletedHolder(t *testing.T) {
	inLine(t, func(t *testing.T, w *bubble.World, held *recipes.Lease, waiting <-chan bubble.Grant, neighbor *framework.Client) {
		guard := held.Guard(&zk.SetDataRequest{Path: "/guarded", Data: []byte("late"), Version: -1})
		if err := neighbor.Delete(t.Context(), held.Path(), -1); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := neighbor.Multi(t.Context(), guard...); !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("a guarded write afterwards: %v", err)
		}
		lost := bubble.Lost(t, held)
		next := bubble.Granted(t, waiting)
		if next.Lease.Token().Compare(held.Token()) <= 0 {
			judge.Errorf(t, "token %v after %v", next.Lease.Token(), held.Token())
		}
		if late := lost.Sub(began); late > 10*time.Millisecond {
			t.Errorf("the holder learns of it after %v", late)
		}
		if err := held.Release(t.Context()); !errors.Is(err, recipes.ErrNotHeld) {
			t.Errorf("Release: %v", err)
		}
		if err := guarded(next.Lease); err != nil {
			t.Error(err)
		}
		bubble.Release(t, next.Lease)
	})
}

// A neighbor deletes a holder's znode and creates another one with its name,
// which the holder may or may not read. The holder learns of that as well, and
// what stands in its place is removed if that is known to be another.
func TestAReplacedHolder(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		t.Run(fmt.Sprintf("hidden %t", hidden), func(t *testing.T) {
			inLine(t, func(t *testing.T, w *bubble.World, held *recipes.Lease, waiting <-chan bubble.Grant, neighbor *framework.Client) {
				acl := zk.WorldACL(zk.PermAll)
				if hidden {
					acl = zk.DigestACL(zk.PermAll, "neighbor", "secret")
				}
				// In one transaction, so that no contender sees the gap.
				_, err := neighbor.Multi(t.Context(), &zk.DeleteRequest{Path: held.Path(), Version: -1}, &zk.CreateRequest{Path: held.Path(), Acl: acl})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if late := bubble.Lost(t, held).Sub(began); late > 10*time.Millisecond {
					t.Errorf("the holder learns of it after %v", late)
				}
				if err := held.Release(t.Context()); !errors.Is(err, recipes.ErrNotHeld) {
					t.Errorf("Release: %v", err)
				}
				switch next := bubble.Await(t, "Acquire to return", waiting); {
				case next.Err == nil:
					bubble.Release(t, next.Lease)
				case !hidden || !errors.Is(next.Err, zk.ErrNoAuth): // it may not read what is ahead of it
					t.Error(next.Err)
				}
			})
		})
	}
}

// Until the holder learns that its znode was replaced, a guard that was taken
// before passes: it looks at the name. The token of the next grant is greater.
func TestAGuardOfAReplacedZnode(t *testing.T) {
	inLine(t, func(t *testing.T, w *bubble.World, held *recipes.Lease, waiting <-chan bubble.Grant, neighbor *framework.Client) {
		ops := []any{&zk.DeleteRequest{Path: held.Path(), Version: -1}, &zk.CreateRequest{Path: held.Path()}}
		ops = append(ops, held.Guard(&zk.SetDataRequest{Path: "/guarded", Version: -1})...)
		if _, err := neighbor.Multi(t.Context(), ops...); err != nil {
			t.Errorf("the guard does not pass: %v: then docs/trust.md says too little", err)
		}
		bubble.Lost(t, held)
		next := bubble.Granted(t, waiting).Lease
		if next.Token().Compare(held.Token()) <= 0 {
			judge.Errorf(t, "token %v after %v", next.Token(), held.Token())
		}
		bubble.Release(t, next)
	})
}

// A contender that a neighbor forges ahead of others only blocks those who list
// the line later, as after a write to their znode. The error names it. Once it
// is gone they go on.
func TestAForgedContenderOnlyBlocks(t *testing.T) {
	inLine(t, func(t *testing.T, w *bubble.World, held *recipes.Lease, waiting <-chan bubble.Grant, neighbor *framework.Client) {
		node, _ := layout.Parse(held.Path()[len(root)+1:])
		forged := root + "/" + layout.Protect("00000000-0000-4000-8000-000000000000", layout.CuratorLockName) + layout.FormatSequence(node.Seq-1)
		if _, err := neighbor.Create(t.Context(), forged, nil, 0); err != nil {
			t.Fatal(err)
		}
		if err := guarded(held); err != nil {
			t.Errorf("the holder: %v", err)
		}
		for _, name := range w.InLine(root, 3) { // the waiter looks at the line again
			if _, err := neighbor.Set(t.Context(), root+"/"+name, nil, -1); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		bubble.Release(t, held)
		time.Sleep(time.Hour)
		bubble.Pending(t, waiting)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := mutex(t, w).Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), root+"/_c_") {
			t.Errorf("behind it: %v", err)
		}
		if err := neighbor.Delete(t.Context(), forged, -1); err != nil {
			t.Fatal(err)
		}
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
	})
}

// While a client may not read the directory, a server sends it no event for it.
// What it has read under a watch is then old, and is not taken for the loss of
// its next lease: that lease's znode would stay until the session ends.
func TestAnOldListIsNoLoss(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		operator := w.Connect("operator", framework.WithAuth("digest", []byte("operator:secret")))
		m := mutex(t, w, recipes.WithLinger(10*time.Second))
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
		time.Sleep(time.Second) // until the directory is watched
		may := func(perms int32) {
			t.Helper()
			acl := append(zk.DigestACL(zk.PermAll, "operator", "secret"), zk.WorldACL(perms)...)
			if _, err := operator.SetACL(t.Context(), root, acl, -1); err != nil {
				t.Fatal(err)
			}
		}
		may(zk.PermAll &^ zk.PermRead)
		time.Sleep(20 * time.Second) // until the znode has left
		may(zk.PermAll)
		held := bubble.Acquire(t, t.Context(), m)
		time.Sleep(time.Second)
		if !held.Held() {
			t.Errorf("lost: %v", held.Err())
		}
		bubble.Release(t, held)
		time.Sleep(20 * time.Second)
		w.Empty(root)
	})
}

// The data of a semaphore's path is its limit: a neighbor that may write it may
// let others in, and only so many as it says.
func TestAForgedLimit(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		neighbor := w.Connect("neighbor")
		s, err := semaphore.New(w.ConnectNext(), root, 1, semaphore.WithRecordedLimit())
		if err != nil {
			t.Fatal(err)
		}
		first := bubble.Acquire(t, t.Context(), s)
		waiting := bubble.Acquiring(t.Context(), s)
		time.Sleep(time.Second)
		bubble.Pending(t, waiting)
		if _, err := neighbor.Set(t.Context(), root, []byte("2"), -1); err != nil {
			t.Fatal(err)
		}
		second := bubble.Granted(t, waiting).Lease
		waiting = bubble.Acquiring(t.Context(), s)
		time.Sleep(time.Second)
		bubble.Pending(t, waiting)
		bubble.Release(t, first, second)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
	})
}

// Any client that can connect learns the id of a session from the stat of its
// znodes. With a wrong password that ends the session's connection, and no
// more. The right one follows from the id: it ends the session, and the next
// contender is let in. The holder learns of that when it reconnects, and its
// guard protects at once.
func TestAStrangerUsesASession(t *testing.T) {
	inLine(t, func(t *testing.T, w *bubble.World, held *recipes.Lease, waiting <-chan bubble.Grant, neighbor *framework.Client) {
		_, stat, err := neighbor.Exists(t.Context(), held.Path())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := w.Dial("tcp", w.Address(0), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		connect := &wire.ConnectRequest{Timeout: 4000, SessionID: stat.EphemeralOwner, Password: make([]byte, 16)}
		if _, err := conn.Write(wire.AppendFrame(nil, connect)); err != nil {
			t.Fatal(err)
		}
		var answer wire.ConnectResponse
		frame, err := wire.ReadFrame(conn, 1<<10, nil)
		if err == nil {
			err = wire.Unmarshal(frame, &answer)
		}
		if err != nil || answer.SessionID != 0 {
			t.Errorf("with a wrong password: %+v, %v", answer, err)
		}
		time.Sleep(timeout)
		bubble.Pending(t, waiting)
		if err := guarded(held); err != nil {
			t.Errorf("the holder: %v", err)
		}
		if err := w.ExpireSession(stat.EphemeralOwner); err != nil { // by the right one
			t.Fatal(err)
		}
		began := time.Now()
		next := bubble.Granted(t, waiting).Lease
		if err := guarded(held); !errors.Is(err, recipes.ErrNotHeld) {
			t.Errorf("a guarded write of the old holder: %v", err)
		}
		if late := bubble.Lost(t, held).Sub(began); late > slack {
			t.Errorf("the holder learns of it after %v", late)
		}
		bubble.Release(t, next)
	})
}
