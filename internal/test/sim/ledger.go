package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// ledger records the history of a run in one order, and checks it meanwhile.
type ledger struct {
	plan   *Plan
	ens    *testutil.Embedded
	begin  time.Time
	behind *behind // nil: the lines are not exclusive

	mu        sync.Mutex // guards what follows
	seq       int64
	resources map[string]*resource
	expired   map[int64]bool   // sessions that an operator has ended
	owned     map[string]int64 // the session of each znode that went with one of those
	closed    map[int]bool     // clients
	killed    map[int]bool
	closedFor map[int]bool       // of these, whose sessions a guardian closes
	removed   map[string]removal // znodes that somebody else has removed
	jumped    bool               // the clients' clock has: their deadlines say nothing
	clients   map[int64]int      // by session
	settled   time.Time          // from then on nothing may be late; zero: not yet
	wrong     []string
	trace     []string
	limit     int // of the semaphore, as far as known
	grants    int
	losses    int
	longest   time.Duration
}

// removal is that of a znode by somebody else.
type removal struct {
	seq int64     // when it was first tried
	at  time.Time // when it was done at the latest
}

func (l *ledger) nextLocked() int64 {
	l.seq++
	return l.seq
}

func (l *ledger) logLocked(format string, args ...any) {
	l.trace = append(l.trace, fmt.Sprintf("%4d %12v  ", l.seq, time.Since(l.begin))+fmt.Sprintf(format, args...))
}

func (l *ledger) wrongLocked(format string, args ...any) {
	text := judge.Mark + fmt.Sprintf(format, args...)
	l.logLocked("WRONG: %s", text)
	l.wrong = append(l.wrong, text)
}

func (l *ledger) log(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLocked()
	l.logLocked(format, args...)
}

func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrongLocked(format, args...)
}

// call records the beginning of an operation.
type call struct {
	seq int64
	at  time.Time
}

func (l *ledger) call(w who, format string, args ...any) call {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := call{l.nextLocked(), time.Now()}
	l.logLocked("%v: "+format, append([]any{w}, args...)...)
	return c
}

// leaves records that a caller is about to give up: that may let others on
// before it returns. It asks the ensemble nothing, since its caller may have
// locked the world.
func (l *ledger) leaves(of []*resource) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range of {
		if r.last = time.Now(); !r.idle.IsZero() {
			r.idle = r.last
		}
	}
}

// failed records an acquisition that was not granted.
func (l *ledger) failed(w who, of []*resource, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLocked()
	l.logLocked("%v: not granted: %v", w, err)
	if errors.Is(err, framework.ErrUnproven) { // for no resource
		for _, r := range l.resources {
			l.starvedLocked(r, true)
		}
	}
	for _, r := range of {
		delete(r.waiting, w)
		if errors.Is(err, framework.ErrUnproven) { // it was first in line, and the others of its client join only now
			r.ended[w.client] = time.Now()
			for k, other := range r.waiting {
				other.passed = 0
				r.waiting[k] = other
			}
		}
		l.starvedLocked(r, !l.closedFor[w.client])
	}
}

