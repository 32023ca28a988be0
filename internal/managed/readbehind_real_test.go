package managed_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The reads behind a batch on the real server: each create has its own list and
// the czxid of its directory, also beside a list that is refused, and after a
// lost answer.
func TestTheReadsBehindABatchOnTheRealServer(t *testing.T) {
	const n, unreadable = 24, 7
	ens := apache.Start(t, 1)
	network := ens.ClientNet("creator")
	c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(4*time.Second), framework.WithDialer(network.Dial))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.WaitConnected(t.Context()))
	s := session(t, c)
	for i := range n {
		must(t, s.MakePersistentPath(t.Context(), line(i)))
	}
	const writes = zk.PermCreate | zk.PermDelete
	_, err = c.SetACL(t.Context(), line(unreadable), zk.WorldACL(writes), -1)
	must(t, err)

	l := &lines{T: t, c: c, sess: s}
	lost := testutil.NewFault(testutil.Match{Op: testutil.OpMultiRead, Times: 1}, testutil.DropAfter())
	for _, loses := range []bool{false, true, false} {
		for shared := 0; shared == 0; { // until there was a batch
			l.knowsMultiRead()
			var mu sync.Mutex
			stop := network.Control(func(r testutil.Request) testutil.Action {
				if r.Op != testutil.OpMultiRead {
					return testutil.Pass()
				}
				mu.Lock()
				shared++
				mu.Unlock()
				if loses {
					return lost.Control(r)
				}
				return testutil.Pass()
			})
			var dirs []string
			for i := range n {
				if !loses || i != unreadable { // the creates' answer can be lost too: whoever looks for its znode is refused
					dirs = append(dirs, line(i))
				}
			}
			results, wait := l.join(t.Context(), dirs...)
			wait()
			stop()
			for i, r := range results {
				must(t, r.err)
				dir := dirs[i]
				_, stat, err := c.Exists(t.Context(), dir)
				must(t, err)
				switch {
				case dir == line(unreadable):
					if r.Children != nil || r.Stat != nil {
						t.Errorf("a list that is refused: %+v", r.Created)
					}
				case loses && r.Children == nil && r.Stat == nil:
				case !slices.Equal(r.Children, []string{r.Path[len(dir)+1:]}) || r.Stat.Czxid != stat.Czxid:
					t.Errorf("%+v, the directory is of %#x", r.Created, stat.Czxid)
				}
			}
			must(t, c.WaitConnected(t.Context()))
			for _, err := range l.leave(paths(results)...) {
				must(t, err)
			}
		}
	}
	if lost.Count() != 1 {
		t.Errorf("%d answers were lost", lost.Count())
	}
}
