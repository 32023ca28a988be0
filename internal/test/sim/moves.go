package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// Clients get other lists of their servers, and members are replaced by others
// at other addresses. Clients that track their ensemble follow that; an
// operator tells the others. All of it also happens in plans where nothing
// fails: then no lease may be lost for it.

// stays is how long a member stays after it was removed, in session timeouts: a
// client leaves it within one, and one that has just connected to it may need
// another.
const stays = 3

// moves draws that. It draws after all that were there before it, for the
// reason that views has.
func (d *draw) moves() {
	if d.Members == 1 || d.Scenario == Rush || d.losesNone() || !d.one(1, 3) {
		return
	}
	// A member may grant less time than the one before, and a lease be lost for
	// it.
	if d.one(1, 2) && (d.Servers == nil || !d.Scenario.quiet()) {
		d.lists()
	}
	// In a plan with names nobody can dial a tracked address. With
	// ErrorPolicyConnection a client does not move while it has leases, so it may
	// still be there when the member stops. A new member has the ensemble's tick.
	if !d.Named && !d.Hop && d.Servers == nil && (!d.Scenario.quiet() || d.Policy == framework.ErrorPolicySession) && d.one(1, 2) {
		d.joins()
	}
}

// lists draws other lists of the members that there are.
func (d *draw) lists() {
	at := time.Duration(0)
	kinds := []What{ListWithout, ListWithout, ListOnly}
	if d.Named && d.Scenario.quiet() {
		d.root()
	}
	// Clients without a chroot do not know their ensemble well. Where nothing
	// fails they go back to it, and need no other session until their list has
	// it again.
	if d.Named && (d.rooted() || d.Scenario.quiet()) {
		kinds = []What{ListWithout, ListElsewhere}
	}
	for range 1 + d.IntN(4) {
		at += d.upTo(d.Timeout)
		d.Faults = append(d.Faults, Fault{
			What: pick(d, kinds...), Client: d.IntN(len(d.Workers)), Member: d.IntN(d.Members),
			At: When{Time: at}, For: d.upTo(3 * d.Timeout),
		})
	}
}

// joins draws who follows the config, and which members are replaced: not all,
// since a client without a connection learns of no others.
func (d *draw) joins() {
	for range d.Workers {
		d.Tracking = append(d.Tracking, d.one(2, 3))
	}
	at := time.Duration(0)
	for _, member := range d.Perm(d.Members)[:1+d.IntN(d.Members-1)] {
		at += d.upTo(d.Timeout)
		d.Faults = append(d.Faults, Fault{What: Replace, Member: member, At: When{Time: at}})
	}
}

// moving reports whether any client may move to another server.
func (p *Plan) moving() bool {
	for client := range p.Workers {
		if p.moves(client) {
			return true
		}
	}
	return false
}

// moves reports whether a client may.
func (p *Plan) moves(client int) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool {
		return slices.Contains([]What{ListWithout, ListOnly, ListElsewhere}, f.What) && f.Client == client || f.What == Replace
	})
}

// outlasted reports whether a client's call has this error because its retry
// policy is shorter than a move.
func (p *Plan) outlasted(client int, err error) bool {
	return p.Scenario.quiet() && p.moves(client) && p.Brief && !p.Endless && errors.Is(err, zk.ErrNoServer)
}

// doubts reports whether a client that closes may fail with this error. At an
// address that is not confirmed the answer that its session is gone counts only
// after one more question, which may take longer than Close waits.
func (p *Plan) doubts(client int, err error) bool {
	return p.moves(client) && p.Reports > 2*time.Second && strings.Contains(err.Error(), "no server has closed session")
}

// endStranded kills the clients that cannot connect for good, as an operator
// would, who starts their processes again. The ensemble was rebuilt when they
// had a new list, and were at none of its servers yet. They might be another
// ensemble's then, where no session counts.
func (w *world) endStranded() {
	if !w.rebuilt() {
		return
	}
	for c := range w.clients {
		if w.gone(c) || !w.plan.moves(c) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*w.plan.Timeout)
		err := w.clients[c].WaitConnected(ctx)
		cancel()
		if err != nil && strings.Contains(err.Error(), zkerr.NotVouched.Error()) {
			w.strike(Fault{What: Kill, Client: c}, message{})
		}
	}
}

// drains is how long a client that moves may still hear of changes on its old
// connection, when it makes no requests there any more.
func (p *Plan) drains() time.Duration {
	if !p.moving() {
		return 0
	}
	_, longest := p.granted()
	return longest / 12
}

