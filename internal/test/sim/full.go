package sim

import (
	"errors"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// In some plans framework.WithMaxEphemerals lets a session have few ephemeral
// znodes, since their names are long. Then an acquisition or a presence may be
// refused, if what the goroutines of its client have or want is more than that.
// What keeps something held never is: a downgrade, the permits of a contender
// in line, and a presence node that is made again. What lingers counts for
// nothing.

// full draws how much room a session has. It draws last, for the reason that
// views has.
func (d *draw) full() {
	switch d.Recipe {
	case Keyed, Many, RWLock, Semaphore, Presence:
	default:
		return
	}
	if d.Scenario != Rush && d.one(1, 6) {
		d.Room = 1 + d.IntN(4)
	}
}

// leastLimit is what bubble.Narrow lets a session have, in bytes. shorter is
// more than what a znode of a line or a group has beside the name of its lock.
const (
	leastLimit = 16384
	shorter    = 200
)

// long makes a name so long that as many znodes below it as there is room for
// fit into a session, and no more.
func (p *Plan) long(name string) string {
	if p.Room == 0 {
		return name
	}
	return name + strings.Repeat("x", leastLimit/p.Room-shorter)
}

// narrow returns the client's options for it.
func (p *Plan) narrow() (opts []framework.Option) {
	if p.Room > 0 {
		opts = append(opts, bubble.Narrow)
	}
	return opts
}

// takes returns how many znodes a step needs at most: also those that are
// reserved when it joins the line.
func (p *Plan) takes(s Step) int {
	switch {
	case p.Recipe == RWLock && s.Side == 1:
		return 2
	case p.Recipe == Semaphore:
		return 1 + s.Side
	}
	return 1
}

// demand is what a goroutine has or wants for a while.
type demand struct {
	client, znodes int
	over           time.Time // zero: it has it still
}

// takesUp notes that the worker begins to acquire something, or to stand. The
// function that it returns notes the end, and whether it was left.
func (k *worker) takesUp(s Step) (over func(left bool)) {
	if k.plan.Room == 0 {
		return func(bool) {}
	}
	d := &demand{client: k.who.client, znodes: k.plan.takes(s)}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.demands = append(k.demands, d)
	return func(left bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if s.Stay {
			return
		}
		d.over = time.Now()
		if !left || s.Bound > 0 || !k.plan.Scenario.quiet() || k.plan.asynchronous(k.who.client) { // it may not be gone yet
			d.over = d.over.Add(k.plan.Timeout)
		}
	}
}

// fills reports whether a client may have been refused an ephemeral znode:
// since then its goroutines have had or wanted more than there is room for.
// After a fault more may count, until the ensemble was asked what there is.
func (w *world) fills(client int, since time.Time) bool {
	if w.struck() && !w.ledger.settledSince(since) {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := 0
	for _, d := range w.demands {
		if d.client == client && (d.over.IsZero() || !d.over.Before(since)) {
			sum += d.znodes
		}
	}
	return sum > w.plan.Room
}

// wasInLine reports whether a contender was refused the permits that it has
// joined the line for: they are taken by a multi. A contender may have joined
// for another goroutine of its client, which wanted fewer.
func (k *worker) wasInLine(err error) bool {
	return k.plan.Recipe == Semaphore && len(k.plan.Workers[k.who.client]) == 1 && strings.Contains(err.Error(), ": multi ")
}

// wasRefused reports whether a status says that there is no room.
func wasRefused(s presence.Status) bool {
	return s.State == presence.Pending && errors.Is(s.Err, framework.ErrTooLarge)
}

// refused judges that a node is told that there is no room. Whether there is
// some is judged when all is quiet, since it tries again after a while.
func (n *stander) refused(s presence.Status) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stood != nil && n.fixed() { // otherwise lost creates may have made several
		n.ledger.fault("%v: %s has stood, and was refused: %v", n.who, n.path, s.Err)
	}
}
