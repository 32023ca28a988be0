package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Plan is all of a run that is not left to Go's scheduler, and to the random pauses
// and ids of the library itself. It is drawn from one seed.
type Plan struct {
	Seed    uint64
	Storm   Storm
	Recipe  Recipe
	Members int
	Tick    time.Duration
	Timeout time.Duration // of the sessions
	Latency time.Duration
	Reap    time.Duration // how often empty containers are removed
	Proof   framework.Proof
	Policy  framework.ErrorPolicy
	Endless bool          // the retry policy never ends
	Brief   bool          // or is used up soon
	Rates   []float64     // of the members' clocks beside those of the clients, session by session; none: the same
	Asks    bool          // what is known is asked of Held too, not of Lost alone
	MaxHold time.Duration // 0: none
	Limit   int           // of the semaphore
	// Handover and Linger are those of the recipes that have them; negative: by default.
	Handover int
	Linger   time.Duration
	Workers  [][][]Step    // by client and goroutine
	Views    []bubble.View // by client; none: all see the ensemble as it is
	Faults   []Fault       // in order
}

// Recipe is what the workers contend for.
type Recipe string

// The recipes, and the ways in which they are used.
const (
	Mutex     Recipe = "mutex"
	Keyed     Recipe = "keyed"
	All       Recipe = "all"
	RWLock    Recipe = "rwlock"
	Semaphore Recipe = "semaphore"
	Election  Recipe = "election"
	Campaign  Recipe = "campaign" // the election's Run
)

// Storm is the kind of weather.
type Storm string

// The weathers.
const (
	Calm     Storm = "calm"     // nothing fails, and nobody leaves
	Rush     Storm = "rush"     // nothing fails, nobody leaves, and all come at once
	Leavers  Storm = "leavers"  // nothing fails, but callers leave at any instant
	Surgery  Storm = "surgery"  // single requests fail
	Networks Storm = "networks" // clients are cut off
	Members  Storm = "members"  // members fail
	Mixed    Storm = "mixed"
)

// quiet reports whether nothing fails, so that nothing may be lost.
func (s Storm) quiet() bool { return s == Calm || s == Rush || s == Leavers }

// Step is one acquisition by one goroutine.
type Step struct {
	Warm     int           // so many without work are before, back to back
	Pause    time.Duration // before
	Side     int           // the key; or 0 to read and 1 to write; or the permits
	Try      bool
	Cancel   time.Duration // the caller leaves after; 0: it stays
	On       testutil.Op   // the caller leaves when its client asks for this
	Nth      int           // for the nth time; 0: it does not
	OnBy     time.Duration // and so long after
	Answered bool          // or when it has been answered
	Yields   int           // letting so many others go first, at the same instant
	Work     time.Duration
	Heedless bool          // it works on when the lease is lost
	Late     time.Duration // it writes so long after a loss, or after the release; 0: it does not
	Early    bool          // with a guard from before
	Writes   int           // guarded writes while it works
	Twice    bool          // each of them at once once more
	Hasty    time.Duration // it gives a write up after, and the lease; 0: it does not
	Behind   bool          // one more write is under way when it releases
	Nest     []Nest        // under the lease
	NestLate bool          // not at once
	First    bool          // the outermost lease is released first, not last
	Bound    time.Duration // of the wait for the release; 0: none
	SetMax   int           // the semaphore's limit is set before; 0: it is not
}

// Nest is an acquisition under a lease.
type Nest string

// The acquisitions under a lease.
const (
	Again Nest = "again" // the same once more
	Down  Nest = "down"  // to read under a write, which is released first
	Up    Nest = "up"    // to write under a read, which must be refused
)

// Fault is something that goes wrong, for a while.
type Fault struct {
	At, For time.Duration
	What    What
	Client  int
	Member  int
	Op      testutil.Op   // of single requests
	N       int           // how many of them
	Upon    bool          // not before a client is told that something was written, which is the client then; and not if that takes long
	Near    bool          // the member is the one that the client is connected to
	Then    time.Duration // the client is cut off after, too; 0: it is not
	By      time.Duration // how late
	Short   int           // how many numbers the new directory is behind the old one; negative: it is not made
}

