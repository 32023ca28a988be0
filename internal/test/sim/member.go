package sim

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
)

// member does what a fault of a member says, if it may fail.
func (w *world) member(f Fault) (heal func()) {
	m, leader := f.Member, w.ens.Leader()
	switch m {
	case Near:
		m = w.near(f.Client)
	case Leader:
		m = max(leader, 0)
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
// knows; the first if it does not.
func (w *world) near(client int) int {
	if s, err := w.clients[client].Session(); err == nil {
		for _, info := range w.ens.Sessions() {
			if info.ID == s.ID() && info.Owner >= 0 {
				return info.Owner
			}
		}
	}
	return 0
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
		select {
		case <-time.After(d):
		case <-w.ending:
		}
		_ = w.ens.Restart(member) // fails if everything was healed meanwhile
	}
	w.calm(member)
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
	if len(w.troubled) > 0 || w.exMembers[member] { // which may have been stopped
		return false
	}
	w.troubled[member] = true
	return true
}

func (w *world) calm(member int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.troubled, member)
}
