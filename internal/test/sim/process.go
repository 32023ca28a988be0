package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// Process is one process with two clients, which one guardian guards together.
// It is killed while one client holds a lock alone, and a write that relies on
// it, a plain one, is on its way in the session of the other.
type Process struct {
	Holder, Writer int
	Late           time.Duration // how long after the death the write arrives
	Slow           time.Duration // how long the guardian's messages take to the writer's member
}

// inOneProcess draws that. It draws last, for the reason that views has.
func (d *draw) inOneProcess() {
	if d.Guardians == nil || d.Members == 1 || len(d.Workers) < 3 || !d.Recipe.isExclusive() || d.Recipe == All || d.Recipe == Campaign {
		return
	}
	clients, least := d.Perm(len(d.Workers)), d.Timeout/4
	if d.Servers != nil {
		granted, _ := d.granted()
		least = min(least, granted/4)
	}
	p := &Process{Holder: clients[0], Writer: clients[1]}
	for _, of := range []*time.Duration{&p.Late, &p.Slow} {
		*of = d.upTo(min(least, pick(d, 60*time.Millisecond, 60*time.Millisecond, 200*time.Millisecond, least))) // no session expires before that
	}
	how := &d.Guardians[p.Holder]
	if d.one(3, 4) {
		*how = Guarding{}
	}
	d.Process, d.Guardians[p.Writer] = p, *how
	d.Values, d.Crossed, d.MaxHold = nil, false, 0
	d.Workers[p.Holder] = [][]Step{{{Pause: d.upTo(time.Second), Side: d.Workers[p.Holder][0][0].Side, Work: 3 * d.Timeout}}}
	next := &d.Workers[clients[2]][0][0]
	*next = Step{Pause: d.upTo(2 * time.Second), Side: d.Workers[p.Holder][0][0].Side, Work: d.upTo(time.Second), Writes: d.IntN(3)}
	d.Faults = []Fault{{What: Kill, Client: p.Holder, At: When{Time: d.upTo(d.Timeout)}}}
}

// processOf returns the clients that die with a client.
func (p *Plan) processOf(client int) []int {
	if p.Process != nil && (client == p.Process.Holder || client == p.Process.Writer) {
		return []int{p.Process.Holder, p.Process.Writer}
	}
	return []int{client}
}

// kill kills a process.
func (w *world) kill(client int) {
	p := w.plan.Process
	if p != nil {
		w.writesBeside(p)
	}
	for _, c := range w.plan.processOf(client) {
		w.dies(c)
		w.ledger.kill(c)
		if p == nil || c != p.Writer {
			w.nets[c].Cut()
			continue
		}
		net := w.nets[c]
		net.CutOneWay(false)
		time.AfterFunc(p.Late, func() { // what it sends from now on takes longer
			net.Cut()
			w.ledger.look()
		})
	}
	if w.plan.Guardians != nil {
		w.guardians[client].died()
	}
}

// writesBeside waits until the one client of a process holds something alone,
// and sends what relies on that by the other. It gives up some time later.
func (w *world) writesBeside(p *Process) {
	for end := time.Now().Add(2 * w.plan.Timeout); time.Now().Before(end); time.Sleep(w.plan.Timeout / 200) {
		t := w.ledger.heldBy(p.Holder)
		if t == nil {
			continue
		}
		w.nets[p.Writer].Latency(p.Late-1, w.plan.Latency)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			defer cancel()
			_, err := w.clients[p.Writer].Set(ctx, w.plan.view(p.Writer).Path(t.of.data), []byte(t.token.String()), -1)
			w.ledger.log("client %d has written beside %v: %v", p.Writer, t, err)
		}()
		time.Sleep(time.Nanosecond) // it is sent: time passes only when everybody waits
		return
	}
}

// heldBy returns something that a client holds alone and that others wait for,
// and records that it may write in another session; nil: nothing.
func (l *ledger) heldBy(client int) *holding {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.resources {
		for _, t := range r.holdings {
			if t.who.client != client || t.root != t || t.shared || t.gone || !l.knownLocked(t) || len(r.waiting) == 0 {
				continue
			}
			l.logLocked("a write beside %v is on its way", t)
			r.ops = append(r.ops, op{who: t.who, in: input{kind: write, id: t.id, znode: t.znode, unknown: true}, call: l.nextLocked(), ret: never})
			return t
		}
	}
	return nil
}

// slowly returns the server that a guardian's messages take long to, and its
// net to that; "": there is none.
func (w *world) slowly(g *guardian) (server string, net *testutil.ClientNet) {
	p := w.plan.Process
	if p == nil || g.client != slices.Min(w.plan.processOf(p.Writer)) {
		return "", nil
	}
	member := w.near(p.Writer)
	if member < 0 || member == w.near(p.Holder) {
		return "", nil
	}
	net = w.ens.ClientNet(fmt.Sprint("guardian ", g.client, " to a member that is far"))
	net.Latency(p.Slow, w.plan.Latency)
	return strings.Split(w.ens.Servers(), ",")[member], net
}
