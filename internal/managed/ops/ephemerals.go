package ops

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/offers"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
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
	client *Client

	mu        sync.Mutex // guards what follows
	session   *Session
	sum       int // of all that follows, and of rooms
	made      map[string]ephemeral
	claims    map[*claim]struct{}
	resolving bool             // it is asked what they have created
	kept      map[string]*Room // by path
	warned    bool             // it was logged that the sum is large, or is about to be
	looked    time.Time        // when warn was called last
	percent   int              // of the limit, as the observers know it
	counting  *count           // nil: nobody counts anew
	counted   time.Time        // when that was last done
}

// init makes the account of a client.
func (e *ephemerals) init(c *Client) {
	e.client, e.made, e.claims, e.kept = c, make(map[string]ephemeral), make(map[*claim]struct{}), make(map[string]*Room)
}

// ephemeral is a znode that exists, as far as is known.
type ephemeral struct {
	size   int
	in     *Room // it takes up room there; nil: in none
	beside *Room // it would, but creates of unknown outcome took that up; nil: there is no such room
	with   *Room // is reserved while it exists; nil: nothing is
}

// claim is one request that creates ephemeral znodes: it is under way, or its
// outcome is unknown.
type claim struct {
	of      *ephemerals
	size    int
	by      Allowance
	drawn   int      // of size, from the room
	session *Session // in which it was tried last; nil: it was not
	unsure  bool     // the outcome is unknown
}

// errSessionFull is ErrTooLarge for a create that is refused for the size of
// the session, not for its own.
var errSessionFull = fmt.Errorf("%w: session full", zkerr.TooLarge)

// longestSuffix is the length of the longest sequence number.
const longestSuffix = len("-2147483648")

// ephemeralSize returns how many bytes the ephemeral znodes that operations
// create may have in the transaction.
func ephemeralSize(ops ...any) (size int) {
	for _, op := range ops {
		if create, ok := op.(*zk.CreateRequest); ok && IsEphemeral(create.Flags) {
			if size += request.TextSize(create.Path); request.IsSequential(create.Flags) {
				size += longestSuffix
			}
		}
	}
	return size
}

// limit is the greatest sum that is not refused.
func (e *ephemerals) limit() int {
	if most := e.client.Config.MaxEphemerals; most > 0 {
		return most
	}
	return e.client.Config.MaxRequest / 2 * 3
}

// much is the greatest sum without a warning.
func (e *ephemerals) much() int { return min(e.client.Config.MaxRequest/2, e.limit()) }

