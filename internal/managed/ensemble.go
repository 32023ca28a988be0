package managed

import (
	"cmp"

	"github.com/go-zookeeper/zk"
)

// rootPath returns the path of the chroot.
func (c *core) rootPath() string { return cmp.Or(string(c.chroot), "/") }

// learnEnsemble reads what the ensemble is known by in the background, after a
// connect, when the chroot was created, or when the list was replaced. If that
// fails it is read after the next connect.
func (c *core) learnEnsemble() {
	if s := c.live(); s != nil && c.servers.AsksRoot() {
		go s.learnEnsemble()
	}
}

func (s *session) learnEnsemble() {
	found, stat, err := s.Conn().Exists(s.core.rootPath())
	if err != nil {
		return
	}
	var chroot zk.Stat
	if found {
		chroot = *stat
	}
	s.core.servers.NoteRoot(chroot.Czxid, chroot.Ctime, s.Chain().Seen())
}

// onListReplaced lets the session move to another server, if it should.
func (c *core) onListReplaced() {
	c.learnEnsemble()
	if s := c.live(); s != nil {
		s.OnListReplaced()
	}
}
