package sim

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// rule is a fault that strikes single requests.
type rule struct {
	Fault
	left int
}

// leaver is a caller that cancels when its client sends a request.
type leaver struct {
	Step
	left  int
	leave func()
}

// leaveLocked cancels the callers whose time has come. What happens first at
// one instant is up to the scheduler, so it gets a choice.
func (w *world) leaveLocked(client int, op testutil.Op, answered bool) {
	for k, l := range w.leavers {
		if k.client != client || l.On != op || l.Answered != answered {
			continue
		}
		if l.left--; l.left != 0 {
			continue
		}
		by := l.OnBy
		if answered {
			by = 0
		}
		if answered && l.Yields == 0 { // the goroutine that gets the answer runs before the one that cancels
			l.leave()
			continue
		}
		time.AfterFunc(by, func() {
			for range l.Yields {
				runtime.Gosched()
			}
			l.leave()
		})
	}
}

// asked is called with each request of a client, when it has ended.
func (w *world) asked(client int, op string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f, begin := range w.armed {
		if err == nil && f.begins(client, op) {
			delete(w.armed, f)
			go begin(client)
		}
	}
	w.leaveLocked(client, map[string]testutil.Op{
		"create": testutil.OpCreate, "list": testutil.OpGetChildren2, "watch": testutil.OpGetData, "multi": w.plan.multi(),
	}[op], true)
}

// begins reports whether the fault was waiting for a request of a client.
func (f *Fault) begins(client int, op string) bool {
	if f.What == Recreate {
		return op == "delete" && client == f.Client
	}
	return op == "multi"
}

// control decides what happens to a request.
func (w *world) control(r testutil.Request) testutil.Action {
	w.mu.Lock()
	client, known := w.sessions[r.Session]
	w.mu.Unlock()
	if known && client != operator && r.Op != testutil.OpCreateSession {
		w.happens(client, Executed, r.Op.String(), message{})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case client == operator:
		return testutil.Pass()
	case known:
		for _, op := range w.operations(r) {
			w.leaveLocked(client, op, false)
		}
		if w.orphanLocked(client, r) {
			time.AfterFunc(time.Millisecond, w.nets[client].Drop)
			return testutil.Delay(w.plan.Timeout / 8)
		}
	}
	for _, f := range w.rules {
		switch {
		case f.What == Late && known && client == f.Client:
			return testutil.DelayReply(f.By)
		case f.What == Late || f.left == 0 || !w.has(r, f.Op), (f.What == RecreateUnder || f.What.connects()) && (!known || client != f.Client):
			continue
		}
		f.left--
		w.happened++
		w.ledger.log("%s: %v %s of session %#x at member %d", f.What, r.Op, r.Path, r.Session, r.Member)
		switch f.What {
		case Before:
			return testutil.DropBefore()
		case After, LostConnect:
			return testutil.DropAfter()
		case Refuse:
			return testutil.Fail(pickCode(f.Member))
		case Delay, LateAttach:
			return testutil.Delay(f.By)
		case Orphan:
			if known {
				time.AfterFunc(f.By/4, w.nets[client].Drop)
			}
			return testutil.Delay(f.By)
		case DelayAns, LateConnect:
			return testutil.DelayReply(f.By)
		case RecreateUnder:
			go w.recreate(f.Fault)
			return testutil.Delay(f.By)
		case LeaderStops:
			go w.stopLeader(f.By/2, f.For)
			return testutil.Delay(f.By)
		case LeaderStopsLate:
			go w.stopLeader(f.By/2, f.For)
			return testutil.DelayReply(f.By)
		}
	}
	return testutil.Pass()
}

// connects reports whether a fault strikes the next connect of its client.
func (f What) connects() bool { return f == LateConnect || f == LostConnect || f == LateAttach }

func pickCode(n int) testutil.Code {
	return []testutil.Code{testutil.CodeConnectionLoss, testutil.CodeOperationTimeout, testutil.CodeThrottled}[n%3]
}

// stopLeader stops the leader.
func (w *world) stopLeader(after, d time.Duration) {
	time.Sleep(after)
	member := w.ens.Leader()
	if member < 0 || !w.trouble(member) {
		return
	}
	w.ledger.log("stop the leader, member %d", member)
	if w.ens.Stop(member) == nil {
		time.Sleep(d)
		_ = w.ens.Restart(member) // fails if everything was healed meanwhile
	}
	w.calm(member)
}

// runFaults runs the faults in order, and ends all of them at the end.
func (w *world) runFaults() {
	type event struct {
		at time.Duration
		do func()
	}
	var events []event
	last := time.Duration(0)
	for _, f := range w.plan.Faults {
		begin := func(client int) {
			f.Client = client
			heal := w.fault(f)
			if heal == nil {
				return
			}
			time.AfterFunc(f.For, heal)
			late := f.What.connects()
			if f.Then > 0 {
				if f.What, f.For = Cut, f.For-f.Then; late {
					f.What = DropRequests
				}
				time.AfterFunc(f.Then, func() {
					if heal := w.client(f); heal != nil {
						time.AfterFunc(f.For, heal)
					}
				})
			}
		}
		do, end := func() { begin(f.Client) }, f.At+f.For
		if f.Upon {
			do, end = func() { w.arm(&f, begin) }, end+w.plan.Timeout
		}
		events, last = append(events, event{f.At, do}), max(last, end)
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	for _, e := range events {
		time.Sleep(time.Until(w.ledger.begin.Add(e.at)))
		e.do()
	}
	if w.plan.Scenario.quiet() {
		return
	}
	time.Sleep(time.Until(w.ledger.begin.Add(last + time.Second)))
	w.heal()
	_, longest := w.plan.granted()
	w.ledger.settle(8*longest + 10*time.Second)
}

// arm starts a fault when any client is next sent an event about a write, and
// then strikes that client. The fault does not start if that takes longer than
// a session lasts.
func (w *world) arm(f *Fault, begin func(client int)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed[f] = begin
	time.AfterFunc(w.plan.Timeout, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.armed, f)
	})
}

