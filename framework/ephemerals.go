package framework

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// The end of a session is one transaction, which lists the paths of all its
// ephemeral znodes (since ZooKeeper 3.6). Nothing at the servers bounds it. But
// members read no transaction that is longer than jute.maxbuffer and
// jute.maxbuffer.extrasize, by default twice jute.maxbuffer: after a longer one
// no member serves, and none starts again (ZOOKEEPER-4306). So the client
// counts the bytes of these paths, and refuses creates while there is still
// some distance to that size.
//
// What is counted is never less than what the ensemble has: a create counts
// from before it is sent until it is refused, or its znode is known to be gone.
// It may be more, since others may delete our znodes, and a create whose answer
// was lost may have created nothing. So before a create is refused the ensemble
// is asked what there is.

// ephemerals counts the paths of the session's ephemeral znodes, in bytes as
// that transaction has them. Each session begins with what is reserved.
type ephemerals struct {
	core *core

	mu       sync.Mutex // guards what follows
	session  *session
	sum      int // of all that follows, and of rooms
	made     map[string]ephemeral
	claims   map[*claim]struct{}
	kept     map[string]*room // by path
	warned   bool             // it was logged that the sum is large, or is about to be
	looked   time.Time        // when warn was called last
	percent  int              // of the limit, as the observers know it
	counting *count           // nil: nobody counts anew
	counted  time.Time        // when that was last done
}

// init makes the account of a client.
func (e *ephemerals) init(c *core) {
	e.core, e.made, e.claims, e.kept = c, make(map[string]ephemeral), make(map[*claim]struct{}), make(map[string]*room)
}

// ephemeral is a znode that exists, as far as is known.
type ephemeral struct {
	size int
	in   *room // it takes up room there; nil: in none
	with *room // is reserved while it exists; nil: nothing is
}

// room is bytes that are reserved for creates to come, so that these are not
// refused.
type room struct {
	left int
	over bool // it is not reserved any longer
}

// claim is one request that creates ephemeral znodes: it is under way, or its
// outcome is unknown.
type claim struct {
	of      *ephemerals
	size    int
	by      allowance
	drawn   int      // of size, from the room
	session *session // in which it was tried last; nil: it was not
	unsure  bool     // the outcome is unknown
}

// allowance is what a view of a session says of the ephemeral znodes that are
// created in it.
type allowance struct {
	room    *room // where they take up room; nil: in none
	reserve int   // how many bytes are reserved with each
}

// errSessionFull is ErrTooLarge for a create that is refused for the size of
// the session, not for its own.
var errSessionFull = fmt.Errorf("%w: session full", ErrTooLarge)

// longestSuffix is the length of the longest sequence number.
const longestSuffix = len("-2147483648")

// ephemeralSize returns how many bytes the ephemeral znodes that operations
// create may have in the transaction.
func ephemeralSize(ops ...any) (size int) {
	for _, op := range ops {
		if create, ok := op.(*zk.CreateRequest); ok && isEphemeral(create.Flags) {
			if size += textSize(create.Path); isSequential(create.Flags) {
				size += longestSuffix
			}
		}
	}
	return size
}

// limit is the greatest sum that is not refused.
func (e *ephemerals) limit() int {
	if most := e.core.cfg.maxEphemerals; most > 0 {
		return most
	}
	return e.core.cfg.maxRequest / 2 * 3
}

// much is the greatest sum without a warning.
func (e *ephemerals) much() int { return min(e.core.cfg.maxRequest/2, e.limit()) }

// claim counts creates of size bytes that are about to be sent, in the session s
// or, if that is nil, where tryIn says. The caller must settle the claim, which
// is nil if nothing ephemeral is created. It fails with an unsentError: of
// ErrTooLarge; or if ctx has ended, or there was no connection for a question.
func (e *ephemerals) claim(ctx context.Context, s *session, size int, by allowance) (c *claim, err error) {
	if size == 0 {
		return nil, nil
	}
	err = e.admit(ctx, size+by.reserve, by.room, func(limit int) bool {
		drawn := 0
		if r := by.room; r != nil && !r.over {
			drawn = min(size, r.left)
		}
		more := size + by.reserve - drawn
		if more > 0 && e.sum+more > limit {
			return false
		}
		c = &claim{of: e, size: size, by: by, drawn: drawn, session: s}
		e.claims[c] = struct{}{}
		if drawn > 0 {
			by.room.left -= drawn
		}
		e.sum += more
		return true
	})
	if err != nil {
		return nil, unsentError{err}
	}
	return c, nil
}