// What goes wrong.
type What string

// The faults.
const (
	Cut       What = "cut"
	Deaf      What = "deaf" // nothing reaches the client
	Dumb      What = "dumb" // nothing reaches the members
	Drop      What = "drop"
	Late      What = "late"   // everything that the client is told
	Expire    What = "expire" // by an operator
	Close     What = "close"  // the client
	Kill      What = "kill"   // the client's process
	Stop      What = "stop"
	StopFirst What = "stop leader"
	Pause     What = "pause"
	Isolate   What = "isolate"
	Lag       What = "lag"
	Mute      What = "mute"
	Wedge     What = "wedge"
	Slow      What = "slow" // every message
	Before    What = "drop before"
	After     What = "drop after"
	Refuse    What = "refuse"
	Delay     What = "delay"
	DelayAns  What = "delay answer"
	Orphan    What = "orphan"              // executed when the connection is gone, and nobody waits for it
	Coup      What = "coup"                // the leader stops while a request is under way
	CoupAfter What = "coup late"           // the leader stops when it is executed, before it is answered
	Anew      What = "anew"                // the directory is removed, and made again
	AnewUnder What = "anew under a create" // while a create of the client is under way
)

// draw is a plan in the making.
type draw struct {
	*rand.Rand
	*Plan
}

// Draw makes the plan of a seed.
func Draw(seed uint64) *Plan {
	d := &draw{rand.New(rand.NewPCG(seed, 0)), &Plan{Seed: seed}}
	d.Recipe = pick(d, Mutex, Mutex, Mutex, Keyed, All, RWLock, RWLock, RWLock, Semaphore, Semaphore, Semaphore, Election, Campaign)
	d.Storm = pick(d, Calm, Rush, Leavers, Leavers, Surgery, Surgery, Surgery, Networks, Networks, Members, Members, Mixed, Mixed)
	d.Members = pick(d, 1, 3, 3)
	if d.Storm == Members {
		d.Members = 3
	}
	d.Timeout = pick(d, 4*time.Second, 5*time.Second, 6*time.Second)
	// Sessions last until a whole tick: how much longer than their time-out differs.
	d.Tick = (d.Timeout * 100 / pick[time.Duration](d, 200, 249, 249, 299, 299, 390, 895)).Truncate(time.Millisecond)
	d.Latency = pick(d, 0, time.Millisecond, 3*time.Millisecond, 20*time.Millisecond)
	d.Reap = pick(d, time.Second, time.Minute)
	d.Proof = pick(d, framework.ProofSync, framework.ProofSync, framework.ProofWrite)
	d.Policy = pick(d, framework.ErrorPolicySession, framework.ErrorPolicySession, framework.ErrorPolicyConnection)
	d.Endless, d.Brief = d.one(3, 5), d.one(1, 2)
	d.Asks = d.one(1, 2)
	d.Limit = 1 + d.IntN(3)
	if d.Storm == Leavers {
		d.Limit = 2 + d.IntN(2) // one may leave who is in the way of another
	}
	if !d.Storm.quiet() && d.one(1, 3) {
		d.Tick = d.Timeout / 32 // or it would make up for the difference
		for range 3 {
			d.Rates = append(d.Rates, pick(d, 0.9, 1.1, 1.1))
		}
	}
	if !d.Storm.quiet() && d.Recipe != All && d.one(1, 6) { // it has no time to wait for the others
		d.MaxHold = d.upTo(d.Timeout / 2)
	}
	d.Handover = pick(d, -1, -1, 0, 1, 2)
	if d.Storm != Rush && d.one(1, 3) {
		d.Linger = d.upTo(time.Second)
	}
	d.workers()
	d.faults()
	d.remakes()
	d.views()
	return d.Plan
}

func pick[T any](d *draw, from ...T) T { return from[d.IntN(len(from))] }

func (d *draw) one(n, of int) bool { return d.IntN(of) < n }

func (d *draw) upTo(most time.Duration) time.Duration {
	return 1 + time.Duration(d.Int64N(int64(most)))
}

