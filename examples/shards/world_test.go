package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const beat = 100 * time.Millisecond // between two writes of a member to a shard

// world is members, the log of the store that they write to, and the scenario.
type world struct {
	ledger
	t          *testing.T
	ens        testutil.Ensemble
	timeout    time.Duration // of sessions
	exact      bool          // time is virtual
	start      func(id string) *running
	started    int // so many, by startHere
	wasStopped map[string]bool

	observer *framework.Client // is no member
	election *leader.Election
	group    *presence.Group
}

// running is one member.
type running struct {
	id   string
	end  func()                 // asks it to end, and waits for that
	kill func()                 // as SIGKILL does
	stop func() (resume func()) // as SIGSTOP does
	cut  func() (heal func())   // from the ensemble, but not from the store

	drop   func() // its connections
	expire func() // its session
}

func newWorld(t *testing.T, ens testutil.Ensemble, timeout time.Duration) *world {
	observer, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = observer.Close() })
	election, err := leader.New(observer, basePath+"/leader")
	if err != nil {
		t.Fatal(err)
	}
	group, err := presence.NewGroup(observer, basePath+"/members")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{observer: observer, group: group, t: t, ens: ens, timeout: timeout, wasStopped: make(map[string]bool), election: election}
	w.start = w.startHere
	return w
}

// scenario has a member come and end, and kills, stops and cuts off members,
// those that lead and others.
func (w *world) scenario() {
	members := []*running{w.start("a"), w.start("b"), w.start("c")}
	before, from := w.settled(members...), time.Now()
	d := w.start("d")
	after := w.settled(append(members, d)...)
	w.movedTo(d, before, after, 3)
	w.notLonger(from, time.Second, all()...)
	from = time.Now()
	d.end()
	w.settled(members...)
	w.notLonger(from, time.Second, all()...)

	for _, leads := range []bool{true, false} {
		w.killed(members, leads)
		w.strikes(members, leads, "is stopped", func(r *running) (end func()) { return r.stop() })
		w.strikes(members, leads, "is cut off", func(r *running) (end func()) { return r.cut() })
	}
	if err := audit(w.entries()); err != nil {
		judge.Errorf(w.t, "%v", err)
	}
}

// killed kills a member, and starts another process with its id.
func (w *world) killed(members []*running, leads bool) {
	w.t.Helper()
	w.strikes(members, leads, "is killed", func(r *running) (end func()) {
		r.kill()
		return func() { *r = *w.start(r.id) }
	})
}

// strikes has something happen to a member, until its shards are worked on by
// the others, and until it is back.
func (w *world) strikes(members []*running, leads bool, what string, fault func(*running) (end func())) {
	w.t.Helper()
	victim, others := w.pick(members, leads)
	before, from := w.settled(members...), time.Now()
	end := fault(victim)
	after := w.settled(others...)
	calm, longest := w.calm(victim, before, after), time.Duration(0)
	for shard, id := range before.owners {
		if id == victim.id {
			longest = max(longest, w.since(from, shard, ids(others)...))
			continue
		}
		if calm && after.owners[shard] != id {
			w.t.Errorf("shard %d has moved from %s to %s", shard, id, after.owners[shard])
		}
		w.notLonger(from, 2*beat, shard)
	}
	w.t.Logf("%s %s, it leads: %t; its shards are worked on again after %v", victim.id, what, leads, longest)
	if w.exact && longest > 2*w.timeout {
		w.t.Errorf("more than two session timeouts")
	}
	before, from = w.settled(others...), time.Now()
	end()
	after = w.settled(members...)
	w.movedTo(victim, before, after, shards/len(members))
	w.notLonger(from, w.timeout/2, all()...) // its cache may wait for a third of it
}

// pick returns a member that leads, or one that does not, and the others.
func (w *world) pick(members []*running, leads bool) (one *running, others []*running) {
	w.t.Helper()
	var first string
	w.await("a leader", func() bool {
		p, err := w.election.Leader(w.t.Context())
		first = string(p.Data)
		return err == nil
	})
	for _, r := range members {
		if one == nil && (r.id == first) == leads {
			one = r
		} else {
			others = append(others, r)
		}
	}
	if one == nil {
		w.t.Fatalf("%q leads", first)
	}
	return one, others
}

// state is who works on each shard, and the session of each member.
type state struct {
	owners   [shards]string
	sessions map[string]int64
}

// settled waits until the members work on as many shards each, as they are
// assigned, and nobody else is in the group or works on any.
func (w *world) settled(members ...*running) state {
	w.t.Helper()
	want := make(map[string]int)
	for _, r := range members {
		want[r.id] = shards / len(members)
	}
	var now state
	w.await(fmt.Sprint(want), func() bool {
		if !maps.Equal(w.store.shares(), want) {
			return false
		}
		now = w.now()
		data, _, err := w.observer.Get(w.t.Context(), assignmentPath)
		assigned, _ := decode(data)
		return err == nil && slices.Equal(assigned, now.owners[:]) && len(now.sessions) == len(members)
	})
	time.Sleep(2 * beat) // so that each has written
	return now
}

