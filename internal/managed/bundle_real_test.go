package managed_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// A real server tells of all changes after a read, also before the watches are
// armed by setWatches.
func TestABundleOnTheRealServer(t *testing.T) {
	const all = 300
	ens := apache.Start(t, 1)
	var clients [2]*framework.Client
	for i := range clients {
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(10*time.Second))
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		must(t, c.WaitConnected(t.Context()))
		clients[i] = c
	}
	c, other := clients[0], clients[1]
	books := library(t, other, all)[:all]
	var calls sync.WaitGroup
	var stats [all]*zk.Stat
	var fired [all]<-chan struct{}
	for i, book := range books {
		calls.Go(func() {
			var err error
			_, stats[i], fired[i], _, err = inside(session(t, c)).WatchAndResume(book.Path)
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				t.Error(err)
			}
		})
	}
	for _, book := range books { // meanwhile
		must(t, other.Delete(t.Context(), book.Path, -1))
		must(t, failure(other.Create(t.Context(), book.Path, []byte(book.Path), 0)))
	}
	calls.Wait()
	must(t, c.Sync(t.Context(), "/"))
	for i, book := range books {
		_, now, err := c.Get(t.Context(), book.Path)
		must(t, err)
		if stats[i] != nil && stats[i].Czxid != now.Czxid && !hasHappened(fired[i]) {
			t.Errorf("%s: the change is not told", book.Path)
		}
	}
	for i, book := range books {
		must(t, failure(other.Set(t.Context(), book.Path, nil, -1)))
		if stats[i] != nil {
			bubble.Await(t, book.Path, fired[i])
		}
	}
}
