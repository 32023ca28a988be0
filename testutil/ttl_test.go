package testutil_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// A znode with a time to live is deleted at the first sweep after its data has
// not been set for that time, if it has no children. The time is measured from
// the last change of its own data, not of its children.
func TestTimeToLive(t *testing.T) {
	const ttl = 90 * time.Second
	for _, members := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			e := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(members), testutil.WithExtendedTypes())
			clock := newClock(t)
			c := wireClient(t, e.Servers(), e.Dial, 20*time.Second)
			for _, path := range []string{"/plain", "/parent", "/set"} {
				_, err := c.CreateTTL(path, nil, zk.FlagTTL, anyACL, ttl)
				must(t, err)
			}
			_, err := c.Create("/parent/child", nil, 0, anyACL)
			must(t, err)
			clock.at(80 * time.Second)
			_, err = c.Set("/set", nil, -1)
			must(t, err)
			_, _, gone, err := c.ExistsW("/plain")
			must(t, err)

			clock.at(2*time.Minute - 1)
			if got, want := e.Tree(), "/parent for 1m30s\n/parent/child\n/plain for 1m30s\n/set for 1m30s\n"; got != want {
				t.Errorf("before the sweep:\n%swant\n%s", got, want)
			}
			clock.at(2 * time.Minute)
			if got, want := e.Tree(), "/parent for 1m30s\n/parent/child\n/set for 1m30s\n"; got != want {
				t.Errorf("after 2 minutes:\n%swant\n%s", got, want)
			}
			if event := <-gone; event.Type != zk.EventNodeDeleted {
				t.Errorf("the watch says %v", event)
			}
			must(t, c.Delete("/parent/child", -1))
			clock.at(3 * time.Minute)
			if got, want := e.Tree(), ""; got != want {
				t.Errorf("after 3 minutes:\n%swant\n%s", got, want)
			}
		})
	}
}

// Without the property a server refuses times to live, rather than create a
// znode that stays forever.
func TestTimesToLiveAreOffByDefault(t *testing.T) {
	refuse := func(t *testing.T, ens testutil.Ensemble) []string {
		s := &script{t: t, ens: ens, log: &transcript{sessions: map[int64]string{0: "nobody"}}}
		s.a = s.peer("A", patience)
		s.a.do(wire.OpCreateTTL, createTTL("/t", 5, 1000))
		s.a.do(wire.OpCreateTTL, createTTL("/t", 6, 0))
		s.a.do(wire.OpCreateTTL, createTTL("/t", 0, 1000))
		s.a.do(wire.OpCreateTTL, createTTL("relative", 5, 1000))
		s.a.do(wire.OpCreate, create("/t", "", 5))
		s.a.do(wire.OpCreate2, create("/t", "", 6))
		s.a.do(wire.OpMulti, multi(
			wire.MultiOp{Op: wire.OpCreate, Request: create("/m", "", 0)},
			wire.MultiOp{Op: wire.OpCreateTTL, Request: createTTL("/m/t", 5, 1000)},
		))
		s.a.do(wire.OpMulti, multi(wire.MultiOp{Op: wire.OpCreate, Request: create("/m", "", 5)}))
		s.a.do(wire.OpMulti, multi(wire.MultiOp{Op: wire.OpCreateTTL, Request: createTTL("/m", 0, 1000)}))
		s.a.do(wire.OpExists, look("/t", false))
		return s.log.lines
	}
	embedded := refuse(t, testutil.Start(t))
	if !strings.HasSuffix(embedded[0], " -6") {
		t.Errorf("not refused as unimplemented: %s", embedded[0])
	}
	t.Run("as on the real server", func(t *testing.T) {
		same(t, embedded, refuse(t, apache.Start(t, 1, apache.WithProperty("zookeeper.extendedTypesEnabled", "false"))))
	})
}

// TestTimeToLiveOnTheRealServer compares TestTimeToLive with the real server's
// sweep, which is more frequent here.
func TestTimeToLiveOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 1, apache.WithProperty("znode.container.checkIntervalMs", "200"))
	c := wireClient(t, ens.Servers(), ens.Dial, 20*time.Second)
	const ttl = 300 * time.Millisecond
	// The znode with a child is the older one, so that the sweep which
	// deletes the other has seen it. It has its child from the start, so
	// that no sweep comes in between.
	p := (&script{t: t, ens: ens, log: &transcript{sessions: map[int64]string{}}}).peer("P", patience)
	p.ok(wire.OpMulti, multi(
		wire.MultiOp{Op: wire.OpCreateTTL, Request: createTTL("/parent", 5, ttl.Milliseconds())},
		wire.MultiOp{Op: wire.OpCreate, Request: create("/parent/child", "", 0)},
	))
	_, err := c.CreateTTL("/plain", nil, zk.FlagTTL, anyACL, ttl)
	must(t, err)
	began := time.Now()
	gone := func(path string) {
		t.Helper()
		ok, _, events, err := c.ExistsW(path)
		must(t, err)
		if !ok {
			return
		}
		select {
		case event := <-events:
			if event.Type != zk.EventNodeDeleted {
				t.Errorf("%s: %v", path, event)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s is still there", path)
		}
	}
	gone("/plain")
	if alive := time.Since(began); alive > 30*time.Second {
		t.Errorf("gone after %v", alive)
	}
	if ok, _, err := c.Exists("/parent"); err != nil || !ok {
		t.Errorf("gone with a child: %t, %v", ok, err)
	}
	must(t, c.Delete("/parent/child", -1))
	gone("/parent")
}
