package sim

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// ledger is the history of a run, in one order, and what is checked while it is
// written: who holds, by anybody's knowledge.
type ledger struct {
	plan  *Plan
	ens   *testutil.Embedded
	begin time.Time

	mu        sync.Mutex // guards what follows
	seq       int64
	resources map[string]*resource
	expired   map[int64]bool // sessions that an operator has ended
	closed    map[int]bool   // clients
	killed    map[int]bool
	clients   map[int64]int // by their sessions
	settled   time.Time     // from then on nothing is late any more; zero: not yet
	wrong     []string
	trace     []string
	limit     int // of the semaphore, as far as is known
	grants    int
	losses    int
	longest   time.Duration
}

// resource is one thing that is contended for.
type resource struct {
	path    string
	dirs    []string      // of the znodes in line
	data    string        // what guarded writes are made to
	limit   int           // of a semaphore; 0: none
	highest recipes.Token // of all grants, and of the exclusive ones
	alone   recipes.Token
	last    time.Time // when something happened by which somebody may be granted
	waiting map[who]want
	idle    time.Time // since when all who wait could be granted, and nobody is; zero: not so
	tenures []*tenure
	ops     []op
}

// tenure is what is held from a grant to its end, with all that re-enters it.
type tenure struct {
	id      int
	znode   int // the first tenure that had the same
	of      *resource
	who     who
	shared  bool
	permits int
	root    *tenure // under which it was granted, or itself
	leases  []*recipes.Lease
	lease   *recipes.Lease // the first
	client  *framework.Client
	path    string
	session int64
	since   time.Time
	token   recipes.Token
	claimed time.Time // the latest deadline that it has named
	lost    bool
	left    bool  // nobody believes in it any more
	gone    bool  // its release has returned
	ends    int64 // when it may first have ended; 0: not yet
}

// want is what somebody waits for, and whom it saw pass.
type want struct {
	shared  bool
	permits int
	since   time.Time
	client  int // the latest who was granted
	passed  int // how often in a row
}

func (w want) String() string {
	if w.shared {
		return "shared"
	}
	if w.permits == 0 {
		return "alone"
	}
	return fmt.Sprintf("%d permits", w.permits)
}

type who struct{ client, goroutine int }

func (w who) String() string { return fmt.Sprintf("%d.%d", w.client, w.goroutine) }

func (l *ledger) nextLocked() int64 {
	l.seq++
	return l.seq
}

func (l *ledger) logLocked(format string, args ...any) {
	l.trace = append(l.trace, fmt.Sprintf("%4d %12v  ", l.seq, time.Since(l.begin))+fmt.Sprintf(format, args...))
}

func (l *ledger) wrongLocked(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
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

// call is the beginning of something.
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

// waits notes that somebody begins to wait.
func (l *ledger) waits(w who, of []*resource, wanted want) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.killed[w.client] {
		return
	}
	wanted.since = time.Now()
	for _, r := range of {
		r.waiting[w] = wanted
		l.starvedLocked(r, false)
	}
}

// starvedLocked checks that nobody waits for long who could be granted, as it is when
// a wake-up is lost: whatever happens next may be what wakes it. Something that
// happened by which anybody may be granted begins the time anew.
func (l *ledger) starvedLocked(r *resource, happened bool) {
	now := time.Now()
	if happened {
		r.last = now
	}
	switch {
	case l.settled.IsZero() || now.Before(l.settled) || l.plan.Recipe == Campaign || l.plan.Recipe == All:
		return
	case !l.freeLocked(r):
		r.idle = time.Time{}
	case r.idle.IsZero() || happened:
		r.idle = now
	case now.Sub(r.idle) > l.patience():
		l.wrongLocked("%v wait for %s for %v, and could be granted", r.waiting, r.path, now.Sub(r.idle))
		r.idle = now
	}
}

