package presence

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/missing"
	"github.com/zkrecipes/zkrecipes/internal/turns"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/retry"
)

// One goroutine, run, makes all requests of a Node, without a caller's context:
// each ends with its answer, its connection or its session. So the outcome of a
// request is known before the next one is made, as far as it can be known.

// life is what run knows.
type life struct {
	// sent has the sessions in which a create was sent, and may have made the
	// znode, until the znode is known to be gone from there. Its value says that
	// an answer was lost, so that a request may be executed late.
	sent    map[int64]bool
	late    write             // the last write or delete whose answer was lost
	in      int64             // the session that the znode stood in, 0 once it is known to be gone, or a delete of ours may have removed it
	gone    bool              // somebody has deleted the znode, and the Node yields
	stood   time.Time         // when the znode began to stand last
	version version.Version   // of the znode in that session, as it was seen last
	blocker version.Created   // a znode in the way that was changed, but not deleted
	refused backoff.BackOff   // pauses after refusals, one after the other
	unclear backoff.BackOff   // pauses after lost answers, one after the other
	removed backoff.BackOff   // pauses after the znode was deleted or replaced
	again   turns.Turns       // that answers have made run look again
	missing missing.Directory // that the znode is in
	// room returns a view of a session in which the znode has room, and drop gives
	// the room up; nil: there is none.
	room func(*managed.Session) *managed.Session
	drop func()
}

// write is a request for a znode at a version, in a session.
type write struct {
	session int64
	version int32
}

var background = context.Background()

const (
	// unclear is the first pause after a request whose connection has ended.
	unclear = 10 * time.Millisecond
	// longest is the longest pause.
	longest = 30 * time.Second
	// calm is for how long a znode has to stand until its next removal counts as
	// the first.
	calm = time.Minute
)

func newLife() life {
	pauses := func(first time.Duration) backoff.BackOff { return retry.Exponential(first, longest, math.MaxInt)() }
	return life{
		sent: make(map[int64]bool), unclear: pauses(unclear),
		refused: pauses(200 * time.Millisecond), removed: pauses(200 * time.Millisecond),
	}
}

func (n *Node) run() {
	n.life = newLife()
	n.keeper.succeed(n)
	for !n.ending() {
		sess, err := n.client.Session()
		if err != nil || !sess.Connected() {
			n.rest(nil, nil, 0)
			continue
		}
		sess = sess.AtOnce()
		if n.life.room != nil {
			sess = n.life.room(sess)
		}
		switch wait := n.keeper.wait(sess); {
		case n.life.gone, n.illness() != nil:
			n.stayAway(sess)
		case n.life.in == sess.ID():
			n.follow(sess, n.Path())
		case wait > 0:
			n.rest(sess, nil, wait)
		default:
			n.make(sess)
		}
		if sess.Err() != nil && !n.ending() && !n.life.gone {
			n.tell(Status{State: Pending, Err: sess.Err()})
			n.rest(nil, nil, unclear)
		}
	}
	n.finish(n.leave())
}

// ending reports whether the Node or the client closes.
func (n *Node) ending() bool { return n.isClosing() || n.clientCloses() }

func (n *Node) clientCloses() bool { return closed.Is(n.client.Done()) }

// may reports whether the znode may stand in the session, as far as the Node is
// concerned.
func (n *Node) may(sess *managed.Session) bool {
	return !n.ending() && sess.Err() == nil && n.illness() == nil
}

// rest waits until something has happened that run has to look at: also for the
// end of a session and for a channel, if they are not nil, and for d at most,
// unless it is 0.
func (n *Node) rest(sess *managed.Session, changed <-chan struct{}, d time.Duration) {
	var over <-chan struct{}
	if sess != nil {
		over = sess.Done()
	}
	var timeout <-chan time.Time
	if d > 0 {
		timeout = time.After(d)
	}
	select {
	case <-n.wake:
	case <-changed:
	case <-timeout:
	case <-over:
	case <-n.client.Done():
	}
}

// pause waits for d. It ends earlier when changed, unless that is nil, is
// closed, and, if orSet is true, at a Set.
func (n *Node) pause(sess *managed.Session, changed <-chan struct{}, d time.Duration, orSet bool) {
	_, before := n.wanted()
	for until := time.Now().Add(d); n.may(sess) && !closed.Is(changed); {
		_, set := n.wanted()
		left := time.Until(until)
		if left <= 0 || orSet && set != before {
			return
		}
		n.rest(sess, changed, left)
	}
}

