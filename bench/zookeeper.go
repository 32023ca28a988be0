package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/cycles"
	"github.com/zkrecipes/zkrecipes/internal/test/measure"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// session is the session timeout of all peers that have sessions.
const session = 30 * time.Second

var (
	lingering  = recipes.WithLinger(time.Second)
	async      = recipes.WithAsyncRelease()
	noHandoffs = recipes.WithHandoffs(0)
)

// mutexes are this library's.
type mutexes struct {
	client *framework.Client
	root   string
	opts   []locks.Option
}

func startOurs(opts ...locks.Option) func(context.Context, place) (peer, error) {
	return func(ctx context.Context, at place) (peer, error) { return newMutexes(ctx, at, opts) }
}

func startUnbatched(ctx context.Context, at place) (peer, error) {
	return newMutexes(ctx, at, nil, framework.WithBatching(false))
}

func newMutexes(ctx context.Context, at place, opts []locks.Option, more ...framework.Option) (peer, error) {
	c, err := framework.New(at.address, append(more, framework.WithSessionTimeout(session))...)
	if err != nil {
		return nil, err
	}
	return &mutexes{c, at.root, opts}, c.WaitConnected(ctx)
}

func (m *mutexes) run(ctx context.Context, w work, d time.Duration) (outcome, error) {
	all := make([]*locks.Mutex, w.locks)
	for i := range all {
		var err error
		if all[i], err = locks.NewMutex(m.client, fmt.Sprintf("%s/%d", m.root, i), m.opts...); err != nil {
			return outcome{}, err
		}
	}
	return drive(ctx, w, d, func(ctx context.Context, _, lock int) error { return cycles.Cycle(ctx, all[lock]) })
}

func (m *mutexes) close() { _ = m.client.Close() } // the servers are stopped next

// wire is a connection of the wire client.
type wire struct {
	conn   *zk.Conn
	root   string
	events <-chan zk.Event
}

// newWire connects to the server, and makes the directories of all locks.
func newWire(at place) (*wire, error) {
	conn, events, err := zk.Connect([]string{at.address}, session, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	w := &wire{conn, at.root, events}
	var make []any
	for i := range mostThreads {
		make = append(make, &zk.CreateRequest{Path: fmt.Sprintf("%s/%d", w.root, i), Acl: zk.WorldACL(zk.PermAll)})
	}
	if _, err = conn.Create(w.root, nil, 0, zk.WorldACL(zk.PermAll)); err == nil {
		_, err = conn.Multi(make...)
	}
	if err != nil && !errors.Is(err, zk.ErrNodeExists) { // another process has made them
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *wire) close() {
	w.conn.Close()
	for range w.events { //nolint:revive // its closing is the only sign that the wire client has ended
	}
}

// floor is not a lock. It sends the requests of one, each after the answer to
// the one before. Threads that share a lock take turns in-process.
type floor struct{ *wire }

func startFloor(_ context.Context, at place) (peer, error) {
	w, err := newWire(at)
	if err != nil {
		return nil, err
	}
	return floor{w}, nil
}

func (f floor) run(ctx context.Context, w work, d time.Duration) (outcome, error) {
	turns := make([]sync.Mutex, w.locks)
	return drive(ctx, w, d, func(_ context.Context, _, lock int) error {
		turns[lock].Lock()
		defer turns[lock].Unlock()
		return measure.BareCycle(f.conn, fmt.Sprintf("%s/%d", f.root, lock))
	})
}

// wireLock is the wire client's own lock. Each thread has its own value, on one
// connection.
type wireLock struct{ *wire }

func startWireLock(_ context.Context, at place) (peer, error) {
	w, err := newWire(at)
	if err != nil {
		return nil, err
	}
	return wireLock{w}, nil
}

func (l wireLock) run(ctx context.Context, w work, d time.Duration) (outcome, error) {
	all := make([]*zk.Lock, w.threads)
	for i := range all {
		all[i] = zk.NewLock(l.conn, fmt.Sprintf("%s/%d", l.root, i%w.locks), zk.WorldACL(zk.PermAll))
	}
	return drive(ctx, w, d, func(_ context.Context, thread, _ int) error {
		if err := all[thread].Lock(); err != nil {
			return err
		}
		return all[thread].Unlock()
	})
}
