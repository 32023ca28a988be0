package measure_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// BenchmarkHandOver is the time from the call that releases a Mutex in one session to the grant in the next, while a number of
// sessions wait in line; beside, in turns and on the same server, what that cannot do without: the bare wire client deletes a
// znode, a second one gets its watch event, and lists a directory of the same size. There, too, it is as many sessions whose
// turns come, for one that has been silent is slower than one that has just listed. The session that has released joins the
// line again before the next turn, which its requests count for: a delete, and a create, a list, and a read with a watch; and
// the list of the one that is granted.
func BenchmarkHandOver(b *testing.B) {
	for _, waiters := range []int{2, 10, 100, 1000} {
		b.Run(fmt.Sprintf("%d", waiters), func(b *testing.B) {
			onEachServer(b, func(b *testing.B, servers string) { handOver(b, servers, waiters) })
		})
	}
}

func handOver(b *testing.B, servers string, waiters int) {
	q := newQueue(b)
	for range waiters + 1 {
		m := &contender{}
		var err error
		if m.Mutex, err = locks.NewMutex(benchClient(b, servers, m.requests.option()), "/locks/ours"); err != nil {
			b.Fatal(err)
		}
		q.members = append(q.members, m)
		q.join(m)
	}
	defer q.leave()
	held := <-q.granted
	for _, m := range q.members {
		await(b, func() bool { return m == held.member || m.requests.watches.Load() > 0 })
	}
	bare := newBareHandOver(b, servers, waiters)

	var ours, theirs sample
	var spent int64
	for b.Loop() {
		before := q.requests()
		released := make(chan error, 1)
		began := time.Now()
		go func() { released <- held.lease.Release(context.Background()) }()
		next := <-q.granted
		ours = append(ours, next.at.Sub(began))
		if err := <-released; err != nil {
			b.Fatal(err)
		}
		watches := held.member.requests.watches.Load()
		q.join(held.member)
		await(b, func() bool { return held.member.requests.watches.Load() > watches })
		spent += q.requests() - before
		held = next

		theirs = append(theirs, bare.turn(b))
	}
	if err := held.lease.Release(context.Background()); err != nil {
		b.Error(err)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ours.median(), "handover-µs")
	b.ReportMetric(theirs.median(), "bare-µs")
	b.ReportMetric(ours.median()/theirs.median(), "ratio")
	b.ReportMetric(float64(spent)/float64(len(ours)), "requests")
}

// contender is one who stands in line in a session of its own.
type contender struct {
	*locks.Mutex
	requests counter
}

type grant struct {
	member *contender
	lease  *recipes.Lease
	at     time.Time
}

// queue is those who wait for one Mutex.
type queue struct {
	b       *testing.B
	members []*contender
	granted chan grant
	waiting sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

func newQueue(b *testing.B) *queue {
	q := &queue{b: b, granted: make(chan grant, 1)}
	q.ctx, q.cancel = context.WithCancel(b.Context())
	return q
}

func (q *queue) requests() (n int64) {
	for _, m := range q.members {
		n += m.requests.n.Load()
	}
	return n
}

func (q *queue) join(m *contender) {
	q.waiting.Go(func() {
		lease, err := m.Acquire(q.ctx)
		at := time.Now()
		switch {
		case err == nil:
			q.granted <- grant{m, lease, at}
		case q.ctx.Err() == nil:
			q.b.Error(err)
		}
	})
}

// await polls, between two turns.
func await(b *testing.B, condition func() bool) {
	b.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			b.Fatal("not in time")
		}
	}
}

// leave ends the wait of all.
func (q *queue) leave() {
	q.cancel()
	for {
		done := make(chan struct{})
		go func() { q.waiting.Wait(); close(done) }()
		select {
		case g := <-q.granted:
			if err := g.lease.Release(context.Background()); err != nil {
				q.b.Error(err)
			}
		case <-done:
			return
		}
	}
}

// bareHandOver is connections of the wire client that take turns, and a directory of a line's size.
type bareHandOver struct {
	conns []*zk.Conn // one for each who waits, and one who holds
	turns int
	dir   string
}

func newBareHandOver(b *testing.B, servers string, waiters int) *bareHandOver {
	h := &bareHandOver{dir: "/locks/theirs"}
	for range waiters + 1 {
		h.conns = append(h.conns, bareConn(b, servers))
	}
	if _, err := h.conns[0].Create(h.dir, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		b.Fatal(err)
	}
	for range waiters {
		h.create(b)
	}
	return h
}

func (h *bareHandOver) create(b *testing.B) string {
	path, err := h.conns[h.turns%len(h.conns)].Create(h.dir+"/_c_00000000-0000-0000-0000-000000000000-lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	if err != nil {
		b.Fatal(err)
	}
	return path
}

// turn deletes a znode on one connection, and returns how long it took until the other had been told and had listed.
func (h *bareHandOver) turn(b *testing.B) time.Duration {
	path := h.create(b)
	from := h.conns[h.turns%len(h.conns)]
	h.turns++
	to := h.conns[h.turns%len(h.conns)]
	_, _, deleted, err := to.GetW(path)
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	failed := make(chan error, 1)
	go func() { failed <- from.Delete(path, -1) }()
	<-deleted
	_, _, err = to.Children(h.dir)
	took := time.Since(began)
	if err != nil {
		b.Fatal(err)
	}
	if err := <-failed; err != nil {
		b.Fatal(err)
	}
	return took
}