// passedLocked checks that no client hands over at home more often than it may while
// another one waits.
func (l *ledger) passedLocked(t *tenure) {
	p := l.plan
	if p.Recipe != Mutex && p.Recipe != Keyed || p.Handover < 0 || l.settled.IsZero() || time.Now().Before(l.settled) {
		return
	}
	for k, w := range t.of.waiting {
		// It takes some messages to get into the line, and to be noticed there.
		if time.Since(w.since) < 20*p.Latency+time.Millisecond {
			continue
		}
		if w.client != t.who.client {
			w.client, w.passed = t.who.client, 0
		}
		w.passed++
		if k.client != t.who.client && w.passed > p.Handover+2 { // the first, and one that was on its way
			l.wrongLocked("client %d was granted %d times in a row while %v waited", t.who.client, w.passed, k)
		}
		t.of.waiting[k] = w
	}
}

// joinedLocked checks that no reader joins those who hold already while a writer of
// another client stands in line.
func (l *ledger) joinedLocked(c call, t *tenure) {
	p := l.plan
	if p.Recipe != RWLock || !p.Storm.quiet() || !t.shared || t.root != t {
		return
	}
	for k, w := range t.of.waiting {
		if w.shared || k.client == t.who.client || c.at.Sub(w.since) < 20*p.Latency+time.Millisecond {
			continue
		}
		for _, o := range t.of.tenures {
			if o.path == t.path && o.since.Before(w.since) {
				l.wrongLocked("%v joined %v, while %v waited to write", t, o, k)
				return
			}
		}
	}
}

// freeLocked reports whether whoever is next could be granted, if anybody waits. Who
// that is, is known of a semaphore, whose line is for its first alone; of the others
// all must be able to.
func (l *ledger) freeLocked(r *resource) bool {
	next, first := 0, -1
	if r.limit > 0 {
		first = l.firstLocked(r)
	}
	most, shared := 0, true
	for k, w := range r.waiting {
		if first >= 0 && k.client != first {
			continue
		}
		next++
		most, shared = max(most, w.permits), shared && w.shared
	}
	if next == 0 {
		return false
	}
	for _, t := range r.tenures {
		if t.gone {
			continue
		}
		if r.limit == 0 && !(shared && t.shared) {
			return false
		}
		most += t.permits
	}
	return r.limit == 0 || most <= l.limit
}

// firstLocked is the client that is first in a semaphore's line, negative if nobody
// is known to be.
func (l *ledger) firstLocked(r *resource) int {
	first := ""
	for _, name := range l.ens.Children(r.dirs[0]) {
		if first == "" || name[len(name)-10:] < first[len(first)-10:] {
			first = name
		}
	}
	stat, ok := l.ens.Stat(r.dirs[0] + "/" + first)
	if client, known := l.clients[stat.EphemeralOwner]; ok && known {
		return client
	}
	return -1
}

// failed is the end of an acquisition that was not granted.
func (l *ledger) failed(w who, of []*resource, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLocked()
	l.logLocked("%v: not granted: %v", w, err)
	for _, r := range of {
		delete(r.waiting, w)
		l.starvedLocked(r, true)
	}
}

