package page_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestALargeLineAndALease: while the page looks at a line of 200,000 that
// changes all the time, the deadline of a lock with T = 4s in the same service
// stays as far ahead as without the page. Both are measured in real time: what
// the page would take from the lock is the connection, and the processor.
func TestALargeLineAndALease(t *testing.T) {
	if os.Getenv("ZKR_WHOLE") == "" {
		t.Skip("makes 200,000 znodes, and measures for half a minute: ZKR_WHOLE=1")
	}
	const inLine, timeout = 200_000, 4 * time.Second
	e := testutil.Start(t, testutil.WithTick(100*time.Millisecond))
	writer, service := client(t, e), client(t, e, framework.WithSessionTimeout(timeout))
	if err := writer.MakePersistentPath(t.Context(), "/app/x"); err != nil {
		t.Fatal(err)
	}
	join := func(from, to int) {
		t.Helper()
		const together = 1000
		for i := from; i < to; i += together {
			var ops []any
			for j := i; j < min(i+together, to); j++ {
				ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("/app/x/_c_00000000-0000-0000-0000-000000000000-lock-%010d", j)})
			}
			if _, err := writer.Multi(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
		}
	}
	join(0, inLine)
	m, err := locks.NewMutex(service, "/app/lock")
	if err != nil {
		t.Fatal(err)
	}
	lease, err := m.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := inLine
	// least returns how far the deadline was ahead at least.
	least := func(during func()) time.Duration {
		t.Helper()
		shortest := timeout
		for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			shortest = min(shortest, time.Until(lease.Deadline()))
			during()
		}
		return shortest
	}
	grow := func() { join(next, next+1); next++ }
	without := least(grow)
	p := page.New(e.Servers(), page.WithRoots("/app/x"))
	defer p.Close()
	follow(t, p, "topic=line&path=/app/x")
	with := least(grow)
	t.Logf("the deadline was %v ahead at least without the page, and %v with it", without, with)
	if !lease.Held() || with < without-timeout/10 {
		t.Errorf("the deadline was %v ahead at least, and %v while the page looked; held %t", without, with, lease.Held())
	}
	if body := get(t, p, lineAt("/app/x")).Body.String(); len(body) > 300_000 {
		t.Errorf("its page has %d bytes", len(body))
	}
	sees(t, p, lineAt("/app/x"), "more")
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func client(t *testing.T, e *testutil.Embedded, opts ...framework.Option) *framework.Client {
	t.Helper()
	c, err := framework.New(e.Servers(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
