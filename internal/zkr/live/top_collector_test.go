package live

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// inBubble runs a test in virtual time, with an ensemble and a client that
// holds n mutexes below /locks.
func inBubble(t *testing.T, n int, test func(t *testing.T, e *testutil.Embedded, c *framework.Client)) {
	synctest.Test(t, func(t *testing.T) {
		e := testutil.Start(t, testutil.InMemory())
		c := zkrtest.Dial(t, e)
		if _, err := c.Create(t.Context(), "/locks", nil, 0); err != nil {
			t.Fatal(err)
		}
		const together = 500
		for i := 0; i < n; i += together {
			var ops []any
			for j := i; j < min(i+together, n); j++ {
				ops = append(ops, &zk.CreateRequest{Path: topDir(j)}, &zk.CreateRequest{Path: topNode(j, 0), Flags: zk.FlagEphemeral, Data: []byte("holder")})
			}
			if _, err := c.Multi(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
		}
		test(t, e, c)
	})
}

// collectorOf returns a collector with a client of its own.
func collectorOf(t *testing.T, e *testutil.Embedded, perSecond int) *collector {
	t.Helper()
	client := zkrtest.Dial(t, e)
	if err := client.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	return newCollector(client, "/locks", perSecond)
}

func topDir(i int) string { return fmt.Sprintf("/locks/%05d", i) }

func topNode(i, n int) string { return fmt.Sprintf("%s/%slock-%010d", topDir(i), zkrtest.SomeID, n) }

func create(t *testing.T, c *framework.Client, path string) {
	t.Helper()
	if _, err := c.Create(t.Context(), path, nil, zk.FlagEphemeral); err != nil {
		t.Fatal(err)
	}
}

// The requests that the help promises, counted by the ensemble: with 10,000
// locks the first look is a list for each directory, at 500 a second. Later
// looks cost a list for each directory that has changed. Contenders are read of
// the lines that are shown.
func TestTopRequests(t *testing.T) {
	t.Parallel()
	const n = 10000
	inBubble(t, n, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		from := collectorOf(t, e, 500)
		look := func(detailed map[string]int, lists, reads int) {
			t.Helper()
			e.ResetRequests()
			before := from.sent()
			found, err := from.collect(t.Context(), detailed)
			if err != nil || len(found.Lines) != n {
				t.Fatalf("%d lines, %v", len(found.Lines), err)
			}
			got := e.Requests()
			if got[testutil.OpGetChildren2] != lists || got[testutil.OpGetData] != reads || from.sent()-before != lists+reads {
				t.Errorf("%v, and %d by its own count; want %d lists and %d reads", got, from.sent()-before, lists, reads)
			}
		}
		began := time.Now()
		look(nil, n+1, 0)
		if took := time.Since(began).Round(time.Second); took != 20*time.Second {
			t.Errorf("the first look took %v", took)
		}
		look(nil, 0, 0)
		shown := map[string]int{topDir(7): 2, topDir(8): 2}
		look(shown, 0, 2)
		look(shown, 0, 0)
		for w := range 5 { // in one line, five wait
			create(t, c, topNode(7, w+1))
		}
		synctest.Wait()
		look(shown, 1, 1)
		look(shown, 0, 0)
		if err := c.Delete(t.Context(), topNode(7, 0), -1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		look(shown, 1, 1) // the holder and the next one
		look(nil, 0, 0)
		time.Sleep(time.Minute)
		if lists := len(e.Watches()); lists != n+1 {
			t.Errorf("%d watches, of %d lists", lists, n+1)
		}

		// After a reconnect every watch may have missed something.
		if err := e.DropConnections(0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		began = time.Now()
		look(nil, n+1, 0)
		if took := time.Since(began).Round(time.Second); took != 20*time.Second {
			t.Errorf("the look after a reconnect took %v", took)
		}
	})
}

// A directory that may not be read is asked for once a minute.
func TestTopMayNotRead(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		if _, err := c.Create(t.Context(), "/locks/secret", nil, 0, zk.DigestACL(zk.PermAll, "user", "password")...); err != nil {
			t.Fatal(err)
		}
		from := collectorOf(t, e, 0)
		for range 3 {
			found, err := from.collect(t.Context(), nil)
			if err != nil || len(found.Lines) != 1 || !slices.Equal(found.Unreadable, []string{"/locks/secret"}) {
				t.Errorf("%d lines, may not read %q, %v", len(found.Lines), found.Unreadable, err)
			}
		}
		if n := from.sent(); n != 3 {
			t.Errorf("%d requests", n)
		}
		time.Sleep(2 * time.Minute)
		if _, err := from.collect(t.Context(), nil); err != nil || from.sent() != 6 { // the other two are old as well
			t.Errorf("%d requests, %v", from.sent(), err)
		}
	})
}

// What is gone is forgotten.
func TestTopForgets(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		from := collectorOf(t, e, 0)
		all := map[string]int{topDir(0): 1, topDir(1): 1, topDir(2): 1}
		if _, err := from.collect(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		for _, gone := range []string{topNode(1, 0), topDir(1)} {
			if err := c.Delete(t.Context(), gone, -1); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		found, err := from.collect(t.Context(), all)
		if err != nil || len(found.Lines) != 2 || len(from.lists.entries) != 3 || len(from.nodes.entries) != 2 {
			t.Errorf("%d lines, %v; it keeps %d lists and %d znodes", len(found.Lines), err, len(from.lists.entries), len(from.nodes.entries))
		}
	})
}

// A lost event left a lock on the screen without end, and so did a change of
// the rights, which sends none.
func TestTopReadsAgain(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		network := e.ClientNet("top")
		client, err := framework.New(e.Servers(), framework.WithDialer(network.Dial))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if err := client.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		from := newCollector(client, "/locks", 0)
		session, err := client.Session()
		if err != nil {
			t.Fatal(err)
		}
		look := func(requests, lines, unreadable int) {
			t.Helper()
			e.ResetRequests()
			found, err := from.collect(t.Context(), map[string]int{topDir(0): 1})
			if err != nil || len(found.Lines) != lines || len(found.Unreadable) != unreadable {
				t.Errorf("%d lines, may not read %q, %v", len(found.Lines), found.Unreadable, err)
			}
			all := 0
			for op, n := range e.Requests() {
				if op != testutil.OpPing {
					all += n
				}
			}
			if all > requests {
				t.Errorf("%d requests, want at most %d: %v", all, requests, e.Requests())
			}
		}
		aLife := func() { time.Sleep(session.Timeout() * 5 / 4) }
		look(4, 2, 0)
		look(0, 2, 0)
		aLife()
		time.Sleep(time.Second)
		look(4, 2, 0) // one small request for each list and znode
		look(0, 2, 0)

		network.LoseEvents(true)
		if err := c.Delete(t.Context(), topNode(1, 0), -1); err != nil {
			t.Fatal(err)
		}
		look(0, 2, 0)
		aLife()
		time.Sleep(time.Second)
		look(6, 1, 0)

		if _, err := c.SetACL(t.Context(), topDir(1), zk.DigestACL(zk.PermAll, "user", "password"), -1); err != nil {
			t.Fatal(err)
		}
		look(0, 1, 0)
		aLife()
		time.Sleep(time.Second)
		look(6, 1, 1)

		// Without a connection it keeps what it has.
		network.Cut()
		aLife()
		began := time.Now()
		if found, err := from.collect(t.Context(), nil); err != nil || len(found.Lines) != 1 || found.current || time.Since(began) > time.Second {
			t.Errorf("%d lines after %v, %v", len(found.Lines), time.Since(began), err)
		}
		network.Heal()
	})
}
