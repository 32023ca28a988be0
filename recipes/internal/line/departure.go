package line

import (
	"context"
	"errors"
	"math"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// A departure is how a line was left by one who had been alone in it: whoever stands
// there now has joined later. A directory gives its sequence numbers out one by one, to
// whatever is created in it. So one who joins, and gets the number that follows, is
// alone again, and needs no list to know it.
//
// That is so in one directory. One that was removed and made anew counts from the
// beginning: there, too, the number that follows is given out to somebody, whoever
// stands before him. That it is the same has two witnesses, who must both say so:
//
//   - A watch, for a member tells of a removal before it answers a later write. It says
//     nothing to one who may not read the znode by then.
//   - The ensemble's count of transactions: to make a directory anew, and to create so
//     much in it, takes as many, unless it is done by a single Multi.
type departure struct {
	seq  int32               // the number of the one who has left
	zxid int64               // a transaction after which it stood there
	dir  *framework.Standing // where it was created; nil: not known
	run  int                 // how many in a row got the number that follows
}

// regular is after how many in a row the next is expected to get the number that
// follows, too. Where that is less common it is worth neither a watch, which cannot be
// taken back, nor the second round trip whenever it does not.
const regular = 8

// contending is what is created in line.
const contending = zk.FlagEphemeral | zk.FlagSequence

// create creates the gate's znode in line. The list goes with it, unless none will be
// needed if the number is the one that follows.
func (g *gate) create(ctx context.Context, sess *framework.Session) (*contender, error) {
	last := g.lastDeparture(sess)
	create := sess.CreateAndList
	var dir *framework.Standing
	if last.run >= regular {
		if dir = last.dir; dir != nil {
			create = sess.CreateOnly
		} else {
			var err error
			if dir, err = sess.Stand(ctx, g.dir); err != nil && !errors.Is(err, zk.ErrNoNode) {
				return nil, err
			}
		}
	}
	created, err := create(ctx, g.dir, g.rule.Base, g.cfg.Data, contending, g.cfg.ACL...)
	if err != nil {
		return nil, err
	}
	c := newContender(g, sess, created)
	if last.isFollowedBy(c.seq(), created.Zxid) && (dir == nil || dir.Has(sess, created)) {
		c.dir, c.run = dir, last.run+1
		if dir != nil && dir == last.dir {
			c.children, c.zxid = []string{c.name}, created.Zxid
		}
	}
	return c, nil
}

// lastDeparture is the one that is remembered, if it may still be of use.
func (g *gate) lastDeparture(sess *framework.Session) departure {
	last := g.departed.Load()
	if last == nil || last.dir != nil && !last.dir.Stands(sess) {
		return departure{seq: none}
	}
	return *last
}

// none is a number that none follows.
const none = math.MaxInt32

// isFollowedBy reports whether a number is the next, and was given out too soon after
// for another directory to have counted so far: there the one who has left would have
// been removed, the directory removed and made, and as many znodes created as up to
// this one, by a transaction each.
func (d departure) isFollowedBy(seq int32, zxid int64) bool {
	const epoch = 32 // of a leader, in the upper half: it counts from the beginning
	since := zxid - d.zxid
	return int64(seq) == int64(d.seq)+1 && zxid>>epoch == d.zxid>>epoch && 0 < since && since < 3+int64(seq)+1
}

func (c *contender) seq() int32 {
	own, _ := layout.Parse(c.name)
	return own.Seq
}

// departure is how c leaves the line; nil: others were there.
func (c *contender) departure() *departure {
	if len(c.children) != 1 || c.children[0] != c.name {
		return nil
	}
	return &departure{seq: c.seq(), zxid: c.zxid, dir: c.dir, run: c.run}
}
