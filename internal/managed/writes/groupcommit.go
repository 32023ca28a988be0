package writes

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// Group commit: the writes of contenders share requests. They are the protected
// creates with which contenders join lines, and the deletes with which they
// leave. Each write costs the leader a transaction, with an entry in the log of
// every member, and a multi costs one for all of its operations. So the writes
// of a session that are asked for while several requests are under way are
// collected, and sent together.
//
// What callers can rely on:
//
//   - While few requests are under way, a write is sent at once. Only a delete
//     that nobody waits for is kept for a moment, until another write comes.
//     Too many requests with creates hold back creates, and too many with
//     deletes hold back deletes: a release does not wait for a create to be
//     answered, and a create does not wait for a release.
//   - No create overtakes a delete that was asked for earlier, and creates in
//     one directory keep their order. The exceptions are writes that are sent
//     alone: large ones, retries, those whose batch was refused, and creates in
//     a directory that refused its last one. So a lock that is released and
//     acquired again by one client is normally free when the create is
//     executed. Where it is not, the new contender waits for the old znode.
//   - A multi has at most one create in each directory, so two contenders of a
//     line never share a transaction.
//   - A token is made from the list behind the create: see readbehind.go. It
//     does not use the create's transaction, which creates in other directories
//     may share.
//   - A multi goes through the leader as a create does, so it proves as much.
//   - An ensemble executes a multi whole or not at all. If it refuses one, it
//     names one operation, and only the caller of that one gets the error. The
//     others were not executed, and are sent again at once, each alone.
//   - If the answer to a multi is lost, each caller gets that error, and does
//     what it does for a request of its own: a create is looked for by its id,
//     and a delete is tried again, alone.
//
// A batch has no goroutine of its own. The caller of one of its writes sends
// it, and passes the answers on to the others.

const (
	// batchOps is how many operations a batch has at most. More gain nothing,
	// and would keep the leader busy for longer.
	batchOps = 256
	// batchShare limits the size of a batch: to the largest request allowed,
	// divided by this.
	batchShare = 4
	// UnderWay is how many requests with creates may be under way before
	// creates are held back, and how many with deletes before deletes are. If
	// it is small, batches are large. If it were one, a write would wait for
	// half a round trip on average, and on a network with long round trips that
	// costs more than batches save.
	UnderWay = 4
	// enough is how many queued writes are sent although UnderWay is reached,
	// as long as fewer than mostUnderWay requests are under way.
	enough       = 32
	mostUnderWay = 16
	// mostRefused is how many directories with refused creates are remembered.
	mostRefused = 1024
	// patience is how long a delete that nobody waits for is kept for another
	// write to come, usually the next create of the same goroutine. Both are then
	// one transaction, and wait for one flush of the ensemble's log, not two.
	patience = time.Millisecond
)

// groupCommit is the queue of one session.
type groupCommit struct {
	session *Writes

	mu      sync.Mutex
	queue   []*groupedWrite
	creates int                 // requests under way that have creates
	deletes int                 // requests under way that have deletes
	leaving *flight             // the latest request, nil once it is on the wire
	refused map[string]struct{} // directories in which the last create was refused
	large   map[string]struct{} // directories that are listed by themselves: see readbehind.go
}

// groupedWrite is one write, a create or a delete. It is enqueued once, and
// then awaited once.
type groupedWrite struct {
	op     any             // *zk.CreateRequest or *zk.DeleteRequest, with an absolute path
	path   string          // the one in op
	dir    string          // of a create
	gone   <-chan struct{} // closed: its caller has returned
	ctx    context.Context // of its caller, for the observers
	also   []request.Read  // what is read with the list behind a create, with absolute paths
	behind *readBehind     // that was sent behind it last, once it is answered; nil: nothing was
	made   string          // the path, once a create has succeeded

	instead  string        // of a create: see CreateProtectedInstead; empty: of no znode
	replaces *groupedWrite // the delete of that znode, if it was in the queue before the create
	in       *flight       // what it is part of; nil: of none yet, or it is sent alone
	next     chan step     // what it has to do next; there is never more than one

	patience <-chan time.Time // until then it waits for another write; nil: it does not wait
}

// step is what the caller that waits for a write does next: send a request,
// send its own write alone, wait for the reads behind creates, or return.
type step struct {
	send  *flight
	alone bool
	read  *readBehind
	made  made
	err   error
}

// flight is a request of several writes, or of one.
type flight struct {
	writes           []*groupedWrite // deletes first
	creates, deletes bool
	lone             [1]*groupedWrite // memory for writes: most requests have one
}

