package cache

import (
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

// unconnected returns a cache of a client that has no network.
func unconnected(t *testing.T, opts ...framework.Option) *Cache {
	client, err := framework.New("a", append(opts, framework.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
		return nil, errors.New("no network")
	}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	c, err := New(client, "/a")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// When Close returns the cache has no goroutine left that would ask for
// anything.
func TestCloseWaitsForTheGoroutine(t *testing.T) {
	c := unconnected(t)
	c.Start()
	c.Close()
	select {
	case <-c.done:
	default:
		t.Error("the goroutine has not ended")
	}
}

// Only an event that a recursive watch sends for its own znode proves that this
// has changed.
func TestWhatAnEventProves(t *testing.T) {
	for _, tt := range []struct {
		oneShot bool
		what    zk.EventType
		path    string
		read    request.Read
		kind    markKind
	}{
		{false, zk.EventNodeDataChanged, "/a", request.Read{Path: "/a"}, sureChanged},
		{false, zk.EventNodeDataChanged, "/a/b", request.Read{Path: "/a/b"}, unsure},
		{false, zk.EventNodeDeleted, "/a/b", request.Read{Path: "/a/b"}, unsure},
		{false, zk.EventNodeChildrenChanged, "/a", request.Read{Path: "/a"}, unsure},
		{true, zk.EventNodeDataChanged, "/a", request.Read{Path: "/a"}, unsure},
		{true, zk.EventNodeDeleted, "/a", request.Read{Path: "/a"}, unsure},
		{true, zk.EventNodeDeleted, "/a/b", request.Read{Path: "/a/b"}, wasDeleted},
		{true, zk.EventNodeChildrenChanged, "/a", request.Read{Path: "/a", Children: true}, unsure},
	} {
		c := unconnected(t)
		c.watch = &watch{c: c, oneShot: tt.oneShot}
		c.watch.on(1, tt.what, tt.path)
		if got, ok := c.marks.at[tt.read]; !ok || got.kind != tt.kind || len(c.marks.at) != 1 {
			t.Errorf("%+v: got %v", tt, c.marks.at)
		}
	}
}

// Without an observer of reads, a round costs what it did before there were
// any.
func TestNoObserverAllocatesNothing(t *testing.T) {
	for name, o := range map[string]Observer{
		"no functions":   {},
		"of states only": {StateChanged: func(StateChange) {}},
	} {
		c := unconnected(t, WithObserver(o))
		r := &round{c: c, reason: ReadEvents, began: time.Now()}
		r.tree = r.tree.put(&Node{Path: "/a"})
		if got := testing.AllocsPerRun(1000, func() { c.observeReadLocked(r, c.describe(r, nil), nil) }); got > 0 {
			t.Errorf("%s: %.0f allocations", name, got)
		}
	}
}

// When more events have come than are kept, observers get a walk, and why.
func TestObserversOfAnOverflow(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		reasons := make(chan ReadReason, 10)
		client := w.ConnectNext(WithObserver(Observer{Read: func(r Read) { reasons <- r.Reason }}))
		c, err := New(client, "/a")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Start()
		for _, want := range []ReadReason{ReadFirst, ReadOverflow} {
			if got := bubble.Await(t, "a read", reasons); got != want {
				t.Errorf("a read because of %q, want %q", got, want)
			}
			for i := range mostMarks + 1 { // as on does
				c.mark("/a/"+strconv.Itoa(i), uint64(i)+1)
			}
			c.wake()
		}
	})
}
