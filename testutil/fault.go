package testutil

import (
	"strings"
	"sync"
)

// Match picks requests. A field left zero matches everything.
type Match struct {
	Op     Op     // of the request; a multi is one request
	Path   string // of the request; one that ends in a slash matches everything below it
	Member int    // index of the member that receives it, plus 1; 0 matches any member
	Skip   int    // how many matching requests pass first
	Times  int    // how many the fault hits after those: 0 means one, less than 0 means all
}

func (m *Match) matches(r Request) bool {
	switch {
	case m.Op != 0 && m.Op != r.Op, m.Member != 0 && m.Member != r.Member+1:
		return false
	case len(m.Path) > 1 && strings.HasSuffix(m.Path, "/"):
		return strings.HasPrefix(r.Path, m.Path)
	}
	return m.Path == "" || m.Path == r.Path
}

// Fault does one action to the requests that match. Pass its Control to the
// Control of an ensemble or of a client's network:
//
//	creates := testutil.Match{Op: testutil.OpCreate, Path: "/lock/"}
//	lost := testutil.NewFault(creates, testutil.DropAfter())
//	stop := ens.ClientNet("holder").Control(lost.Control)
//	defer stop()
//
// The zero Fault counts one request and lets it pass.
type Fault struct {
	match  Match
	action Action

	mu    sync.Mutex    // guards what follows
	hit   chan struct{} // closed when the first request is hit
	seen  int
	count int
}

// NewFault returns a fault that does a to the requests that match m.
func NewFault(m Match, a Action) *Fault {
	return &Fault{match: m, action: a}
}

// Control returns the action for a request: the fault's, or Pass if the request
// does not match.
func (f *Fault) Control(r Request) Action {
	if !f.match.matches(r) {
		return Pass()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen++
	if f.seen <= f.match.Skip || f.match.Times >= 0 && f.count >= max(f.match.Times, 1) {
		return Pass()
	}
	if f.count++; f.count == 1 {
		close(f.hitLocked())
	}
	return f.action
}

// Hit returns a channel that is closed when the fault hits its first request.
func (f *Fault) Hit() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hitLocked()
}

func (f *Fault) hitLocked() chan struct{} {
	if f.hit == nil {
		f.hit = make(chan struct{})
	}
	return f.hit
}

// Count returns how many requests the fault has hit.
func (f *Fault) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}
