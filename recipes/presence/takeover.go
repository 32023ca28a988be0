package presence

import (
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/version"
)

// isMine asks the user whether a znode is that of an earlier process. A call
// that has not returned is waited for before another one begins.
func (n *Node) isMine(sess *managed.Session, z znode) bool {
	mine, answer := false, (<-chan error)(nil)
	for asking := n.asking; n.may(sess) && !closed.Is(z.changed); {
		select {
		case asking <- struct{}{}:
			asking = nil
			answer = supplied.Go(n.client.Logger(), func() error {
				defer func() { <-n.asking }()
				mine = n.cfg.takeover(z.data)
				return nil
			})
		case err := <-answer:
			return err == nil && mine
		case <-n.wake:
		case <-z.changed:
		case <-n.client.Done():
		}
	}
	return false
}

// replace deletes the znode of another session and makes ours, in one
// transaction. If the answer is lost, the next look shows whose the znode is.
func (n *Node) replace(sess *managed.Session, z znode) (again bool) {
	if time.Since(n.life.stood) < calm { // it was ours a moment ago: two owners may be at odds
		n.pause(sess, z.changed, n.life.removed.NextBackOff(), false)
	}
	if !n.may(sess) || closed.Is(z.changed) {
		return true
	}
	// The user has judged what was read some time ago.
	switch found, stat, err := statNow(sess, n.path); {
	case err != nil:
		n.fail(sess, z.changed, err)
		return true
	case !found || version.Of(stat) != version.Of(z.stat):
		return true
	}
	data, set := n.wanted()
	_, err := sess.Multi(background,
		&zk.DeleteRequest{Path: n.path, Version: z.stat.Version},
		&zk.CreateRequest{Path: n.path, Data: data, Acl: n.cfg.ACL, Flags: zk.FlagEphemeral})
	n.noteLost(sess, err)
	n.noteLate(sess, z.stat.Version, err)
	switch {
	case err == nil:
		n.accept(set, data)
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists):
		n.rest(sess, z.changed, unclear)
	case isTooLarge(err) && n.refuse(set, err):
	default:
		n.fail(sess, z.changed, err)
	}
	return true
}