// granted notes a grant, and looks at what all the others believe.
func (l *ledger) granted(c call, t *tenure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookLocked() // what was lost before is to stand before
	r, now := t.of, time.Now()
	t.path, t.token, t.leases, t.since = t.lease.Path(), t.lease.Token(), []*recipes.Lease{t.lease}, now
	if t.root == nil {
		t.root = t
	}
	stat, there := l.ens.Stat(t.path)
	t.session = stat.EphemeralOwner
	if s, err := t.client.Session(); !there && err == nil {
		t.session = s.ID() // it may have been expired since
	}
	seq := l.nextLocked()
	t.id = len(r.tenures)
	l.logLocked("%v: granted %s #%d %s, token %v, session %#x", t.who, r.path, t.id, t.mode(), t.token, t.session)
	known := l.knownLocked(t) && !l.voidLocked(t)
	p := l.plan
	if !l.knownLocked(t) && !l.voidLocked(t) && !l.closed[t.who.client] && p.Policy == framework.ErrorPolicyStandard && p.MaxHold == 0 {
		l.wrongLocked("%v was granted what is not held: %v", t, t.lease.Err())
	}
	l.tokensLocked(t, known, there, stat.Czxid)
	if wait := l.lateLocked(c, r, now); wait > 0 && t.root == t {
		l.longest = max(l.longest, wait)
		if wait > l.patience() {
			l.wrongLocked("%v was granted %v after anything that it may have waited for", t.who, wait)
		}
	}
	if l.expired[t.session] || l.closed[t.who.client] { // before it was heard of
		t.ends = c.seq
	}
	t.znode = r.znode(t)
	r.tenures = append(r.tenures, t)
	r.ops = append(r.ops, op{who: t.who, in: input{kind: acquire, id: t.id, root: t.root.id, znode: t.znode, shared: t.shared, permits: t.permits, token: t.token, order: known}, call: c.seq, ret: seq})
	delete(r.waiting, t.who)
	l.passedLocked(t)
	l.joinedLocked(c, t)
	l.starvedLocked(r, true)
	l.grants++
	l.lookLocked()
}

// znode is the first tenure that had the znode of t.
func (r *resource) znode(t *tenure) int {
	for _, o := range r.tenures {
		if o.path == t.path {
			return o.id
		}
	}
	return t.id
}

// patience is how long a grant may take that nothing is in the way of.
func (l *ledger) patience() time.Duration { return 2*time.Second + 30*l.plan.Latency }

// lateLocked is how long a grant took since the last thing that it may have waited for.
func (l *ledger) lateLocked(c call, r *resource, now time.Time) time.Duration {
	if l.settled.IsZero() || now.Before(l.settled) || l.plan.Recipe == Campaign || l.plan.Recipe == All {
		return 0
	}
	since := l.settled
	for _, t := range []time.Time{c.at, r.last} {
		if t.After(since) {
			since = t
		}
	}
	return now.Sub(since)
}

// tokensLocked checks the fencing token of a grant.
func (l *ledger) tokensLocked(t *tenure, known, there bool, czxid int64) {
	r := t.of
	switch {
	case r.limit > 0: // a semaphore's tokens order nothing
		return
	case t.root != t:
		if t.token != t.root.token {
			l.wrongLocked("%v under %v has token %v", t, t.root, t.token)
		}
		return
	}
	if there && zxid(t.token) < czxid {
		l.wrongLocked("%v has a token from before its own znode, %x", t, czxid)
	}
	for _, o := range r.tenures {
		if o.root == o && !o.shared && !t.shared && o.token == t.token {
			l.wrongLocked("%v has the token of %v", t, o)
		}
	}
	if known {
		before := r.highest
		if t.shared { // others who share may have the same, or a later one
			before = r.alone
		}
		if t.token.Compare(before) <= 0 {
			l.wrongLocked("%v has a token that is not above %v", t, before)
		}
		r.highest = later(r.highest, t.token)
		if !t.shared {
			r.alone = later(r.alone, t.token)
		}
	}
}

func later(a, b recipes.Token) recipes.Token {
	if a.Compare(b) > 0 {
		return a
	}
	return b
}

// zxid is the transaction in a token.
func zxid(t recipes.Token) int64 {
	n, _ := strconv.ParseInt(t.String()[:16], 16, 64)
	return n
}