// keep reserves room for one ephemeral znode in this session and in all later
// ones, until drop is called. path is its path if it is known before.
func (e *ephemerals) keep(ctx context.Context, path string, size int) (r *room, drop func(), err error) {
	r = &room{left: size}
	err = e.admit(ctx, size, nil, func(limit int) bool {
		if e.sum+size > limit {
			return false
		}
		e.sum += size
		e.kept[path] = r
		return true
	})
	return r, func() {
		e.mu.Lock()
		defer e.unlock()
		e.dropLocked(r)
		if e.kept[path] == r {
			delete(e.kept, path)
		}
	}, err
}

func (e *ephemerals) dropLocked(r *room) {
	r.over = true
	e.sum -= r.left
}

// roomOf returns what is reserved with a znode, nil if nothing is.
func (e *ephemerals) roomOf(full string) *room {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.made[full].with
}

// admit calls try with mu held, with the limit, until it returns true. In
// between it gives back what lingers, and counts anew. What a room, which may
// be nil, was reserved for is refused only after a count that has just begun.
func (e *ephemerals) admit(ctx context.Context, size int, r *room, try func(limit int) bool) error {
	for limit := e.limit(); ; {
		e.mu.Lock()
		done, sum := try(limit), e.sum
		pauses := r == nil || r.over
		e.unlock()
		switch {
		case done:
			return nil
		case ctx.Err() != nil:
			return ctxerr.Of(ctx)
		case e.core.listsNoEphemerals(ctx):
			limit = math.MaxInt
			continue
		case e.core.giveBack(ctx):
			continue
		}
		switch more, err := e.countAnew(ctx, pauses); {
		case ctx.Err() != nil:
		case errors.Is(err, errUnsaid):
			return fmt.Errorf("%w: %w", zk.ErrNoServer, err)
		case err != nil && classify(err) != final:
			return zk.ErrNoServer // nothing was sent
		case !more:
			return fmt.Errorf("%w: the paths of this session's ephemeral znodes have %d bytes, and %d more would be above the limit of %d: "+
				"the servers could not read the transaction that ends the session: use another client, or shorter paths (see WithMaxEphemerals)",
				errSessionFull, sum, size, limit)
		}
	}
}

// tryIn notes that the creates are about to be sent in a session: what they
// made in the one before is gone with it.
func (c *claim) tryIn(s *session) {
	if c == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.session = s
}

// settle ends a claim. The znodes at the paths made exist after success, and
// otherwise err says whether anything may exist: in the session of the last
// try, which may be over.
func (c *claim) settle(err error, made ...string) {
	if c == nil {
		return
	}
	e := c.of
	e.mu.Lock()
	defer e.unlock()
	counts := c.session == e.session
	if err != nil && counts && (classify(err) == ambiguous || MaybeApplied(err)) {
		c.unsure = true
		return
	}
	e.releaseLocked(c)
	if err != nil || !counts {
		return
	}
	for _, path := range made {
		if e.addMadeLocked(path, c.by.room); c.by.reserve > 0 {
			m := e.made[path]
			m.with = &room{left: c.by.reserve}
			e.made[path] = m
			e.sum += c.by.reserve
		}
	}
}

// releaseLocked takes a claim out of the count, and returns how many bytes it
// has given back to its room.
func (e *ephemerals) releaseLocked(c *claim) (returned int) {
	if _, counted := e.claims[c]; !counted {
		return 0
	}
	delete(e.claims, c)
	e.sum += c.drawn - c.size - c.by.reserve
	if c.drawn > 0 {
		e.returnLocked(c.by.room, c.drawn)
	}
	return c.drawn
}

// returnLocked puts bytes back into a room, unless it is over or nil.
func (e *ephemerals) returnLocked(r *room, size int) {
	if r == nil || r.over {
		e.sum -= size
	} else {
		r.left += size
	}
}

// addMadeLocked notes that a znode exists.
func (e *ephemerals) addMadeLocked(path string, in *room) {
	e.removeLocked(path)
	e.noteLocked(path)
	m := ephemeral{size: textSize(path)}
	if in == nil {
		in = e.kept[path] // the answer to its create was lost
	}
	if in != nil && !in.over && in.left >= m.size {
		in.left -= m.size
		m.in = in
	} else {
		e.sum += m.size
	}
	e.made[path] = m
}

// settleMulti ends the claim of a multi, and notes what the multi has deleted.
// The paths in responses are below root.
func (e *ephemerals) settleMulti(c *claim, root prefix, ops []any, responses []zk.MultiResponse, err error) {
	var made []string
	for i, op := range ops {
		if deleted, ok := op.(*zk.DeleteRequest); ok && err == nil {
			e.remove(deleted.Path)
			made = slices.DeleteFunc(made, func(path string) bool { return path == deleted.Path })
		} else if c != nil && err == nil && ephemeralSize(op) > 0 {
			made = append(made, root.fix(responses[i].String))
		}
	}
	c.settle(err, made...)
}