// instant is a time at which something may be under way: a few messages after the
// beginning, to the nanosecond or about.
func (d *draw) instant() time.Duration {
	if d.Latency == 0 || d.one(1, 4) {
		return d.upTo(50 * time.Millisecond)
	}
	return max(1, time.Duration(d.IntN(16))*d.Latency+time.Duration(d.IntN(3)-1))
}

func (d *draw) workers() {
	clients, goroutines, steps := 2+d.IntN(2), 1+d.IntN(3), 1+d.IntN(3)
	if d.Storm == Rush {
		clients, goroutines, steps = 6, 1, 2
	}
	for range clients {
		var client [][]Step
		for range goroutines {
			var worker []Step
			for range steps {
				worker = append(worker, d.step())
			}
			client = append(client, worker)
		}
		d.Workers = append(d.Workers, client)
	}
}

func (d *draw) step() Step {
	s := Step{Pause: d.upTo(2 * time.Second), Work: d.upTo(500 * time.Millisecond), Writes: d.IntN(3)}
	switch d.Recipe {
	case Keyed:
		s.Side = d.IntN(2)
	case All:
		s.Side = d.IntN(3)
	case RWLock:
		s.Side = d.IntN(2)
	case Semaphore:
		s.Side = 1 + d.IntN(d.Limit)
		if d.one(1, 8) {
			s.SetMax = 1 + d.IntN(3)
		}
	}
	if d.Storm == Rush {
		s.Pause = time.Millisecond
		s.Side, s.SetMax = min(s.Side, 1), 0 // each permit that is given back is looked at
		return s
	}
	if d.one(1, 3) {
		s.Pause = d.instant()
	}
	s.Try = d.one(1, 8)
	if !d.Storm.quiet() || d.Storm == Leavers {
		switch {
		case d.one(1, 4):
			s.Cancel = d.instant()
		case d.one(1, 6), d.Storm == Leavers && d.one(1, 4):
			s.Cancel = d.upTo(2 * d.Timeout)
		}
		if d.one(1, 3) { // just when it is executed, or answered
			s.On = pick(d, testutil.OpCreate, testutil.OpGetChildren2, testutil.OpGetChildren2, testutil.OpGetData)
			if d.Recipe == Semaphore {
				s.On = pick(d, s.On, testutil.OpMulti)
			}
			s.Answered, s.Yields = d.one(2, 3), d.IntN(1<<d.IntN(9))
			s.Nth, s.OnBy = 1+d.IntN(3), pick(d, d.Latency, 2*d.Latency, 2*d.Latency, 2*d.Latency, max(0, 2*d.Latency-1), 2*d.Latency+1)
		}
		if d.one(1, 6) {
			s.Bound = d.instant()
		}
	}
	if !d.Storm.quiet() || d.Storm == Leavers {
		if d.one(1, 4) {
			s.Hasty = d.instant()
		}
		s.Behind = d.one(1, 6)
	}
	s.Twice = d.one(1, 4)
	s.nest(d)
	s.First, s.NestLate = d.one(1, 2), d.one(1, 2)
	if d.one(1, 4) || (d.Storm == Leavers || d.Storm == Networks || d.Storm == Members) && d.one(1, 3) {
		s.Work = d.upTo(3 * d.Timeout)
	}
	if d.Storm.quiet() {
		if d.one(1, 4) {
			s.Late, s.Early = d.instant(), true
		}
		return s
	}
	s.Heedless = d.one(1, 4)
	if d.one(1, 2) {
		s.Late, s.Early = d.upTo(2*d.Timeout), d.one(2, 3)
	}
	return s
}

func (s *Step) nest(d *draw) {
	switch {
	case d.Recipe == RWLock && s.Side == 0:
		for d.one(1, 3) {
			s.Nest = append(s.Nest, pick(d, Again, Up))
		}
	case d.Recipe == RWLock:
		for d.one(1, 3) {
			s.Nest = append(s.Nest, Again)
		}
		if d.one(1, 2) {
			s.Nest = append(s.Nest, Down)
		}
	case d.Recipe == Mutex:
		for d.one(1, 3) {
			s.Nest = append(s.Nest, Again)
		}
	}
}