// claim counts creates of size bytes that are about to be sent: in the session
// s, or where tryIn says if that is nil. The caller must settle the claim,
// which is nil if nothing ephemeral is created. It fails with an unsentError:
// of ErrTooLarge; or if ctx has ended, or there was no connection for a
// question.
func (e *ephemerals) claim(ctx context.Context, s *Session, size int, by Allowance) (c *claim, err error) {
	if size == 0 {
		return nil, nil
	}
	err = e.admit(ctx, size+by.reserve, by.room, func(limit int) bool {
		size, drawn := size, 0
		if r := by.room; r != nil && !r.over {
			drawn = min(size, r.left)
			if r.one { // what has taken it up is the same znode
				size = drawn
			}
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

// admit calls try with mu held, with the limit, until it returns true. In
// between it gives back what lingers, and counts anew. What a room, which may
// be nil, was reserved for is refused only after a count that has just begun.
// The rest is also refused if the server has not said for three session
// timeouts whether it can count: that may last as long as the connection.
func (e *ephemerals) admit(ctx context.Context, size int, r *Room, try func(limit int) bool) error {
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
		case e.client.listsNoEphemerals(ctx):
			limit = math.MaxInt
			continue
		case e.client.above.GiveBack(ctx):
			continue
		}
		switch more, err := e.countAnew(ctx, pauses); {
		case ctx.Err() != nil:
		case errors.Is(err, offers.ErrUnsaid) && !(pauses && errors.Is(err, offers.ErrLongUnsaid)):
			return fmt.Errorf("%w: %w", zk.ErrNoServer, err)
		case err != nil && zkerr.Classify(err) != zkerr.Final:
			return zk.ErrNoServer // nothing was sent
		case !more:
			full := fmt.Errorf("%w: the paths of this session's ephemeral znodes have %d bytes, and %d more would be above the limit of %d: "+
				"the servers could not read the transaction that ends the session: use another client, or shorter paths (see WithMaxEphemerals)",
				errSessionFull, sum, size, limit)
			if err != nil {
				full = fmt.Errorf("%w; not counted anew: %s", full, err.Error())
			}
			return full
		}
	}
}

// tryIn notes that the creates are about to be sent in a session: what they
// made in the one before is gone with it.
func (c *claim) tryIn(s *Session) {
	if c == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.session = s
}

// Settle ends a claim. The znodes at the paths made exist after success, and
// otherwise err says whether anything may exist: in the session of the last
// try, which may be over.
func (c *claim) Settle(err error, made ...string) {
	if c == nil {
		return
	}
	e := c.of
	e.mu.Lock()
	defer e.unlock()
	counts := c.session == e.session
	if err != nil && counts && (zkerr.Classify(err) == zkerr.Ambiguous || zkerr.MaybeApplied(err)) {
		c.unsure = true
		if !e.resolving && len(e.unsureLocked()) > mostUnsure {
			e.resolving = true
			go e.resolve()
		}
		return
	}
	e.releaseLocked(c)
	if err != nil || !counts {
		return
	}
	if r := c.by.room; r != nil && r.one {
		for _, o := range e.unsureLocked() {
			if o.by.room == r {
				e.releaseLocked(o)
			}
		}
	}
	for _, path := range made {
		if e.addMadeLocked(path, c.by.room); c.by.reserve > 0 {
			m := e.made[path]
			m.with = &Room{left: c.by.reserve}
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
		if c.unsure {
			e.moveInLocked(c.by.room)
		}
	}
	return c.drawn
}

// addMadeLocked notes that a znode exists.
func (e *ephemerals) addMadeLocked(path string, in *Room) {
	e.removeLocked(path)
	e.noteLocked(path)
	m := ephemeral{size: request.TextSize(path)}
	if in == nil {
		in = e.kept[path] // the answer to its create was lost
	}
	if in != nil && !in.over && in.left >= m.size {
		in.left -= m.size
		m.in = in
	} else {
		m.beside = in
		e.sum += m.size
	}
	e.made[path] = m
}

// settleMulti ends the claim of a multi, and notes what the multi has deleted.
// The paths in responses are below root.
func (e *ephemerals) settleMulti(c *claim, root request.Prefix, ops []any, responses []zk.MultiResponse, err error) {
	var made []string
	for i, op := range ops {
		if deleted, ok := op.(*zk.DeleteRequest); ok && err == nil {
			e.remove(deleted.Path)
			made = slices.DeleteFunc(made, func(path string) bool { return path == deleted.Path })
		} else if c != nil && err == nil && ephemeralSize(op) > 0 {
			made = append(made, root.Fix(responses[i].String))
		}
	}
	c.Settle(err, made...)
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
func (e *ephemerals) begin(s *Session) {
	e.mu.Lock()
	defer e.unlock()
	e.session = s
	for path := range e.made {
		e.removeLocked(path)
	}
	for _, c := range e.unsureLocked() {
		e.releaseLocked(c)
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
		time.AfterFunc(time.Until(e.looked.Add(e.client.Config.SessionTimeout)), e.warn)
	}
	if percent := e.sum * 100 / e.limit(); percent != e.percent {
		e.percent = percent
		e.client.observer.EphemeralsChanged(EphemeralsChange{Client: e.client.Config.Client, Bytes: e.sum, Limit: e.limit(), Percent: percent})
	}
}

// claim is that of ephemerals, for one operation. What follows shares the
// budget of the scope that it returns.
func (w Scope) claim(ctx context.Context, op, path string, creates ...any) (_ Scope, c *claim, err error) {
	size := ephemeralSize(creates...)
	if size == 0 {
		return w, nil, nil
	}
	if w.Budget == nil {
		w.Budget = w.Client.Config.Retry()
	}
	err = w.Do(ctx, op, path, Repeatable, func(*Attempt) (err error) {
		c, err = w.Client.ephemerals.claim(ctx, w.In, size, w.Allowance)
		return err
	})
	return w, c, err
}

// Claim is that of ephemerals, for what operations create in this session.
func (s *Session) Claim(ctx context.Context, by Allowance, ops ...any) (*claim, error) {
	return s.Client.ephemerals.claim(ctx, s, ephemeralSize(ops...), by)
}

// SettleMulti is that of ephemerals.
func (s *Session) SettleMulti(c *claim, root request.Prefix, ops []any, responses []zk.MultiResponse, err error) {
	s.Client.ephemerals.settleMulti(c, root, ops, responses, err)
}

// IsEphemeral reports whether znodes that are created with these flags end with
// their session.
func IsEphemeral(flags int32) bool { return flags&zk.FlagEphemeral != 0 && flags < zk.FlagContainer }
