package sim

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// stayer is what a worker keeps until everything is quiet: a cache or a
// presence node.
type stayer interface {
	id() who
	untrue() string // what it says, or does not do, although all is quiet; empty if nothing
	close()
}

func (k *worker) id() who { return k.who }

func (w *world) stays(s stayer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.staying = append(w.staying, s)
}

// quietly compares what was kept with the truth, again when all sessions have
// expired once more, and ends it.
func (w *world) quietly(stopEnds func()) {
	switch r := w.plan.Recipe; {
	case r == Barrier:
		w.lastRound()
		return
	case r.counts():
		time.Sleep(receipts)
		return
	case !r.watches():
		return
	}
	_, longest := w.plan.granted()
	bound := 10*longest + time.Minute // the longest pause of a presence node is half a minute
	if w.hasStruck(LoseEvents, DenyRead) {
		bound += 2 * recheck(w.plan)
	}
	w.becomesTrue("after the last fault", bound)
	stopEnds()
	w.watchTrees()
	w.members()
	if !w.plan.Staged {
		for c := range w.clients {
			if !w.gone(c) {
				w.expire(c, true)
			}
		}
		w.becomesTrue("after an expiry", 2*longest+60*w.plan.Latency+10*w.plan.Reports)
	}
	var closing sync.WaitGroup
	for _, s := range w.staying {
		if !w.gone(s.id().client) {
			closing.Go(s.close)
		}
	}
	closing.Wait()
}

// ends makes all connections end periodically, where the plan has that.
func (w *world) ends() (stop func()) {
	if w.plan.Ends == 0 {
		return func() {}
	}
	over := make(chan struct{})
	var ending sync.WaitGroup
	ending.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(w.plan.Ends):
			}
			for i, net := range w.nets {
				if !w.gone(i) {
					net.Drop()
				}
			}
		}
	})
	return func() { close(over); ending.Wait() }
}

// receipts is how long a counter may keep its receipt.
const receipts = time.Minute + time.Second

// becomesTrue waits until what was kept says what is.
func (w *world) becomesTrue(when string, bound time.Duration) {
	for end := time.Now().Add(bound); ; {
		time.Sleep(w.plan.Timeout / 16)
		late := time.Now().After(end)
		wrong := ""
		for _, s := range w.staying {
			if !w.gone(s.id().client) && wrong == "" {
				wrong = s.untrue()
			}
		}
		if wrong == "" {
			w.ledger.log("all is true %s", when)
			return
		}
		if late {
			w.ledger.fault("%v %s, and still: %s\n%s", bound, when, wrong, w.ens.Tree())
			return
		}
	}
}

// members compares what a group says of its members with the truth.
func (w *world) members() {
	if w.plan.Recipe != Presence || w.gone(0) {
		return
	}
	for _, layout := range layouts {
		for before := int64(-1); before != w.truth.now(); { // nothing has changed meanwhile
			before = w.truth.now()
			w.membersOf(w.paths[0]+groupOf(layout), layout)
		}
	}
}

func (w *world) membersOf(root string, layout presence.Layout) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	view, before := w.plan.view(0), w.truth.now()
	g := must(presence.NewGroup(w.clients[0], view.Path(root), presence.WithLayout(layout)))
	roster := g.Follow()
	defer roster.Close()
	followed, err := roster.Fresh(ctx)
	var members []presence.Member
	if err == nil { // which has made the server catch up
		members, err = g.Members(ctx)
	}
	switch {
	case err != nil && (w.expected(err) || w.plan.outlasted(0, err)), w.truth.now() != before, w.mayLag():
		return
	case err != nil:
		w.ledger.fault("members of %s: %v", root, err)
		return
	}
	var want []presence.Member
	for path, states := range w.truth.below(root, func(path string) bool { return path != root }) {
		if z := states[len(states)-1]; z.exists {
			want = append(want, presence.Member{Path: view.Path(path), Session: z.owner, Data: []byte(z.data)})
		}
	}
	for _, got := range [][]presence.Member{members, followed} {
		missing := slices.ContainsFunc(want, func(a presence.Member) bool {
			return !slices.ContainsFunc(got, func(b presence.Member) bool {
				return a.Path == b.Path && a.Session == b.Session && bytes.Equal(a.Data, b.Data)
			})
		})
		if missing || len(got) != len(want) {
			w.ledger.fault("the members of %s are %+v, and not %+v", root, got, want)
		}
	}
}
