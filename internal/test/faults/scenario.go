package faults

import (
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/sim"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// Scenario is a small run of a recipe. Without faults it is the same each time.
type Scenario struct {
	Name     string
	Smallest bool // of its recipe: pairs are tried on it
	plan     func() *sim.Plan
}

// Find returns the scenario with a name.
func Find(name string) (Scenario, bool) {
	i := slices.IndexFunc(Scenarios, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	return Scenarios[i], true
}

// Plan returns the scenario's plan with faults.
func (s Scenario) Plan(faults []sim.Fault) *sim.Plan {
	p := s.plan()
	p.Faults = append(p.Faults, faults...)
	if len(p.Faults) > 0 {
		p.Scenario = sim.Mixed
	}
	return p
}

// timeout is that of the sessions.
const timeout = 4 * time.Second

// client is what the goroutines of one client do.
type client [][]sim.Step

// plan returns a plan that is the same each time it runs.
func plan(recipe sim.Recipe, clients ...client) *sim.Plan {
	p := &sim.Plan{
		Recipe: recipe, Scenario: sim.Calm, Staged: true, Members: 3, Tick: timeout / 4, Timeout: timeout,
		Latency: time.Millisecond, Reap: time.Minute, Proof: framework.ProofSync, Policy: framework.ErrorPolicySession,
		Endless: true, Limit: 1, Handoffs: -1, Longer: 2 * timeout,
	}
	for _, c := range clients {
		p.Workers = append(p.Workers, c)
	}
	return p
}

// at begins after a pause, works for a while with one guarded write at each
// end, and writes once more when the lease was lost.
func at(pause, work time.Duration) sim.Step {
	return sim.Step{
		Pause: pause * time.Millisecond, Work: work * time.Millisecond, Writes: 1, Late: timeout / 8, Early: true,
	}
}

// bare is at without writes.
func bare(pause, work time.Duration) sim.Step {
	return sim.Step{Pause: pause * time.Millisecond, Work: work * time.Millisecond}
}

// many is a client with a goroutine for each of n keys. They begin one after
// the other, but before the first has an answer. Keys that are granted by one
// answer are not released at one instant: then chance would order them.
func many(n int, steps ...sim.Step) (c client) {
	for key := range n {
		var worker []sim.Step
		for i, s := range steps {
			if i == 0 {
				s.Pause += time.Duration(key+1) * time.Microsecond
			}
			s.Work += time.Duration(key) * time.Nanosecond
			worker = append(worker, side(key, s))
		}
		c = append(c, worker)
	}
	return c
}

// side is a step with a side: see sim.Step.
func side(n int, s sim.Step) sim.Step {
	s.Side = n
	return s
}

// recheck is within which time a cache finds what no event has told.
const recheck = 5 * timeout

// follow is a cache that is asked three times for what is, and stays.
func follow(f sim.Follow) sim.Step {
	f.On = true
	return sim.Step{Work: 30 * time.Millisecond, Writes: 2, Follow: f, Stay: true}
}

// changing changes a tree that another client follows.
func changing(all ...sim.Change) sim.Step {
	return sim.Step{Pause: 3 * time.Millisecond, Changes: all}
}

// calling calls what changes a number.
func calling(pause time.Duration, calls ...sim.Call) sim.Step {
	calls[0].Pause = pause * time.Millisecond
	return sim.Step{Calls: calls}
}

// meeting is a round of two.
func meeting(clients ...client) *sim.Plan {
	return with(plan(sim.Barrier, clients...), func(p *sim.Plan) { p.Limit = 2 })
}

// stand begins after a pause, and has its znode for a while, with one Set.
func stand(pause, work time.Duration, s sim.Stand) sim.Step {
	return sim.Step{Pause: pause * time.Millisecond, Work: work * time.Millisecond, Writes: 1, Stand: s}
}

// replaced replaces the member of the first client, which follows the ensemble,
// by another one after the first answer to such a request. Others are told.
func replaced(p *sim.Plan, op string) *sim.Plan {
	p.Tracking = make([]bool, len(p.Workers))
	p.Tracking[0] = true
	p.Faults = []sim.Fault{{What: sim.Replace, Client: 0, Member: sim.Near, At: sim.When{Moment: sim.Moment{Client: 0, Point: sim.Answered, Op: op, N: 1, After: true}}}}
	return p
}

// one is a client with one goroutine.
func one(steps ...sim.Step) client { return client{steps} }

func with(p *sim.Plan, change func(*sim.Plan)) *sim.Plan {
	change(p)
	return p
}

// Scenarios are the small runs of each recipe. A recipe that is added brings
// its own.
var Scenarios = []Scenario{
	{"mutex", true, func() *sim.Plan {
		return plan(sim.Mutex, one(at(0, 40)), one(at(10, 40)))
	}},
	{"mutex-handoff", false, func() *sim.Plan { // within a process, and to another that waits
		return plan(sim.Mutex, client{{at(0, 20)}, {at(3, 20)}}, one(at(10, 20)))
	}},
	{"mutex-linger", false, func() *sim.Plan { // the znode stays between two leases, until somebody else comes
		p := plan(sim.Mutex, one(at(0, 10), at(5, 10)), one(at(40, 10)))
		return with(p, func(p *sim.Plan) { p.Linger = time.Second })
	}},
	{"mutex-three", false, func() *sim.Plan { // one waits behind another
		return plan(sim.Mutex, one(at(0, 40)), one(at(10, 10)), one(at(20, 10)))
	}},
	{"mutex-try", false, func() *sim.Plan {
		try := at(10, 10)
		try.Try = true
		again := at(60, 10)
		again.Try = true
		return plan(sim.Mutex, one(at(0, 40)), one(try, again))
	}},
	{"mutex-reentry", false, func() *sim.Plan {
		nested := at(0, 20)
		nested.Nest, nested.First = []sim.Nest{sim.Again}, true
		return plan(sim.Mutex, one(nested), one(at(10, 10)))
	}},
	{"mutex-max-hold", false, func() *sim.Plan {
		p := plan(sim.Mutex, one(at(0, 2100)), one(at(10, 10)))
		return with(p, func(p *sim.Plan) { p.MaxHold, p.Scenario = timeout/4, sim.Mixed })
	}},
	{"mutex-heartbeats", false, func() *sim.Plan { // long enough for heartbeats, and for looks in case an event is lost
		return plan(sim.Mutex, one(at(0, 3000)), one(at(10, 10)))
	}},
	{"mutex-long-wait", false, func() *sim.Plan { // for longer than a session timeout: who waits looks again, without an event
		return plan(sim.Mutex, one(at(0, 6000)), one(at(10, 10)))
	}},
	{"mutex-reconnect", false, func() *sim.Plan { // who waits loses its connection
		p := plan(sim.Mutex, one(at(0, 200)), one(at(10, 10)))
		return with(p, func(p *sim.Plan) {
			p.Faults = []sim.Fault{{What: sim.Drop, Client: 1, At: sim.When{Moment: sim.Moment{Client: 1, Point: sim.Answered, Op: "getData", N: 1, After: true}}}}
		})
	}},
	{"mutex-reset", false, func() *sim.Plan { // the connection ends on the create of the directory
		p := plan(sim.Mutex, one(at(0, 40)), one(at(10, 40)))
		return with(p, func(p *sim.Plan) {
			p.Faults = []sim.Fault{{What: sim.Drop, Client: 0, At: sim.When{Moment: sim.Moment{Client: 0, Point: sim.Sent, Op: "createContainer", N: 1, After: true}}}}
		})
	}},
	{"mutex-write-proof", false, func() *sim.Plan { // also covers a leader that has lost its quorum
		p := plan(sim.Mutex, one(at(0, 40)), one(at(10, 40)))
		return with(p, func(p *sim.Plan) { p.Proof = framework.ProofWrite })
	}},
	{"mutex-names", false, func() *sim.Plan { // the clients know the members by names
		p := plan(sim.Mutex, one(at(0, 40)), one(at(10, 40)))
		return with(p, func(p *sim.Plan) {
			p.Named, p.Views = true, []bubble.View{bubble.Views[1], bubble.Views[1]}
		})
	}},
	{"mutex-moves", false, func() *sim.Plan { // the holder's server is taken off its list, so it goes to another one
		p := plan(sim.Mutex, one(at(0, 3000)), one(at(10, 10)))
		return with(p, func(p *sim.Plan) {
			p.Faults = []sim.Fault{{What: sim.ListWithout, Client: 0, Member: sim.Near, At: sim.When{Moment: sim.Moment{Client: 0, Point: sim.Answered, Op: "getChildren2", N: 1, After: true}}}}
		})
	}},
	{"mutex-replaced", false, func() *sim.Plan { // the member of the holder, which follows the ensemble, is replaced by another one
		return replaced(plan(sim.Mutex, one(at(0, 6000)), one(at(10, 10))), "getChildren2")
	}},
	{"mutex-guardian", false, func() *sim.Plan { // each client has a guardian, and nobody waits for a session timeout
		p := plan(sim.Mutex, one(at(0, 40)), one(at(10, 40)))
		return with(p, func(p *sim.Plan) { p.Guardians = make([]sim.Guarding, 2) })
	}},
	{"mutex-guardian-late", false, func() *sim.Plan { // the guardian of one is late, and that of the other dies when it has begun
		p := plan(sim.Mutex, one(at(0, 40)), one(at(10, 40)))
		return with(p, func(p *sim.Plan) {
			p.Guardians = []sim.Guarding{{After: timeout / 2, Elsewhere: true}, {Dies: 3 * time.Millisecond}}
		})
	}},
	{"mutex-uneven", false, func() *sim.Plan { // the second member that a client connects to grants more
		p := plan(sim.Mutex, one(at(0, 3000)), one(at(10, 10)))
		return with(p, func(p *sim.Plan) {
			p.Reports = timeout / 8
			for _, least := range []time.Duration{0, 2 * timeout, 0} {
				p.Servers = append(p.Servers, sim.Server{Tick: p.Tick, Least: least})
			}
		})
	}},
	{"mutex-connection-policy", false, func() *sim.Plan {
		p := plan(sim.Mutex, one(at(0, 40)), one(at(10, 40)))
		return with(p, func(p *sim.Plan) { p.Policy = framework.ErrorPolicyConnection })
	}},
	{"mutex-above", false, func() *sim.Plan { // the client that waits has a cache of everything
		p := plan(sim.Mutex, one(at(10, 40)), one(at(0, 40)))
		return with(p, func(p *sim.Plan) { p.Above = true })
	}},
	{"rwlock", true, func() *sim.Plan { // a downgrade, before a reader that waits
		down := side(1, at(0, 30))
		down.Nest, down.First = []sim.Nest{sim.Down}, true
		return plan(sim.RWLock, one(down), one(side(0, at(10, 20))))
	}},
	{"rwlock-readers", false, func() *sim.Plan { // two share a znode, a writer waits for both processes, a reader waits for it
		return plan(sim.RWLock, client{{side(0, at(0, 30))}, {side(0, at(2, 20))}}, one(side(0, at(5, 30))), one(side(1, at(15, 10))))
	}},
	{"semaphore", true, func() *sim.Plan {
		return plan(sim.Semaphore, one(side(1, at(0, 30))), one(side(1, at(10, 20))))
	}},
	{"semaphore-several", true, func() *sim.Plan { // who wants two of two waits for one
		p := plan(sim.Semaphore, one(side(1, at(0, 30))), one(side(2, at(10, 20))))
		return with(p, func(p *sim.Plan) { p.Limit = 2 })
	}},
	{"semaphore-limit", false, func() *sim.Plan { // the limit rises while somebody waits
		more := side(1, at(20, 20))
		more.SetMax = 2
		return plan(sim.Semaphore, one(side(1, at(0, 60))), one(side(1, at(10, 20))), one(more))
	}},
	{"election", true, func() *sim.Plan {
		return plan(sim.Election, one(at(0, 30)), one(at(10, 20)))
	}},
	{"election-replaced", false, func() *sim.Plan { // the member of the leader is replaced
		return replaced(plan(sim.Election, one(at(0, 6000)), one(at(10, 10))), "getChildren2")
	}},
	{"election-run", false, func() *sim.Plan { // each leads twice
		return plan(sim.Campaign, one(at(0, 20)), one(at(10, 20)))
	}},
	{"all", true, func() *sim.Plan { // who wants both locks waits for one
		return plan(sim.All, one(side(0, at(0, 30))), one(side(2, at(10, 20))))
	}},
	{"all-of-two", false, func() *sim.Plan { // both want both
		return plan(sim.All, one(side(2, at(0, 30))), one(side(2, at(10, 20))))
	}},
	{"keyed", true, func() *sim.Plan { // one key is contended, the other is not
		return plan(sim.Keyed, client{{side(0, at(0, 30))}, {side(1, at(6, 13))}}, one(side(0, at(11, 20))))
	}},
	{"batches", true, func() *sim.Plan { // six keys are taken and left at once, and another client waits for one
		return plan(sim.Many, many(6, bare(0, 12)), one(side(4, bare(8, 4))))
	}},
	{"batches-again", false, func() *sim.Plan { // releases and creates share multis; none of them is waited for
		p := plan(sim.Many, many(6, bare(0, 6), bare(0, 6)), one(side(4, bare(8, 4)), side(5, bare(1, 4))))
		return with(p, func(p *sim.Plan) { p.Async = true })
	}},
	{"async", true, func() *sim.Plan { // the next caller of the process comes before the delete is answered
		p := plan(sim.Mutex, client{{bare(0, 10)}, {at(2, 10)}}, one(at(5, 10)))
		return with(p, func(p *sim.Plan) { p.Async, p.Handoffs = true, 0 })
	}},
	{"async-alone", true, func() *sim.Plan { // each znode of the first client replaces the one before, and has no list
		p := plan(sim.Mutex, client{{bare(0, 4)}, {bare(1, 4)}, {at(2, 4)}}, one(at(11, 10)))
		return with(p, func(p *sim.Plan) { p.Async, p.Handoffs = true, 0 })
	}},
	{"cache", true, func() *sim.Plan { // what another client changes
		return plan(sim.Cache, one(follow(sim.Follow{Depth: -1, Recheck: recheck})), one(changing(
			sim.Change{What: sim.Put}, sim.Change{What: sim.Put, Path: "/a"}, sim.Change{Pause: 4 * time.Millisecond, What: sim.Write, Path: "/a"},
			sim.Change{Pause: 4 * time.Millisecond, What: sim.Anew, Path: "/a"}, sim.Change{What: sim.Put, Path: "/a/b"})))
	}},
	{"cache-one-shot", false, func() *sim.Plan {
		return plan(sim.Cache, one(follow(sim.Follow{Depth: -1, OneShot: true, Recheck: recheck})), one(changing(
			sim.Change{What: sim.Put}, sim.Change{What: sim.Put, Path: "/a"}, sim.Change{Pause: 4 * time.Millisecond, What: sim.Write, Path: "/a"},
			sim.Change{Pause: 4 * time.Millisecond, What: sim.Erase, Path: "/a"}, sim.Change{What: sim.Mark, Path: "/a"})))
	}},
	{"cache-replaced", false, func() *sim.Plan { // the member of the cache is replaced, and more changes come before and after it moves
		follows := follow(sim.Follow{Depth: -1, Recheck: recheck})
		follows.Work = 6 * time.Second
		return replaced(plan(sim.Cache, one(follows), one(changing(
			sim.Change{What: sim.Put}, sim.Change{What: sim.Put, Path: "/a"}, sim.Change{Pause: time.Second, What: sim.Write, Path: "/a"},
			sim.Change{Pause: 2 * time.Second, What: sim.Anew, Path: "/a"}, sim.Change{What: sim.Put, Path: "/a/b"}))), "addWatch")
	}},
	{"cache-two", false, func() *sim.Plan { // of one client, which share a watch, and the first goes
		stays := follow(sim.Follow{Depth: 1, Recheck: sim.ByBudget})
		goes := stays
		goes.Stay, goes.Work = false, 8*time.Millisecond
		return plan(sim.Cache, client{{goes}, {stays}}, one(changing(
			sim.Change{What: sim.Put}, sim.Change{What: sim.Put, Path: "/a"}, sim.Change{Pause: 8 * time.Millisecond, What: sim.Write, Path: "/a"})))
	}},
	{"presence", true, func() *sim.Plan { // the other client waits for the name
		first, second := stand(0, 30, sim.Stand{Name: "a"}), stand(10, 20, sim.Stand{Name: "a"})
		second.Stay = true
		return plan(sim.Presence, one(first), one(second))
	}},
	{"presence-sequential", false, func() *sim.Plan {
		return plan(sim.Presence, one(stand(0, 20, sim.Stand{Name: "m-0-", Sequential: true})), one(stand(5, 20, sim.Stand{Name: "m-1-", Sequential: true})))
	}},
	{"presence-yield", false, func() *sim.Plan { // the other client waits for the name, and leaves
		first, second := stand(0, 30, sim.Stand{Name: "a", Yield: true}), stand(10, 20, sim.Stand{Name: "a"})
		first.Stay = true
		return plan(sim.Presence, one(first), one(second))
	}},
	{"presence-again", false, func() *sim.Plan { // the next node of the client has the path of one that closes
		return plan(sim.Presence, one(stand(0, 10, sim.Stand{Name: "a"}), stand(0, 10, sim.Stand{Name: "a"})), one(stand(5, 10, sim.Stand{Name: "a"})))
	}},
	{"group", true, func() *sim.Plan { // members join and leave, and a third client follows
		member := func(name string) sim.Stand {
			return sim.Stand{Name: name, Group: true, Layout: presence.LayoutProtected}
		}
		return plan(sim.Presence, one(stand(0, 30, member("m-0-"))), one(stand(8, 10, member("m-1-"))), one(follow(sim.Follow{Depth: -1, Recheck: recheck})))
	}},
	{"counter", true, func() *sim.Plan { // two processes add, and one of them again
		return plan(sim.Counter, one(calling(0, sim.Call{What: sim.Add}, sim.Call{What: sim.Add})), one(calling(3, sim.Call{What: sim.Add})))
	}},
	{"counter-once", true, func() *sim.Plan { // for the same id
		return plan(sim.Counter, one(calling(0, sim.Call{What: sim.AddOnce, ID: "a"})), one(calling(3, sim.Call{What: sim.AddOnce, ID: "a"})))
	}},
	{"counter-all", false, func() *sim.Plan { // two goroutines add together
		return plan(sim.Counter, client{
			{calling(0, sim.Call{What: sim.Reserve}, sim.Call{What: sim.Swap}, sim.Call{What: sim.Get})},
			{calling(2, sim.Call{What: sim.Add}, sim.Call{What: sim.AddOnce, ID: "a"}, sim.Call{What: sim.Set})},
		}, one(calling(4, sim.Call{What: sim.Add}, sim.Call{What: sim.AddOnce, ID: "a"})))
	}},
	{"multi-once", true, func() *sim.Plan { // with the same marker
		return plan(sim.Once, one(calling(0, sim.Call{What: sim.MultiOnce, ID: "a"})), one(calling(2, sim.Call{What: sim.MultiOnce, ID: "a"})))
	}},
	{"once-create", false, func() *sim.Plan { // another client takes what is made, and then both make an ephemeral one
		return plan(sim.Once, one(calling(0, sim.Call{What: sim.Make}, sim.Call{What: sim.Make, ID: "a", Pause: 20 * time.Millisecond})),
			one(calling(8, sim.Call{What: sim.Take}, sim.Call{What: sim.Make, ID: "a", Pause: 15 * time.Millisecond}, sim.Call{What: sim.Take, Pause: 20 * time.Millisecond})))
	}},
	{"once-set", false, func() *sim.Plan { // another client sets it as well
		return plan(sim.Once, one(calling(0, sim.Call{What: sim.SetAny}, sim.Call{What: sim.SetACL})), one(calling(3, sim.Call{What: sim.SetAny}, sim.Call{What: sim.SetACL})))
	}},
	{"update", false, func() *sim.Plan {
		return plan(sim.Once, one(calling(0, sim.Call{What: sim.Update}, sim.Call{What: sim.UpdateOnce, ID: "a"})),
			one(calling(3, sim.Call{What: sim.UpdateOnce, ID: "a"}, sim.Call{What: sim.Update})))
	}},
	{"barrier", true, func() *sim.Plan { // two enter, and leave
		return meeting(one(bare(0, 10)), one(bare(10, 20)))
	}},
	{"barrier-again", false, func() *sim.Plan { // a third one is late, and a second round follows
		return meeting(one(bare(0, 10), bare(0, 10)), one(bare(10, 20), bare(0, 10)), one(bare(18, 10)))
	}},
	{"barrier-simple", false, func() *sim.Plan {
		gate := func(pause time.Duration, what sim.What) sim.Step {
			s := bare(pause, 0)
			s.Gate = what
			return s
		}
		return plan(sim.Barrier, one(gate(0, sim.SetGate), gate(20, sim.OpenGate)), one(gate(10, sim.AwaitGate)))
	}},
	{"discovery", true, func() *sim.Plan { // an instance is registered, updated and closed, and another one stays
		stays := stand(5, 10, sim.Stand{Name: "b", Service: "web"})
		stays.Stay = true
		return plan(sim.Discovery, one(stand(0, 20, sim.Stand{Name: "a", Service: "web"})), one(stays))
	}},
	{"line", true, func() *sim.Plan {
		return plan(sim.Line, one(side(1, at(0, 30))), one(side(0, at(10, 20))))
	}},
	{"line-shared", false, func() *sim.Plan {
		return plan(sim.Line, client{{side(0, at(0, 30))}, {side(0, at(2, 20))}}, one(side(1, at(10, 10))), one(side(0, at(15, 10))))
	}},
}
