package testutil_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// beside runs a scenario of one client that lies, on an ensemble of one member,
// and then checks that the memory is free again, and that another client and
// Close are not affected.
func beside(t *testing.T, lies func(t *testing.T, e *testutil.Embedded, p *peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := testutil.Start(t, testutil.InMemory(), testutil.WithLogger(func(string, ...any) {}), testutil.WithSessionTimeouts(time.Second, time.Hour))
		other := single(t, e, 0, time.Hour)
		before := heap()
		p := single(t, e, 0, time.Hour)
		lies(t, e, p)
		other.ok(wire.OpCreate, create("/fine", "", 0))
		must(t, e.ExpireSession(p.session))
		synctest.Wait()
		if grown := heap() - before; grown > 32<<20 {
			t.Errorf("%d MB stay", grown>>20)
		}
		other.ok(wire.OpDelete, version("/fine", -1))
	})
}

// heap returns the bytes in use.
func heap() int64 {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

const megabyte = 1 << 20

func large() string { return strings.Repeat("x", megabyte-100) }

// A client asks for much and reads nothing. What waits to be sent to it has a
// limit.
func TestAClientThatDoesNotRead(t *testing.T) {
	beside(t, func(t *testing.T, e *testutil.Embedded, p *peer) {
		p.ok(wire.OpCreate, create("/large", large(), 0))
		before := heap()
		for range 300 {
			p.send(wire.OpGetData, look("/large", false))
		}
		synctest.Wait()
		if grown := heap() - before; grown > 100*megabyte {
			t.Errorf("%d MB wait to be sent", grown>>20)
		}
	})
}

// The same for events, for which no request is executed: the connection ends.
func TestAClientThatDoesNotReadItsEvents(t *testing.T) {
	beside(t, func(t *testing.T, e *testutil.Embedded, p *peer) {
		p.ok(wire.OpAddWatch, addWatch("/", wire.WatchPersistentRecursive))
		other := single(t, e, 0, time.Hour)
		name := "/" + strings.Repeat("n", 100_000)
		before := heap()
		for range 600 {
			other.ok(wire.OpCreate, create(name, "", 0))
			other.ok(wire.OpDelete, version(name, -1))
		}
		synctest.Wait()
		if grown := heap() - before; grown > 150*megabyte {
			t.Errorf("%d MB wait to be sent", grown>>20)
		}
	})
}

// One request for the same data many times has no answer of many gigabytes.
func TestAReadOfManyGigabytes(t *testing.T) {
	beside(t, func(t *testing.T, e *testutil.Embedded, p *peer) {
		p.ok(wire.OpCreate, create("/large", large(), 0))
		reads := make([]wire.MultiOp, 500)
		for i := range reads {
			reads[i] = wire.MultiOp{Op: wire.OpGetData, Request: look("/large", false)}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p.send(wire.OpMultiRead, multi(reads...))
		head, _, err := p.next()
		runtime.ReadMemStats(&after)
		if err != nil || head.Err != wire.MarshallingError {
			t.Errorf("answered with %v, %v", head.Err, err)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 150 {
			t.Errorf("it took %d MB", took)
		}
	})
}

// The log of writes has a limit in bytes.
func TestAFloodOfLargeWrites(t *testing.T) {
	beside(t, func(t *testing.T, e *testutil.Embedded, p *peer) {
		p.ok(wire.OpCreate, create("/large", "", 0))
		before := heap()
		for i := range 150 {
			p.ok(wire.OpSetData, set("/large", fmt.Sprint(i, large()), -1))
		}
		if grown := heap() - before; grown > 100*megabyte {
			t.Errorf("%d MB are kept", grown>>20)
		}
		p.ok(wire.OpDelete, version("/large", -1))
	})
}

// A list of forty thousand entries is taken. One whose entries stand for more
// than fit into a request is refused.
func TestAnEndlessACL(t *testing.T) {
	beside(t, func(t *testing.T, e *testutil.Embedded, p *peer) {
		var acl []wire.ACL
		for i := range 40_000 {
			acl = append(acl, wire.ACL{Perms: int32(i), ID: wire.ID{Scheme: "world", ID: "anyone"}})
		}
		p.ok(wire.OpCreate, &wire.CreateRequest{Path: "/acl", ACL: acl})
		p.ok(wire.OpDelete, version("/acl", -1))
		// Each entry of the scheme auth stands for all identities of the client.
		for i := range 200 {
			p.send(wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: fmt.Appendf(nil, "user%d:x", i)})
			_, _, err := p.next()
			must(t, err)
		}
		for i := range acl {
			acl[i].ID = wire.ID{Scheme: "auth"}
		}
		before := heap()
		p.send(wire.OpCreate, &wire.CreateRequest{Path: "/acl", ACL: acl})
		head, _, err := p.next()
		must(t, err)
		if grown := heap() - before; head.Err != wire.InvalidACL || grown > 32*megabyte {
			t.Errorf("answered with %v, %d MB", head.Err, grown>>20)
		}
	})
}

// Watches end with their connection.
func TestWatchesWithoutEnd(t *testing.T) {
	beside(t, func(t *testing.T, e *testutil.Embedded, p *peer) {
		before := e.WatchCount()
		requests := bubble.Few(4, 20)
		for i := range requests {
			var paths []string
			for j := range 20_000 {
				paths = append(paths, fmt.Sprintf("/none/%d/%d", i, j))
			}
			p.ok(wire.OpSetWatches, &wire.SetWatchesRequest{Exist: paths})
		}
		if n := e.WatchCount(); n != before+20_000*requests {
			t.Errorf("%d watches", n)
		}
		p.nc.Close()
		synctest.Wait()
		if n := e.WatchCount(); n != before {
			t.Errorf("%d watches are left", n)
		}
	})
}

// A path of a hundred thousand names, and a tree of a thousand levels.
func TestDeepPaths(t *testing.T) {
	beside(t, func(t *testing.T, e *testutil.Embedded, p *peer) {
		p.send(wire.OpCreate, create(strings.Repeat("/a", 100_000), "", 0))
		if head, _, err := p.next(); err != nil || head.Err != wire.NoNode {
			t.Errorf("answered with %v, %v", head.Err, err)
		}
		p.ok(wire.OpAddWatch, addWatch("/", wire.WatchPersistentRecursive))
		for i := 1; i <= 1000; i++ {
			p.send(wire.OpCreate, create(strings.Repeat("/a", i), "", 0))
		}
		for i := 1000; i >= 1; i-- {
			p.send(wire.OpDelete, version(strings.Repeat("/a", i), -1))
		}
		for answers := 0; answers < 2000; {
			head, _, err := p.next()
			must(t, err)
			if head.Xid == wire.XidNotification {
				continue
			}
			if answers++; head.Err != wire.OK {
				t.Fatalf("answer %d: %v", answers, head.Err)
			}
		}
	})
}

// Connections that never ask for a session are closed, and cost the others
// nothing.
func TestAFloodOfConnections(t *testing.T) {
	beside(t, func(t *testing.T, e *testutil.Embedded, p *peer) {
		before := e.Connections()
		for i := range 500 {
			nc := dialMember(t, e, 0)
			if i%2 == 0 {
				_, err := nc.Write([]byte{0, 0, 0})
				must(t, err)
			}
		}
		synctest.Wait()
		p.ok(wire.OpCreate, create("/in-between", "", 0))
		p.ok(wire.OpDelete, version("/in-between", -1))
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := e.Connections(); n != before {
			t.Errorf("%d connections, before %d", n, before)
		}
	})
}

// A multi in a multi cannot be read. Neither can one in a read of several.
func TestAMultiOfMultis(t *testing.T) {
	beside(t, func(t *testing.T, e *testutil.Embedded, p *peer) {
		inner := multi(wire.MultiOp{Op: wire.OpCreate, Request: create("/inner", "", 0)})
		for range 100 {
			inner = multi(wire.MultiOp{Op: wire.OpMulti, Request: inner})
		}
		for _, op := range []wire.Op{wire.OpMulti, wire.OpMultiRead} {
			p.send(op, inner)
			if head, _, err := p.next(); err != nil || head.Err != wire.MarshallingError {
				t.Errorf("%v: answered with %v, %v", op, head.Err, err)
			}
		}
		if e.Exists("/inner") {
			t.Error("it was executed")
		}
	})
}