// make makes the znode in a session and attends to it, until there is a reason
// to look at everything again.
func (n *Node) make(sess *managed.Session) {
	data, set := n.wanted()
	dir, _ := layout.Split(n.path)
	times := n.keeper.timesMade(n, dir)
	sess, err := n.reserve(sess)
	if err != nil {
		n.fail(sess, nil, err)
		return
	}
	path, err := n.create(sess, data)
	switch {
	case err == nil:
		n.life.missing = missing.Directory{}
		n.client.Filled(dir)
		n.accept(set, data)
		if n.life.late != (write{sess.ID(), 0}) { // otherwise a late delete of ours may still remove it
			n.noteStanding(sess)
		}
		n.follow(sess, path)
	case errors.Is(err, zk.ErrNodeExists):
		n.follow(sess, n.path)
	case errors.Is(err, zk.ErrNoNode):
		err = n.life.missing.Make(dir, err, func() error { return n.keeper.makeDir(n, sess, dir, times) })
		if err != nil {
			n.life.missing = missing.Directory{}
			n.fail(sess, nil, err)
			return
		}
		n.turn(sess, nil, 0)
	case isTooLarge(err) && n.refuse(set, err):
	default:
		n.fail(sess, nil, err)
	}
}

// isTooLarge reports whether data are too large for a request.
func isTooLarge(err error) bool {
	return errors.Is(err, framework.ErrTooLarge) && !managed.SessionFull(err)
}

// reserve returns a view of the session in which the znode has room. Once it
// has, that lasts until the Node ends, and run begins with such a view.
func (n *Node) reserve(sess *managed.Session) (*managed.Session, error) {
	if n.life.room == nil {
		room, drop, err := sess.KeepRoom(n.path, n.cfg.sequential)
		if err != nil {
			return sess, err
		}
		n.life.room, n.life.drop = room, drop
		sess = room(sess)
	}
	return sess, nil
}

// create sends one create. Of a sequential znode it also looks for the outcome.
func (n *Node) create(sess *managed.Session, data []byte) (path string, err error) {
	n.noteLost(sess, nil)
	if n.cfg.sequential {
		dir, name := layout.Split(n.path)
		made, err := sess.Unhurried().CreateProtected(background, dir, name, data, zk.FlagEphemeral|zk.FlagSequence, n.cfg.ACL...)
		if err == nil {
			n.setPath(made.Path)
		}
		n.noteLost(sess, err)
		return made.Path, err // a late one is removed by the session, by its id
	}
	err = sess.CreateEphemeral(n.path, data, n.cfg.ACL)
	n.noteLost(sess, err)
	return n.path, err
}

// noteLost notes that a request of the session may be executed late.
func (n *Node) noteLost(sess *managed.Session, err error) {
	n.life.sent[sess.ID()] = n.life.sent[sess.ID()] || framework.MaybeApplied(err)
}

// noteLate notes that a write or delete at a version may be executed late.
func (n *Node) noteLate(sess *managed.Session, version int32, err error) {
	if framework.MaybeApplied(err) {
		n.life.late = write{sess.ID(), version}
	}
}

// writes reports whether a look may lead to a write. Then a sync has to come
// before the look. A member that lags may not know yet that the Node's znode
// was deleted, by somebody else or by a request whose answer was lost, and that
// another session owns a znode of the same version by now.
func (n *Node) writes(sess *managed.Session) bool {
	id := sess.ID()
	_, _, set := n.pending()
	return set && n.life.in == id || n.life.sent[id] && !n.cfg.sequential || n.life.late.session == id
}

// statNow returns the stat of a znode after a sync: see writes. Each delete
// needs that.
func statNow(sess *managed.Session, path string) (found bool, stat *zk.Stat, err error) {
	if err = sess.Sync(background, path); err != nil {
		return false, nil, err
	}
	return sess.Exists(background, path)
}