// granted records a grant, and checks what all other clients believe.
func (l *ledger) granted(c call, t *holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookLocked() // earlier losses come first in the history
	r, now := t.of, time.Now()
	t.path, t.token, t.leases, t.since = t.client.Resolve(t.lease.Path()), t.lease.Token(), []*recipes.Lease{t.lease}, now
	if t.root == nil {
		t.root = t
	}
	dir, _ := l.ens.Stat(t.path[:strings.LastIndexByte(t.path, '/')]) // read first: if the znode still exists, its directory is this one
	stat, there := l.ens.Stat(t.path)
	t.session = stat.EphemeralOwner
	if !there { // it may have expired since, and the client may have another one
		t.session = l.owned[t.path]
	}
	if s, err := t.client.Session(); t.session == 0 && err == nil {
		t.session = s.ID()
	}
	seq := l.nextLocked()
	t.id = len(r.holdings)
	l.logLocked("%v: granted %s #%d %s, token %v, session %#x", t.who, r.path, t.id, t.mode(), t.token, t.session)
	known := l.knownLocked(t) && !l.voidLocked(t)
	p := l.plan
	if !l.knownLocked(t) && !l.voidLocked(t) && !l.closed[t.who.client] && !l.jumped && p.Policy == framework.ErrorPolicySession && !p.capped(t.who.client) {
		l.wrongLocked("%v was granted what is not held: %v", t, t.lease.Err())
	}
	if there {
		t.dir, t.after = dir.Czxid, max(dir.Pzxid, stat.Czxid)
	}
	l.tokensLocked(t, known, there)
	if wait := l.lateLocked(c, r, now); wait > 0 && t.root == t {
		l.longest = max(l.longest, wait)
		if wait > l.patience() {
			l.wrongLocked("%v was granted %v after anything that it may have waited for", t.who, wait)
		}
	}
	began := c.seq
	if l.expired[t.session] || l.isRemovedLocked(t) || l.closed[t.who.client] { // before the client heard of it
		if gone, ok := l.removed[t.path]; ok { // who has called since then may share it with one who had called before
			began = min(began, gone.seq)
		}
		for _, o := range r.holdings {
			if o.path == t.path && o.ends > 0 { // the client has handed it on, without a request
				began = min(began, o.ends)
			}
		}
		t.ends = began
	}
	t.znode, t.fence = r.znode(t), r.written
	r.holdings = append(r.holdings, t)
	r.ops = append(r.ops, op{who: t.who, in: input{kind: acquire, id: t.id, root: t.root.id, znode: t.znode, shared: t.shared, permits: t.permits, token: t.token, order: known}, call: began, ret: seq})
	delete(r.waiting, t.who)
	l.passedLocked(t)
	if (l.plan.Recipe == Election || l.plan.Recipe == Campaign) && !strings.HasSuffix(t.token.String(), "00000000") {
		l.wrongLocked("%v: a term was handed off", t)
	}
	l.joinedLocked(c, t)
	l.starvedLocked(r, true)
	l.grants++
	l.lookLocked()
}

// again records that a holding was re-entered.
func (l *ledger) again(t *holding, lease *recipes.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLocked()
	t.leases = append(t.leases, lease)
	l.logLocked("%v: entered again", t)
	if lease.Token() != t.token {
		l.wrongLocked("%v was entered again with token %v", t, lease.Token())
	}
	l.lookLocked()
}

// leaving records that a lease is about to be released. With the last one no
// client believes in the holding.
func (l *ledger) leaving(t *holding, lease *recipes.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq := l.nextLocked()
	l.lookLocked()
	t.leases = slices.DeleteFunc(t.leases, func(o *recipes.Lease) bool { return o == lease })
	l.logLocked("%v: leaves, %d left", t, len(t.leases))
	if len(t.leases) == 0 {
		t.left = true
		t.of.ended[t.who.client] = time.Now()
		l.endsLocked(t, seq)
		// Where messages take no time, the next may be granted before the
		// release returns.
		l.starvedLocked(t.of, !l.closedFor[t.who.client])
	}
}

func (l *ledger) endsLocked(t *holding, seq int64) {
	if t.ends == 0 {
		t.ends = seq
	}
}

// released records the result of the release of a holding's last lease.
func (l *ledger) released(t *holding, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ret := l.nextLocked()
	l.logLocked("%v: released: %v", t, err)
	t.gone = true
	t.of.ended[t.who.client] = time.Now()
	l.starvedLocked(t.of, !l.closedFor[t.who.client])
	if err != nil || l.plan.asynchronous(t.who.client) { // its znode may be gone later, and its guard passes until then
		ret = never
	}
	if err == nil && t.lost && !l.closed[t.who.client] {
		l.wrongLocked("%v was lost, and its release has succeeded", t)
	}
	t.of.ops = append(t.of.ops, op{who: t.who, in: input{kind: end, id: t.id}, call: t.ends, ret: ret})
}

// wrote records a guarded write that was or may have been applied.
func (l *ledger) wrote(c call, t *holding, version int32, zxid int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ret := l.nextLocked()
	l.logLocked("%v: wrote version %d at %x: %v", t, version, zxid, err)
	switch {
	case err == nil:
		l.overwroteLocked(t.of, zxid, t.token)
		t.of.ops = append(t.of.ops, op{who: t.who, in: input{kind: write, id: t.id, znode: t.znode, shared: t.shared, version: version, zxid: zxid}, call: c.seq, ret: ret})
	case framework.MaybeApplied(err):
		t.of.ops = append(t.of.ops, op{who: t.who, in: input{kind: write, id: t.id, znode: t.znode, shared: t.shared, unknown: true}, call: c.seq, ret: never})
	}
}

