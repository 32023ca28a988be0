package measure_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/cycles"
	"github.com/zkrecipes/zkrecipes/internal/test/measure"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// BenchmarkHandOver measures the time from the call that releases a Mutex in
// one session to the grant in the next, while a number of sessions wait in
// line. For comparison, in alternation and on the same server: in a line of as
// many connections of the bare wire client, the first deletes its znode, and
// the next gets its watch event and lists the directory. In both lines the one
// that has left joins again before the next turn, and whoever is first works
// for a while, or not. The requests of a turn are a delete and those of the one
// that joins.
func BenchmarkHandOver(b *testing.B) {
	for _, line := range []struct {
		name        string
		waiters     int
		work, delay time.Duration // delay: of the network, each way
	}{
		{"1", 1, 0, 0},
		{"2", 2, 0, 0},
		{"10", 10, 0, 0},
		{"100", 100, 0, 0},
		{"1000", 1000, 0, 0},
		{"1-working-5ms", 1, 5 * time.Millisecond, 0},
		{"10-working-5ms", 10, 5 * time.Millisecond, 0},
		{"100-working-5ms", 100, 5 * time.Millisecond, 0},
		{"1-over-1ms", 1, 0, time.Millisecond},
		{"1-proving", 1, briefSession * 11 / 20, 0},
	} {
		b.Run(line.name, func(b *testing.B) {
			onEachServer(b, func(b *testing.B, servers string) {
				if line.delay > 0 {
					servers = slowWay(b, servers, line.delay)
				}
				session := longSession
				if line.work > briefSession/2 {
					session = briefSession
				}
				handOver(b, servers, line.waiters, line.work, session)
			})
		})
	}
}

// briefSession is a session timeout that a waiter can wait for: after half of
// it, it also has to prove its session.
const briefSession = 2 * time.Second

func handOver(b *testing.B, servers string, waiters int, work, session time.Duration) {
	q := newQueue(b)
	held := q.form(servers, "/locks/ours", waiters+1, framework.WithSessionTimeout(session))
	defer q.leave()
	bare := newBareLine(b, servers, waiters)

	var ours, theirs sample
	before := q.requests()
	for b.Loop() {
		time.Sleep(work)
		next, took := q.turn(held)
		held, ours = next, append(ours, took)

		time.Sleep(work)
		theirs = append(theirs, bare.turn(b))
	}
	spent := q.requests() - before
	if err := held.lease.Release(context.Background()); err != nil {
		b.Error(err)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ours.median(), "handover-µs")
	b.ReportMetric(theirs.median(), "bare-µs")
	b.ReportMetric(ours.median()/theirs.median(), "ratio")
	b.ReportMetric(float64(spent)/float64(len(ours)), "requests")
}

// BenchmarkBusyHandOver measures the same time between two sessions, while each
// of them also acquires and releases 64 other locks in 64 goroutines. It does
// so with and without batching, in alternation, and without the other locks.
func BenchmarkBusyHandOver(b *testing.B) {
	onEachServer(b, func(b *testing.B, servers string) {
		pairs := []*pair{
			{name: "quiet"},
			{name: "busy", others: 64},
			{name: "unbatched", others: 64, opts: []framework.Option{framework.WithBatching(false)}},
		}
		for i, p := range pairs {
			p.queue = newQueue(b)
			p.held = p.form(servers, fmt.Sprintf("/locks/pair-%d", i), 2, p.opts...)
			defer p.leave()
		}
		for b.Loop() {
			for _, p := range pairs {
				p.turns(20)
			}
		}
		b.ReportMetric(0, "ns/op")
		for _, p := range pairs {
			b.ReportMetric(p.took.median(), p.name+"-µs")
			if err := p.held.lease.Release(context.Background()); err != nil {
				b.Error(err)
			}
		}
	})
}

// pair is two sessions that hand a lock over, with other locks beside it.
type pair struct {
	*queue
	name   string
	others int
	opts   []framework.Option
	held   grant
	took   sample
}

// turns hands the lock over a number of times, while the other locks are busy.
func (p *pair) turns(n int) {
	ctx, quiet := context.WithCancel(p.ctx)
	var busy sync.WaitGroup
	for i, m := range p.members {
		if p.others == 0 {
			break
		}
		busy.Go(func() {
			err := p.load(ctx, m.client, i)
			if err != nil && ctx.Err() == nil {
				p.b.Error(err)
			}
		})
	}
	for range n {
		next, took := p.turn(p.held)
		p.held, p.took = next, append(p.took, took)
	}
	quiet()
	busy.Wait()
}