// again notes that a tenure was entered once more.
func (l *ledger) again(t *tenure, lease *recipes.Lease) {
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

// leaving notes that a lease is about to be released: with the last one nobody
// believes in the tenure any more.
func (l *ledger) leaving(t *tenure, lease *recipes.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq := l.nextLocked()
	l.lookLocked()
	t.leases = slices.DeleteFunc(t.leases, func(o *recipes.Lease) bool { return o == lease })
	l.logLocked("%v: leaves, %d left", t, len(t.leases))
	if len(t.leases) == 0 {
		t.left = true
		l.endsLocked(t, seq)
		// Where messages take no time the next may be granted before the release returns.
		l.starvedLocked(t.of, true)
	}
}

func (l *ledger) endsLocked(t *tenure, seq int64) {
	if t.ends == 0 {
		t.ends = seq
	}
}

// released notes the result of the release of a tenure's last lease.
func (l *ledger) released(t *tenure, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ret := l.nextLocked()
	l.logLocked("%v: released: %v", t, err)
	t.gone = true
	l.starvedLocked(t.of, true)
	if err != nil {
		ret = never
	} else if t.lost && !l.closed[t.who.client] {
		l.wrongLocked("%v was lost, and its release has succeeded", t)
	}
	t.of.ops = append(t.of.ops, op{who: t.who, in: input{kind: end, id: t.id}, call: t.ends, ret: ret})
}

// lost reports whether a tenure was lost, as far as anybody has noticed.
func (l *ledger) lost(t *tenure) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.knownLocked(t) && t.lost
}

// knownLocked reports whether somebody believes to hold.
func (l *ledger) knownLocked(t *tenure) bool {
	if t.left {
		return false
	}
	held := false
	for _, lease := range t.leases {
		select {
		case <-lease.Lost():
		default:
			held = held || !l.plan.Asks || lease.Held()
		}
	}
	if !held && !t.lost {
		t.lost = true
		l.losses++
		seq := l.nextLocked()
		l.endsLocked(t, seq)
		t.of.last = time.Now()
		l.logLocked("%v: lost: %v", t, t.lease.Err())
		if l.plan.Storm.quiet() {
			l.wrongLocked("%v was lost, and nothing has failed: %v", t, t.lease.Err())
		}
	}
	return held
}

// voidLocked reports whether an operator has ended the tenure's session, against
// which no clock helps: until its client knows.
func (l *ledger) voidLocked(t *tenure) bool {
	if !l.expired[t.session] {
		return false
	}
	s, err := t.client.Session()
	return err != nil || s.ID() == t.session || t.lost
}

// occupiesLocked reports whether a tenure keeps others out: somebody believes in
// it, or was told that nobody else would be granted until later than now.
func (l *ledger) occupiesLocked(t *tenure, now time.Time) (occupies, known bool) {
	known = l.knownLocked(t)
	if t.left || l.closed[t.who.client] || l.voidLocked(t) {
		return false, false
	}
	if deadline := t.lease.Deadline(); deadline.After(t.claimed) {
		t.claimed = deadline
	}
	return known || l.plan.Rates == nil && now.Before(t.claimed), known
}

// look checks what is believed now.
func (l *ledger) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookLocked()
}

func (l *ledger) lookLocked() {
	now := time.Now()
	for _, r := range l.resources {
		var held []*tenure
		for _, t := range r.tenures {
			occupies, known := l.occupiesLocked(t, now)
			if !occupies {
				continue
			}
			// It was asked first: the ensemble may end it at any moment after that.
			if stat, ok := l.ens.Stat(t.path); !ok || stat.EphemeralOwner != t.session {
				l.wrongLocked("%v: known %v, until %v, but its znode is gone", t, known, t.claimed.Sub(l.begin))
				t.left = true // once is enough
				continue
			}
			held = append(held, t)
		}
		l.excludeLocked(r, held)
		l.starvedLocked(r, false)
	}
}

// excludeLocked checks who holds at the same time.
func (l *ledger) excludeLocked(r *resource, held []*tenure) {
	sum := 0
	for i, a := range held {
		sum += a.permits
		for _, b := range held[:i] {
			if r.limit == 0 && (!a.shared || !b.shared) && a.root != b.root {
				l.wrongLocked("%v holds beside %v", a, b)
				a.left = true
			}
		}
	}
	if r.limit > 0 && sum > r.limit {
		l.wrongLocked("%d permits are held of %d: %v", sum, r.limit, held)
		held[0].left = true
	}
}