// limited records that a semaphore's limit was or may have been set.
func (l *ledger) limited(c call, w who, r *resource, n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ret := l.nextLocked()
	l.logLocked("%v: limit %d: %v", w, n, err)
	if err != nil {
		ret = never
	} else {
		l.limit = n
	}
	l.starvedLocked(r, true)
	r.ops = append(r.ops, op{who: w, in: input{kind: setLimit, permits: n}, call: c.seq, ret: ret})
}

// expire ends a session, as an operator does.
func (l *ledger) expire(id int64) {
	l.mu.Lock()
	l.expired[id] = true
	for _, s := range l.ens.Sessions() {
		for _, path := range s.Ephemerals {
			if s.ID == id {
				l.owned[path] = id
			}
		}
	}
	seq := l.nextLocked()
	for _, r := range l.resources {
		r.last = time.Now()
		for _, t := range r.holdings {
			if t.session == id {
				l.endsLocked(t, seq)
			}
		}
	}
	l.mu.Unlock()
	err := l.ens.ExpireSession(id)
	l.log("expire %#x: %v", id, err)
}

// remove records that somebody else is about to remove a znode. It may be
// removed until done is called.
func (l *ledger) remove(path string) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq := l.nextLocked()
	l.removed[path] = removal{cmp.Or(l.removed[path].seq, seq), time.Now().Add(operatorPatience)}
	l.logLocked("somebody else removes %s", path)
	for _, r := range l.resources {
		r.last = time.Now()
		for _, t := range r.holdings {
			if t.path == path {
				l.endsLocked(t, seq)
			}
		}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.removed[path] = removal{l.removed[path].seq, time.Now()}
	}
}

// holds reports whether a znode is that of a holding.
func (l *ledger) holds(path string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.resources {
		if slices.ContainsFunc(r.holdings, func(t *holding) bool { return t.path == path }) {
			return true
		}
	}
	return false
}

// jump records that the clients' clock jumps.
func (l *ledger) jump() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jumped = true
}

// close records that a client is about to be closed while its workers work.
func (l *ledger) close(client int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq := l.nextLocked()
	l.logLocked("close client %d", client)
	l.endAllLocked(client, seq)
}

// endAllLocked ends what a client holds, and what it believes.
func (l *ledger) endAllLocked(client int, seq int64) {
	l.closed[client] = true
	for _, r := range l.resources {
		r.last = time.Now()
		for _, t := range r.holdings {
			if t.who.client == client {
				l.endsLocked(t, seq)
			}
		}
	}
}

// closeFor records that a guardian begins to close the sessions of a killed
// client, which holds and believes nothing any more.
func (l *ledger) closeFor(client int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closedFor[client] = true
	l.endAllLocked(client, l.nextLocked())
	for _, r := range l.resources {
		l.starvedLocked(r, true)
	}
}

// kill records that a client is killed: its waiters wait for nothing.
func (l *ledger) kill(client int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLocked()
	l.logLocked("kill client %d", client)
	l.killed[client] = true
	for _, r := range l.resources {
		for k := range r.waiting {
			if k.client == client {
				delete(r.waiting, k)
			}
		}
		l.starvedLocked(r, true)
	}
}

// client records a change of a client's state.
func (l *ledger) client(client int, s framework.StateChange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.Session != 0 { // what is owned by 0 is persistent
		l.clients[s.Session] = client
	}
	l.nextLocked()
	l.logLocked("client %d: %v, session %#x: %v", client, s.To, s.Session, s.Err)
}

// settle records that from d on nothing may be late.
func (l *ledger) settle(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled = time.Now().Add(d)
	l.logLocked("all faults are over; settled at %v", l.settled.Sub(l.begin))
}

// finish adds the ends that no event has shown, and runs the checks of the
// whole history.
func (l *ledger) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.resources {
		ended := make(map[int]bool)
		for _, o := range r.ops {
			ended[o.in.id] = ended[o.in.id] || o.in.kind == end
		}
		for _, t := range r.holdings {
			if !ended[t.id] && t.ends > 0 {
				r.ops = append(r.ops, op{who: t.who, in: input{kind: end, id: t.id}, call: t.ends, ret: never})
			}
		}
		l.fencedLocked(r)
	}
}
