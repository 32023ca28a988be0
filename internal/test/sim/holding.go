package sim

import (
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// resource is one lock, semaphore or election that workers contend for.
type resource struct {
	path     string        // these paths are the ensemble's
	dirs     []string      // of the contenders' znodes
	data     string        // what guarded writes write to
	limit    int           // of a semaphore; 0 for others
	highest  recipes.Token // of all grants, and of the exclusive ones
	alone    recipes.Token
	written  int64     // the latest known write to data
	last     time.Time // the last event that allows a grant
	waiting  map[who]want
	ended    map[int]time.Time // when a client's latest holding or its release ended
	idle     time.Time         // since when all waiters could be granted and there is no holder; zero if not so
	holdings []*holding
	ops      []op
}

// holding is one grant, from its start to its end, with all leases that
// re-enter it.
type holding struct {
	id      int
	znode   int // id of the first holding of the same znode
	of      *resource
	who     who
	shared  bool
	permits int
	root    *holding // the holding that it is nested in, or itself
	leases  []*recipes.Lease
	lease   *recipes.Lease // the first lease
	client  *framework.Client
	view    bubble.View // of the client
	path    string      // at the ensemble
	session int64
	since   time.Time
	token   recipes.Token
	fence   int64     // the latest write known to precede the grant
	dir     int64     // the czxid of the directory of its znode; 0 if not known
	after   int64     // a transaction by which all earlier holders had left; 0 if not known
	claimed time.Time // the latest deadline that it has reported
	lost    bool
	left    bool  // no client believes in it
	gone    bool  // its release has returned
	ends    int64 // the earliest time at which it may have ended; 0 if not yet
}

// want is a caller that waits, and the grants that it saw meanwhile.
type want struct {
	shared  bool
	permits int
	since   time.Time
	client  int       // the client that was granted last
	passed  int       // how often in a row
	second  time.Time // when it was for the second time
}

func (w want) String() string {
	if w.shared {
		return "shared"
	}
	if w.permits == 0 {
		return "alone"
	}
	return fmt.Sprintf("%d permits", w.permits)
}

type who struct{ client, goroutine int }

func (w who) String() string { return fmt.Sprintf("%d.%d", w.client, w.goroutine) }

// znode returns the id of the first holding of the same znode.
func (r *resource) znode(t *holding) int {
	for _, o := range r.holdings {
		if o.path == t.path {
			return o.id
		}
	}
	return t.id
}

func (t *holding) mode() string {
	switch {
	case t.permits > 0:
		return fmt.Sprint(t.permits, " permits")
	case t.shared:
		return "shared"
	}
	return "exclusive"
}

func (t *holding) String() string {
	return fmt.Sprintf("%v #%d (%s, token %v)", t.who, t.id, t.mode(), t.token)
}
