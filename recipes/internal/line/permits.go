package line

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/missing"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recheck"
)

// Permits is what the first in line takes instead of its own grant. It waits
// until there is room, and creates N znodes in another directory by one Multi,
// which also removes its own znode from the line: all or nothing. Those N are
// granted. Only the first in line looks for room, since nobody else takes
// permits until then.
type Permits struct {
	Dir  string     // of the permits, in the view of the line's client
	Name string     // what their names end with, before their numbers
	Set  layout.Set // which children of Dir are permits
	N    int        // how many are taken, all or none
	// Reads is what Look reads when there is room.
	Reads []request.Read
	// Look looks for room, by reads from r. If watch is true and there is none,
	// Room.Changed is closed when it must look again, and watches end with ctx.
	Look func(ctx context.Context, sess *managed.Session, r Reader, watch bool) (Room, error)
}

// reads returns Reads, none without permits.
func (p *Permits) reads() []request.Read {
	if p == nil {
		return nil
	}
	return p.Reads
}

// answered is a Reader for which some reads were done.
type answered struct {
	Reader
	reads   []request.Read
	results []request.Result
}

func (a answered) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	if i := slices.Index(a.reads, request.Read{Path: path}); i >= 0 {
		return a.results[i].Data, a.results[i].Stat, nil
	}
	return a.Reader.Get(ctx, path)
}

// Children has no stat if the read was done.
func (a answered) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	if i := slices.Index(a.reads, request.Read{Path: path, Children: true}); i >= 0 {
		return a.results[i].Children, nil, nil
	}
	return a.Reader.Children(ctx, path)
}

// Room is what a look for permits has found.
type Room struct {
	// Refused, if not nil, fails the one caller that the look was made for.
	Refused error
	// Free reports whether there is room. While is the operations of the Multi
	// that check that: if one fails with zk.ErrBadVersion, it must look again.
	Free  bool
	While []any
	// Taken, if not nil, is called once the permits were taken.
	Taken func()
	// Changed is closed when it must look again, if that was asked for. Stop must
	// be called when the wait for that ends.
	Changed <-chan struct{}
	Stop    func()
}

// lookForRoom calls Look in the line's view of the session.
func (l *Line) lookForRoom(ctx context.Context, sess *managed.Session, watch bool) (Room, error) {
	own := l.view(sess)
	return l.rule.Permits.Look(ctx, own, own, watch)
}

// roomBehindCreate looks for room in what was read behind the list, in which c
// was the first in line. Nobody else has taken permits since. It is used once,
// and believed only if there is room: since it was read, room may have become
// more.
func (c *contender) roomBehindCreate(ctx context.Context, l *Line) (room Room, ok bool) {
	results := c.room
	c.room = nil
	if results == nil || slices.ContainsFunc(results, func(r request.Result) bool { return r.Err != nil }) {
		return Room{}, false
	}
	own := l.view(c.sess)
	room, err := l.rule.Permits.Look(ctx, own, answered{own, l.rule.Permits.Reads, results}, false)
	return room, err == nil && room.Free
}

// takePermits has c, which is first in line, take what the first waiter wants.
// Like stand, it leaves no znode of ours in line.
func (a *acquisition) takePermits(c *contender) error {
	for gone := (missing.Directory{}); ; {
		w := a.first()
		if w == nil {
			c.depart()
			return nil
		}
		a.noteDepartures()
		var err error
		room, known := c.roomBehindCreate(a.ctx, w.line)
		if !known {
			room, err = w.line.lookForRoom(a.ctx, c.sess, true)
		}
		if err == nil && room.Refused != nil {
			a.refuse(w, room.Refused)
			continue
		}
		if err == nil && !room.Free && a.awaitDepartures() {
			room.Stop()
			continue
		}
		if err == nil && !room.Free {
			if err = a.awaitRoom(c, w, room); err == nil {
				continue
			}
		}
		var grants []*grant
		if err == nil {
			grants, err = c.take(a.ctx, w.line, room)
		}
		switch {
		case err == nil && a.admit(grants...):
			return nil
		case err == nil: // nobody wants them now, or they were lost: join again
			departAll(grants)
			return errNotInLine
		case errors.Is(err, errLookAgain):
			c.again.Pause(a.ctx, c.sess.Done())
			continue
		case errors.Is(err, errNoPermitDir):
			dir := w.line.rule.Permits.Dir
			err = gone.Make(dir, err, func() error { return w.line.client.MakeDirectory(a.ctx, dir) })
			if err == nil {
				c.again.Pause(a.ctx, c.sess.Done())
				continue
			}
		}
		c.depart()
		return err
	}
}

