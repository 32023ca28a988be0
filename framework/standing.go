package framework

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// Standing is a znode that is known to have stood since it was looked at, for as
// long as nothing to the contrary has been heard on the connection on which it was.
// A znode that was removed and made anew is another one, though nobody can tell the
// two apart by their paths, nor by the sequence numbers of their children.
//
// A member tells of nothing that befalls a znode which the session may not read by
// then, and the watch is spent by it all the same. Whoever relies on a Standing must
// know it from elsewhere too.
type Standing struct {
	link  int64           // the number of that connection; 0: not known
	fired <-chan struct{} // closed: the znode may not be the same any more
}

// Stand looks at the znode at path, and watches it. The watch is shared as that of
// Watch, and costs one request if there is none yet; it stays until the znode's data
// change, or the znode or the session is gone. A znode that does not exist is
// zk.ErrNoNode.
func (s *Session) Stand(ctx context.Context, path string) (*Standing, error) {
	w, err := s.scope().watch(ctx, watchData, path)
	if err != nil {
		return nil, err
	}
	return &Standing{link: w.link, fired: w.fired}, nil
}

// Stands reports whether nothing to the contrary has been heard, in the session in.
func (d *Standing) Stands(in *Session) bool {
	select {
	case <-d.fired:
		return false
	default:
		return d.link != 0 && d.link == in.core.linkNumber()
	}
}

// Has reports whether what was created at made's path, in the session in and not
// before d was there, was created in the very znode that d is: a member tells a
// session of a change that it watches before it answers a later write, on the
// connection on which both were asked for. What was answered on another connection is
// not said to be in it.
func (d *Standing) Has(in *Session, made Created) bool { return made.Zxid != 0 && d.Stands(in) }

// CreateOnly is CreateAndList without the list: it costs one request. Children are
// nil, unless the answer was lost and the znode was found again, by a list.
func (s *Session) CreateOnly(ctx context.Context, dir, name string, data []byte, flags int32, acl ...zk.ACL) (Created, error) {
	return s.createProtected(ctx, dir, name, data, flags, acl, false)
}