func (w *world) now() state {
	w.t.Helper()
	members, err := w.group.Members(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	s := state{owners: w.owners(), sessions: make(map[string]int64)}
	for _, m := range members {
		s.sessions[m.ID] = m.Session
	}
	return s
}

// calm reports whether all members but one are in the session that they were
// in. On a busy machine somebody else may have lost the session, and shards.
func (w *world) calm(but *running, before, after state) bool {
	w.t.Helper()
	for id, session := range before.sessions {
		if id != but.id && after.sessions[id] != session {
			if w.t.Logf("%s has lost its session", id); w.exact {
				w.t.Errorf("in virtual time")
			}
			time.Sleep(2 * w.timeout) // what follows from that must not count for what comes next
			return false
		}
	}
	return true
}

// movedTo fails the test if not exactly n shards have moved, all to one member.
func (w *world) movedTo(r *running, before, after state, n int) {
	w.t.Helper()
	if !w.calm(r, before, after) {
		return
	}
	moved := 0
	for shard, now := range after.owners {
		if was := before.owners[shard]; now != was {
			moved++
			if now != r.id {
				w.t.Errorf("shard %d has moved from %s to %s", shard, was, now)
			}
		}
	}
	if moved != n {
		w.t.Errorf("%d shards have moved, want %d: from %v to %v", moved, n, before.owners, after.owners)
	}
}

// notLonger fails the test if nobody has worked on a shard for longer, in
// virtual time.
func (w *world) notLonger(from time.Time, limit time.Duration, of ...int) {
	w.t.Helper()
	for _, shard := range of {
		if rest := w.rest(from, shard); w.exact && rest > limit {
			w.t.Errorf("nobody worked on shard %d for %v", shard, rest)
		}
	}
}

func (w *world) await(what string, happened func() bool) {
	w.t.Helper()
	for from := time.Now(); !happened(); time.Sleep(10 * time.Millisecond) {
		if time.Since(from) > 2*time.Minute {
			w.t.Fatalf("not in two minutes: %s; shares: %v", what, w.store.shares())
		}
	}
}

func all() (every []int) {
	for shard := range shards {
		every = append(every, shard)
	}
	return every
}

func ids(members []*running) (all []string) {
	for _, r := range members {
		all = append(all, r.id)
	}
	return all
}

// startHere starts a member in this process, and waits until it works.
func (w *world) startHere(id string) *running {
	w.t.Helper()
	w.started++
	net := w.ens.ClientNet(fmt.Sprint(id, " ", w.started))
	client, err := framework.New(w.ens.Servers(), framework.WithDialer(net.Dial), framework.WithSessionTimeout(w.timeout))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var g gate
	var all sync.WaitGroup
	all.Go(func() {
		defer client.Close()
		err := join(ctx, client, id, func(ctx context.Context, shard int, token recipes.Token) error {
			for ; ctx.Err() == nil; pause(ctx, beat) {
				if err := g.pass(); err != nil {
					return err
				}
				if err := w.write(id, shard, token); err != nil {
					return err
				}
			}
			return nil
		})
		if ctx.Err() == nil {
			w.t.Errorf("%s has ended: %v", id, err)
		}
	})
	w.t.Cleanup(func() {
		g.open(false)
		net.Heal()
		end()
		all.Wait()
	})
	w.await(id+" works", func() bool { return w.store.shares()[id] > 0 })
	return &running{
		id: id,
		end: func() {
			end()
			all.Wait()
		},
		kill: func() {
			g.open(true)
			net.Cut()
			net.Drop()
			end()
		},
		stop: func() (resume func()) {
			w.wasStopped[id] = true
			g.close()
			net.Cut()
			return func() {
				g.open(false)
				net.Heal()
			}
		},
		cut: func() (heal func()) {
			net.Cut()
			return net.Heal
		},
		drop: net.Drop,
		expire: func() {
			if s, err := client.Session(); err == nil {
				_ = w.ens.ExpireSession(s.ID()) // it may have none
			}
		},
	}
}

// gate is what a member's writes pass, whatever its contexts say: those of a
// member that is stopped come late, and those of one that was killed never.
type gate struct {
	mu   sync.Mutex    // guards what follows
	shut chan struct{} // closed when it is opened; nil: it is open
	dead bool
}

func (g *gate) pass() error {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		return errors.New("killed")
	}
	return nil
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

// open lets all writes pass, or fails them if the member is dead.
func (g *gate) open(dead bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = g.dead || dead
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}
