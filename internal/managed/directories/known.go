package directories

import "github.com/go-zookeeper/zk"

// Known is what a client knows of the directories that it has made and used.
type Known struct {
	Swept
	Unused
}

// New returns what a client knows at first: nothing. It makes directories with
// that ACL. Its chroot is not swept, and nothing is unless sweeps is true.
func New(acl []zk.ACL, chroot string, sweeps bool) *Known {
	return &Known{Swept: Swept{acl: acl, chroot: chroot, off: !sweeps, dirs: make(map[string]*sweptDir)}, Unused: Unused{acl: acl}}
}

// Used is NoteFilled for a contender, in a directory that recipes make as a
// container: it may be swept.
func (k *Known) Used(full string) {
	k.NoteFilled(full)
	k.NoteUsed(full, false)
}