func (t *tenure) mode() string {
	switch {
	case t.permits > 0:
		return fmt.Sprint(t.permits, " permits")
	case t.shared:
		return "shared"
	}
	return "exclusive"
}

func (t *tenure) String() string {
	return fmt.Sprintf("%v #%d (%s, token %v)", t.who, t.id, t.mode(), t.token)
}

// wrote notes a guarded write that was, or may have been, applied.
func (l *ledger) wrote(c call, t *tenure, version int32, zxid int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ret := l.nextLocked()
	l.logLocked("%v: wrote version %d at %x: %v", t, version, zxid, err)
	switch {
	case err == nil:
		t.of.ops = append(t.of.ops, op{who: t.who, in: input{kind: write, id: t.id, znode: t.znode, shared: t.shared, version: version, zxid: zxid}, call: c.seq, ret: ret})
	case framework.MaybeApplied(err):
		t.of.ops = append(t.of.ops, op{who: t.who, in: input{kind: write, id: t.id, znode: t.znode, shared: t.shared, unknown: true}, call: c.seq, ret: never})
	}
}

// limited notes that a semaphore's limit was set, or may have been.
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

// expire has an operator end a session.
func (l *ledger) expire(id int64) {
	l.mu.Lock()
	l.expired[id] = true
	seq := l.nextLocked()
	for _, r := range l.resources {
		r.last = time.Now()
		for _, t := range r.tenures {
			if t.session == id {
				l.endsLocked(t, seq)
			}
		}
	}
	l.mu.Unlock()
	err := l.ens.ExpireSession(id)
	l.log("expire %#x: %v", id, err)
}

// close notes that a client is about to be closed, which waits for nobody's work.
func (l *ledger) close(client int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq := l.nextLocked()
	l.logLocked("close client %d", client)
	l.closed[client] = true
	for _, r := range l.resources {
		r.last = time.Now()
		for _, t := range r.tenures {
			if t.who.client == client {
				l.endsLocked(t, seq)
			}
		}
	}
}

// kill notes that a client is killed: what waits in it waits for nothing.
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

// client notes a change of a client's state.
func (l *ledger) client(client int, s framework.StateChange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clients[s.Session] = client
	l.nextLocked()
	l.logLocked("client %d: %v, session %#x: %v", client, s.To, s.Session, s.Err)
}

// settle notes that from d on nothing is late any more.
func (l *ledger) settle(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled = time.Now().Add(d)
	l.logLocked("all faults are over; settled at %v", l.settled.Sub(l.begin))
}

// finish adds the ends that nobody has noted, and checks what only the whole shows.
func (l *ledger) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.resources {
		ended := make(map[int]bool)
		for _, o := range r.ops {
			ended[o.in.id] = ended[o.in.id] || o.in.kind == end
		}
		for _, t := range r.tenures {
			if !ended[t.id] && t.ends > 0 {
				r.ops = append(r.ops, op{who: t.who, in: input{kind: end, id: t.id}, call: t.ends, ret: never})
			}
		}
		l.fencedLocked(r)
	}
}

// fencedLocked checks that nobody wrote, guarded, after a later holder's grant.
func (l *ledger) fencedLocked(r *resource) {
	if r.limit > 0 {
		return
	}
	for _, o := range r.ops {
		if o.in.kind != write || o.in.unknown {
			continue
		}
		w := r.tenures[o.in.id]
		for _, t := range r.tenures {
			if t.root == t && !t.shared && zxid(t.token) > zxid(w.token) && o.in.zxid >= zxid(t.token) {
				l.wrongLocked("%v wrote at %x, after %v was granted", w, o.in.zxid, t)
			}
		}
	}
}
