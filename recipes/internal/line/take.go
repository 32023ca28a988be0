package line

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
)

// A Take is what the first in line does where being first is only the right to take
// something else: it waits for room, takes znodes in another directory by one Multi
// that removes its own from the line, and these hold. Since nobody else takes
// anything meanwhile, the first alone looks whether there is room.
type Take struct {
	Dir  string // of the znodes that are taken, in the view of the line's client
	Name string // what their names end with, before their numbers
	N    int    // how many are taken, all or none
	// Look looks for room. ErrLimit ends this caller's wait alone.
	Look func(ctx context.Context, sess *framework.Session, watch bool) (Room, error)
}

// Room is what a look has found.
type Room struct {
	// Free: there is room. While is what makes it true, to be executed with the
	// taking: zk.ErrBadVersion means to look again.
	Free  bool
	While []any
	// Taken, if it is not nil, is called once there was room, and it was taken.
	Taken func()
	// Changed are closed when it must be looked for again, if that was asked for.
	Changed [2]<-chan struct{}
}

// lookForRoom ends the wait of the first, who only tries, if there is none.
func (g *gate) lookForRoom(ctx context.Context, d *driver, sess *framework.Session) error {
	w := g.first(d)
	if w == nil {
		return nil
	}
	return g.tryRoom(ctx, d, sess, w)
}

func (g *gate) tryRoom(ctx context.Context, d *driver, sess *framework.Session, w *waiter) error {
	room, err := w.line.look(ctx, sess, false)
	switch {
	case errors.Is(err, ErrLimit):
		g.refuse(d, w, err)
		return nil
	case err == nil && !room.Free:
		g.refuse(d, w, ErrBusy)
	}
	return err
}

// look is the Take's, in the line's view of the session.
func (l *Line) look(ctx context.Context, sess *framework.Session, watch bool) (Room, error) {
	own, err := l.view(sess)
	if err != nil {
		return Room{}, err
	}
	return l.rule.Take.Look(ctx, own, watch)
}

// view is a session in the view of the line's client.
func (l *Line) view(sess *framework.Session) (*framework.Session, error) {
	own, err := l.client.Session()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrSessionLost, err)
	}
	if own.ID() != sess.ID() {
		return nil, framework.ErrSessionLost
	}
	return own, nil
}

// hopeForRoom ends the wait of those who only try where there is no room, or where
// the first in line waits itself. Behind one who is merely passing they wait; it
// has passed, or begun to wait, when passed is closed.
func (g *gate) hopeForRoom(ctx context.Context, d *driver, c *contender) (passed <-chan struct{}, err error) {
	tries := g.trying()
	if len(tries) == 0 {
		return nil, nil
	}
	members, err := g.rule.line(c.children)
	if err != nil {
		return nil, err
	}
	first := child(g.dir, members[0].Name)
	passed, err = c.sess.Watch(ctx, first)
	if err == nil {
		var stat *zk.Stat
		if _, stat, err = c.sess.Get(ctx, first); err == nil && stat.Version != 0 {
			for _, w := range tries {
				g.refuse(d, w, ErrBusy)
			}
			return nil, nil
		}
	}
	if errors.Is(err, zk.ErrNoNode) { // it has passed
		again := make(chan struct{})
		close(again)
		return again, nil
	}
	if err != nil {
		return nil, err
	}
	for _, w := range tries {
		if err := g.tryRoom(ctx, d, c.sess, w); err != nil {
			return nil, err
		}
	}
	return passed, nil
}

// take has c, who is first in line, take what the first waiter wants. Like stand,
// it leaves no znode of ours in line.
func (g *gate) take(ctx context.Context, d *driver, c *contender) error {
	for made := 0; ; {
		w := g.first(d)
		if w == nil {
			c.withdraw()
			return nil
		}
		room, err := w.line.look(ctx, c.sess, true)
		if errors.Is(err, ErrLimit) {
			g.refuse(d, w, err)
			continue
		}
		if err == nil && !room.Free {
			if err = g.awaitRoom(ctx, d, c, w, room); err == nil {
				continue
			}
		}
		var holds []*hold
		if err == nil {
			holds, err = c.takeAll(ctx, w.line, room)
		}
		switch {
		case err == nil && g.admit(d, holds...):
			return nil
		case err == nil: // nobody wants them any more, or they were lost: join again
			discardAll(holds)
			return errOut
		case errors.Is(err, errAgain):
			continue
		case errors.Is(err, errNoDir) && made < joinTries:
			made++
			if err = w.line.client.MakeContainerPath(ctx, w.line.rule.Take.Dir); err == nil {
				continue
			}
		}
		c.withdraw()
		return err
	}
}

