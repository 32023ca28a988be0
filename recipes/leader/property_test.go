package leader_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// step is an event of one candidate, and the pause after it.
type step struct {
	what      string
	candidate int
	wait      time.Duration
}

func (s step) String() string { return fmt.Sprintf("%s %d, %v", s.what, s.candidate, s.wait) }

var steps = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
	return step{
		what:      rapid.SampledFrom([]string{"wait", "resign", "cut", "heal", "drop", "stop member", "isolate"}).Draw(t, "what"),
		candidate: rapid.IntRange(0, 2).Draw(t, "candidate"),
		wait:      time.Duration(rapid.IntRange(1, 15_000).Draw(t, "wait")) * time.Millisecond,
	}
}), 1, 30)

// Under random faults of candidates and members no two candidates lead at once,
// as far as each can know, and tokens increase: serve checks this in each term.
// After the faults there is a leader soon, each candidate has one znode, and
// none is left when all have ended. (Sessions expire only by cuts: when an
// operator expires one, the next candidate leads before the first can know.)
// The simulator's candidates neither resign nor have a longest term. Known
// failures elsewhere: CURATOR-444, -620, -652, -653, -696.
func TestOneLeaderUnderRandomFaults(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		plan := steps.Draw(rt, "plan")
		var fault error
		synctest.Test(t, func(t *testing.T) { fault = play(t, plan) })
		if fault != nil {
			rt.Fatalf("%v", fault)
		}
	})
}

func play(t *testing.T, plan []step) error {
	verdict := &judge{TB: t, faults: make(chan string, 1)}
	w := newWorld(bubble.New(verdict, testutil.WithMembers(3)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []*leader.Election
	for i := range 3 {
		id := string(rune('a' + i))
		all = append(all, w.candidate(w.Connect(id), id, leader.WithMaxTerm(20*time.Second)))
		w.run(ctx, all[i], id, time.Minute, nil)
	}
	for _, s := range plan {
		w.happen(ctx, all, s)
		time.Sleep(s.wait)
	}
	w.heal()
	w.settled(3)
	cancel()
	time.Sleep(2 * bubble.Timeout) // lost sessions that could not be closed have expired
	w.InLine(path, 0)
	return verdict.fault()
}

func (w *world) happen(ctx context.Context, all []*leader.Election, s step) {
	net := w.ClientNet(string(rune('a' + s.candidate)))
	switch s.what {
	case "resign":
		<-all[s.candidate].Resign()
	case "cut":
		net.Cut()
	case "heal":
		w.heal()
	case "drop":
		net.Drop()
	case "stop member":
		_ = w.Stop(s.candidate) // it may be stopped already
	case "isolate":
		w.Isolate(s.candidate)
	}
}

// heal ends all faults.
func (w *world) heal() {
	w.Heal()
	for i := range w.Members() {
		_ = w.Restart(i) // most are running
		w.ClientNet(string(rune('a' + i))).Heal()
	}
}

// judge collects failures, so that rapid can shrink the plan.
type judge struct {
	testing.TB
	faults chan string
}

func (j *judge) Errorf(format string, args ...any) {
	select {
	case j.faults <- fmt.Sprintf(format, args...):
	default: // one is enough
	}
}

func (j *judge) Fatalf(format string, args ...any) { j.Errorf(format, args...) }

func (j *judge) fault() error {
	select {
	case text := <-j.faults:
		return fmt.Errorf("%s", text)
	default:
		return nil
	}
}
