package presence_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The ensemble is restored from a copy that has the session: the client resumes
// it, and no event tells of what is taken back. With so many nodes each looks
// by itself only after some session timeouts.
func TestARestoreWithTheSession(t *testing.T) {
	const nodes = 100
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("owner"), w.ConnectNext()
		at := func(i int) string { return fmt.Sprintf("%s-%d", path, i) }
		all := make([]*presence.Node, nodes)
		for i := range all[:nodes-1] {
			all[i] = announce(t, c, at(i), "old")
		}
		must(t, other.Sync(t.Context(), "/"))
		copied, id := w.Snapshot(), w.SessionID(c)
		time.Sleep(time.Second)
		for _, n := range all[:10] {
			must(t, n.Set(t.Context(), []byte("new")))
		}
		all[nodes-1] = announce(t, c, at(nodes-1), "new")
		time.Sleep(time.Second)
		w.Restore(copied)
		bubble.AwaitTrue(t, "the owner", func() bool { return c.State() == framework.Connected })
		time.Sleep(2 * time.Second)
		for i := range all {
			want := "old"
			if i < 10 || i == nodes-1 {
				want = "new"
			}
			if data, ok := w.Data(at(i)); !ok || string(data) != want {
				t.Errorf("%d: %q, it exists: %t", i, data, ok)
			}
			awaitState(t, all[i], presence.Standing)
		}
		if w.SessionID(c) != id {
			t.Error("the session has not been resumed")
		}
		must(t, all[0].Set(t.Context(), []byte("newer")))
		for _, n := range all {
			closed(t, w, n)
		}
	}, testutil.WithMembers(3))
}
