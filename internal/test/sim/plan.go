package sim

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Plan is everything about a run that does not depend on Go's scheduler and on
// the library's random pauses and ids. It is drawn from one seed.
type Plan struct {
	Seed       uint64
	Scenario   Scenario
	Recipe     Recipe
	Members    int
	Tick       time.Duration
	Timeout    time.Duration // of the sessions
	Latency    time.Duration
	Servers    []Server      // what members differ in; none: nothing
	Hop        bool          // member 0 is behind member 1
	Reports    time.Duration // how long members' questions and reports take at most
	ServerTick time.Duration // WithServerTick; 0: not used
	HasMargin  bool          // WithStopMargin is used
	Margin     time.Duration
	Reap       time.Duration // how often empty containers are removed
	Proof      framework.Proof
	Policy     framework.ErrorPolicy
	Endless    bool          // the retry policy never gives up
	Brief      bool          // the retry policy gives up soon
	Rates      []float64     // of the members' clocks relative to the clients', session by session; none: the same
	Asks       bool          // checks ask Held too, and not Lost alone
	MaxHold    time.Duration // 0 for none
	Limit      int           // of the semaphore, or how many members a round has
	// Handoffs and Linger are options of the recipes that have them; negative
	// means the default.
	Handoffs    int
	Linger      time.Duration
	Kazoo       bool          // the read/write lock is in Kazoo's layout, and clients of odd numbers write under a mutex of that
	Async       bool          // releases do not wait for the answer
	Alone       bool          // each write is a request of its own: framework.WithBatching
	OneShotOnly bool          // members refuse recursive watches
	Above       bool          // the first client has a cache above everything else
	Ends        time.Duration // how often connections end, until caches and presences show what is; 0: never
	Layout      counter.Layout
	Initial     bool          // a counter has an initial value
	Age         time.Duration // of the markers of a counter; 0: the default
	Uneven      bool          // some clients want them for a shorter time, some say nothing
	Crashed     bool          // a round of the barrier has crashed before, and left its ready
	Neighbor    time.Duration // for how long a neighbor stands in the barrier, who has come after that; 0: none does
	Other       bool          // the barrier has a child that is no member
	Workers     [][][]Step    // by client and goroutine
	Views       []bubble.View // by client; none: all see the whole ensemble
	Values      [][]Value     // by client and goroutine; none: all have the options above
	Crossed     bool          // what a goroutine acquires under a lease is of the next one's value
	OneElection bool          // the goroutines of a client share one candidate
	Observers   Observing     // what another observer of each client does
	Faults      []Fault       // in order
	Staged      bool          // the run is the same each time, and its moments are recorded
	Vary        uint64        // where not 0: of how long the goroutines of one instant let others go first
	Named       bool          // the clients know the members by names
	Tracking    []bool        // by client: it follows the config of the ensemble; none: nobody does
	Guardians   []Guarding    // by client; none: nobody has one
	Process     *Process      // nil: each client is a process
	Room        int           // how many ephemeral znodes a session may have; 0: any number
	Longer      time.Duration // once something has struck, holders keep what they have for so much longer
}

// Recipe is what the workers contend for.
type Recipe string

// The recipes, and the ways in which they are used.
const (
	Mutex     Recipe = "mutex"
	Keyed     Recipe = "keyed"
	Many      Recipe = "many" // many keys, which the goroutines of a client take and leave at the same instants
	All       Recipe = "all"
	RWLock    Recipe = "rwlock"
	Semaphore Recipe = "semaphore"
	Election  Recipe = "election"
	Campaign  Recipe = "campaign" // uses the election's Run
	Line      Recipe = "line"     // recipes.Line, with a rule like that of RWLock
	Cache     Recipe = "cache"    // a tree that changes, and caches that follow it
	Presence  Recipe = "presence"
	Counter   Recipe = "counter"
	Once      Recipe = "once" // the framework's updates, and writes that are executed once
	Barrier   Recipe = "barrier"
	Discovery Recipe = "discovery"
)

