package page_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestALargeLineAndALease: while the page looks at a line of 200,000 that
// changes all the time, the deadline of a lock with T = 4s in the same service
// stays as far ahead as without the page, and nothing of the line is read on
// the service's own connection. What that would cost is measured last: a busy
// machine has a part in these times, so they are only logged.
func TestALargeLineAndALease(t *testing.T) {
	if os.Getenv("ZKR_WHOLE") == "" {
		t.Skip("makes 200,000 znodes, and measures for a minute: ZKR_WHOLE=1")
	}
	const inLine, timeout = 200_000, 4 * time.Second
	watch := page.NewWatch() // gives the page what it needs to use the service's connection
	e := testutil.Start(t, testutil.WithTick(time.Second))
	writer, service := client(t, e, framework.WithSessionTimeout(20*time.Second)), client(t, e, watch.Option(), framework.WithSessionTimeout(timeout))
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
	type measured struct {
		ahead       time.Duration // the deadline, at least
		own, others int32         // reads of the line: on the service's connection, and on others
	}
	measure := func(name string, meanwhile func()) (m measured) {
		t.Helper()
		session, err := service.Session()
		if err != nil || session.Timeout() != timeout {
			t.Fatalf("a session of %v, %v", session.Timeout(), err)
		}
		reads := readsBelow(e, "/app/x", session.ID())
		m.ahead = timeout
		longest, over, ended := time.Duration(0), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for tick := time.NewTicker(time.Second); meanwhile != nil; {
				meanwhile()
				select {
				case <-tick.C:
				case <-over:
					return
				}
			}
		}()
		for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			m.ahead = min(m.ahead, time.Until(lease.Deadline()))
			join(next, next+1)
			next++
			began := time.Now()
			if _, _, err := service.Get(t.Context(), "/app"); err != nil {
				t.Fatal(err)
			}
			longest = max(longest, time.Since(began))
		}
		close(over)
		<-ended
		reads.stop()
		m.own, m.others = reads.own.Load(), reads.others.Load()
		t.Logf("%s: the longest Get took %v; %d reads of the line on the service's connection, %d on others", name, longest, m.own, m.others)
		if lease.Held() {
			t.Logf("%s: the deadline was %v ahead at least", name, m.ahead)
		}
		return m
	}
	without := measure("without the page", nil)
	p := page.New(e.Servers(), page.WithRoots("/app/x"), page.WithWatch(watch))
	defer p.Close()
	follow(t, p, "topic=line&path=/app/x")
	with := measure("with the page", nil)
	if with.own > 0 || with.others == 0 {
		judge.Errorf(t, "while the page looked, the line was read %d times on the service's connection, %d times on others", with.own, with.others)
	}
	if without.ahead < timeout/4 { // it proves the session anew at a third
		t.Log("the machine is too busy to compare deadlines")
	} else if !lease.Held() || with.ahead < without.ahead-timeout/10 {
		t.Errorf("the deadline was %v ahead at least, and %v while the page looked; held %t", without.ahead, with.ahead, lease.Held())
	}
	var body string
	for end := time.Now().Add(time.Minute); !strings.Contains(body, "more") && time.Now().Before(end); {
		body = get(t, p, lineAt("/app/x")).Body.String()
	}
	if len(body) > 300_000 || !strings.Contains(body, "more") {
		t.Errorf("its page has %d bytes", len(body))
	}
	p.Close()
	_ = lease.Release(t.Context()) // what comes now could cost it the session
	own := measure("on its own connection", func() { _, _, _ = service.Children(t.Context(), "/app/x") })
	if own.own == 0 {
		judge.Errorf(t, "no read on the service's own connection was seen")
	}
}

// reads counts what is read of a tree, by the session that reads.
type reads struct {
	own, others atomic.Int32
	stop        func()
}

// readsBelow counts reads at and below dir: those of a session, and of others.
func readsBelow(e *testutil.Embedded, dir string, own int64) *reads {
	var n reads
	n.stop = e.Control(func(r testutil.Request) testutil.Action {
		for _, op := range append(slices.Clone(r.Operations), testutil.Operation{Op: r.Op, Path: r.Path}) {
			if !readOps[op.Op] || op.Path != dir && !strings.HasPrefix(op.Path, dir+"/") {
				continue
			}
			if r.Session == own {
				n.own.Add(1)
			} else {
				n.others.Add(1)
			}
		}
		return testutil.Pass()
	})
	return &n
}

// readOps are the operations that read a znode.
var readOps = map[testutil.Op]bool{testutil.OpGetData: true, testutil.OpGetChildren: true, testutil.OpGetChildren2: true, testutil.OpExists: true}

// TestNothingOnTheServicesConnection: whatever is looked at, the page reads
// nothing on the connection that proves the leases of its service.
func TestNothingOnTheServicesConnection(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		watch := page.NewWatch()
		service := w.Connect("service", watch.Option())
		held := bubble.Acquire(t, t.Context(), mutex(t, service, "/lock", ""))
		other := bubble.Acquire(t, t.Context(), mutex(t, w.ConnectNext(), "/app/x", ""))
		wait(t, w, mutex(t, w.ConnectNext(), "/app/x", ""), "/app/x", 2)
		p := of(t, w, page.WithRoots("/app"), page.WithWatch(watch), page.WithGroup("/app/group", presence.LayoutMember),
			page.WithServices("/app/services"), page.WithCounter("/app/counter"), page.WithBarrier("/app/barrier"), page.WithHistory())
		n := readsBelow(w.Embedded, "/app", w.SessionID(service))
		for _, topic := range everyTopic {
			follow(t, p, "topic="+topic)
		}
		time.Sleep(15 * time.Second)
		n.stop()
		if own, others := n.own.Load(), n.others.Load(); own > 0 || others < 10 {
			t.Errorf("%d reads on the service's connection, %d on others", own, others)
		}
		bubble.Release(t, held, other)
	})
}

// everyTopic are the topics of streams: all pages, with /app/x for the line.
var everyTopic = []string{"", "line&path=/app/x", "deadlocks", "ensemble", "process"}

func client(t *testing.T, e *testutil.Embedded, opts ...framework.Option) *framework.Client {
	t.Helper()
	c, err := framework.New(e.Servers(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
