package acceptance_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The token was the pzxid of the lock's directory. A server before 3.6 does not
// restore that exactly, nor does a later one that is configured to log the
// close of a session without its paths (ZOOKEEPER-3145). b holds with (0x5a,
// 1), and its session is closed while the server writes a snapshot, which has
// the directory from before and no longer the znode of b. The server restarts,
// replays the close, finds nothing to remove, and the pzxid is still 0x5a. The
// next holder c got (0x5a, 0), so a resource refused c and accepted a late
// write of b.
func TestTokensGrowOverAFuzzySnapshot(t *testing.T) { // not in parallel: it needs a loaded server
	const path, children, each = "/suite/fuzzy", 40_000, 1000 // they widen the window
	ens := apache.Start(t, 1,
		apache.WithProperty("zookeeper.closeSessionTxn.enabled", "false"),
		apache.WithProperty("zookeeper.snapCount", "100"))
	f := &fuzzy{stage: &stage{Ensemble: ens, path: path}, snapshots: filepath.Join(ens.DataDir(0), "version-2"), children: children}
	f.watcher = f.joinFor(t, steady).Client
	lasting(t, f.watcher, path)
	for i := 0; i < children; i += each {
		var ops []any
		for j := range each {
			ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/x%d", path, i+j), Data: make([]byte, 100)})
		}
		if _, err := f.watcher.Multi(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
	}
	const tries = 8
	for try := 1; !f.play(t, ens); try++ {
		if try == tries {
			t.Fatalf("%d times the snapshot had the znode of b, or no earlier directory, so the test shows nothing", tries)
		}
	}
}

// fuzzy is the stage, and where the server writes its snapshots.
type fuzzy struct {
	*stage
	snapshots string
	children  int // other children of the directory
}

// play reports whether the server has lost count.
func (f *fuzzy) play(t *testing.T, ens *apache.Ensemble) bool {
	k := kinds[0]
	first := acquire(t, t.Context(), k.of(t, f.watcher, f.path))
	b, c := f.joinFor(t, steady), f.joinFor(t, steady)
	ofB := k.of(t, b.Client, f.path)
	turns := []<-chan grant{acquiring(t.Context(), ofB), acquiring(t.Context(), ofB)}
	f.stand(t, 2)
	ofC := acquiring(t.Context(), k.of(t, c.Client, f.path))
	f.stand(t, 3)
	release(t, first)
	f.stand(t, 2)
	release(t, f.either(t, turns))
	held := f.either(t, turns) // the same znode, handed off
	before := f.pzxid(t)
	c.net.Cut() // it must not look before the server has restarted

	f.startSnapshot(t)
	f.expire(t, b)
	f.awaitSnapshots(t)
	if err := ens.Stop(0); err != nil {
		t.Fatal(err)
	}
	if err := ens.Restart(0); err != nil {
		t.Fatal(err)
	}
	if err := ens.WaitServing(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.watcher.WaitConnected(t.Context()); err != nil { // its next try may be further off than its retries last
		t.Fatal(err)
	}
	after := f.pzxid(t)
	f.stand(t, 1)

	c.net.Heal()
	c.net.Drop() // or it would wait until it leaves the dead connection
	next := granted(t, ofC)
	inOrder(t, held, next)
	t.Logf("pzxid %x before, %x after the close; tokens %v and %v", before, after, held.Token(), next.Token())
	release(t, next)
	f.stand(t, 0)
	return before == after
}

// either returns the lease of the waiter that is granted, and removes that
// waiter.
func (f *fuzzy) either(t *testing.T, turns []<-chan grant) *recipes.Lease {
	t.Helper()
	var g grant
	select {
	case g = <-turns[0]:
		turns[0] = nil
	case g = <-turns[1]:
		turns[1] = nil
	case <-time.After(load.Patience):
		t.Fatal("b was not granted")
	}
	if g.err != nil {
		t.Fatal(g.err)
	}
	return g.lease
}

// inOrder checks the tokens of two leases.
func inOrder(t *testing.T, before, after *recipes.Lease) {
	t.Helper()
	if after.Token().Compare(before.Token()) <= 0 {
		judge.Errorf(t, "token %v after %v", after.Token(), before.Token())
	}
}

// stand waits until so many contenders stand in the directory.
func (f *fuzzy) stand(t *testing.T, n int) {
	t.Helper()
	bubble.AwaitTrue(t, fmt.Sprint(n, " stand in line"), func() bool {
		_, stat, err := f.watcher.Exists(t.Context(), f.path)
		return err == nil && int(stat.NumChildren) == f.children+n
	})
}

func (f *fuzzy) pzxid(t *testing.T) int64 {
	t.Helper()
	_, stat, err := f.watcher.Exists(t.Context(), f.path)
	if err != nil || stat == nil {
		t.Fatal(err)
	}
	return stat.Pzxid
}

// startSnapshot returns when the server has begun to write a snapshot.
func (f *fuzzy) startSnapshot(t *testing.T) {
	t.Helper()
	f.awaitSnapshots(t)
	earlier := len(f.list(t))
	for range 1000 {
		if _, err := f.watcher.Set(t.Context(), "/suite", nil, -1); err != nil {
			t.Fatal(err)
		}
		if len(f.list(t)) > earlier {
			return
		}
	}
	t.Fatal("the server writes no snapshot")
}

// awaitSnapshots waits until all snapshots are complete.
func (f *fuzzy) awaitSnapshots(t *testing.T) {
	t.Helper()
	bubble.AwaitTrue(t, "the snapshots are complete", func() bool {
		for _, file := range f.list(t) {
			if !isComplete(t, file) {
				return false
			}
		}
		return true
	})
}

func (f *fuzzy) list(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(f.snapshots, "snapshot.*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// isComplete reports whether a snapshot ends as a valid one does: with the text
// "/" and its length.
func isComplete(t *testing.T, file string) bool {
	t.Helper()
	end := []byte("\x00\x00\x00\x01/")
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, len(end))
	if _, err := f.Seek(-int64(len(end)), io.SeekEnd); err != nil {
		return false // too short as yet
	}
	_, err = io.ReadFull(f, got)
	return err == nil && bytes.Equal(got, end)
}