// allRecipes are all of them.
var allRecipes = []Recipe{Mutex, Keyed, Many, All, RWLock, Semaphore, Election, Campaign, Line, Cache, Presence, Counter, Once, Barrier, Discovery}

// Scenario says which kinds of faults a plan has.
type Scenario string

// The scenarios.
const (
	Calm     Scenario = "calm"     // nothing fails, and no caller cancels
	Rush     Scenario = "rush"     // the same, and all callers come at once
	Cancels  Scenario = "cancels"  // nothing fails, but callers cancel at any instant
	Requests Scenario = "requests" // single requests fail
	Networks Scenario = "networks" // clients are cut off
	Members  Scenario = "members"  // members fail
	Mixed    Scenario = "mixed"
)

// quiet reports whether nothing fails, so that no lease may be lost.
func (s Scenario) quiet() bool { return s == Calm || s == Rush || s == Cancels }

// Step is one acquisition by one goroutine.
type Step struct {
	Runs     bool          // it runs the election, and does not acquire
	Brief    int           // as many terms end at once before two that last
	Warm     int           // number of cycles without work before it, back to back
	Pause    time.Duration // before it
	Side     int           // the key; or 0 to read and 1 to write; or the number of permits
	Try      bool
	Cancel   time.Duration // when the caller cancels; 0: never
	On       testutil.Op   // the caller cancels when its client sends this
	Nth      int           // for the nth time; 0: never
	OnBy     time.Duration // and so long after it
	Answered bool          // or when it has been answered
	Beside   bool          // it cancels when another goroutine of its client releases (Answered: has released), not upon On
	Yields   int           // how many other goroutines run first, at the same instant
	Work     time.Duration
	Heedless bool          // it keeps working when the lease is lost
	Late     time.Duration // it writes so long after a loss or the release; 0: never
	Early    bool          // with a guard made earlier
	Looks    bool          // it reads first what holders write to
	Writes   int           // guarded writes while it works
	Twice    bool          // each is repeated at once
	Hasty    time.Duration // it gives up a write after this time, and the lease; 0: never
	Behind   bool          // one more write is in flight when it releases
	Nest     []Nest        // under the lease
	NestLate bool          // with a delay
	First    bool          // the outermost lease is released first, not last
	Reads    time.Duration // and the others only so long after it
	Bound    time.Duration // how long the release is waited for; 0: no limit
	SetMax   int           // it sets the semaphore's limit first; 0: it does not
	Changes  []Change      // of the tree that caches follow
	Follow   Follow
	Stand    Stand
	Calls    []Call // to a number that all share
	Consumes bool   // it follows the service of Stand, and has no instance
	Gate     What   // what it does to a simple barrier; "": it takes part in a round of a double one
	Stay     bool   // it keeps its cache or its presence node until everything is quiet
}

// Nest is an acquisition under a lease.
type Nest string

// The acquisitions under a lease.
const (
	Again Nest = "again" // the same again
	Down  Nest = "down"  // to read under a write, which is released first
	Up    Nest = "up"    // to write under a read, which must be refused
)

// draw is a plan that is being drawn.
type draw struct {
	*rand.Rand
	*Plan
	more int // clients
}

