package presence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// This session has the znode already. Announce returns once it has the data,
// also if an answer is lost on the way.
func TestAnnounceWhatThisSessionHas(t *testing.T) {
	for name, action := range map[string]testutil.Action{
		"no fault": testutil.Pass(), "the write is lost": testutil.DropBefore(), "its answer is lost": testutil.DropAfter(), "it is late": testutil.Delay(bubble.Timeout / 4),
	} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c := w.ConnectNext()
			w.Latency(10 * time.Millisecond)
			must(t, c.MakeContainerPath(t.Context(), "/services/billing"))
			_, err := c.Create(t.Context(), path, []byte("old"), zk.FlagEphemeral)
			must(t, err)
			fault := testutil.NewFault(testutil.Match{Op: testutil.OpSetData, Path: path}, action)
			defer w.Control(fault.Control)()
			n := announce(t, c, path, "new")
			if data, _ := w.Data(path); string(data) != "new" || fault.Count() != 1 {
				t.Errorf("%s: data %q when Announce returns, %d faults", name, data, fault.Count())
			}
			closed(t, w, n)
		})
	}
}

// The ensemble refuses to write the data there. The error is that refusal, and
// nothing is left.
func TestAnnounceWhatMayNotBeWritten(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		must(t, c.MakeContainerPath(t.Context(), "/services/billing"))
		for range 2 {
			_, err := c.Create(t.Context(), path, []byte("old"), zk.FlagEphemeral, zk.WorldACL(zk.PermRead)...)
			must(t, err)
			_, err = presence.Announce(t.Context(), c, path, []byte("new"))
			if !errors.Is(err, zk.ErrNoAuth) || framework.MaybeApplied(err) {
				t.Errorf("error %v", err)
			}
			bubble.AwaitTrue(t, "its removal", func() bool { return !w.Exists(path) })
			time.Sleep(bubble.Timeout)
		}
		closed(t, w, announce(t, c, path, "new"))
	})
}

// The first data that a Node writes to such a znode are too large. Those of New
// are wanted again, and are written.
func TestASetIsRefusedWhereThisSessionHasTheZnode(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		must(t, c.MakeContainerPath(t.Context(), "/services/billing"))
		_, err := c.Create(t.Context(), path, []byte("old"), zk.FlagEphemeral)
		must(t, err)
		n, err := presence.New(c, path, []byte("new"))
		must(t, err)
		must(t, n.Start())
		if err := n.Set(t.Context(), make([]byte, 2<<20)); err == nil {
			t.Error("2 MB are accepted")
		}
		must(t, n.Standing(t.Context()))
		if data, _ := w.Data(path); string(data) != "new" {
			t.Errorf("data %q", data)
		}
		closed(t, w, n)
	})
}

// When ctx ends, the error of a call that waits wraps what the text says.
func TestWhyIsWrapped(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.ConnectNext(), w.ConnectNext()
		must(t, c.MakePersistentPath(t.Context(), "/services"))
		_, err := other.Create(t.Context(), "/services/billing", nil, zk.FlagPersistent, zk.WorldACL(zk.PermRead)...)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err = presence.Announce(ctx, c, path, nil); !errors.Is(err, zk.ErrNoAuth) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		g, err := presence.NewGroup(c, "/services/billing")
		must(t, err)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err = g.Join(ctx, "a", nil); !errors.Is(err, zk.ErrNoAuth) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}