// onDelete notes the answer to a delete.
func (e *ephemerals) onDelete(path string, err error) {
	if err == nil || errors.Is(err, zk.ErrNoNode) {
		e.remove(path)
	}
}

// remove notes that a znode does not exist.
func (e *ephemerals) remove(path string) {
	e.mu.Lock()
	defer e.unlock()
	e.removeLocked(path)
	e.noteLocked(path)
}

// noteLocked notes that more is known of a path than was asked for before.
func (e *ephemerals) noteLocked(path string) {
	if e.counting != nil {
		e.counting.news[path] = struct{}{}
	}
}

func (e *ephemerals) removeLocked(path string) {
	m, counted := e.made[path]
	if !counted {
		return
	}
	delete(e.made, path)
	e.returnLocked(m.in, m.size)
	if m.with != nil {
		e.dropLocked(m.with)
	}
}

// begin begins a session: the znodes of the one before are another session's.
// Creates of that one that are still under way count until they have ended:
// they may be tried again in s.
func (e *ephemerals) begin(s *session) {
	e.mu.Lock()
	defer e.unlock()
	e.session = s
	for path := range e.made {
		e.removeLocked(path)
	}
	for c := range e.claims {
		if c.unsure {
			e.releaseLocked(c)
		}
	}
	e.counted = time.Time{}
}

// unlock frees mu, and tells of the sum if it has changed by much.
func (e *ephemerals) unlock() {
	defer e.mu.Unlock()
	switch much := e.much(); {
	case e.sum < much/2:
		e.warned = false
	case e.sum > much && !e.warned:
		e.warned = true
		time.AfterFunc(time.Until(e.looked.Add(e.core.cfg.sessionTimeout)), e.warn)
	}
	if percent := e.sum * 100 / e.limit(); percent != e.percent {
		e.percent = percent
		e.core.observers.ephemeralsChanged(EphemeralsChange{Client: e.core.number, Bytes: e.sum, Limit: e.limit(), Percent: percent})
	}
}

// warn logs that the sum is large, unless it is not, or no harm is in that. It
// does so once in a session timeout at most.
func (e *ephemerals) warn() {
	e.mu.Lock()
	again := time.Since(e.looked) < e.core.cfg.sessionTimeout
	if !again {
		e.looked = time.Now()
	}
	e.mu.Unlock()
	if again || e.core.isClosing() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.core.cfg.sessionTimeout)
	defer cancel()
	_, _ = e.countAnew(ctx, false) // if that fails, the sum is what it may be at most
	off := e.core.listsNoEphemerals(ctx)
	e.mu.Lock()
	sum := e.sum
	e.warned = sum > e.much()
	large := e.warned && !off
	e.mu.Unlock()
	if large {
		e.core.cfg.log.Warn("the paths of this session's ephemeral znodes are long, or many: use several clients, or shorter paths",
			zap.Int("bytes", sum), zap.Int("limit", e.limit()))
	}
}

// countAnew asks the ensemble which ephemeral znodes the session has, and
// reports whether there may be more room: the sum has become less, or a claim
// has given back what it had from a room. What has begun since the question
// counts in any case. If pauses is true it asks three times in a session
// timeout at most: an answer is large.
func (e *ephemerals) countAnew(ctx context.Context, pauses bool) (more bool, err error) {
	s, err := e.core.current()
	if err != nil {
		return false, err
	}
	on, err := s.offers(ctx, wire.OpGetEphemerals)
	if err != nil {
		return false, s.orNoServer(err)
	}
	e.mu.Lock()
	if under := e.counting; under != nil {
		e.mu.Unlock()
		select {
		case <-under.done:
		case <-ctx.Done():
		}
		return true, nil // try again
	}
	if pauses && time.Since(e.counted) < s.granted()/3 {
		e.mu.Unlock()
		return false, nil
	}
	e.beginCountLocked()
	e.mu.Unlock()

	found, err := s.ephemeralPaths(ctx, on)
	err = s.orNoServer(err)

	e.mu.Lock()
	defer e.unlock()
	return e.endCountLocked(found, err), err
}

// count is one question for the session's ephemeral znodes.
type count struct {
	done   chan struct{} // closed: it has ended
	before map[string]ephemeral
	unsure []*claim            // before
	news   map[string]struct{} // since then: paths of which it is known whether a znode exists
}

func (e *ephemerals) beginCountLocked() {
	e.counting = &count{done: make(chan struct{}), before: maps.Clone(e.made), news: make(map[string]struct{})}
	for c := range e.claims {
		if c.unsure {
			e.counting.unsure = append(e.counting.unsure, c)
		}
	}
}