// fail tells why a request has failed, and waits until the next one may be
// made, or until changed, unless that is nil, is closed.
func (n *Node) fail(sess *managed.Session, changed <-chan struct{}, err error) {
	if !n.may(sess) {
		return
	}
	refusal := isRefusal(err)
	if refusal || n.life.in != sess.ID() {
		n.tell(Status{State: Pending, Err: err})
	}
	pauses := n.life.unclear
	if refusal {
		pauses = n.life.refused
	}
	n.pause(sess, changed, pauses.NextBackOff(), true)
}

// turn is called before run looks again because of an answer. It pauses, for
// least at least, and for longer if that happens again and again, or until
// changed, unless that is nil, is closed.
func (n *Node) turn(sess *managed.Session, changed <-chan struct{}, least time.Duration) {
	if d := max(least, n.life.again.Next()); d > 0 {
		n.rest(sess, changed, d)
	}
}

// isRefusal reports whether err is an answer of the ensemble, or an argument
// that no connection would mend.
func isRefusal(err error) bool {
	switch framework.ErrorCode(err) {
	case "CONNECTIONLOSS", "NOSERVER", "OPERATIONTIMEOUT", "REQUESTTIMEOUT", "THROTTLEDOP", "NOTREADONLY",
		"SESSIONMOVED", "SESSIONEXPIRED", "UNPROVEN", "CLOSED":
		return false
	}
	return !framework.MaybeApplied(err)
}

// follow looks at the znode for as long as there is reason to.
func (n *Node) follow(sess *managed.Session, path string) {
	for n.look(sess, path) && n.may(sess) {
		if !sess.Connected() {
			n.rest(sess, nil, 0)
		}
	}
}

// znode is what a look has seen.
type znode struct {
	path    string
	synced  bool // it was read behind a sync
	data    []byte
	stat    *zk.Stat
	changed <-chan struct{}
	resume  func() (<-chan struct{}, bool)
}

// look reads the znode, and finds out whose it is. It reports whether to look
// again: otherwise the next thing is a create, if the znode may stand.
func (n *Node) look(sess *managed.Session, path string) (again bool) {
	z := znode{path: path, synced: n.writes(sess)}
	var err error
	if z.synced {
		if err = sess.Sync(background, path); err != nil {
			n.fail(sess, nil, err)
			return false
		}
	}
	z.data, z.stat, z.changed, z.resume, err = sess.WatchAndResume(path)
	defer func() { sess.Unwatch(z.changed) }()
	switch {
	case errors.Is(err, zk.ErrNoNode):
		n.onMissing(sess)
		return false
	case err != nil:
		n.fail(sess, nil, err)
		return false
	case z.stat.EphemeralOwner == sess.ID():
		n.noteVersion(sess, z.stat)
		return n.attend(sess, &z)
	case n.cfg.yield && n.life.in == sess.ID(): // ours was deleted before this one was made
		n.onMissing(sess)
		return false
	}
	n.life.in = 0
	if z.stat.EphemeralOwner != 0 {
		ours, err := n.client.CloseEarlier(background, z.stat.EphemeralOwner)
		switch {
		case ours && err == nil: // it is gone, or about to be
			n.turn(sess, z.changed, unclear)
			return false
		case ours:
			n.tell(Status{State: Pending, Err: err})
			n.rest(sess, z.changed, sess.Timeout()/3)
			return true
		}
	}
	return n.wait(sess, z)
}

// wait waits for the end of another session's znode. It reports whether to look
// at it.
func (n *Node) wait(sess *managed.Session, z znode) (again bool) {
	n.tell(Status{State: Taken, Session: z.stat.EphemeralOwner, Data: z.data})
	if n.cfg.takeover != nil && z.stat.EphemeralOwner != 0 && n.isMine(sess, z) {
		return n.replace(sess, z)
	}
	if !n.may(sess) { // isMine has taken the token that says so
		return true
	}
	n.life.unclear.Reset()
	n.life.refused.Reset()
	n.life.again = turns.Turns{}
	n.rest(sess, z.changed, n.keeper.interval(sess))
	if !closed.Is(z.changed) {
		return true
	}
	if changed, ok := z.resume(); ok {
		sess.Unwatch(changed)
		return true
	}
	// It was deleted, most likely. One that is changed often is not worth a
	// refused create each time.
	blocker := version.CreatedOf(z.stat)
	again = n.life.blocker == blocker
	n.life.blocker = blocker
	return again
}