// newGroupedWrite returns a write that is not sent if ctx has ended before.
func newGroupedWrite(ctx context.Context, op any) *groupedWrite {
	w := &groupedWrite{op: op, gone: ctx.Done(), ctx: ctx, next: make(chan step, 1)}
	switch op := op.(type) {
	case *zk.CreateRequest:
		w.path = op.Path
		w.dir, _ = layout.Split(op.Path)
	case *zk.DeleteRequest:
		w.path = op.Path
	}
	return w
}

func (w *groupedWrite) isCreate() bool {
	_, ok := w.op.(*zk.CreateRequest)
	return ok
}

// isGone reports whether the caller has returned. It calls nothing of the
// caller's context, which may be user code, for it is called with mu held.
func (w *groupedWrite) isGone() bool {
	select {
	case <-w.gone:
		return true
	default:
		return false
	}
}

// errWithdrawn is the result of a write whose caller has returned before it was
// sent.
var errWithdrawn = errors.New("withdrawn before it was sent")

// enqueue puts w into the queue, and dispatches what may be sent now. If alone
// is true, or w may not be part of a batch, await sends w alone, at once.
func (g *groupCommit) enqueue(w *groupedWrite, alone bool) {
	if g.session.Err() != nil { // await returns at once
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_, refused := g.refused[w.dir]
	if alone || g.session.cfg.NoBatching || refused && w.isCreate() || request.OperationSize(w.op) > g.session.Client.Config.MaxRequest/batchShare {
		w.next <- step{alone: true}
	} else {
		if w.instead != "" {
			w.replaces = g.deleteLocked(w.instead)
		}
		g.queue = append(g.queue, w)
	}
	if w.patience == nil {
		g.dispatchLocked()
	}
}

func (g *groupCommit) dispatch() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dispatchLocked()
}

// await returns the result of a write that was enqueued.
func (g *groupCommit) await(w *groupedWrite) (made, error) {
	for {
		select {
		case todo := <-w.next:
			switch {
			case todo.send != nil:
				g.send(todo.send) // passes w's own result on as well
			case todo.alone:
				g.sendAlone(w)
			case todo.read != nil:
				g.read(todo.read)
			default:
				return todo.made, todo.err
			}
		case <-w.patience:
			g.dispatch()
		case <-g.session.Over():
			return made{}, zk.ErrConnectionClosed // whether it was sent does not matter any more
		}
	}
}

// dispatchLocked takes from the queue what may be sent now. Of each request,
// the caller of its last write sends it: often that is the one that has just
// come, and need not be woken up.
func (g *groupCommit) dispatchLocked() {
	for len(g.queue) > 0 && g.leaving == nil {
		if !g.session.IsReady() {
			// A retry waits for the next connection, for as long as its budget
			// allows.
			for _, w := range g.queue {
				w.next <- step{err: zk.ErrNoServer}
			}
			g.queue = nil
			return
		}
		f := g.takeLocked()
		if f == nil {
			return
		}
		g.leaving = f
		g.countLocked(f, 1)
		f.writes[len(f.writes)-1].next <- step{send: f}
	}
}

func (g *groupCommit) countLocked(f *flight, by int) {
	if f.creates {
		g.creates += by
	}
	if f.deletes {
		g.deletes += by
	}
}

// takeLocked removes the writes of the next request from the queue. It returns
// nil if all writes have to wait.
func (g *groupCommit) takeLocked() *flight {
	may := false
	g.queue = slices.DeleteFunc(g.queue, func(w *groupedWrite) bool {
		if w.isGone() {
			w.next <- step{err: errWithdrawn}
			return true
		}
		may = may || w.isCreate() && g.creates < UnderWay || !w.isCreate() && g.deletes < UnderWay
		return false
	})
	if !may && (len(g.queue) < enough || g.creates+g.deletes >= mostUnderWay) {
		return nil
	}
	f := &flight{}
	f.writes = f.lone[:0]
	room := g.session.Client.Config.MaxRequest / batchShare
	dirs := make(map[string]struct{})
	take := func(creates bool) (all bool) {
		full := false
		g.queue = slices.DeleteFunc(g.queue, func(w *groupedWrite) bool {
			if w.isCreate() != creates || full {
				return false
			}
			if _, taken := dirs[w.dir]; taken && creates {
				return false
			}
			size := request.OperationSize(w.op)
			if full = len(f.writes) > 0 && (size > room || len(f.writes) == batchOps); full {
				return false
			}
			room -= size
			w.in = f
			f.writes = append(f.writes, w)
			if creates {
				dirs[w.dir] = struct{}{}
			}
			return true
		})
		return !full
	}
	all := take(false)
	f.deletes = len(f.writes) > 0
	n := len(f.writes)
	if all { // a create does not overtake a delete that is left
		take(true)
	}
	f.creates = len(f.writes) > n
	return f
}

