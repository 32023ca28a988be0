package directories

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/version"
)

// A client that sweeps looks at each directory once in every idle. Two looks in
// a row at the same znode, without children and with the same number of
// creates, show that it was empty all the time in between: it is deleted then.

// Swept knows the directories that a client sweeps.
type Swept struct {
	acl    own
	chroot string // is not swept
	off    bool   // nothing is

	mu   sync.Mutex // guards what follows
	dirs map[string]*sweptDir
}

// sweptDir is a directory that may be empty.
type sweptDir struct {
	notes  int             // how often it was noted
	made   bool            // by this client
	znode  version.Created // what it has made; zero: no look has shown it yet
	looked *zk.Stat        // what the last look has shown, if it was empty
}

// NoteUsed remembers a directory that the client has made or uses.
func (s *Swept) NoteUsed(full string, made bool) {
	if s.off || full == "/" || full == s.chroot {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.dirs[full]
	if d == nil {
		d = &sweptDir{}
		s.dirs[full] = d
	}
	d.notes++
	if made {
		d.made, d.znode = true, version.Created{}
	}
}

// Look is one look at a directory that is swept.
type Look struct {
	Path string
	of   *Swept
	dir  *sweptDir
}

// Looks returns a look at each directory. What is below another one comes
// first.
func (s *Swept) Looks() []Look {
	s.mu.Lock()
	dirs := maps.Clone(s.dirs)
	s.mu.Unlock()
	looks := make([]Look, 0, len(dirs))
	for _, full := range slices.Backward(slices.Sorted(maps.Keys(dirs))) {
		looks = append(looks, Look{Path: full, of: s, dir: dirs[full]})
	}
	return looks
}

// Make makes a look. read reads the znode, and remove deletes one that has
// stayed empty. It reports false if the look was not answered.
func (l Look) Make(read func() ([]zk.ACL, *zk.Stat, error), remove func(*zk.Stat) error) bool {
	s, d := l.of, l.dir
	s.mu.Lock()
	before := *d
	s.mu.Unlock()
	acl, stat, err := read()
	now := before
	now.looked = nil
	done := false
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNoAuth):
		done = true
	case err != nil:
		return false
	case !now.isOurs(stat) && !s.acl.wouldMake(stat, acl):
		done = true
	case stat.NumChildren > 0 || stat.Cversion == 0:
	case before.isEmptySince(stat):
		err = remove(stat)
		done = err == nil || errors.Is(err, zk.ErrNoAuth)
	default:
		now.looked = stat
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d.looked = now.looked
	if d.notes != before.notes {
		return true // somebody may have made it since
	}
	d.znode = now.znode
	if done {
		delete(s.dirs, l.Path)
	}
	return true
}

// isOurs reports whether the znode is the one that this client has made. If
// none was seen yet, it is.
func (d *sweptDir) isOurs(stat *zk.Stat) bool {
	if d.made && d.znode == (version.Created{}) {
		d.znode = version.CreatedOf(stat)
	}
	return d.made && d.znode == version.CreatedOf(stat)
}

// isEmptySince reports whether a directory that is empty was so at the last
// look, and nothing was created in it since.
func (d *sweptDir) isEmptySince(stat *zk.Stat) bool {
	return d.looked != nil && version.CreatedOf(d.looked) == version.CreatedOf(stat) && d.looked.Cversion == stat.Cversion
}
