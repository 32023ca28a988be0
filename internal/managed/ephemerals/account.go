package ephemerals

import (
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
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

// Account counts the paths of the session's ephemeral znodes, in bytes as that
// transaction has them. Each session begins with what is reserved.
type Account struct {
	cfg  Config
	told Told

	mu      sync.Mutex // guards what follows
	session *Session
	sum     int // of all that follows, and of rooms
	made    map[string]znode
	claims  map[*Claim]struct{}
	kept    map[string]*Room // by path
	asked   asked
	news    news
}

// Config is what an account must know of its client.
type Config struct {
	Client         uint64 // tells the clients of this process apart
	MaxRequest     int
	Max            int // 0: see Limit
	SessionTimeout time.Duration
}

// New returns the account of a client. It tells nothing before a claim.
func New(cfg Config, told Told) *Account {
	return &Account{cfg: cfg, told: told, made: make(map[string]znode), claims: make(map[*Claim]struct{}), kept: make(map[string]*Room)}
}

// znode is an ephemeral one that exists, as far as is known.
type znode struct {
	size   int
	in     *Room // it takes up room there; nil: in none
	beside *Room // it would, but creates of unknown outcome took that up; nil: there is no such room
	with   *Room // is reserved while it exists; nil: nothing is
}

// Claim is one request that creates ephemeral znodes: it is under way, or its
// outcome is unknown.
type Claim struct {
	of      *Account
	size    int
	by      Allowance
	drawn   int      // of size, from the room
	session *Session // in which it was tried last; nil: it was not
	unsure  bool     // the outcome is unknown
}

// asked is what was asked of the ensemble. The mutex of the account guards it.
type asked struct {
	count     *count    // nil: nobody counts anew
	ended     time.Time // when that was last done
	resolving bool      // what creates of unknown outcome have created
}

// count is one question for the session's ephemeral znodes.
type count struct {
	done   chan struct{} // closed: it has ended
	before map[string]znode
	unsure []*Claim            // before
	news   map[string]struct{} // since then: paths of which it is known whether a znode exists
}

// Limit is the greatest sum that is not refused.
func (a *Account) Limit() int {
	if most := a.cfg.Max; most > 0 {
		return most
	}
	return a.cfg.MaxRequest / 2 * 3
}

// much is the greatest sum without a warning.
func (a *Account) much() int { return min(a.cfg.MaxRequest/2, a.Limit()) }

// Sum returns how many bytes are counted.
func (a *Account) Sum() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sum
}

// Begin begins a session: the znodes of the one before are another session's.
// Creates of that one that are still under way count until they have ended:
// they may be tried again in s.
func (a *Account) Begin(s *Session) {
	a.mu.Lock()
	defer a.unlock()
	a.session = s
	for path := range a.made {
		a.removeLocked(path)
	}
	for _, c := range a.unsureLocked() {
		a.releaseLocked(c)
	}
	a.asked.ended = time.Time{}
}

// OnDelete notes the answer to a delete.
func (a *Account) OnDelete(path string, err error) {
	if err == nil || errors.Is(err, zk.ErrNoNode) {
		a.Remove(path)
	}
}

// Remove notes that a znode does not exist.
func (a *Account) Remove(path string) {
	a.mu.Lock()
	defer a.unlock()
	a.removeLocked(path)
	a.noteLocked(path)
}

func (a *Account) removeLocked(path string) {
	z, counted := a.made[path]
	if !counted {
		return
	}
	delete(a.made, path)
	a.returnLocked(z.in, z.size)
	if z.with != nil {
		a.dropLocked(z.with)
	}
}

// addLocked notes that a znode exists.
func (a *Account) addLocked(path string, in *Room) {
	a.removeLocked(path)
	a.noteLocked(path)
	z := znode{size: request.TextSize(path)}
	if in == nil {
		in = a.kept[path] // the answer to its create was lost
	}
	if in.isReserved() && in.left >= z.size {
		in.left -= z.size
		z.in = in
	} else {
		z.beside = in
		a.sum += z.size
	}
	a.made[path] = z
}

// unsureLocked returns the creates of unknown outcome.
func (a *Account) unsureLocked() (all []*Claim) {
	for c := range a.claims {
		if c.unsure {
			all = append(all, c)
		}
	}
	return all
}

// releaseLocked takes a claim out of the count, and returns how many bytes it
// has given back to its room.
func (a *Account) releaseLocked(c *Claim) (returned int) {
	if _, counted := a.claims[c]; !counted {
		return 0
	}
	delete(a.claims, c)
	a.sum += c.drawn - c.size - c.by.reserve
	if c.drawn > 0 {
		a.returnLocked(c.by.room, c.drawn)
		if c.unsure {
			a.moveInLocked(c.by.room)
		}
	}
	return c.drawn
}

// returnLocked puts bytes back into a room, unless it is over or nil.
func (a *Account) returnLocked(r *Room, size int) {
	if r.isReserved() {
		r.left += size
	} else {
		a.sum -= size
	}
}

// moveInLocked lets the znodes take up a room that were made beside it while
// creates of unknown outcome took it up: they do not count twice.
func (a *Account) moveInLocked(r *Room) {
	for path, z := range a.made {
		if z.beside == r && !r.over && r.left >= z.size {
			r.left -= z.size
			a.sum -= z.size
			z.in, z.beside = r, nil
			a.made[path] = z
		}
	}
}

func (a *Account) dropLocked(r *Room) {
	r.over = true
	a.sum -= r.left
}

// noteLocked notes that more is known of a path than was asked for before.
func (a *Account) noteLocked(path string) {
	if a.asked.count != nil {
		a.asked.count.news[path] = struct{}{}
	}
}

// unlock frees mu, and tells of the sum if it has changed by much.
func (a *Account) unlock() {
	defer a.mu.Unlock()
	if a.news.isLarge(a.sum, a.much()) {
		time.AfterFunc(time.Until(a.news.looked.Add(a.cfg.SessionTimeout)), a.told.Large)
	}
	if percent := a.sum * 100 / a.Limit(); a.news.isAt(percent) {
		a.told.Changed(Change{Client: a.cfg.Client, Bytes: a.sum, Limit: a.Limit(), Percent: percent})
	}
}

// BeginLook reports whether it may be looked how large the sum is: once in a
// session timeout at most.
func (a *Account) BeginLook() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.news.beginLook(a.cfg.SessionTimeout)
}

// EndLook returns the sum, and whether it is large.
func (a *Account) EndLook() (sum int, large bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.news.warned = a.sum > a.much()
	return a.sum, a.news.warned
}