// Draw draws the plan of a seed.
func Draw(seed uint64) *Plan {
	d := &draw{rand.New(rand.NewPCG(seed, 0)), &Plan{Seed: seed}, 0}
	d.Recipe = pick(d, Mutex, Mutex, Mutex, Keyed, All, RWLock, RWLock, RWLock, Semaphore, Semaphore, Semaphore, Election, Campaign, Line)
	d.Scenario = pick(d, Calm, Rush, Cancels, Cancels, Requests, Requests, Requests, Networks, Networks, Members, Members, Mixed, Mixed)
	d.Members = pick(d, 1, 3, 3)
	if d.Scenario == Members {
		d.Members = 3
	}
	d.Timeout = pick(d, 4*time.Second, 5*time.Second, 6*time.Second)
	d.wide()
	// Sessions last until a whole tick, so by how much they exceed their
	// timeout differs.
	d.Tick = (d.Timeout * 100 / pick[time.Duration](d, 200, 249, 249, 299, 299, 390, 895)).Truncate(time.Millisecond)
	d.Latency = pick(d, 0, time.Millisecond, 3*time.Millisecond, 20*time.Millisecond)
	d.Reap = pick(d, time.Second, time.Minute)
	d.Proof = pick(d, framework.ProofSync, framework.ProofSync, framework.ProofWrite)
	d.Policy = pick(d, framework.ErrorPolicySession, framework.ErrorPolicySession, framework.ErrorPolicyConnection)
	d.Endless, d.Brief = d.one(3, 5), d.one(1, 2)
	d.Asks = d.one(1, 2)
	d.Limit = 1 + d.IntN(3)
	if d.Scenario == Cancels {
		d.Limit = 2 + d.IntN(2) // one holder may leave while another stays in the way
	}
	if !d.Scenario.quiet() && d.one(1, 3) {
		d.Tick = d.Timeout / 32 // a larger one would hide the difference
		for range 3 {
			d.Rates = append(d.Rates, pick(d, 0.9, 1.1, 1.1))
		}
	}
	if !d.Scenario.quiet() && d.Recipe != All && d.one(1, 6) { // All has no time to wait for the others
		d.MaxHold = max(time.Millisecond, d.upTo(d.Timeout/2))
	}
	d.Handoffs = pick(d, -1, -1, 0, 1, 2)
	if d.Scenario != Rush && d.one(1, 3) {
		d.Linger = max(time.Millisecond, d.upTo(time.Second))
	}
	d.workers()
	d.faults()
	d.remakes()
	d.views()
	d.async()
	d.together()
	d.limits()
	d.watched()
	d.counted()
	d.knownTick()
	d.remakesUnder()
	d.touched()
	d.kazoo()
	d.unheard()
	d.crowded()
	d.looks()
	d.values()
	d.names()
	d.facts()
	d.Above = d.Scenario != Rush && d.one(1, 4)
	d.rechecks()
	d.refusals()
	d.briefly()
	d.replacements()
	d.full()
	d.snapshots()
	d.moves()
	d.besides()
	d.guarded()
	d.inOneProcess()
	return d.Plan
}

// refusals draws that a server refuses all requests of a client for a while. It
// draws last, for the reason that views has.
func (d *draw) refusals() {
	if d.Scenario.quiet() || !d.one(1, 6) {
		return
	}
	d.Faults = append(d.Faults, Fault{
		What: Refuse, Times: -1, Client: d.IntN(len(d.Workers)), Op: pick(d, "", d.op().String(), testutil.OpSync.String()), For: d.upTo(2 * d.Timeout),
		Code: pick[testutil.Code](d, -1, -2, -3, -4, -7, -118, -122, -127), At: When{Time: d.upTo(2 * d.Timeout)},
	})
}

// refuses returns for how long all requests of a client may be refused.
func (p *Plan) refuses(client int) (sum time.Duration) {
	for _, f := range p.Faults {
		if f.What == Refuse && f.Times < 0 && f.Client == client {
			sum += f.For
		}
	}
	return sum
}

// briefly draws terms whose function returns nil at once. It draws last, for
// the reason that views has.
func (d *draw) briefly() {
	for _, client := range d.Workers {
		for _, steps := range client {
			for i := range steps {
				if (d.Recipe == Campaign || steps[i].Runs) && d.one(1, 2) {
					steps[i].Brief = 1 + d.IntN(4)
				}
			}
		}
	}
}

