// Package seam lets two packages of this module give others of its packages
// what is not for users, although it cannot be exported. They fill the
// variables when they are initialized. recipes/internal/privileged and
// internal/test/hidden assert the types, once, when the program starts.
package seam

import "context"

// Armed is a watch of one znode's data: see Arm of recipes/internal/privileged.
type Armed interface {
	// Read returns the znode's czxid and the session that owns it, or why it
	// could not be read, and is not watched: zk.ErrNoNode, or what the server has
	// refused it with.
	Read() (czxid, owner int64, err error)
	// Changed is closed as that of framework.Session.Watch is, and is closed
	// already if the znode is not watched.
	Changed() <-chan struct{}
	// GoneBehind reports whether the znode is known to be gone, by what has come
	// on own's connection behind the answer for own: the answer that it is
	// missing, or the event of its deletion. Both watches were armed by the reads
	// of their own calls. own may have fired, before that or since: look at its
	// Changed.
	GoneBehind(own Armed) bool
	// Check reads the znode, and has Changed closed if an event for it was missed,
	// or it may no longer be read. An error says nothing of the znode.
	Check(ctx context.Context) error
	// Leave says that the watch is no longer needed: see
	// framework.Session.Unwatch.
	Leave()
}

var (
	Framework any // of package framework: see recipes/internal/privileged
	Testutil  any // of package testutil: see internal/test/hidden
)
