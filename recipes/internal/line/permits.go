package line

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/recipes/internal/privileged"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recheck"
)

// Permits is what the first in line takes instead of its own grant. It waits
// until there is room, and creates N znodes in another directory by one Multi,
// which also removes its own znode from the line: all or nothing. Those N are
// granted. Only the first in line looks for room, since nobody else takes
// permits meanwhile.
type Permits struct {
	Dir  string     // of the permits, in the view of the line's client
	Name string     // what their names end with, before their numbers
	Set  layout.Set // which children of Dir are permits
	N    int        // how many are taken, all or none
	// Reads is what Look reads when there is room.
	Reads []request.Read
	// Look looks for room, by reads from r. If watch is true and there is none,
	// Room.Changed is closed when it must look again, and watches end with ctx.
	Look func(ctx context.Context, sess *framework.Session, r Reader, watch bool) (Room, error)
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

// lookForRoom fails the first waiter, who only tries, if there is no room.
func (a *acquisition) lookForRoom(sess *framework.Session) error {
	w := a.first()
	if w == nil {
		return nil
	}
	return a.tryRoom(sess, w)
}

func (a *acquisition) tryRoom(sess *framework.Session, w *waiter) error {
	a.noteLeaving()
	room, err := w.line.lookForRoom(a.ctx, sess, false)
	switch {
	case err != nil:
		return err
	case room.Refused == nil && !room.Free && a.awaitLeavingPermits():
		return a.tryRoom(sess, w)
	case room.Refused != nil:
		a.refuse(w, room.Refused)
	case !room.Free:
		a.refuse(w, ErrBusy)
	}
	return nil
}

// awaitLeavingPermits waits for the removals of permits of this process that
// were under way before the latest look: there may be room now. It reports
// false if there were none.
func (a *acquisition) awaitLeavingPermits() (any bool) {
	for _, z := range a.leaving {
		if z.removal.async && !z.removal.failed() {
			any = true
			_ = z.removal.await(a.ctx) // well or not: the next look shows it
		}
	}
	return any
}

// lookForRoom calls Look in the line's view of the session.
func (l *Line) lookForRoom(ctx context.Context, sess *framework.Session, watch bool) (Room, error) {
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

// refuseTriesForPermits fails the waiters who only try where there is no room,
// or where the first in line waits itself. Behind a first that is about to take
// permits they wait: when passed is closed it has taken them, or has begun to
// wait.
func (a *acquisition) refuseTriesForPermits(c *contender) (passed <-chan struct{}, err error) {
	tries := a.tries()
	if len(tries) == 0 {
		return nil, nil
	}
	members, err := a.queue.rule.members(c.children)
	if err != nil {
		return nil, err
	}
	_, stat, passed, err := c.sess.GetAndWatch(a.ctx, child(a.queue.dir, members[0].Name))
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return closed, nil // it has passed
	case err != nil:
		return nil, err
	case stat.Version != 0: // it waits itself
		c.sess.Unwatch(passed)
		for _, w := range tries {
			a.refuse(w, ErrBusy)
		}
		return nil, nil
	}
	for _, w := range tries {
		if err := a.tryRoom(c.sess, w); err != nil {
			c.sess.Unwatch(passed)
			return nil, err
		}
	}
	return passed, nil
}

// closed is a closed channel.
var closed = func() <-chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// takePermits has c, which is first in line, take what the first waiter wants.
// Like stand, it leaves no znode of ours in line.
func (a *acquisition) takePermits(c *contender) error {
	for made := 0; ; {
		w := a.first()
		if w == nil {
			c.withdraw()
			return nil
		}
		a.noteLeaving()
		var err error
		room, known := c.roomBehindCreate(a.ctx, w.line)
		if !known {
			room, err = w.line.lookForRoom(a.ctx, c.sess, true)
		}
		if err == nil && room.Refused != nil {
			a.refuse(w, room.Refused)
			continue
		}
		if err == nil && !room.Free && a.awaitLeavingPermits() {
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
			discardAll(grants)
			return errNotInLine
		case errors.Is(err, errLookAgain):
			c.again.Pause(a.ctx, c.sess.Done())
			continue
		case errors.Is(err, errNoPermitDir) && made < joinTries:
			made++
			if err = privileged.Framework.MakeDirectory(a.ctx, w.line.client, w.line.rule.Permits.Dir); err == nil {
				c.again.Pause(a.ctx, c.sess.Done())
				continue
			}
		}
		c.withdraw()
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
	if recheck.Happened(room.Changed) {
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
	if privileged.Framework.AtOnce(c.sess).Sync(ctx, c.queue.dir) != nil { // see recheck.Gone
		return false
	}
	room, err := l.lookForRoom(ctx, c.sess, false)
	return err == nil && (room.Free || room.Refused != nil)
}

// take makes the permits, and a grant of each, while c leaves the line: all in
// one Multi, or nothing. So it can be done only while c is first, and only
// once. It waits for the answer even if ctx ends: permits that nobody wants
// then are noted as leaving before c is gone, so no try is busy because of
// them.
func (c *contender) take(ctx context.Context, l *Line, room Room) ([]*grant, error) {
	sess := privileged.Framework.InRoomOf(privileged.Framework.Unhurried(l.view(c.sess)), c.queue.client.Resolve(c.path))
	paths, failed, err := sess.CreateAllProtected(ctx, l.permits(c.name, room.While...))
	switch {
	case err == nil:
		privileged.Framework.Used(l.client, l.rule.Permits.Dir)
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
			discardAll(grants)
			return nil, err
		}
	}
	return grants, nil
}

// permits is the batch by which the contender of that name takes its permits.
func (l *Line) permits(name string, while ...any) framework.ProtectedBatch {
	own, p := child(l.dir, name), l.rule.Permits
	return framework.ProtectedBatch{
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
	return privileged.Framework.BatchFits(l.client, l.permits(name, record))
}

// discardAll removes the znodes of grants that nobody was given.
func discardAll(grants []*grant) {
	for _, g := range grants {
		g.queue.mu.Lock()
		unhold := g.unhold
		g.queue.mu.Unlock()
		if unhold != nil {
			unhold()
		}
		r := newRemoval()
		g.queue.registry.addLeaving(g.queue.key.path, leavingZnode{g.name, r})
		g.queue.discard(g.sess, g.path, leavingZnode{g.name, r})
	}
}
