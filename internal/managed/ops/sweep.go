package ops

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/version"
)

// A client that sweeps looks at each directory once in every idle. Two looks in
// a row at the same znode, without children and with the same number of
// creates, show that it was empty all the time in between: it is deleted then.
//
// The delete must not hit anything but what was looked at. Since then somebody
// may have joined, or the directory was deleted and a contender has made it
// again, and is about to join. No version tells these two apart: both have 0.
// The number of znodes that were ever created in them does. A new directory has
// had none, and one that has had none is not swept. So one transaction creates
// a sequential znode in the directory, deletes the one that would have the next
// number as of the look, and deletes the directory. If anything was created
// there meanwhile, it fails, however late it arrives, and nobody has seen any
// of it. At worst a contender finds the directory, and finds it missing when it
// joins, as with a container: it makes it again.

// sweeper knows the directories that a client sweeps.
type sweeper struct {
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

// noteUsed remembers a directory that the client has made or uses.
func (c *Client) noteUsed(full string, made bool) {
	if c.Config.Sweep == 0 || full == "/" || full == string(c.Config.Chroot) {
		return
	}
	w := &c.sweeper
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.dirs[full]
	if d == nil {
		d = &sweptDir{}
		w.dirs[full] = d
	}
	d.notes++
	if made {
		d.made, d.znode = true, version.Created{}
	}
}

// sweep looks at the directories, until the client closes.
func (c *Client) sweep() {
	for !closed.Within(c.Config.Sweep, c.Closing) {
		w := &c.sweeper
		w.mu.Lock()
		dirs := maps.Clone(w.dirs)
		w.mu.Unlock()
		for _, full := range slices.Backward(slices.Sorted(maps.Keys(dirs))) { // what is below comes first
			if !c.sweepDir(full, dirs[full]) {
				break // no server answers: in the next round
			}
		}
	}
}

// sweepDir looks at a directory, and deletes it if it has stayed empty. It
// reports false if the look was not answered.
func (c *Client) sweepDir(full string, d *sweptDir) bool {
	w := &c.sweeper
	w.mu.Lock()
	before := *d
	w.mu.Unlock()
	in := Scope{Client: c, Budget: &backoff.StopBackOff{}}
	acl, stat, err := in.GetACL(context.Background(), full)
	now := before
	now.looked = nil
	done := false
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNoAuth):
		done = true
	case err != nil:
		return false
	case !now.isOurs(stat) && !c.wouldMake(stat, acl):
		done = true
	case stat.NumChildren > 0 || stat.Cversion == 0:
	case before.isEmptySince(stat):
		err = in.deleteEmpty(full, stat)
		done = err == nil || errors.Is(err, zk.ErrNoAuth)
	default:
		now.looked = stat
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	d.looked = now.looked
	if d.notes != before.notes {
		return true // somebody may have made it since
	}
	d.znode = now.znode
	if done {
		delete(w.dirs, full)
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

// wouldMake reports whether the client would make a directory as it is.
func (c *Client) wouldMake(stat *zk.Stat, acl []zk.ACL) bool {
	return stat.DataLength == 0 && stat.Version == 0 && stat.Aversion == 0 && len(acl) >= len(c.Config.ACL) && !slices.ContainsFunc(acl, c.isForeign)
}

// isForeign reports whether the client's ACL has no such entry. Servers write
// the ids of whoever creates a znode in place of the scheme auth.
func (c *Client) isForeign(entry zk.ACL) bool {
	return !slices.ContainsFunc(c.Config.ACL, func(own zk.ACL) bool {
		return own == entry || own.Scheme == "auth" && own.Perms == entry.Perms && entry.Scheme != "world"
	})
}

// isEmptySince reports whether a directory that is empty was so at the last
// look, and nothing was created in it since.
func (d *sweptDir) isEmptySince(stat *zk.Stat) bool {
	return d.looked != nil && version.CreatedOf(d.looked) == version.CreatedOf(stat) && d.looked.Cversion == stat.Cversion
}

// deleteEmpty deletes a directory if nothing was created in it since the look.
func (w Scope) deleteEmpty(full string, looked *zk.Stat) error {
	ops := emptyDelete(full, looked, w.Client.Config.ACL)
	return w.Do(context.Background(), request.NameMulti, full, OnceOnly, func(a *Attempt) error {
		_, err := Call(context.Background(), a.Session, Request{Op: request.NameMulti, Path: full, Operations: len(ops)}, func(conn *zk.Conn) ([]zk.MultiResponse, error) {
			return request.Multi(conn, ops)
		}, nil)
		return err
	})
}

// emptyDelete returns the operations that delete a directory if nothing was
// created in it since a look.
func emptyDelete(full string, looked *zk.Stat, acl []zk.ACL) []any {
	probe := layout.Join(full, sweepName)
	return []any{
		&zk.CreateRequest{Path: probe, Acl: acl, Flags: zk.FlagSequence},
		&zk.DeleteRequest{Path: probe + layout.FormatSequence(looked.Cversion/2), Version: -1}, // one for each create, one for each delete
		&zk.DeleteRequest{Path: full, Version: looked.Version},
	}
}

// sweepName begins the name of the znode that a sweep creates and deletes in
// one transaction.
const sweepName = "sweep-"
