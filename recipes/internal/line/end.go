package line

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// end is how a line was left by one who had been alone in it: whoever stands there now
// has joined later. A directory gives its sequence numbers out one by one, to whatever
// is created in it. So one who joins, and gets the number that follows, is alone again,
// and needs no list to know it.
//
// That is so in one directory. One that was removed and made anew counts from the
// beginning: there, too, the number that follows is given out to somebody, whoever
// stands before him. Hence dir, by which the two are known to be in the same one.
type end struct {
	seq  int32               // the number of the one who has left
	dir  *framework.Standing // where it was created; nil: not known
	lone int                 // how many in a row were alone; 0: this is no end
}

// regular is after how many times in a row a line's value is expected to be alone the
// next time. Where that is less common it is not worth a watch, which cannot be taken
// back, nor a second round trip whenever it turns out not to be so.
const regular = 8

// contending is what is created in line.
const contending = zk.FlagEphemeral | zk.FlagSequence

// create creates the gate's znode in line. The list goes with it, unless none will be
// needed if the number is the one that follows.
func (g *gate) create(ctx context.Context, sess *framework.Session) (*contender, error) {
	last := g.lastEnd(sess)
	dir, create := last.dir, sess.CreateOnly
	if dir == nil {
		create = sess.CreateAndList
		if last.lone >= regular {
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
	c := &contender{gate: g, sess: sess, path: created.Path, name: base(created.Path), children: created.Children, lone: last.lone}
	if created.Stat != nil {
		c.pzxid = created.Stat.Pzxid
	}
	if dir != nil && dir.Has(sess, created) {
		c.dir = dir
		if dir == last.dir && follows(c.seq(), last.seq) {
			c.children, c.pzxid = []string{c.name}, created.Zxid
		}
	}
	return c, nil
}

// lastEnd is what the line's value remembers, if it may still be of use.
func (g *gate) lastEnd(sess *framework.Session) end {
	last := g.ends.Load()
	if last == nil || last.dir != nil && !last.dir.Stands(sess) {
		return end{}
	}
	return *last
}

// follows reports whether a number is the next. The last of all is followed by none.
func follows(seq, last int32) bool { return int64(seq) == int64(last)+1 }

func (c *contender) seq() int32 {
	own, _ := layout.Parse(c.name)
	return own.Seq
}

// end is how c leaves the line; nil: others were there.
func (c *contender) end() *end {
	if len(c.children) != 1 || c.children[0] != c.name {
		return nil
	}
	return &end{seq: c.seq(), dir: c.dir, lone: c.lone + 1}
}
