package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
)

// What a worker does to a simple barrier.
const (
	SetGate   What = "set the barrier"
	OpenGate  What = "remove the barrier"
	AwaitGate What = "wait for the barrier"
)

// member is one Enter of a double barrier, with its Leave.
type member struct {
	who
	data          string // of its znode alone
	from, to      int64  // the last transactions when Enter began and when it returned
	inside        bool
	leaving, left int64 // those when Leave began, and when it returned nil; 0: it did not
}

// passage is one call of a simple barrier that has returned nil.
type passage struct {
	who
	what     What
	from, to int64
}

func (k *worker) double(data string) *barrier.Double {
	path := k.plan.view(k.who.client).Path(k.paths[0])
	return must(barrier.NewDouble(k.client, path, k.plan.Limit, recipes.WithData([]byte(data))))
}

// enterPatience is how long a worker waits for others.
func (p *Plan) enterPatience() time.Duration { return 8 * p.Timeout }

// round enters a double barrier and leaves it.
func (k *worker) round(s Step) bool {
	k.mu.Lock()
	m := &member{who: k.who, data: fmt.Sprintf("%v %d", k.who, len(k.parties))}
	k.parties = append(k.parties, m)
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.Cancel, k.plan.enterPatience()))
	defer cancel()
	ctx, over := k.callable(ctx, k.who)
	k.says("enters")
	k.ledger.log("%v: enters as %q", k.who, m.data)
	m.from = k.truth.now()
	in, err := k.double(m.data).Enter(ctx)
	k.mu.Lock()
	m.to, m.inside = k.truth.now(), err == nil
	k.mu.Unlock()
	struck := over()
	k.says("returns")
	k.ledger.log("%v: entered as %q: %v", k.who, m.data, err)
	if err != nil {
		k.inVain(m)
		return k.hasFailed(err, "enter", struck || errors.Is(err, context.DeadlineExceeded))
	}
	time.Sleep(s.Work)
	k.longer(context.Background(), s)
	return k.leaves(s, m, in)
}

func (k *worker) leaves(s Step, m *member, in *barrier.Inside) bool {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.Bound, patience))
	defer cancel()
	ctx, over := k.callable(ctx, k.who)
	k.says("leaves")
	k.ledger.log("%v: leaves as %q", k.who, m.data)
	from := k.truth.now()
	err := in.Leave(ctx)
	struck := over()
	k.mu.Lock()
	if m.leaving = from; err == nil {
		m.left = k.truth.now()
	}
	k.mu.Unlock()
	k.says("left")
	k.ledger.log("%v: left as %q: %v", k.who, m.data, err)
	gone := errors.Is(err, barrier.ErrGone) && !k.plan.Scenario.quiet()
	return k.hasFailed(err, "leave", struck || gone || s.Bound > 0 && errors.Is(err, context.DeadlineExceeded))
}

// hasFailed judges an error, and reports whether the worker goes on.
func (k *worker) hasFailed(err error, what string, allowed bool) (goes bool) {
	switch {
	case err == nil:
	case errors.Is(err, framework.ErrClosed):
		k.clientClosed(err)
		return false
	case allowed && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, barrier.ErrGone)):
	case !k.plan.Scenario.quiet() && (framework.MaybeApplied(err) || errors.Is(err, framework.ErrSessionLost)), k.expected(err):
	default:
		k.ledger.fault("%v: %s: %v", k.who, what, err)
	}
	return true
}

// inVain checks, when an Enter has ended, that the members that it wanted did
// not stand for long, and that it has left no znode.
func (k *worker) inVain(m *member) {
	least, longest := k.plan.granted()
	// Otherwise Enter need not wait until its znode is gone.
	isPrompt := 4*k.plan.Latency < least/10 && !k.plan.moves(k.who.client)
	long, own := time.Now().Add(-3*longest), 0
	var others []string
	for path, states := range k.truth.below(k.paths[0], k.isMember) {
		z := states[len(states)-1]
		switch {
		case z.exists && z.data == m.data && k.plan.Scenario.quiet() && isPrompt:
			k.ledger.fault("%v: Enter has failed, and there is %s: %+v", k.who, path, z)
		case states[0].data == m.data && states[0].at.Before(long) && (z.exists || time.Since(z.at) < k.plan.Timeout/2): // it stood until now
			own = 1
		case z.exists && z.at.Before(long):
			others = append(others, path)
		}
	}
	if k.ledger.settledSince(long) && own > 0 && len(others)+own >= k.plan.Limit {
		k.ledger.fault("%v: Enter has failed, and %q have stood for %v", k.who, others, 3*longest)
	}
}

func (l *ledger) settledSince(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.settled.IsZero() && l.settled.Before(at)
}

func (w *world) readyPath() string { return w.paths[0] + "/ready" }

// other is the path of a child that is no member.
func (p *Plan) other() string { return p.paths()[0] + "/config" }

