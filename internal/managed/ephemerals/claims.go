package ephemerals

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file counts creates from before they are sent, reserves room for those
// to come, and says what is refused.

// errFull is ErrTooLarge for a create that is refused for the size of the
// session, not for its own.
var errFull = fmt.Errorf("%w: session full", zkerr.TooLarge)

// IsFull reports whether err is zkerr.TooLarge for want of room in the session:
// the request itself was not too large.
func IsFull(err error) bool { return errors.Is(err, errFull) }

// Refused says why there is no room.
type Refused struct {
	Sum, More, Limit int
	Reserved         bool // there is a room for it, which is too small
}

// Err returns the error of the create.
func (r Refused) Err() error {
	return fmt.Errorf("%w: the paths of this session's ephemeral znodes have %d bytes, and %d more would be above the limit of %d: "+
		"the servers could not read the transaction that ends the session: use another client, or shorter paths (see WithMaxEphemerals)",
		errFull, r.Sum, r.More, r.Limit)
}

// Claim counts creates of size bytes that are about to be sent: in the session
// s, or where TryIn says if that is nil. The caller must settle the claim. It
// is nil if there is no room below the limit.
func (a *Account) Claim(s *Session, size int, by Allowance, limit int) (*Claim, Refused) {
	a.mu.Lock()
	defer a.unlock()
	counts, drawn := by.room.draw(size)
	if more := counts + by.reserve - drawn; more > 0 && a.sum+more > limit {
		return nil, Refused{Sum: a.sum, More: size + by.reserve, Limit: limit, Reserved: by.room.isReserved()}
	}
	c := &Claim{of: a, size: counts, by: by, drawn: drawn, session: s}
	a.claims[c] = struct{}{}
	if drawn > 0 {
		by.room.left -= drawn
	}
	a.sum += counts + by.reserve - drawn
	return c, Refused{}
}

// TryIn notes that the creates are about to be sent in a session: what they
// made in the one before is gone with it. c may be nil.
func (c *Claim) TryIn(s *Session) {
	if c == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.session = s
}

// mostUnsure is how many creates of unknown outcome count before it is asked
// what they have created.
const mostUnsure = 8

// Settle ends a claim, which may be nil. The znodes at the paths made exist
// after success, and otherwise err says whether anything may exist: in the
// session of the last try, which may be over.
func (c *Claim) Settle(err error, made ...string) {
	if c == nil {
		return
	}
	a := c.of
	a.mu.Lock()
	defer a.unlock()
	counts := c.session == a.session
	if err != nil && counts && (zkerr.Classify(err) == zkerr.Ambiguous || zkerr.MaybeApplied(err)) {
		c.unsure = true
		if !a.asked.resolving && len(a.unsureLocked()) > mostUnsure {
			a.asked.resolving = true
			go a.told.Unsure()
		}
		return
	}
	a.releaseLocked(c)
	if err != nil || !counts {
		return
	}
	if r := c.by.room; r != nil && r.one {
		for _, o := range a.unsureLocked() {
			if o.by.room == r {
				a.releaseLocked(o)
			}
		}
	}
	for _, path := range made {
		if a.addLocked(path, c.by.room); c.by.reserve > 0 {
			z := a.made[path]
			z.with = &Room{left: c.by.reserve}
			a.made[path] = z
			a.sum += c.by.reserve
		}
	}
}

// SettleMulti ends the claim of a multi, which may be nil, and notes what the
// multi has deleted. The paths in responses are below root.
func (a *Account) SettleMulti(c *Claim, root request.Prefix, ops []any, responses []zk.MultiResponse, err error) {
	var made []string
	for i, op := range ops {
		if deleted, ok := op.(*zk.DeleteRequest); ok && err == nil {
			a.Remove(deleted.Path)
			made = slices.DeleteFunc(made, func(path string) bool { return path == deleted.Path })
		} else if c != nil && err == nil && Size(op) > 0 {
			made = append(made, root.Fix(responses[i].String))
		}
	}
	c.Settle(err, made...)
}

// Keep reserves room for one ephemeral znode at a path, in this session and in
// all later ones, until Drop is called. A sequential one is protected as well.
// The room is nil if there is none below the limit.
func (a *Account) Keep(path string, sequential bool, limit int) (*Room, Refused) {
	size := request.TextSize(path)
	if sequential {
		size = protectedSize(path)
	}
	a.mu.Lock()
	defer a.unlock()
	if a.sum+size > limit {
		return nil, Refused{Sum: a.sum, More: size, Limit: limit}
	}
	r := &Room{left: size, one: !sequential}
	a.sum += size
	a.kept[path] = r
	return r, Refused{}
}

// Drop ends what Keep has begun.
func (a *Account) Drop(path string, r *Room) {
	a.mu.Lock()
	defer a.unlock()
	a.dropLocked(r)
	if a.kept[path] == r {
		delete(a.kept, path)
	}
}

// RoomOf returns what is reserved with the znode at a path, nil if nothing is.
func (a *Account) RoomOf(full string) *Room {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.made[full].with
}