// configPath is the znode of the config.
const configPath = "/zookeeper/config"

// tracked reports whether so many watches of a path are those of the config by
// which clients track their ensemble, and perhaps two of a cache above it.
func (w *world) tracked(path string, watches int) bool {
	most := 2
	for c := range w.clients {
		if w.plan.tracks(c) {
			most++
		}
	}
	return w.plan.Tracking != nil && path == configPath && watches <= most
}

// tracks reports whether a client follows the config.
func (p *Plan) tracks(client int) bool { return p.Tracking != nil && p.Tracking[client] }

// lists gives a client a list with some of the members, or with another
// ensemble, and later one with all.
func (w *world) lists(f Fault) (heal func(), done bool) {
	member := f.Member
	if member == Near {
		member = w.near(f.Client)
	}
	list := slices.DeleteFunc(w.serving(), func(server string) bool {
		return (server == w.server(member)) == (f.What == ListWithout)
	})
	if f.What == ListElsewhere && w.elsewhere != nil {
		list = []string{elsewhereName + ":2181"}
	}
	if len(list) == 0 {
		return nil, false
	}
	return func() { w.give(f.Client, w.serving()) }, w.give(f.Client, list)
}

// listAgain ends the faults of lists, where nothing else waits for their end:
// the sessions end once more then, and a client whose list has another ensemble
// alone would find none.
func (w *world) listAgain() {
	for _, f := range w.plan.Faults {
		if w.plan.Scenario.quiet() && slices.Contains([]What{ListWithout, ListOnly, ListElsewhere}, f.What) {
			w.give(f.Client, w.serving())
		}
	}
}

// server returns how clients know a member.
func (w *world) server(member int) string {
	if w.plan.Named {
		return nameOf(member) + ":2181"
	}
	return strings.Split(w.ens.Servers(), ",")[member]
}

// serving returns the members that were not replaced.
func (w *world) serving() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.ens.Members() {
		if !w.exMembers[i] {
			all = append(all, w.server(i))
		}
	}
	return all
}

// give gives a client a list.
func (w *world) give(client int, list []string) (done bool) {
	if w.gone(client) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), operatorPatience)
	defer cancel()
	err := w.clients[client].SetServers(ctx, strings.Join(list, ",")+w.plan.view(client).Chroot)
	w.ledger.log("client %d has the servers %v: %v", client, list, err)
	return err == nil
}

// moved is told of a client's move.
func (w *world) moved(client int, m framework.Move) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.Err == nil {
		w.moves[client]++
	} else {
		w.stuck[client] = true
	}
}

// mustHaveLeft checks that no client is at a member that was removed, where
// nothing fails, and no move has failed. Who was not told that it was a member
// does not know that it was removed, and may stay there, since it was given.
func (w *world) mustHaveLeft(member int) {
	if !w.plan.Scenario.quiet() {
		return
	}
	for _, info := range w.ens.Sessions() {
		w.mu.Lock()
		client, known := w.sessions[info.ID]
		excused := !known || client < 0 || w.dead[client] || w.stuck[client]
		w.mu.Unlock()
		if !excused && info.Owner == member {
			w.ledger.fault("client %d is at member %d, which was removed %v ago", client, member, stays*w.plan.Timeout)
		}
	}
}

// replaceMember lets a member join and another one leave, which is stopped
// later.
func (w *world) replaceMember(f Fault) (done bool) {
	old := f.Member
	if old == Near {
		old = w.near(f.Client)
	}
	if w.plan.Scenario.quiet() && old == w.ens.Leader() { // all members drop their clients then
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), operatorPatience)
	defer cancel()
	added, err := w.ens.AddMember(ctx)
	if err == nil {
		err = w.ens.RemoveMember(ctx, old)
	}
	if err != nil {
		w.ledger.log("replace member %d: %v", old, err)
		return false
	}
	w.ledger.log("member %d in place of %d", added, old)
	w.mu.Lock()
	w.exMembers[old] = true
	w.mu.Unlock()
	known := time.Since(w.ledger.begin) > w.plan.Timeout/2
	for c := range w.clients {
		if !w.plan.tracks(c) {
			go w.give(c, w.serving())
		}
	}
	go func() {
		select {
		case <-time.After(stays * w.plan.Timeout):
			if known {
				w.mustHaveLeft(old)
			}
			w.ledger.log("stop member %d: %v", old, w.ens.Stop(old))
		case <-w.ending:
		}
	}()
	return true
}
