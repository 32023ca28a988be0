package ops

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// The servers delete a container that has become empty, but not one that never
// had a child. It would stay if a recipe made it and gave up before it created
// the child. So the client deletes a directory that it has made for a recipe if
// nothing was created in it within a session timeout, or until the client
// closes, by the transaction that sweeps directories. No version tells that
// directory from one that was made since. But that one was never used either,
// and a recipe that finds it missing makes it again. A directory that the user
// of this client makes too is the user's: it stays.

// unused knows the directories that this client has made, and in which it has
// not created anything yet.
type unused struct {
	mu   sync.Mutex // guards what follows
	dirs map[string]unusedDir
	runs bool // DeleteUnused will be called
}

// unusedDir is one that was made after a transaction, at a time.
type unusedDir struct {
	after int64
	at    time.Time
	tries int  // that have made it, or may have
	open  bool // one of them may make it yet, also when it was used and is gone
}

// createContainer creates a container, or a persistent znode if the client
// makes none.
func (c *Client) createContainer(conn *zk.Conn, full string, data []byte, acl []zk.ACL) (string, error) {
	path, err := c.CreateContainer(conn, c.server(), full, data, acl)
	if err == nil || zkerr.Classify(err) == zkerr.Ambiguous {
		c.noteUsed(full, err == nil)
	}
	return path, err
}

// server returns the server of the latest connection, a zero one if there is
// none.
func (c *Client) server() servers.Server {
	s := c.above.Live()
	if s == nil {
		return servers.Server{}
	}
	if l := s.Chain().Latest(); l != nil {
		return l.To()
	}
	return servers.Server{}
}

// createDirectory is createContainer for a recipe. A create whose answer is
// lost counts only if the session has seen a transaction before it: what exists
// is otherwise anybody's.
func (c *Client) createDirectory(conn *zk.Conn, full string, data []byte, acl []zk.ACL) (string, error) {
	after := c.latestSeen(conn)
	c.noteUnused(full, after)
	path, err := c.createContainer(conn, full, data, acl)
	switch {
	case err == nil:
	case after == 0 || zkerr.Classify(err) != zkerr.Ambiguous:
		c.unused.noteFailed(full)
	default:
		c.unused.noteOpen(full)
	}
	return path, err
}

// noteUnused notes a directory that is about to be created.
func (c *Client) noteUnused(full string, after int64) {
	u := &c.unused
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
	if !u.runs {
		u.runs = true
		time.AfterFunc(c.Config.SessionTimeout, c.deleteUnused)
	}
}

// noteFailed notes that a try has not made a directory. Another one may have.
func (u *unused) noteFailed(full string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	d, noted := u.dirs[full]
	if d.tries--; d.tries > 0 {
		u.dirs[full] = d
	} else if noted {
		delete(u.dirs, full)
	}
}

// noteOpen notes that a try was not answered: it may be executed within a
// session timeout from now.
func (u *unused) noteOpen(full string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if d, noted := u.dirs[full]; noted {
		d.open, d.at = true, time.Now()
		u.dirs[full] = d
	}
}

// latestSeen returns the latest transaction that the session of conn has seen,
// 0 if that is not known.
func (c *Client) latestSeen(conn *zk.Conn) int64 {
	s := c.above.Live()
	if s == nil || s.Conn() != conn {
		return 0
	}
	return s.Chain().Seen()
}

// wanted notes that the user wants a directory.
func (u *unused) wanted(full string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.dirs, full)
}

// used notes that something was created in a directory.
func (u *unused) used(full string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.dirs[full].open {
		delete(u.dirs, full)
	}
}

// isNoted reports whether a directory is noted as it was.
func (u *unused) isNoted(full string, d unusedDir) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.dirs[full] == d
}

// forget drops a note, unless somebody has begun to make the directory again.
func (u *unused) forget(full string, d unusedDir) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.dirs[full] == d {
		delete(u.dirs, full)
	}
}

// older returns the directories that were made before a time, nil if there are
// none at all: then DeleteUnused ends.
func (u *unused) older(than time.Time) (dirs map[string]unusedDir) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.dirs) == 0 {
		u.runs = false
		return nil
	}
	dirs = maps.Clone(u.dirs)
	maps.DeleteFunc(dirs, func(_ string, d unusedDir) bool { return d.at.After(than) })
	return dirs
}

// deleteUnused deletes those that were made a session timeout before, and does
// so again until there are none, or the client closes.
func (c *Client) deleteUnused() {
	dirs := c.unused.older(time.Now().Add(-c.Config.SessionTimeout))
	if dirs == nil || c.isClosing() {
		return
	}
	in := Scope{Client: c, Budget: &backoff.StopBackOff{}}
	for _, full := range slices.Backward(slices.Sorted(maps.Keys(dirs))) { // what is below comes first
		d := dirs[full]
		acl, stat, err := in.GetACL(context.Background(), full)
		if err == nil && c.isUnused(d, stat, acl) && c.unused.isNoted(full, d) {
			err = in.deleteEmpty(full, stat)
		}
		if c.isClosing() {
			return // the session's DeleteUnused does it
		}
		if !isSettled(err) {
			break // no server answers, or for another reason: in the next round
		}
		c.unused.forget(full, d)
	}
	time.AfterFunc(c.Config.SessionTimeout, c.deleteUnused)
}

// isSettled reports whether the look at a directory, or its delete, has shown
// what there is to know.
func isSettled(err error) bool {
	return err == nil || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrNotEmpty) || errors.Is(err, zk.ErrBadVersion)
}

// isUnused reports whether a znode is the directory that was made, and nothing
// was ever created in it.
func (c *Client) isUnused(d unusedDir, stat *zk.Stat, acl []zk.ACL) bool {
	return stat.Czxid > d.after && stat.Cversion == 0 && stat.EphemeralOwner == 0 && c.wouldMake(stat, acl)
}

// DeleteUnused is that of a client which closes, on the session's last
// connection.
func (s *Session) DeleteUnused() {
	dirs := s.Client.unused.older(time.Now())
	if len(dirs) == 0 {
		return
	}
	done := make(chan struct{})
	s.Client.tasks.Go(func() {
		defer close(done)
		for _, full := range slices.Backward(slices.Sorted(maps.Keys(dirs))) {
			acl, stat, err := s.Conn().GetACL(full)
			if err == nil && s.Client.isUnused(dirs[full], stat, acl) {
				_, err = request.Multi(s.Conn(), emptyDelete(full, stat, s.Client.Config.ACL))
			}
			if errors.Is(err, zk.ErrConnectionClosed) {
				return
			}
		}
	})
	closed.Within(talk.MaxStep/2, done)
}

// Filled says that something was created in a directory.
func (c *Client) Filled(full string) { c.unused.used(full) }

// Used is filled for a contender, in a directory that recipes make as a
// container: it may be swept.
func (c *Client) Used(full string) {
	c.unused.used(full)
	c.noteUsed(full, false)
}