// looks draws who reads under a lease, and that such a read is lost while a
// member lags, which the client may then go to. It draws last, for the reason
// that views has.
func (d *draw) looks() {
	for _, client := range d.Workers {
		for _, steps := range client {
			for i := range steps {
				steps[i].Looks = d.one(1, 2)
			}
		}
	}
	if d.Scenario.quiet() || d.Members != 3 || !d.one(1, 4) {
		return
	}
	at := time.Duration(0)
	for range 1 + d.IntN(3) {
		at += d.upTo(d.Timeout)
		lasts := d.upTo(d.Timeout)
		d.Faults = append(d.Faults, Fault{What: Lag, Member: d.IntN(d.Members), For: lasts, At: When{Time: at}})
		for client := range d.Workers {
			d.Faults = append(d.Faults, Fault{
				What: Before, Client: client, Op: testutil.OpGetData.String(), Times: 1, For: lasts, At: When{Time: at + d.upTo(lasts)},
			})
		}
	}
}

// besides draws who leaves in the moment in which another goroutine of the same
// client releases: he may have been chosen as the next one. It draws after all
// that were there before it, for the reason that views has.
func (d *draw) besides() {
	if d.Recipe.watches() || d.Recipe.counts() || d.Recipe == All || d.Recipe == Campaign || d.Scenario.quiet() && d.Scenario != Cancels {
		return
	}
	for _, client := range d.Workers {
		for _, steps := range client {
			for i := range steps {
				if s := &steps[i]; len(client) > 1 && s.Nth == 0 && d.one(1, 4) {
					s.Beside, s.Nth = true, 1+d.IntN(2)
					s.Answered, s.Yields = d.one(2, 3), d.IntN(1<<d.IntN(9))
				}
			}
		}
	}
}

// kazoo draws whether a read/write lock, which may be downgraded, and mutexes
// stand in one line. It draws last, for the reason that views has.
func (d *draw) kazoo() {
	if d.Recipe != RWLock || d.Scenario == Rush || !d.one(1, 4) {
		return
	}
	d.Kazoo = true
	for c, client := range d.Workers {
		for _, steps := range client {
			for i := range steps {
				s := &steps[i]
				if s.Side == 0 && d.one(1, 2) { // a mutex does not wait behind readers
					s.Side, s.Nest = 1, nil
				}
				switch {
				case s.Side == 0:
				case d.mutexes(c):
					s.Nest = slices.DeleteFunc(s.Nest, func(n Nest) bool { return n == Down })
				case d.one(1, 2):
					s.Nest, s.First, s.Reads = []Nest{Down}, true, d.upTo(time.Second)
				}
			}
		}
	}
}

// mutexes reports whether a client writes under a mutex.
func (p *Plan) mutexes(client int) bool { return p.Kazoo && client%2 == 1 }

// unheard draws that somebody writes to the znode of a waiter, which is not
// told, and removes it when it has been granted.
func (d *draw) unheard() {
	if d.Recipe != RWLock && d.Recipe != Line || d.Scenario.quiet() || !d.one(1, 6) {
		return
	}
	first, next := Step{Side: 1, Work: d.upTo(d.Timeout)}, Step{Side: d.IntN(2), Pause: d.soon(), Work: 3 * d.Timeout}
	d.Workers[0][0], d.Workers[1][0] = []Step{first}, []Step{next}
	d.Faults = []Fault{
		{What: WriteUnheard, Client: 1, At: When{Time: d.upTo(first.Work)}},
		{What: RemoveZnode, Client: 1, At: When{Time: first.Work + d.upTo(d.Timeout)}},
	}
}

// crowded draws clients whose goroutines wait for each other all the time.
func (d *draw) crowded() {
	if d.Recipe != Mutex || !d.Scenario.quiet() || d.Scenario == Rush || !d.one(1, 4) {
		return
	}
	d.Handoffs = -1
	for c := range d.Workers {
		d.Workers[c] = nil
		for range 3 + d.IntN(3) {
			var steps []Step
			for range 2 + d.IntN(3) {
				steps = append(steps, Step{Work: d.upTo(d.Timeout / 2)})
			}
			d.Workers[c] = append(d.Workers[c], steps)
		}
	}
}

