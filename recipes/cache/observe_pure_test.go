package cache

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
)

// Without an observer of reads, a round costs what it did before there were
// any.
func TestNoObserverAllocatesNothing(t *testing.T) {
	for name, o := range map[string]framework.Observer{
		"no functions":   {},
		"of states only": {CacheChanged: func(framework.CacheChange) {}},
	} {
		client, err := framework.New("a", framework.WithObserver(o), framework.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
			return nil, errors.New("no network")
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		c, err := New(client, "/a")
		if err != nil {
			t.Fatal(err)
		}
		r := &round{c: c, reason: framework.ReadEvents, began: time.Now()}
		r.tree = r.tree.put(&Node{Path: "/a"})
		if got := testing.AllocsPerRun(1000, func() { c.observeReadLocked(r, c.describe(r, nil), nil) }); got > 0 {
			t.Errorf("%s: %.0f allocations", name, got)
		}
	}
}
