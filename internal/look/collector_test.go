package look

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// collectorOf returns a collector with a client of its own.
func collectorOf(t *testing.T, e *testutil.Embedded, perSecond int) *Collector {
	t.Helper()
	client := zkrtest.Dial(t, e)
	if err := client.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	return NewCollector(client, "/locks", perSecond)
}

// The requests that the help promises, counted by the ensemble: with 10,000
// locks the first look is a list for each directory, at 500 a second. Later
// looks cost a list for each directory that has changed. Contenders are read of
// the lines that are shown.
func TestRequests(t *testing.T) {
	t.Parallel()
	const n = 10000
	zkrtest.WithHeld(t, n, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		from := collectorOf(t, e, 500)
		look := func(detailed map[string]int, lists, reads int) {
			t.Helper()
			e.ResetRequests()
			before := from.Sent()
			found, err := from.Collect(t.Context(), detailed)
			if err != nil || len(found.Lines) != n {
				t.Fatalf("%d lines, %v", len(found.Lines), err)
			}
			got := e.Requests()
			if got[testutil.OpGetChildren2] != lists || got[testutil.OpGetData] != reads || from.Sent()-before != lists+reads {
				t.Errorf("%v, and %d by its own count; want %d lists and %d reads", got, from.Sent()-before, lists, reads)
			}
		}
		began := time.Now()
		look(nil, n+1, 0)
		if took := time.Since(began).Round(time.Second); took != 20*time.Second {
			t.Errorf("the first look took %v", took)
		}
		look(nil, 0, 0)
		shown := map[string]int{zkrtest.HeldDir(7): 2, zkrtest.HeldDir(8): 2}
		look(shown, 0, 2)
		look(shown, 0, 0)
		for w := range 5 { // in one line, five wait
			zkrtest.Create(t, c, zkrtest.HeldNode(7, w+1))
		}
		synctest.Wait()
		look(shown, 1, 1)
		look(shown, 0, 0)
		if err := c.Delete(t.Context(), zkrtest.HeldNode(7, 0), -1); err != nil {
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
func TestMayNotRead(t *testing.T) {
	zkrtest.WithHeld(t, 1, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		if _, err := c.Create(t.Context(), "/locks/secret", nil, 0, zk.DigestACL(zk.PermAll, "user", "password")...); err != nil {
			t.Fatal(err)
		}
		from := collectorOf(t, e, 0)
		for range 3 {
			found, err := from.Collect(t.Context(), nil)
			if err != nil || len(found.Lines) != 1 || !slices.Equal(found.Unreadable, []string{"/locks/secret"}) {
				t.Errorf("%d lines, may not read %q, %v", len(found.Lines), found.Unreadable, err)
			}
		}
		if n := from.Sent(); n != 3 {
			t.Errorf("%d requests", n)
		}
		time.Sleep(2 * time.Minute)
		if _, err := from.Collect(t.Context(), nil); err != nil || from.Sent() != 6 { // the other two are old as well
			t.Errorf("%d requests, %v", from.Sent(), err)
		}
	})
}

// What is gone is forgotten.
func TestForgets(t *testing.T) {
	zkrtest.WithHeld(t, 3, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		from := collectorOf(t, e, 0)
		all := map[string]int{zkrtest.HeldDir(0): 1, zkrtest.HeldDir(1): 1, zkrtest.HeldDir(2): 1}
		if _, err := from.Collect(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		for _, gone := range []string{zkrtest.HeldNode(1, 0), zkrtest.HeldDir(1)} {
			if err := c.Delete(t.Context(), gone, -1); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		found, err := from.Collect(t.Context(), all)
		if err != nil || len(found.Lines) != 2 || len(from.lists.entries) != 3 || len(from.nodes.entries) != 2 {
			t.Errorf("%d lines, %v; it keeps %d lists and %d znodes", len(found.Lines), err, len(from.lists.entries), len(from.nodes.entries))
		}
	})
}

// A lost event left a lock on the screen without end, and so did a change of
// the rights, which sends none.
func TestReadsAgain(t *testing.T) {
	zkrtest.WithHeld(t, 2, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		network := e.ClientNet("top")
		client, err := framework.New(e.Servers(), framework.WithDialer(network.Dial))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if err := client.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		from := NewCollector(client, "/locks", 0)
		session, err := client.Session()
		if err != nil {
			t.Fatal(err)
		}
		look := func(requests, lines, unreadable int) {
			t.Helper()
			e.ResetRequests()
			found, err := from.Collect(t.Context(), map[string]int{zkrtest.HeldDir(0): 1})
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
		if err := c.Delete(t.Context(), zkrtest.HeldNode(1, 0), -1); err != nil {
			t.Fatal(err)
		}
		look(0, 2, 0)
		aLife()
		time.Sleep(time.Second)
		look(6, 1, 0)

		if _, err := c.SetACL(t.Context(), zkrtest.HeldDir(1), zk.DigestACL(zk.PermAll, "user", "password"), -1); err != nil {
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
		if found, err := from.Collect(t.Context(), nil); err != nil || len(found.Lines) != 1 || found.Current || time.Since(began) > time.Second {
			t.Errorf("%d lines after %v, %v", len(found.Lines), time.Since(began), err)
		}
		network.Heal()
	})
}

// TestALargeListIsReadRarely: a list of more than a megabyte that changes all
// the time is read once in ten seconds, by those who want it so, however short
// their session timeout is.
func TestALargeListIsReadRarely(t *testing.T) {
	const n = 25_000
	zkrtest.WithHeld(t, 1, func(t *testing.T, e *testutil.Embedded, c *framework.Client) {
		for i := 1; i <= n; i += 500 {
			var ops []any
			for j := i; j < i+500; j++ {
				ops = append(ops, &zk.CreateRequest{Path: zkrtest.HeldNode(0, j)})
			}
			if _, err := c.Multi(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
		}
		client, err := framework.New(e.Servers(), framework.WithDialer(e.Dial), framework.WithSessionTimeout(4*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		if err := client.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		if names, _, err := (Reader{Client: client}).Children(t.Context(), zkrtest.HeldDir(0)); err != nil || !isLarge(names) {
			t.Errorf("%d names, %v", len(names), err)
		}
		from := NewScopedCollector(client, NewScope("/locks"), 0, 10*time.Second)
		lists := func() int {
			t.Helper()
			synctest.Wait()
			e.ResetRequests()
			if _, err := from.Collect(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			return e.Requests()[testutil.OpGetChildren2]
		}
		lists()
		for i := range 6 {
			zkrtest.Create(t, c, zkrtest.HeldNode(0, n+1+i))
			if got := lists(); got != 0 {
				t.Errorf("%d lists after %ds", got, i)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Second)
		if got := lists(); got == 0 {
			t.Error("no list after 11s")
		}
	})
}

// TestScope: what may be read, and which way leads to it.
func TestScope(t *testing.T) {
	s := NewScope("/b/c", "/a", "/b/c/d", "/a", "/ab/c")
	for path, want := range map[string]bool{
		"/a": true, "/a/x": true, "/ab": false, "/ab/c": true, "/": false, "/b": false, "/b/c": true, "/b/cd": false, "/b/c-__lock__": false, "/b/c/d/e": true,
	} {
		if s.Has(path) != want {
			t.Errorf("%s: %t", path, !want)
		}
	}
	for path, want := range map[string][]string{"/": {"a", "ab", "b"}, "/b": {"c"}, "/ab": {"c"}, "/a": nil, "/x": nil, "/b/c/d": nil} {
		if names, above := s.children(path); !slices.Equal(names, want) || above != (want != nil) {
			t.Errorf("%s: %q, %t", path, names, above)
		}
	}
	if all := NewScope("/"); !all.Has("/x") || !all.Has("/") || !Scope(nil).Has("/x") {
		t.Error("/ is not everything")
	}
}