func (d *draw) faults() {
	var from []What
	surgery := []What{Before, After, After, Refuse, Delay, DelayAns, Orphan, Orphan, Coup, CoupAfter}
	networks := []What{Cut, Cut, Deaf, Dumb, Drop, Drop, Late, Expire, Slow}
	members := []What{Stop, StopFirst, StopFirst, Pause, Isolate, Isolate, Lag, Lag, Mute, Wedge, Coup}
	switch d.Storm {
	case Surgery:
		from = surgery
	case Networks:
		from = networks
	case Members:
		from = members
	case Mixed:
		from = append(append(append(from, surgery...), networks...), members...)
		from = append(from, Close, Kill)
	default:
		return
	}
	at := time.Duration(0)
	for range 1 + d.IntN(6) {
		at += d.upTo(d.Timeout)
		f := Fault{
			At: at, For: d.upTo(2 * d.Timeout), What: pick(d, from...),
			Client: d.IntN(len(d.Workers)), Member: d.IntN(d.Members),
			Op: d.op(),
			N:  1 + d.IntN(3), By: d.upTo(d.Timeout / 2),
		}
		if d.one(1, 2) {
			f.By = d.instant()
		}
		if d.Storm == Surgery { // they wait for their requests
			f.At, f.For = d.upTo(4*time.Second), 5*time.Second
		}
		switch f.What {
		case Orphan:
			f.Op, f.By = pick(d, testutil.OpCreate, testutil.OpMulti, testutil.OpMulti), d.upTo(d.Timeout/2)
		case Drop:
			if d.one(1, 2) { // and is lost again when it has come back
				f.Then = d.upTo(d.Timeout / 2)
				f.For = f.Then + d.Timeout + d.upTo(d.Timeout)
			}
		case Isolate:
			f.Near = d.one(2, 3)
			f.For = d.Timeout + d.upTo(d.Timeout) // until sessions are over that it still answers
			if d.one(2, 3) {                      // unless it has gone to another member by then
				f.Then = d.upTo(d.Timeout / 2)
				f.For += f.Then
			}
		case Late, Slow, Lag, Wedge, Mute, Pause:
			f.Near = d.one(2, 3)
			if d.one(1, 2) { // just when it may know more than is true
				f.Then = d.upTo(d.Timeout)
				f.For = f.Then + d.Timeout + d.upTo(d.Timeout)
			}
		}
		switch f.What {
		case Cut, Deaf, Dumb, Drop, Late, Isolate, Lag, Pause, Mute, Wedge:
			f.Upon = d.one(1, 3)
		}
		d.Faults = append(d.Faults, f)
	}
}

// op is a request of those that matter.
func (d *draw) op() testutil.Op {
	if d.Recipe == Semaphore && d.one(1, 2) {
		return testutil.OpMulti
	}
	return pick(d, testutil.OpCreate, testutil.OpCreate, testutil.OpGetChildren2, testutil.OpGetData, testutil.OpDelete,
		testutil.OpDelete, testutil.OpMulti, testutil.OpMulti, testutil.OpSync, testutil.OpSetWatches, testutil.OpCreateSession)
}

// String is the plan in words.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s, %s; %d members, tick %v, time-out %v, latency %v, containers every %v, proof %v, policy %v, endless %v, brief %v, rates %.2f, asks %v, longest hold %v, limit %d, handover %d, linger %v, views %q\n",
		p.Seed, p.Recipe, p.Storm, p.Members, p.Tick, p.Timeout, p.Latency, p.Reap, p.Proof, p.Policy, p.Endless, p.Brief, p.Rates, p.Asks, p.MaxHold, p.Limit, p.Handover, p.Linger, p.Views)
	for c, client := range p.Workers {
		for g, steps := range client {
			fmt.Fprintf(&b, "  worker %d.%d\n", c, g)
			for _, s := range steps {
				fmt.Fprintf(&b, "    %+v\n", s)
			}
		}
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  at %v for %v: %s, client %d, member %d, near %v, upon a write %v, %d of %v, by %v, cut after %v, short %d\n", f.At, f.For, f.What, f.Client, f.Member, f.Near, f.Upon, f.N, f.Op, f.By, f.Then, f.Short)
	}
	return b.String()
}
