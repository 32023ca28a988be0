package sim

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closing"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Clients have guardians, which close the sessions of a client whose process
// was killed: soon, later, not, or until they die. A guardian is what package
// closing does with what a client has told it. How it hears of a death, and of
// commands, is tested where the kernel is: see internal/guard.
//
// A killed client goes on in this process, cut off. What it believes does not
// count any more once its guardian begins to close: its process does nothing.
// What it has sent before still arrives.

// Guarding says how soon a guardian acts, and where.
type Guarding struct {
	After     time.Duration // the death
	Never     bool          // it has died as well
	Dies      time.Duration // it dies so long after it has begun; 0: it does not
	Elsewhere bool          // it reaches no member that the client was connected to, unless there is no other
}

// guarded draws that. It draws after all that were there before it, for the
// reason that views has. Guardians have no name service.
func (d *draw) guarded() {
	if d.Scenario.quiet() || d.Rates != nil || d.Named || !d.one(1, 8) {
		return
	}
	for range d.Workers {
		d.Guardians = append(d.Guardians, Guarding{After: pick(d, 0, 0, d.instant(), d.upTo(d.Timeout)), Never: d.one(1, 6)})
	}
	for _, client := range d.Perm(len(d.Workers))[:1+d.IntN(len(d.Workers)-1)] {
		d.Faults = append(d.Faults, Fault{What: Kill, Client: client, At: When{Time: d.upTo(2 * d.Timeout), Upon: d.one(1, 3)}})
	}
	for i := range d.Guardians {
		d.Guardians[i].Elsewhere = d.Members > 1 && d.one(1, 3)
	}
	for i := range d.Guardians {
		if d.one(1, 6) {
			d.Guardians[i].Dies = max(1, d.instant())
		}
		if d.one(1, 8) {
			d.Guardians[i].After = d.upTo(3 * d.Timeout) // its sessions may have expired
		}
	}
}

// prompt reports whether a client has a guardian that acts at once: nobody
// waits for a session timeout when it was killed.
func (p *Plan) prompt(client int) bool {
	return p.Guardians != nil && p.Guardians[client].After == 0 && p.Guardians[client].Dies == 0 && !p.Guardians[client].Never
}

// guardian is told of the sessions of a client.
type guardian struct {
	world  *world
	client int
	lost   chan struct{} // never closed

	mu       sync.Mutex // guards what follows
	sessions map[string]closing.Session
	told     map[int64]bool // all sessions
}

// guarded returns the option of a client that has a guardian.
func (w *world) guarded(client int) []framework.Option {
	if w.plan.Guardians == nil {
		return nil
	}
	if of := w.plan.processOf(client); slices.Min(of) < client {
		first := w.guardians[slices.Min(of)]
		w.guardians = append(w.guardians, first)
		return []framework.Option{framework.WithGuardian(first)}
	}
	g := &guardian{world: w, client: client, lost: make(chan struct{}), sessions: map[string]closing.Session{}, told: map[int64]bool{}}
	w.guardians = append(w.guardians, g)
	return []framework.Option{framework.WithGuardian(g)}
}

func keyOfDead(s framework.DeadSession) string { return fmt.Sprint(s.ID, s.Servers) }

func (g *guardian) Guard(s framework.DeadSession) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sessions[keyOfDead(s)] = closing.Session{DeadSession: s}
	g.told[s.ID] = true
}

func (g *guardian) Over(s framework.DeadSession, closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known, ok := g.sessions[keyOfDead(s)]; ok && !closed && known.Left.IsZero() {
		known.Left = time.Now()
		g.sessions[keyOfDead(s)] = known
	} else if closed {
		delete(g.sessions, keyOfDead(s))
	}
}

// isGuarded checks that the guardian of a client was told of a session in which
// something is to be created: the client may die at any moment.
func (w *world) isGuarded(client int, r testutil.Request) {
	creates := strings.HasPrefix(r.Op.String(), "create")
	for _, one := range r.Operations {
		creates = creates || strings.HasPrefix(one.Op.String(), "create")
	}
	if w.plan.Guardians == nil || !creates {
		return
	}
	g := w.guardians[client]
	g.mu.Lock()
	known := g.told[r.Session]
	g.mu.Unlock()
	if !known {
		w.ledger.fault("client %d sends %v in session %#x, and its guardian was not told of that", client, r.Op, r.Session)
	}
}

func (g *guardian) Lost() <-chan struct{} { return g.lost }

func (g *guardian) Err() error { return nil }

func (g *guardian) Close() error { return nil }

// died closes what the client has left, if the guardian lives.
func (g *guardian) died() {
	w := g.world
	died, how := time.Now(), w.plan.Guardians[g.client]
	if how.Never {
		return
	}
	own := w.ens.ClientNet(fmt.Sprint("guardian ", g.client))
	if w.plan.Staged {
		w.plan.apart(len(w.clients)+g.client, own)
	}
	g.mu.Lock()
	barred := map[string]bool{}
	for _, s := range g.sessions {
		barred[s.Server] = how.Elsewhere
	}
	slow, slowly := w.slowly(g)
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		switch {
		case barred[address] && len(barred) < w.plan.Members:
			return nil, syscall.ECONNREFUSED
		case address == slow:
			return slowly.Dial(network, address, timeout)
		}
		return own.Dial(network, address, timeout)
	}
	var left []closing.Session
	for _, key := range slices.Sorted(maps.Keys(g.sessions)) {
		s := g.sessions[key]
		e, err := closing.Open(s.Servers, framework.WithDialer(dial))
		if err != nil {
			w.ledger.fault("the guardian of client %d does not know %s: %v", g.client, s.Servers, err)
			continue
		}
		s.Ensemble = e
		left = append(left, s)
	}
	g.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-w.ending:
		case <-ctx.Done():
		}
		cancel()
	}()
	go func() {
		defer cancel()
		time.Sleep(how.After)
		for _, c := range w.plan.processOf(g.client) {
			w.ledger.closeFor(c)
		}
		if how.Dies > 0 {
			defer time.AfterFunc(how.Dies, func() {
				cancel()
				own.Drop()
				if slowly != nil {
					slowly.Drop()
				}
			}).Stop()
		}
		for i, err := range closing.Close(ctx, left, died) {
			w.ledger.log("the guardian of client %d closes session %#x: %v", g.client, left[i].ID, err)
		}
	}()
}
