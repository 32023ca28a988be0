package rwlock_test

import (
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

func TestOtherLayoutsAreRefused(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		curator, plain := newLock(t, c, rwlock.WithLayout(rwlock.LayoutCurator)), newLock(t, c)
		mutex, err := locks.NewMutex(c, path)
		if err != nil {
			t.Fatal(err)
		}
		kazoo := newLock(t, c, rwlock.WithLayout(rwlock.LayoutKazoo))
		all := []recipes.Acquirer{curator.Reader(), plain.Reader(), mutex, kazoo.Reader(), kazoo.Writer()}
		names := []string{"-__READ__0000000000", "-web-1-R-0000000000", "-lock-0000000000", "-__rlock__0000000000", "-__lock__0000000000"}
		for i, a := range all {
			l := bubble.Acquire(t, t.Context(), a)
			if i == 0 && !strings.HasSuffix(l.Path(), names[0]) || i > 0 && !strings.Contains(l.Path(), names[i][:len(names[i])-10]) {
				t.Errorf("name %s, want one that contains %s", l.Path(), names[i])
			}
			for j, other := range all {
				if i != j && min(i, j) < 3 { // the last two have the same layout
					_, err := other.Acquire(t.Context())
					bubble.WantErr(t, err, recipes.ErrLayout)
				}
			}
			bubble.Release(t, l)
			w.InLine(path, 0)
		}
		w.Empty(path)
	})
}

// With znodes named as Kazoo names them: its readers and writers and ours wait
// for each other, and Participants lists both.
func TestKazooReadersAndWriters(t *testing.T) {
	const kazoo = "/0123456789abcdef0123456789abcdef"
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("a"), w.Connect("b")
		rw := newLock(t, c, rwlock.WithLayout(rwlock.LayoutKazoo))
		join := func(name string) string {
			joined, err := other.Create(t.Context(), path+kazoo+name, nil, zk.FlagEphemeral|zk.FlagSequence)
			if err != nil {
				t.Fatal(err)
			}
			return joined
		}
		leave := func(joined string) {
			if err := other.Delete(t.Context(), joined, -1); err != nil {
				t.Fatal(err)
			}
		}
		bubble.Release(t, bubble.Acquire(t, t.Context(), rw.Writer())) // creates the directory
		theirRead := join("__rlock__")
		bubble.Release(t, bubble.Acquire(t, t.Context(), rw.Reader())) // shares with Kazoo's reader
		writer := bubble.Acquiring(t.Context(), rw.Writer())
		w.InLine(path, 2)
		theirWrite := join("__lock__")
		reader := bubble.Acquiring(t.Context(), rw.Reader())
		w.InLine(path, 4)
		bubble.Pending(t, writer, reader)
		if all, err := rw.Participants(t.Context()); err != nil || len(all) != 4 || !all[0].Holder || all[1].Holder ||
			all[0].Mode != recipes.Shared || all[2].Mode != recipes.Exclusive {
			t.Errorf("participants %v, %v", all, err)
		}
		leave(theirRead)
		writing := bubble.Granted(t, writer).Lease
		bubble.Pending(t, reader)
		bubble.Release(t, writing)
		bubble.Pending(t, reader)
		leave(theirWrite)
		bubble.Release(t, bubble.Granted(t, reader).Lease)
		w.Empty(path)
	})
}