// isMember reports whether a path is that of a member that was not late.
func (w *world) isMember(path string) bool {
	return strings.HasPrefix(path, w.paths[0]+"/") && path != w.readyPath() && path != w.plan.other() && !strings.HasSuffix(path, "-late")
}

// stood returns whether a path stood after a transaction.
func stood(states []znode, zxid int64) (z znode) {
	for _, s := range states {
		if s.zxid <= zxid {
			z = s
		}
	}
	return z
}

// rounds judges all rounds, at the end.
func (w *world) rounds() {
	all := w.truth.below(w.paths[0], func(path string) bool { return path != w.paths[0] })
	ready := all[w.readyPath()]
	for i, z := range ready {
		if z.exists && z.zxid == z.czxid && !(w.plan.Crashed && i == 0) {
			if n := w.standing(all, z.zxid); n < w.plan.Limit {
				w.ledger.fault("at %x a round of %d was opened by %d", z.zxid, w.plan.Limit, n)
			}
		}
	}
	for i, z := range ready {
		if !z.exists && w.older(all, ready[i-1].czxid, z.zxid) && !w.hasStruck(RemoveDir) && !sweptLate(ready[:i], z.by) {
			w.ledger.fault("at %x session %#x has removed %+v, the ready of a round that goes on", z.zxid, z.by, ready[i-1])
		}
	}
	for _, m := range w.parties {
		if m.inside && !w.belongsTo(m, all, ready) {
			w.ledger.fault("%v has entered as %q between %x and %x, and there was no such round: ready was %+v", m.who, m.data, m.from, m.to, ready)
		}
		w.notMissed(m, all, ready)
		if m.left > 0 {
			w.leftTogether(m, all, ready)
		}
	}
	for _, p := range w.gates {
		w.passed(p)
	}
}

// sweptLate reports whether a session may delete the latest ready by the
// version that its mark gave to an earlier one: what remains, as ready.go of
// package barrier says.
func sweptLate(ready []znode, by int64) bool {
	last := len(ready) - 1
	at := version(ready, last)
	for i, z := range ready {
		if at > 0 && z.by == by && z.czxid != ready[last].czxid && version(ready, i) == at {
			return true
		}
	}
	return false
}

// version returns the version that a znode has in a state.
func version(states []znode, i int) (v int) {
	for ; i > 0 && states[i].exists && states[i-1].czxid == states[i].czxid; i-- {
		v++
	}
	return v
}

// standing returns how many members that were not late stood after a
// transaction. One may have two znodes.
func (w *world) standing(all map[string][]znode, zxid int64) int {
	members := map[string]bool{}
	for path, states := range all {
		if z := stood(states, zxid); w.isMember(path) && z.exists {
			members[z.data] = true
		}
	}
	return len(members)
}

// ofMember returns the states of the znode that a member has had with ready, or
// the last of them.
func (w *world) ofMember(m *member, all map[string][]znode) (tries [][]znode) {
	for _, states := range all {
		if states[0].data == m.data {
			tries = append(tries, states)
		}
	}
	return tries
}

// belongsTo reports whether a round was open that a member belonged to: it
// stood when the round was opened, or came while the round was open.
func (w *world) belongsTo(m *member, all map[string][]znode, ready []znode) bool {
	for _, states := range w.ofMember(m, all) {
		came := states[0].zxid
		for _, r := range ready {
			if !r.exists || r.zxid != r.czxid || r.zxid > m.to {
				continue
			}
			if came < r.zxid && (stood(states, r.zxid).exists || w.hasStruck(RemoveZnode, RemoveDir)) {
				return true
			}
			open := stood(ready, came)
			if came > r.zxid && open.exists && open.czxid == r.czxid && w.older(all, r.czxid, came) {
				return true
			}
		}
	}
	return false
}

// notMissed checks that a member has entered the round that was opened while
// its znode stood, and not by one that the same session has created afterwards.
//
// A session is excused if a request of it was delayed. If its next connection
// is to the same member, the test ensemble executes later requests first: a
// member may look for its znode in vain before that is created. ZooKeeper
// executes the requests of a session in their order.
func (w *world) notMissed(m *member, all map[string][]znode, ready []znode) {
	w.mu.Lock()
	late := w.late
	w.mu.Unlock()
	if !m.inside || w.hasStruck(RemoveZnode, RemoveDir) {
		return
	}
	for _, r := range ready {
		if !r.exists || r.zxid != r.czxid || r.zxid > m.to {
			continue
		}
		counted, later, in := znode{}, znode{}, false
		for path, states := range all {
			if states[0].data != m.data {
				continue
			}
			if z := stood(states, r.zxid); z.exists && w.isMember(path) {
				counted = z
			}
			switch z := stood(states, m.to); {
			case z.exists && w.isMember(path) && z.czxid > r.zxid:
				later = z
			case z.exists:
				in = true
			}
		}
		if !in && later.exists && later.owner == counted.owner && !late[later.owner] {
			w.ledger.fault("%v has missed the round of %+v, which %+v has opened: as %q it has entered by %+v", m.who, r, counted, m.data, later)
		}
	}
}