// errLookAgain and errNoPermitDir say why permits were not taken.
var (
	errLookAgain   = errors.New("there may be no more room")
	errNoPermitDir = fmt.Errorf("directory of the permits is missing: %w", zk.ErrNoNode)
)

// awaitRoom returns when there may be room, or w has left. The waiters who only
// try do not wait for that.
func (a *acquisition) awaitRoom(c *contender, w *waiter, room Room) error {
	defer room.Stop()
	if !a.refuseAllTries() || a.first() != w {
		return nil
	}
	if w.line.rule.Permits.N > 1 && !c.marked {
		// There may be room for a try that wants less. It sees by the znode's version
		// that the first in line waits.
		if _, err := c.sess.Set(a.ctx, c.path, a.queue.cfg.Data, 0); err != nil && !errors.Is(err, zk.ErrBadVersion) {
			return directoryOf(err)
		}
		c.marked = true
	}
	if closed.Is(room.Changed) {
		c.again.Pause(a.ctx, c.sess.Done())
		return nil
	}
	c.again = turns.Turns{}
	a.queue.waitsFor.Store(&waitingFor{})
	defer a.queue.waitsFor.Store(nil)
	var patience recheck.Patience
	return recheck.Wait(a.ctx, c.sess, func() (bool, error) {
		if err := patience.Look(a.ctx, c.sess, c.queue.dir); err != nil {
			return false, err
		}
		return c.mayHaveRoom(a.ctx, w.line), nil
	}, room.Changed, w.gone)
}

// mayHaveRoom looks for room without an event: whether there is any, or whether
// there never can be.
func (c *contender) mayHaveRoom(ctx context.Context, l *Line) bool {
	if c.sess.AtOnce().Sync(ctx, c.queue.dir) != nil { // see recheck.Gone
		return false
	}
	room, err := l.lookForRoom(ctx, c.sess, false)
	return err == nil && (room.Free || room.Refused != nil)
}

// take makes the permits, and a grant of each, while c leaves the line: all in
// one Multi, or nothing. So it can be done only while c is first, and only
// once. It waits for the answer even if ctx ends: permits that nobody wants
// then have announced their departure before c is gone, so no try is busy
// because of them.
func (c *contender) take(ctx context.Context, l *Line, room Room) ([]*grant, error) {
	sess := l.view(c.sess).Unhurried().InRoomOf(c.queue.client.Resolve(c.path))
	paths, failed, err := sess.CreateAllProtected(ctx, l.permits(c.name, room.While...))
	switch {
	case err == nil:
		l.client.Used(l.rule.Permits.Dir)
		if room.Taken != nil {
			room.Taken()
		}
	case failed == 0 && errors.Is(err, zk.ErrNoNode):
		return nil, errNotInLine
	case failed > 0 && errors.Is(err, zk.ErrNoNode):
		return nil, errNoPermitDir
	case failed > 0 && errors.Is(err, zk.ErrBadVersion):
		return nil, errLookAgain
	default:
		return nil, err
	}
	grants := make([]*grant, 0, len(paths))
	for _, path := range paths {
		name := base(path)
		grants = append(grants, &grant{queue: c.queue, sess: c.sess, name: name, path: child(c.queue.rule.Permits.Dir, name), rank: c.rank()})
	}
	for _, g := range grants {
		if err := g.claim(ctx); err != nil {
			departAll(grants)
			return nil, err
		}
	}
	return grants, nil
}

// permits is the batch by which the contender of that name takes its permits.
func (l *Line) permits(name string, while ...any) managed.ProtectedBatch {
	own, p := child(l.dir, name), l.rule.Permits
	return managed.ProtectedBatch{
		Before: append([]any{&zk.CheckVersionRequest{Path: own, Version: -1}}, while...),
		Dir:    p.Dir, Name: p.Name, N: p.N,
		Data: l.cfg.Data, Flags: zk.FlagEphemeral | zk.FlagSequence, ACL: l.cfg.ACL,
		After: []any{&zk.DeleteRequest{Path: own, Version: -1}},
	}
}

// permitsFit returns an error if that batch is too large for a request: before
// the wait in line, not after it. It takes the largest that it can be.
func (l *Line) permitsFit() error {
	if l.rule.Permits == nil {
		return nil
	}
	name := layout.Protect(random.ID(), l.rule.Base) + strconv.Itoa(math.MinInt32)
	record := &zk.SetDataRequest{Path: l.path, Data: []byte(strconv.Itoa(math.MaxInt))}
	return l.client.BatchFits(l.permits(name, record))
}