// errAgain and errNoDir say what was in the way of a taking.
var (
	errAgain = errors.New("there may be no more room")
	errNoDir = fmt.Errorf("the directory is missing: %w", zk.ErrNoNode)
)

// awaitRoom returns when there may be room, or w has left. Those who only try do
// not wait for that.
func (g *gate) awaitRoom(ctx context.Context, d *driver, c *contender, w *waiter, room Room) error {
	if !g.busy(d) || g.first(d) != w {
		return nil
	}
	if w.line.rule.Take.N > 1 && !c.marked {
		// There may be room for one who wants less, and only tries. It sees by the
		// znode's version that the first in line waits.
		if _, err := c.sess.Set(ctx, c.path, g.cfg.Data, 0); err != nil && !errors.Is(err, zk.ErrBadVersion) {
			return c.out(err)
		}
		c.marked = true
	}
	g.obstacle.Store(&obstacle{})
	defer g.obstacle.Store(nil)
	for {
		timer := time.NewTimer(LookAgain(c.sess))
		var err error
		select {
		case <-timer.C: // an event can be lost
			if c.mayHaveRoom(ctx, w.line) {
				return nil
			}
			continue
		case <-room.Changed[0]:
		case <-room.Changed[1]:
		case <-w.gone:
		case <-c.sess.Done():
			err = c.sess.Err()
		case <-ctx.Done():
			err = ctx.Err()
		}
		timer.Stop()
		return err
	}
}

// mayHaveRoom looks for room without an event: whether there is any, or the limit is
// such by now that there never can be.
func (c *contender) mayHaveRoom(ctx context.Context, l *Line) bool {
	if !c.sess.Connected() || c.sess.Sync(ctx, c.gate.dir) != nil {
		return false
	}
	room, err := l.look(ctx, c.sess, false)
	return err == nil && room.Free || errors.Is(err, ErrLimit)
}

// takeAll makes the znodes, and a hold of each, while c leaves the line: all in one
// Multi, or nothing. So it can be done only while c is first, and only once.
func (c *contender) takeAll(ctx context.Context, l *Line, room Room) ([]*hold, error) {
	sess, err := l.view(c.sess)
	if err != nil {
		return nil, err
	}
	own := child(l.dir, c.name)
	paths, failed, err := sess.CreateAllProtected(ctx, framework.ProtectedBatch{
		Before: append([]any{&zk.CheckVersionRequest{Path: own, Version: -1}}, room.While...),
		Dir:    l.rule.Take.Dir, Name: l.rule.Take.Name, N: l.rule.Take.N,
		Data: l.cfg.Data, Flags: zk.FlagEphemeral | zk.FlagSequence, ACL: l.cfg.ACL,
		After: []any{&zk.DeleteRequest{Path: own, Version: -1}},
	})
	switch {
	case err == nil:
		if room.Taken != nil {
			room.Taken()
		}
	case failed == 0 && errors.Is(err, zk.ErrNoNode):
		return nil, errOut
	case failed > 0 && errors.Is(err, zk.ErrNoNode):
		return nil, errNoDir
	case failed > 0 && errors.Is(err, zk.ErrBadVersion):
		return nil, errAgain
	default:
		return nil, err
	}
	holds := make([]*hold, 0, len(paths))
	for _, path := range paths {
		holds = append(holds, &hold{gate: c.gate, sess: sess, name: base(path), path: path, rank: c.rank()})
	}
	for _, h := range holds {
		if err := h.claim(ctx); err != nil {
			discardAll(holds)
			return nil, err
		}
	}
	return holds, nil
}

// discardAll removes the znodes of holds that nobody was given.
func discardAll(holds []*hold) {
	for _, h := range holds {
		h.gate.mu.Lock()
		unhold := h.unhold
		h.gate.mu.Unlock()
		if unhold != nil {
			unhold()
		}
		h.sess.Discard(h.path)
	}
}