// noteVersion notes what the znode is. If it has gone back to an earlier state,
// the ensemble was restored from a backup, and the data are set again.
func (n *Node) noteVersion(sess *managed.Session, stat *zk.Stat) {
	now := version.Of(stat)
	if n.life.in == sess.ID() && now.IsBefore(n.life.version) {
		n.setAgain()
	}
	n.life.version = now
}

// attend returns when the znode may not stand any longer, or must not. It
// reports whether to look at it.
//
// It writes only right after the znode was read as its own on this connection,
// behind a sync. Later the znode of that version may be another session's: an
// event can be lost. A znode that a request whose answer was lost may still
// change or delete is written again, so that this request is refused.
func (n *Node) attend(sess *managed.Session, z *znode) (again bool) {
	unsure := n.life.late == write{sess.ID(), z.stat.Version}
	if !unsure {
		n.onStanding(sess, *z)
	}
	checked, interval := time.Now(), n.keeper.interval(sess)
	read := z.synced // just now, on this connection, after a sync
	for n.may(sess) {
		if !sess.Connected() {
			n.rest(sess, nil, 0)
			read = false
			continue
		}
		if closed.Is(z.changed) {
			resumed, ok := z.resume()
			if !ok {
				return true
			}
			read = false
			z.changed = resumed // which says nothing of an event that was lost before
		}
		if data, set, ok := n.pending(); ok || unsure {
			if !read {
				return true
			}
			stat, err := sess.Set(background, z.path, data, z.stat.Version)
			n.noteLate(sess, z.stat.Version, err)
			switch {
			case err == nil:
				if stat.EphemeralOwner == sess.ID() {
					n.noteVersion(sess, stat)
					n.accept(set, data)
				}
				return true
			case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode):
				n.turn(sess, z.changed, unclear)
				return true
			case isRefusal(err):
				if !n.refuse(set, err) { // no other data are wanted
					n.life.late = write{}
				}
				return true
			}
			n.pause(sess, nil, n.life.unclear.NextBackOff(), false)
			return true
		}
		n.rest(sess, z.changed, max(unclear, interval-time.Since(checked)))
		read = false
		if time.Since(checked) >= interval && sess.Connected() {
			found, now, err := sess.Exists(background, z.path)
			if err == nil && (!found || now.EphemeralOwner != sess.ID() || version.Of(now) != version.Of(z.stat)) {
				return true
			}
			_ = n.closeEarlier(sess.ID())
			checked, interval = time.Now(), n.keeper.interval(sess)
		}
	}
	return false
}

func (n *Node) onStanding(sess *managed.Session, z znode) {
	if want, set := n.wanted(); string(z.data) == string(want) {
		n.accept(set, want) // by a write whose answer was lost
	}
	n.noteStanding(sess)
	n.life.refused.Reset()
	if _, _, waits := n.pending(); !waits {
		n.life.unclear.Reset()
		n.life.again = turns.Turns{}
	}
	n.tell(Status{State: Standing, Session: sess.ID()})
}

func (n *Node) noteStanding(sess *managed.Session) {
	if n.life.in != sess.ID() {
		n.life.in, n.life.stood = sess.ID(), time.Now()
	}
}

// noteMissing notes that a znode that stood in the session is missing. It
// returns an error unless the leader confirms that the session lives: otherwise
// its end may be the reason.
func (n *Node) noteMissing(sess *managed.Session) error {
	if err := sess.Sync(background, n.path); err != nil {
		return err
	}
	if err := sess.Err(); err != nil {
		return err
	}
	n.life.in = 0
	if n.cfg.yield {
		n.life.gone = true
		n.tell(Status{State: Removed})
	}
	return nil
}

// onMissing is told that the znode is missing.
func (n *Node) onMissing(sess *managed.Session) {
	if n.life.in != sess.ID() {
		n.turn(sess, nil, 0)
		return
	}
	if err := n.noteMissing(sess); err != nil {
		n.fail(sess, nil, err)
		return
	}
	if n.life.gone {
		return
	}
	n.tell(Status{State: Pending, Err: ErrRemoved})
	if time.Since(n.life.stood) >= calm {
		n.life.removed.Reset()
		return
	}
	n.pause(sess, nil, n.life.removed.NextBackOff(), false)
}