// endCountLocked applies the answer, unless err is not nil. It reports whether
// there may be more room.
func (e *ephemerals) endCountLocked(found []string, err error) (more bool) {
	count, sum := e.counting, e.sum
	e.counting = nil
	close(count.done)
	if err != nil {
		return false
	}
	e.counted = time.Now()
	for _, c := range count.unsure {
		more = e.releaseLocked(c) > 0 || more
	}
	for _, path := range found {
		_, late := count.news[path]
		if _, counted := e.made[path]; !counted && !late {
			e.addMadeLocked(path, nil)
		}
		delete(count.before, path)
	}
	for path := range count.before {
		if _, late := count.news[path]; !late {
			e.removeLocked(path)
		}
	}
	return more || e.sum < sum
}

// orNoServer returns zk.ErrNoServer if the session is over, and otherwise err.
func (s *session) orNoServer(err error) error {
	if s.Err() != nil {
		return zk.ErrNoServer
	}
	return err
}

// ephemeralPaths returns the paths of the session's ephemeral znodes, as of a
// time after the call. on is the connection that there was before.
func (s *session) ephemeralPaths(ctx context.Context, on *link) ([]string, error) {
	if err := s.sync(ctx, "/"); err != nil { // the member may lag
		return nil, err
	}
	r, err := call(ctx, s, Request{Op: opNameEphemerals, Path: "/"}, func(*zk.Conn) (reply, error) {
		return s.ask(ctx, on, wire.OpGetEphemerals, &wire.PathRequest{Path: "/"}, mostAsked)
	}, nil)
	if err != nil {
		return nil, err
	}
	var found wire.ChildrenResponse
	err = wire.Unmarshal(r.body, &found)
	return found.Children, err
}

// listsNoEphemerals reports whether the server has a version before 3.6, in
// which the end of a session lists no paths.
func (c *core) listsNoEphemerals(ctx context.Context) bool {
	s, err := c.current()
	if err == nil {
		_, err = s.offers(ctx, wire.OpGetEphemerals)
	}
	return errors.Is(err, errOlder)
}

// current returns the session that there is.
func (c *core) current() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == nil {
		return nil, zk.ErrNoServer
	}
	return c.session, nil
}

// giver is a value attached to a client that can do without some of its
// ephemeral znodes.
type giver interface {
	// GiveBack removes one of them, and waits until it is gone. It reports false
	// if there is none, or ctx has ended before.
	GiveBack(ctx context.Context) bool
}

// giveBack makes room for a create by a znode that nobody needs.
func (c *core) giveBack(ctx context.Context) bool {
	var givers []giver
	c.mu.Lock()
	for _, value := range c.attached {
		if g, ok := value.(giver); ok {
			givers = append(givers, g)
		}
	}
	c.mu.Unlock()
	for _, g := range givers {
		if g.GiveBack(ctx) {
			return true
		}
	}
	return false
}

// claim is that of ephemerals, for one operation. What follows shares the
// budget of the scope that it returns.
func (w scope) claim(ctx context.Context, op, path string, creates ...any) (_ scope, c *claim, err error) {
	size := ephemeralSize(creates...)
	if size == 0 {
		return w, nil, nil
	}
	if w.budget == nil {
		w.budget = w.core.cfg.retry()
	}
	err = w.do(ctx, op, path, repeatable, func(*attempt) (err error) {
		c, err = w.core.ephemerals.claim(ctx, w.in, size, w.allowance)
		return err
	})
	return w, c, err
}

// isEphemeral reports whether znodes that are created with these flags end with
// their session.
func isEphemeral(flags int32) bool { return flags&zk.FlagEphemeral != 0 && flags < zk.FlagContainer }

// Reserving, InRoomOf and KeepRoom of package recipes/internal/privileged.

func (s *Session) reserving(dir, name string, n int) *Session {
	view := *s
	view.reserve = n * (textSize(layout.Join(dir, name)) + layout.ProtectionSize + longestSuffix)
	return &view
}

func (s *Session) inRoom(r *room) *Session {
	view := *s
	view.room = r
	return &view
}

func (s *Session) keepRoom(path string, sequential bool) (in func(*Session) *Session, drop func(), err error) {
	fail := func(err error) (func(*Session) *Session, func(), error) {
		return nil, nil, &opError{op: opNameCreate, path: path, err: err}
	}
	if err := s.Err(); err != nil {
		return fail(err)
	}
	full := s.root.fix(path)
	size := textSize(full)
	if sequential {
		size += layout.ProtectionSize + longestSuffix
	}
	r, drop, err := s.session().core.ephemerals.keep(context.Background(), full, size)
	if err != nil {
		return fail(err)
	}
	return func(s *Session) *Session { return s.inRoom(r) }, drop, nil
}