// load acquires and releases the other locks of a session until ctx ends.
func (p *pair) load(ctx context.Context, c *framework.Client, session int) error {
	all := make([]*locks.Mutex, p.others)
	for i := range all {
		var err error
		if all[i], err = locks.NewMutex(c, fmt.Sprintf("/locks/others/%s-%d-%d", p.name, session, i)); err != nil {
			return err
		}
	}
	_, _, err := cycles.Load{Goroutines: p.others, Locks: p.others}.Run(ctx, func(ctx context.Context, _, lock int) error {
		return cycles.Cycle(ctx, all[lock])
	})
	return err
}

// contender is one waiter in its own session.
type contender struct {
	*locks.Mutex
	client   *framework.Client
	requests counter
}

type grant struct {
	member *contender
	lease  *recipes.Lease
	at     time.Time
}

// queue is the contenders of one Mutex.
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

// form connects members, each in its own session, which all acquire the lock at
// path. It returns the grant of the first when all others wait.
func (q *queue) form(servers, path string, members int, opts ...framework.Option) grant {
	for range members {
		m := &contender{}
		m.client = benchClient(q.b, servers, append(opts, m.requests.option())...)
		var err error
		if m.Mutex, err = locks.NewMutex(m.client, path); err != nil {
			q.b.Fatal(err)
		}
		q.members = append(q.members, m)
		q.join(m)
	}
	held := <-q.granted
	for _, m := range q.members {
		await(q.b, func() bool { return m == held.member || m.requests.watches.Load() > 0 })
	}
	return held
}

// turn has the holder release, and returns the next grant and the time until it
// came. Then the one that released waits again.
func (q *queue) turn(held grant) (next grant, took time.Duration) {
	released := make(chan error, 1)
	began := time.Now()
	go func() { released <- held.lease.Release(context.Background()) }()
	next = <-q.granted
	if err := <-released; err != nil {
		q.b.Fatal(err)
	}
	watches := held.member.requests.watches.Load()
	q.join(held.member)
	await(q.b, func() bool { return held.member.requests.watches.Load() > watches })
	return next, next.at.Sub(began)
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

// await polls between two turns.
func await(b *testing.B, condition func() bool) {
	b.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			b.Fatal("timed out")
		}
	}
}

// leave ends all waits.
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

// bareLine is a line of connections of the wire client. Each has a znode and
// watches the one ahead of it.
type bareLine struct {
	conns []*zk.Conn
	paths []string
	gone  []<-chan zk.Event // the znode ahead of it is gone
	first int
	dir   string
}

func newBareLine(b *testing.B, servers string, waiters int) *bareLine {
	l := &bareLine{dir: "/locks/theirs", paths: make([]string, waiters+1), gone: make([]<-chan zk.Event, waiters+1)}
	for range waiters + 1 {
		l.conns = append(l.conns, bareConn(b, servers))
	}
	if _, err := l.conns[0].Create(l.dir, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		b.Fatal(err)
	}
	for i := range l.conns {
		if err := l.join(i, i-1); err != nil {
			b.Fatal(err)
		}
	}
	return l
}

// join makes connection i stand behind another one, which it watches; a
// negative number means none.
func (l *bareLine) join(i, behind int) (err error) {
	conn := l.conns[i]
	if l.paths[i], err = measure.BareJoin(conn, l.dir); err != nil || behind < 0 {
		return err
	}
	_, _, l.gone[i], err = conn.GetW(l.paths[behind])
	return err
}

// turn makes the first leave, and returns the time until the next had its event
// and its list. Then the one that left joins again.
func (l *bareLine) turn(b *testing.B) time.Duration {
	from := l.first
	last := (from + len(l.conns) - 1) % len(l.conns)
	l.first = (from + 1) % len(l.conns)
	left := make(chan error, 1)
	began := time.Now()
	go func() { left <- l.conns[from].Delete(l.paths[from], -1) }()
	<-l.gone[l.first]
	_, _, err := l.conns[l.first].Children(l.dir)
	took := time.Since(began)
	if err := errors.Join(err, <-left, l.join(from, last)); err != nil {
		b.Fatal(err)
	}
	return took
}
