package watches

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/version"
)

// lookout finds out whether an armed watch has missed a change: servers since
// 3.7.3, 3.8.4 and 3.9.2 use a watch up without an event while the session may
// not read the znode (CVE-2024-23944), and an event can be lost. It is guarded
// by hub.mu.
type lookout struct {
	checked   time.Time     // when the latest read began that has found no change
	next      *look         // a read that has not begun; nil: none
	latest    *look         // begun or not; nil: there was none
	followers int           // who wait for the watch with follow
	left      chan struct{} // closed: the last of them has left
}

// look is a read that checks a watch.
type look struct {
	ended chan struct{} // closed: the read has ended, with err
	err   error         // a retry may help
}

// check reads the znode, and fires w if it has missed a change, or if the
// session may no longer read the znode. Callers share a read that has not begun
// yet, and never one that has: it may have seen less than its caller. The read
// is an exists, which answers for all that a watch is for. It is done without
// the caller's context, since others may share it.
func (w *Watch) check(ctx context.Context) error {
	h := &w.session.hub
	h.mu.Lock()
	next := w.lookout.next
	if next == nil {
		next = &look{ended: make(chan struct{})}
		go w.look(next, w.lookout.latest)
		w.lookout.next, w.lookout.latest = next, next
	}
	h.mu.Unlock()
	select {
	case <-next.ended:
		return next.err
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	case <-w.session.Over():
		return w.session.Err()
	}
}

// look does the read of one look, after that of the one before.
func (w *Watch) look(this, before *look) {
	defer close(this.ended)
	if before != nil {
		<-before.ended
	}
	s := w.session
	s.hub.mu.Lock()
	w.lookout.next = nil
	s.hub.mu.Unlock()
	began := time.Now()
	now, err := ops.Call(context.Background(), s.Session, ops.Request{Op: request.NameWatch, Path: w.key.path}, func(conn *zk.Conn) (n ops.Node, err error) {
		n.Found, n.Stat, err = conn.Exists(w.key.path)
		return n, err
	}, nil)
	switch {
	case err != nil && zkerr.Classify(err) != zkerr.Final:
		this.err = err
	case err != nil, w.misses(now):
		s.hub.loseWatch(w)
	default:
		s.hub.mu.Lock()
		w.lookout.checked = began
		s.hub.mu.Unlock()
	}
}

// misses reports whether a znode differs from what was read with w. Whoever
// changes the rights to read it may have used up the watch as well.
func (w *Watch) misses(now ops.Node) bool {
	before := w.Node.Stat
	if w.key.kind == Missing || !now.Found {
		return now.Found == (w.key.kind == Missing)
	}
	return w.key.kind.changed(before, now.Stat) || before.Aversion != now.Stat.Aversion
}

// changed reports whether what a watch of this kind is for has changed between
// two reads of a znode that exists.
func (k Kind) changed(before, now *zk.Stat) bool {
	if k == Children {
		return version.CreatedOf(before) != version.CreatedOf(now) || before.Pzxid != now.Pzxid || before.Cversion != now.Cversion || before.NumChildren != now.NumChildren
	}
	return version.Of(before) != version.Of(now)
}

// loseWatch fires a watch that the server may have used up, if nothing else has
// fired it yet. The next caller arms it again.
func (h *hub) loseWatch(w *Watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.armed[w.key] == w {
		h.fireLocked(w)
		h.noteUnwantedLocked(w.key, w.on) // it may be there all the same
	}
}

func (w *Watch) hasFired() bool {
	select {
	case <-w.fired:
		return true
	default:
		return false
	}
}

// isOld reports whether w was not checked for half a session timeout.
func (w *Watch) isOld() bool {
	limit := w.session.Timeout() / 2
	w.session.hub.mu.Lock()
	defer w.session.hub.mu.Unlock()
	return time.Since(w.lookout.checked) > limit
}

// follow has w checked about every session timeout, until leave is called. All
// who follow it share those checks.
func (w *Watch) follow() (leave func()) {
	h, l := &w.session.hub, &w.lookout
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.followers++; l.followers == 1 {
		l.left = make(chan struct{})
		go w.checkOften(l.left)
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if l.followers--; l.followers == 0 {
			close(l.left)
		}
	}
}

// checkOften checks w until left is closed: nobody follows it, or it has fired
// and so everybody has left. The session timeout is the pause on average, and
// not the same for all: many watches of many clients may have been armed at the
// same time.
func (w *Watch) checkOften(left <-chan struct{}) {
	pause := func() time.Duration { return w.session.Timeout()*3/4 + random.N(w.session.Timeout()/2) }
	for !closed.Within(pause(), left) {
		if w.session.IsReady() { // otherwise the next connection fires it
			_ = w.check(context.Background())
		}
	}
}
