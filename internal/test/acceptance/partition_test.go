package acceptance_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A network loses everything, in one direction or both, without an error. The
// holder gives up the lease before another contender is granted, whatever the
// recipe, and the other waits little longer than a session timeout.
func TestALongSilence(t *testing.T) {
	parallel(t)
	type silence struct {
		*stage
		name  string
		k     kind
		a     *peer
		held  *recipes.Lease
		next  <-chan grant
		lost  chan time.Time
		cut   func()
		began time.Time // the network was still up
	}
	onBoth(t, 1, func(t *testing.T, ens testutil.Ensemble) {
		var all []*silence
		for _, k := range kinds {
			for way, cut := range map[string]func(*testutil.ClientNet){
				"both ways":       (*testutil.ClientNet).Cut,
				"what it says":    func(n *testutil.ClientNet) { n.CutOneWay(true) },
				"what it is told": func(n *testutil.ClientNet) { n.CutOneWay(false) },
			} {
				s := &silence{name: fmt.Sprint(k.name, ", ", way), k: k, lost: make(chan time.Time, 1)}
				s.stage = &stage{ens, "/suite/silence/" + strings.ReplaceAll(s.name, " ", "_"), client(t, ens)}
				// On a machine that stalls, the loss may be recorded late by up
				// to the margin.
				s.a = s.joinFor(t, timeout, framework.WithStopMargin(timeout/5))
				s.held = acquire(t, t.Context(), k.of(t, s.a.Client, s.path))
				s.next = acquiring(t.Context(), k.of(t, s.join(t).Client, s.path))
				k.standing(t, s.stage, 1, 1)
				go func() {
					<-s.held.Lost()
					s.lost <- time.Now()
				}()
				s.cut = func() { cut(s.a.net) }
				all = append(all, s)
			}
		}
		for _, s := range all {
			s.began = time.Now()
			s.cut()
		}
		for _, s := range all {
			g := outcome(t, s.next)
			if g.err != nil {
				t.Fatalf("%s: %v", s.name, g.err)
			}
			select {
			case at := <-s.lost:
				if at.After(g.at) {
					judge.Errorf(t, "%s: two at once for %v", s.name, at.Sub(g.at))
				}
			case <-time.After(load.Patience):
				t.Fatalf("%s: the holder does not learn of its loss", s.name)
			}
			if early := s.held.Deadline().Sub(g.at); early > 0 {
				judge.Errorf(t, "%s: succeeded %v before its deadline", s.name, early)
			}
			if took := g.at.Sub(s.began); took < timeout/2 || took > load.Patience/2 {
				t.Errorf("%s: succeeded after %v", s.name, took)
			}
			release(t, g.lease)
		}
		for _, s := range all {
			s.a.net.Heal()
			lost(t, s.held)
			release(t, acquire(t, t.Context(), s.k.of(t, s.a.Client, s.path)))
			s.k.standing(t, s.stage, 0, 0)
		}
	})
}
