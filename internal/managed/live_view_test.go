package managed_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// A list with a watch has the stat of its directory, from the same answer and
// under the same watch. Its cversion counts what came and went since the list
// before.
func TestChildrenAndWatchCountsChanges(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		_, err := c.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		_, before, changed, err := s.ChildrenAndWatch(t.Context(), "/a")
		must(t, err)
		for range 3 {
			at, err := c.Create(t.Context(), "/a/b-", nil, zk.FlagSequence)
			must(t, err)
			must(t, c.Delete(t.Context(), at, -1))
		}
		_, err = c.Create(t.Context(), "/a/c", nil, 0)
		must(t, err)
		synctest.Wait()
		<-changed
		ens.ResetRequests()
		names, now, _, err := s.ChildrenAndWatch(t.Context(), "/a")
		must(t, err)
		if len(names) != 1 || now.NumChildren != 1 || now.Cversion-before.Cversion != 7 || ens.Requests()[testutil.OpGetChildren2] != 1 {
			t.Errorf("%q, %+v, then %+v", names, before, now)
		}
	})
}

// The last answer of a client that does nothing is that to a ping, and there is
// none from a server that is stopped.
func TestLastAnswer(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		if at := s.LastAnswer(); !at.Equal(time.Now()) {
			t.Errorf("the answer to the connect was at %v", at)
		}
		time.Sleep(time.Minute)
		must(t, ens.Stop(0))
		stopped := time.Now()
		time.Sleep(8 * time.Second)
		if silent := stopped.Sub(s.LastAnswer()); silent < 0 || silent > s.Timeout()/3+time.Second {
			t.Errorf("the last answer is of %v before the stop", silent)
		}
		must(t, ens.Restart(0)) // so that the session can be closed
	})
}