// send sends f, and tells the caller of each write what to do next.
func (g *groupCommit) send(f *flight) {
	if !g.session.IsReady() { // the connection has ended since the request was taken from the queue
		g.landed(f)
		for _, w := range f.writes {
			w.next <- step{err: zk.ErrNoServer}
		}
		return
	}
	if len(f.writes) == 1 {
		w := f.writes[0]
		err := g.exchange(w, func(on *link.Link) { g.sent(f, on) })
		g.landed(f)
		g.answered(w, err)
		return
	}
	operations := make([]any, len(f.writes))
	for i, w := range f.writes {
		operations[i] = w.op
	}
	s := g.session
	unsent := s.Chain().AwaitSent(f.writes[0].path, func(on *link.Link) { g.sent(f, on) })
	first := f.writes[0]
	ask := ops.Request{Op: request.NameMulti, Path: first.path, Operations: len(operations)}
	responses, err := ops.Observed(first.ctx, s.Session, ask, func(conn *zk.Conn) ([]zk.MultiResponse, error) { return request.Multi(conn, operations) })
	s.Client.Ephemerals.SettleMulti(nil, "", operations, responses, err)
	s.Chain().ForgetSent(unsent)
	g.landed(f)
	s.cfg.Observer.Batched(len(operations))
	named := -1
	if err != nil && zkerr.Classify(err) == zkerr.Final {
		named = request.Refused(responses, len(operations))
	}
	for i, w := range f.writes {
		if err == nil && w.isCreate() {
			w.made = responses[i].String // of all, before one passes the lists on
		}
	}
	for i, w := range f.writes {
		switch {
		case err == nil:
			g.answered(w, nil)
		case zkerr.Classify(err) != zkerr.Final:
			w.next <- step{err: err}
		case i == named:
			g.note(w, err)
			w.next <- step{err: responses[i].Error}
		default:
			w.next <- step{alone: true}
		}
	}
}

// answered passes on the answer to w. If there are reads behind w, the caller
// of the first of their creates waits for them. It may have the answer to them
// before this is called for the others.
func (g *groupCommit) answered(w *groupedWrite, err error) {
	g.note(w, err)
	switch {
	case err != nil || w.behind == nil: // w.behind may not be set yet after an error
		w.next <- step{made: made{path: w.made, next: err == nil && w.isNext()}, err: err}
	case w.behind.writes[0] == w:
		w.next <- step{read: w.behind}
	}
}

// sendAlone sends w at once. The request does not count as under way, so it
// holds no other write back.
func (g *groupCommit) sendAlone(w *groupedWrite) {
	if !g.session.IsReady() {
		w.next <- step{err: zk.ErrNoServer}
		return
	}
	w.behind = nil // a batch that was refused has created nothing
	w.in = nil
	err := g.exchange(w, func(on *link.Link) { g.readBehind([]*groupedWrite{w}, on) })
	g.answered(w, err)
}

// exchange sends w as a request of its own, and waits for the answer.
func (g *groupCommit) exchange(w *groupedWrite, onSent func(*link.Link)) (err error) {
	s := g.session
	unsent := s.Chain().AwaitSent(w.path, onSent)
	defer s.Chain().ForgetSent(unsent)
	if op, ok := w.op.(*zk.DeleteRequest); ok {
		_, err = ops.Observed(w.ctx, s.Session, ops.Request{Op: request.NameDelete, Path: op.Path}, func(conn *zk.Conn) (struct{}, error) {
			return struct{}{}, conn.Delete(op.Path, op.Version)
		})
		return err
	}
	op := w.op.(*zk.CreateRequest)
	w.made, err = ops.Observed(w.ctx, s.Session, ops.Request{Op: request.NameCreate, Path: op.Path}, func(conn *zk.Conn) (string, error) {
		return request.Create(conn, op.Path, op.Data, op.Flags, op.Acl)
	})
	return err
}

// sent notes that f is on the wire.
func (g *groupCommit) sent(f *flight, on *link.Link) {
	g.readBehind(f.writes, on)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leaving == f {
		g.leaving = nil
		g.dispatchLocked()
	}
}

// landed notes that f is no longer under way.
func (g *groupCommit) landed(f *flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leaving == f {
		g.leaving = nil // it was never sent
	}
	g.countLocked(f, -1)
	g.dispatchLocked()
}

// note remembers whether the ensemble refuses creates in w's directory. They
// are then sent alone: in a batch, all other writes would have to be sent
// twice.
func (g *groupCommit) note(w *groupedWrite, err error) {
	if !w.isCreate() || err != nil && zkerr.Classify(err) != zkerr.Final {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		delete(g.refused, w.dir)
		return
	}
	if g.refused == nil || len(g.refused) == mostRefused {
		g.refused = make(map[string]struct{})
	}
	g.refused[w.dir] = struct{}{}
}