// heal ends all faults.
func (w *world) heal() {
	w.mu.Lock()
	w.rules = nil
	w.mu.Unlock()
	w.ens.Heal()
	w.ens.Latency(w.plan.Latency)
	for i := range w.ens.Members() {
		w.restore(i)
	}
	for i, net := range w.nets {
		if !w.gone(i) {
			net.Heal()
		}
	}
}

// trouble reports whether one more member may fail. A majority that serves must
// remain, or the checks would read the state of an old leader.
func (w *world) trouble(member int) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if w.ens.WaitServing(ctx) != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.troubled) > 0 {
		return false
	}
	w.troubled[member] = true
	w.happened++
	return true
}

func (w *world) calm(member int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.troubled, member)
}

// fault causes one fault. It lasts until heal is called, unless heal is nil.
func (w *world) fault(f Fault) (heal func()) {
	w.ledger.log("%s: client %d, member %d, %v for %v", f.What, f.Client, f.Member, f.Op, f.For)
	switch f.What {
	case Before, After, Refuse, Delay, DelayAns, Orphan, LeaderStops, LeaderStopsLate, RecreateUnder, Late:
		return w.rule(f)
	case Stop, StopFirst, Pause, Isolate, Lag, Mute, Wedge:
		return w.member(f)
	case Recreate:
		go w.recreate(f)
		return nil
	case Slow:
		w.count()
		w.ens.Latency(f.By)
		return func() { w.ens.Latency(w.plan.Latency) }
	}
	return w.client(f)
}

func (w *world) count() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.happened++
}

func (w *world) rule(f Fault) (heal func()) {
	r := &rule{f, f.N}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules = append(w.rules, r)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.rules = slices.DeleteFunc(w.rules, func(o *rule) bool { return o == r })
	}
}

func (w *world) member(f Fault) (heal func()) {
	m, leader := f.Member, w.ens.Leader()
	if f.Near {
		m = w.near(f.Client, m)
	}
	if f.What == StopFirst {
		f.What, m = Stop, max(leader, 0)
	}
	if f.What != Stop && w.plan.Members == 1 && f.What != Mute && f.What != Wedge {
		return nil
	}
	// ProofSync does not cover a leader that has lost its quorum and does not
	// know it, and its documentation says so.
	if (f.What == Pause || f.What == Isolate) && m == leader && w.plan.Proof == framework.ProofSync {
		return nil
	}
	if !w.trouble(m) {
		return nil
	}
	switch f.What {
	case Stop:
		_ = w.ens.Stop(m) // it is running: it was not in trouble
	case Pause:
		_ = w.ens.Pause(m)
	case Isolate:
		w.ens.Isolate(m)
	case Lag:
		w.ens.Lag(m)
	case Mute:
		w.ens.Mute(m)
	case Wedge:
		w.ens.Wedge(m)
	}
	return func() {
		w.ens.Heal()
		w.restore(m)
	}
}

// restore ends all faults of a member, except that it is cut off.
func (w *world) restore(member int) {
	w.ens.Unmute(member)
	w.ens.Unwedge(member)
	w.ens.Unlag(member)
	_ = w.ens.Resume(member)  // fails if it is not paused
	_ = w.ens.Restart(member) // fails if it is running
	w.calm(member)
}

// near returns the member that a client is connected to, as far as the leader
// knows.
func (w *world) near(client, otherwise int) int {
	if s, err := w.clients[client].Session(); err == nil {
		for _, info := range w.ens.Sessions() {
			if info.ID == s.ID() && info.Owner >= 0 {
				return info.Owner
			}
		}
	}
	return otherwise
}

func (w *world) client(f Fault) (heal func()) {
	if w.gone(f.Client) {
		return nil
	}
	w.ledger.log("%s: client %d for %v", f.What, f.Client, f.For)
	w.count()
	net, c := w.nets[f.Client], w.clients[f.Client]
	switch f.What {
	case Cut:
		net.Cut()
	case DropReplies:
		net.CutOneWay(false)
	case DropRequests:
		net.CutOneWay(true)
	case Drop:
		net.Drop()
		return func() {}
	case LateConnect, LostConnect, LateAttach:
		heal = w.rule(f)
		net.Drop()
		return heal
	case Expire:
		if s, err := c.Session(); err == nil {
			w.ledger.expire(s.ID())
		}
		return nil
	case Close, Kill:
		w.mu.Lock()
		w.dead[f.Client] = true
		w.mu.Unlock()
		if f.What == Close {
			w.ledger.close(f.Client)
			go c.Close()
		} else {
			w.ledger.kill(f.Client)
			net.Cut()
		}
		return nil
	}
	return func() {
		if !w.gone(f.Client) {
			net.Heal()
		}
	}
}
