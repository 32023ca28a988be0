package servers

import (
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
)

// This file remembers the earlier sessions of a client, and which are closed.

// Orphan is a session that is over, and that the ensemble may still have.
type Orphan struct {
	ID       int64 // 0: no server has ever answered
	Password []byte
	Timeout  time.Duration
}

// StepTimeout bounds each step of closing an orphan.
func (o Orphan) StepTimeout() time.Duration { return min(o.Timeout/3, talk.MaxStep) }

// earlierSession is a session of the client that is over. The ensemble may have
// it still, with its ephemeral znodes, until it is known to be closed. It is
// guarded by earlierSessions.mu.
type earlierSession struct {
	Orphan
	closed bool          // known to be
	asking chan struct{} // nil: nobody tries to close it; closed: the try has ended
	asked  time.Time     // when the latest try has ended
}

// earlierSessions are the latest sessions of the client that are over.
type earlierSessions struct {
	mu  sync.Mutex        // guards what follows
	all []*earlierSession // the oldest first
}

// mostEarlier is how many earlier sessions are remembered, except that none is
// forgotten before it is known to be closed, or that nobody can close it.
const mostEarlier = 8

// note adds a session that somebody is about to close. surplus says which of
// too many may be forgotten.
func (r *earlierSessions) note(o Orphan, surplus func(*earlierSession) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, &earlierSession{Orphan: o, asking: make(chan struct{})})
	if len(r.all) > mostEarlier {
		if i := slices.IndexFunc(r.all, surplus); i >= 0 {
			r.all = slices.Delete(r.all, i, i+1)
		}
	}
}

// noteAsked notes the end of a try to close a session. closed says that the
// ensemble is known not to have it any more.
func (r *earlierSessions) noteAsked(id int64, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.findLocked(id)
	if e == nil {
		return
	}
	e.closed = closed
	if e.asked = time.Now(); e.asking != nil {
		close(e.asking)
		e.asking = nil
	}
}

func (r *earlierSessions) findLocked(id int64) *earlierSession {
	if i := slices.IndexFunc(r.all, func(e *earlierSession) bool { return e.ID == id }); i >= 0 {
		return r.all[i]
	}
	return nil
}

// oldest returns the oldest of too many sessions, 0 if there are not too many.
func (r *earlierSessions) oldest() (id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) > mostEarlier {
		id = r.all[0].ID
	}
	return id
}

func (r *earlierSessions) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}