// older reports whether a member stood after a transaction that is older than
// ready.
func (w *world) older(all map[string][]znode, ready, zxid int64) bool {
	for path, states := range all {
		if z := stood(states, zxid); w.isMember(path) && z.exists && z.czxid <= ready {
			return true
		}
	}
	return false
}

// leftTogether checks that all have gone that were in the round when a member
// began to leave.
func (w *world) leftTogether(m *member, all map[string][]znode, ready []znode) {
	open := stood(ready, m.leaving)
	if !open.exists || w.hasStruck(RemoveZnode, RemoveDir) {
		return
	}
	for path, states := range all {
		z := stood(states, m.leaving)
		if w.isMember(path) && z.exists && z.data != m.data && z.czxid < open.czxid && stood(states, m.left).exists {
			w.ledger.fault("%v has left as %q at %x, and %s stands: %+v", m.who, m.data, m.left, path, states)
		}
	}
}

// gate does something to a simple barrier.
func (k *worker) gate(s Step) bool {
	b := must(barrier.New(k.client, k.plan.view(k.who.client).Path(k.gatePath())))
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.Cancel, k.plan.enterPatience()))
	defer cancel()
	ctx, over := k.callable(ctx, k.who)
	k.says("does")
	from, err := k.truth.now(), error(nil)
	switch s.Gate {
	case SetGate:
		err = b.Set(ctx)
	case OpenGate:
		err = b.Remove(ctx)
	case AwaitGate:
		err = b.Wait(ctx)
	}
	struck, to := over(), k.truth.now()
	k.says("did")
	k.ledger.log("%v: %s: %v", k.who, s.Gate, err)
	if err == nil {
		k.mu.Lock()
		k.gates = append(k.gates, &passage{k.who, s.Gate, from, to})
		k.mu.Unlock()
	}
	_, longest := k.plan.granted()
	if long := time.Now().Add(-3 * longest); err != nil && s.Gate == AwaitGate && !k.gone(k.who.client) && k.ledger.settledSince(long) {
		if z := k.truth.last(k.gatePath()); !z.exists && z.at.Before(long) && s.Cancel == 0 && !struck {
			k.ledger.fault("%v: waits for a barrier that is gone: %+v: %v", k.who, z, err)
		}
	}
	return k.hasFailed(err, string(s.Gate), struck || errors.Is(err, context.DeadlineExceeded))
}

func (w *world) gatePath() string { return w.paths[0] + "-gate" }

// passed judges a call of a simple barrier.
func (w *world) passed(p *passage) {
	states := w.truth.below(w.gatePath(), func(string) bool { return true })[w.gatePath()]
	first := stood(states, p.from)
	set, gone := first.exists, !first.exists
	for _, z := range states {
		if z.zxid > p.from && z.zxid <= p.to {
			set, gone = set || z.exists, gone || !z.exists
		}
	}
	switch {
	case w.mayLag(), w.allowed(zk.ErrNodeExists):
	case p.what == SetGate && !set:
		w.ledger.fault("%v: set between %x and %x, and there was no barrier: %+v", p.who, p.from, p.to, states)
	case p.what != SetGate && !gone:
		w.ledger.fault("%v: %s between %x and %x, and it stood: %+v", p.who, p.what, p.from, p.to, states)
	}
}

// lastRound checks that the barrier can be used whatever has happened, and
// leaves nothing.
func (w *world) lastRound() {
	w.begun.Store(false) // late reports may end the operator's session
	_, longest := w.plan.granted()
	time.Sleep(3 * longest) // what is dead is gone
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	var all sync.WaitGroup
	for i := range w.plan.Limit {
		all.Go(func() {
			d := must(barrier.NewDouble(w.operator, w.paths[0], w.plan.Limit, recipes.WithData(fmt.Append(nil, "last ", i))))
			in, err := d.Enter(ctx)
			if took := time.Since(began); err != nil || took > 20*longest {
				w.ledger.fault("the last round is entered after %v: %v", took, err)
			}
			if err == nil {
				if err = in.Leave(ctx); err != nil {
					w.ledger.fault("the last round is left: %v", err)
				}
			}
		})
	}
	all.Wait()
	if w.plan.Other {
		w.removed(w.plan.other())
	}
	if err := must(barrier.New(w.operator, w.gatePath())).Remove(ctx); err != nil {
		w.ledger.fault("the last barrier is removed: %v", err)
	}
	if w.ens.Exists(w.gatePath()) || slices.Contains(w.ens.Children(w.paths[0]), "ready") {
		w.ledger.fault("after the last round there is\n%s", w.ens.Tree())
	}
}
