package directories

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// The servers delete a container that has become empty, but not one that never
// had a child. It would stay if a recipe made it and gave up before it created
// the child. So the client deletes a directory that it has made for a recipe if
// nothing was created in it within a session timeout, or until the client
// closes, by the transaction that sweeps directories. No version tells that
// directory from one that was made since. But that one was never used either,
// and a recipe that finds it missing makes it again. A directory that the user
// of this client makes too is the user's: it stays.

// Unused knows the directories that this client has made, and in which it has
// not created anything yet.
type Unused struct {
	acl own

	mu   sync.Mutex // guards what follows
	dirs map[string]unusedDir
	runs bool // Older will be called
}

// unusedDir is one that was made after a transaction, at a time.
type unusedDir struct {
	after int64
	at    time.Time
	tries int  // that have made it, or may have
	open  bool // one of them may make it yet, also when it was used and is gone
}

// NoteUnused notes a directory that is about to be created. after is the latest
// transaction that is known. It reports whether Older must be called later,
// since nobody does so.
func (u *Unused) NoteUnused(full string, after int64) (first bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.dirs == nil {
		u.dirs = make(map[string]unusedDir)
	}
	d, noted := u.dirs[full]
	if !noted {
		d = unusedDir{after: after, at: time.Now()}
	}
	d.tries++
	u.dirs[full] = d
	first = !u.runs
	u.runs = true
	return first
}

// NoteFailed notes that a try has not made a directory. Another one may have.
func (u *Unused) NoteFailed(full string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	d, noted := u.dirs[full]
	if d.tries--; d.tries > 0 {
		u.dirs[full] = d
	} else if noted {
		delete(u.dirs, full)
	}
}

// NoteOpen notes that a try was not answered: it may be executed within a
// session timeout from now.
func (u *Unused) NoteOpen(full string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if d, noted := u.dirs[full]; noted {
		d.open, d.at = true, time.Now()
		u.dirs[full] = d
	}
}

// NoteWanted notes that the user wants a directory.
func (u *Unused) NoteWanted(full string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.dirs, full)
}

// NoteFilled notes that something was created in a directory.
func (u *Unused) NoteFilled(full string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.dirs[full].open {
		delete(u.dirs, full)
	}
}

// Old is a directory that was made before a time, and in which nothing was
// created as far as is known.
type Old struct {
	Path string
	of   *Unused
	dir  unusedDir
}

// Older returns the directories that were made before a time. What is below
// another one comes first. runs is false if there are none at all: then it need
// not be called again.
func (u *Unused) Older(than time.Time) (all []Old, runs bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.dirs) == 0 {
		u.runs = false
		return nil, false
	}
	for _, full := range slices.Backward(slices.Sorted(maps.Keys(u.dirs))) {
		if d := u.dirs[full]; !d.at.After(than) {
			all = append(all, Old{Path: full, of: u, dir: d})
		}
	}
	return all, true
}

// IsUnused reports whether a znode is the directory that was made, and nothing
// was ever created in it.
func (o Old) IsUnused(stat *zk.Stat, acl []zk.ACL) bool {
	return stat.Czxid > o.dir.after && stat.Cversion == 0 && stat.EphemeralOwner == 0 && o.of.acl.wouldMake(stat, acl)
}

// IsNoted reports whether the directory is noted as it was.
func (o Old) IsNoted() bool {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	return o.of.dirs[o.Path] == o.dir
}

// Forget drops the note if err, of the look at the directory or of its delete,
// has shown what there is to know, unless somebody has begun to make the
// directory again. Otherwise it returns false.
func (o Old) Forget(err error) bool {
	if !isSettled(err) {
		return false
	}
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	if o.of.dirs[o.Path] == o.dir {
		delete(o.of.dirs, o.Path)
	}
	return true
}

func isSettled(err error) bool {
	return err == nil || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrNotEmpty) || errors.Is(err, zk.ErrBadVersion)
}