// touched draws whether somebody else writes to znodes in line, or removes
// them. It draws last, for the reason that views has.
func (d *draw) touched() {
	if !d.Recipe.isExclusive() || d.Scenario.quiet() || !d.one(1, 4) {
		return
	}
	for range 1 + d.IntN(4) {
		d.Faults = append(d.Faults, Fault{
			At: When{Time: d.upTo(2 * d.Timeout)}, What: pick(d, RemoveZnode, WriteZnode), Client: d.IntN(len(d.Workers)),
		})
	}
}

func pick[T any](d *draw, from ...T) T { return from[d.IntN(len(from))] }

func (d *draw) one(n, of int) bool { return d.IntN(of) < n }

func (d *draw) upTo(most time.Duration) time.Duration {
	return 1 + time.Duration(d.Int64N(int64(most)))
}

// instant returns a time at which something may be in flight: a few messages
// after the beginning, in steps of a nanosecond.
func (d *draw) instant() time.Duration {
	if d.Latency == 0 || d.one(1, 4) {
		return d.upTo(50 * time.Millisecond)
	}
	return max(1, time.Duration(d.IntN(16))*d.Latency+time.Duration(d.IntN(3)-1))
}

func (d *draw) workers() {
	clients, goroutines, steps := 2+d.IntN(2)+d.more, 1+d.IntN(3), 1+d.IntN(3)
	if d.Scenario == Rush {
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
	case RWLock, Line:
		s.Side = d.IntN(2)
	case Semaphore:
		s.Side = 1 + d.IntN(d.Limit)
		if d.one(1, 8) {
			s.SetMax = 1 + d.IntN(3)
		}
	}
	if d.Scenario == Rush {
		s.Pause = time.Millisecond
		s.Side, s.SetMax = min(s.Side, 1), 0 // each permit that is returned is checked
		return s
	}
	if d.one(1, 3) {
		s.Pause = d.instant()
	}
	s.Try = d.one(1, 8)
	if !d.Scenario.quiet() || d.Scenario == Cancels {
		switch {
		case d.one(1, 4):
			s.Cancel = d.instant()
		case d.one(1, 6), d.Scenario == Cancels && d.one(1, 4):
			s.Cancel = d.upTo(2 * d.Timeout)
		}
		if d.one(1, 3) { // at the moment of the execution or the answer
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
	if !d.Scenario.quiet() || d.Scenario == Cancels {
		if d.one(1, 4) {
			s.Hasty = d.instant()
		}
		s.Behind = d.one(1, 6)
	}
	s.Twice = d.one(1, 4)
	s.nest(d)
	s.First, s.NestLate = d.one(1, 2), d.one(1, 2)
	if d.one(1, 4) || (d.Scenario == Cancels || d.Scenario == Networks || d.Scenario == Members) && d.one(1, 3) {
		s.Work = d.upTo(3 * d.Timeout)
	}
	if d.Scenario.quiet() {
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

// async draws whether releases wait. If they do not, more workers come back at
// once, and more deletes fail. It draws last, for the reason that views has.
func (d *draw) async() {
	if d.Async = d.one(1, 3); !d.Async || d.Scenario == Rush {
		return
	}
	for _, client := range d.Workers {
		for _, steps := range client {
			for i := range steps {
				if s := &steps[i]; s.Warm == 0 && d.one(1, 3) {
					s.Warm = 1 + d.IntN(3)
				}
			}
		}
	}
	for i := range d.Faults {
		switch f := &d.Faults[i]; f.What {
		case Before, After, Refuse, Delay, DelayAns, LeaderStops, LeaderStopsLate:
			if d.one(1, 2) {
				f.Op = testutil.OpDelete.String()
			}
		}
	}
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
	const stopLeader What = "stop leader"
	var from []What
	surgery := []What{Before, After, After, Refuse, Delay, DelayAns, Orphan, Orphan, LeaderStops, LeaderStopsLate}
	networks := []What{Cut, Cut, DropReplies, DropRequests, Drop, Drop, Late, Expire, Slow}
	members := []What{Stop, stopLeader, stopLeader, Pause, Isolate, Isolate, Lag, Lag, Mute, Wedge, LeaderStops}
	switch d.Scenario {
	case Requests:
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
			At: When{Time: at}, For: d.upTo(2 * d.Timeout), What: pick(d, from...),
			Client: d.IntN(len(d.Workers)), Member: d.IntN(d.Members),
			Op:    d.op().String(),
			Times: 1 + d.IntN(3), By: d.upTo(d.Timeout / 2),
		}
		if d.one(1, 2) {
			f.By = d.instant()
		}
		if d.Scenario == Requests { // the workers wait for their requests
			f.At.Time, f.For = d.upTo(4*time.Second), 5*time.Second
		}
		switch f.What {
		case Refuse:
			f.Code = []testutil.Code{testutil.CodeConnectionLoss, testutil.CodeOperationTimeout, testutil.CodeThrottled}[f.Member]
		case Orphan:
			f.Op, f.By = pick(d, testutil.OpCreate, testutil.OpMulti, testutil.OpMulti).String(), d.upTo(d.Timeout/2)
		case Drop:
			if d.one(1, 2) { // and is cut off again after it has returned
				f.Then = d.upTo(d.Timeout / 2)
				f.For = f.Then + d.Timeout + d.upTo(d.Timeout)
			}
		case stopLeader:
			f.What, f.Member = Stop, Leader
		case Isolate:
			d.near(&f)
			f.For = d.Timeout + d.upTo(d.Timeout) // until the sessions that it still answers are over
			if d.one(2, 3) {                      // otherwise it may have gone to another member
				f.Then = d.upTo(d.Timeout / 2)
				f.For += f.Then
			}
		case Late, Slow, Lag, Wedge, Mute, Pause:
			d.near(&f)
			if d.one(1, 2) { // when its knowledge may be ahead of the truth
				f.Then = d.upTo(d.Timeout)
				f.For = f.Then + d.Timeout + d.upTo(d.Timeout)
			}
		}
		switch f.What {
		case Cut, DropReplies, DropRequests, Drop, Late, Isolate, Lag, Pause, Mute, Wedge:
			f.At.Upon = d.one(1, 3)
		}
		d.Faults = append(d.Faults, f)
	}
}

// near draws whether a fault is that of the member that its client is connected
// to.
func (d *draw) near(f *Fault) {
	if d.one(2, 3) {
		f.Member = Near
	}
}

// op draws a request from those that matter.
func (d *draw) op() testutil.Op {
	if d.Recipe == Semaphore && d.one(1, 2) {
		return testutil.OpMulti
	}
	return pick(d, testutil.OpCreate, testutil.OpCreate, testutil.OpGetChildren2, testutil.OpGetData, testutil.OpDelete,
		testutil.OpDelete, testutil.OpMulti, testutil.OpMulti, testutil.OpSync, testutil.OpSetWatches, testutil.OpCreateSession)
}

// String describes the plan.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s, %s", p.Seed, p.Recipe, p.Scenario)
	all := reflect.ValueOf(p).Elem()
	for i := range all.NumField() {
		switch option := all.Type().Field(i).Name; option {
		case "Seed", "Recipe", "Scenario", "Workers", "Faults":
		default:
			if value := all.Field(i); !value.IsZero() {
				fmt.Fprintf(&b, ", %s %+v", option, value.Interface())
			}
		}
	}
	b.WriteByte('\n')
	for c, client := range p.Workers {
		for g, steps := range client {
			fmt.Fprintf(&b, "  worker %d.%d\n", c, g)
			for _, s := range steps {
				fmt.Fprintf(&b, "    %+v\n", s)
			}
		}
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	return b.String()
}
