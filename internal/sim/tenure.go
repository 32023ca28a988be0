package sim

import (
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// resource is one thing that is contended for.
type resource struct {
	path    string        // this and what follows: at the ensemble
	dirs    []string      // of the znodes in line
	data    string        // what guarded writes are made to
	limit   int           // of a semaphore; 0: none
	highest recipes.Token // of all grants, and of the exclusive ones
	alone   recipes.Token
	written int64     // the latest write to it that is known of
	last    time.Time // when something happened by which somebody may be granted
	waiting map[who]want
	ended   map[int]time.Time // when the latest tenure of a client did, or its release
	idle    time.Time         // since when all who wait could be granted, and nobody is; zero: not so
	tenures []*tenure
	ops     []op
}

// tenure is what is held from a grant to its end, with all that re-enters it.
type tenure struct {
	id      int
	znode   int // the first tenure that had the same
	of      *resource
	who     who
	shared  bool
	permits int
	root    *tenure // under which it was granted, or itself
	leases  []*recipes.Lease
	lease   *recipes.Lease // the first
	client  *framework.Client
	view    bubble.View // the client's
	path    string      // at the ensemble
	session int64
	since   time.Time
	token   recipes.Token
	fence   int64     // the latest write that is known to be from before the grant
	dir     int64     // the czxid of the directory that its znode stands in; 0: not known
	after   int64     // a transaction by which all before it had left; 0: not known
	claimed time.Time // the latest deadline that it has named
	lost    bool
	left    bool  // nobody believes in it any more
	gone    bool  // its release has returned
	ends    int64 // when it may first have ended; 0: not yet
}

// want is what somebody waits for, and whom it saw pass.
type want struct {
	shared  bool
	permits int
	since   time.Time
	client  int // the latest who was granted
	passed  int // how often in a row
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

// znode is the first tenure that had the znode of t.
func (r *resource) znode(t *tenure) int {
	for _, o := range r.tenures {
		if o.path == t.path {
			return o.id
		}
	}
	return t.id
}

func (t *tenure) mode() string {
	switch {
	case t.permits > 0:
		return fmt.Sprint(t.permits, " permits")
	case t.shared:
		return "shared"
	}
	return "exclusive"
}

func (t *tenure) String() string {
	return fmt.Sprintf("%v #%d (%s, token %v)", t.who, t.id, t.mode(), t.token)
}
