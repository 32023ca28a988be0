package sim_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/internal/test/sim"
)

var (
	seed  = flag.Uint64("sim.seed", 0, "play this seed alone, and show what happens")
	tries = flag.Int("sim.tries", 20, "how often to play it: what Go's scheduler decides differs")
	seeds = flag.Int("sim.seeds", 0, "how many seeds to play; 0: as many as fit into the time")
	span  = flag.Duration("sim.for", 5*time.Second, "for how long to play seeds")
	first = flag.Uint64("sim.first", 0, "the first seed; 0: a random one, and in CI 1, so that only a change can make CI fail")

	only = flag.String("sim.recipes", "", "play only the plans of these recipes, a regular expression")
	kept = flag.Bool("sim.guardians", false, "play only plans with guardians")

	pictures = flag.String("sim.pictures", "testdata/failures", "where pictures of histories that cannot be explained go; empty: nowhere")
)

// Random faults and random callers: the package comment lists the checks.
func TestSeeds(t *testing.T) {
	if *seed != 0 {
		replay(t)
		return
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	from := *first
	switch {
	case from != 0:
	case os.Getenv("CI") == "true":
		from = 1
	default:
		from = rand.Uint64() >> 1
	}
	t.Logf("from seed %d", from)
	s := search(t, from, *seeds, *span)
	t.Logf("%v", s)
	if s.found != nil {
		report(t, s.found)
	}
}

// Plans with many keys have batches.
func TestPlansHaveBatches(t *testing.T) {
	for seed, plans := uint64(1), 0; plans < 5; seed++ {
		p := sim.Draw(seed)
		if p.Recipe != sim.Many || p.Alone || p.Scenario != sim.Calm {
			continue
		}
		plans++
		if r := sim.Run(t, p); r.Batches > 0 {
			return
		}
	}
	t.Error("none of several plans has had a batch")
}

func report(t *testing.T, r *sim.Result) {
	t.Helper()
	t.Errorf("%s\n%v\n%s\nagain: go test ./internal/test/sim -run 'TestSeeds$' -sim.seed=%d", strings.Join(r.Wrong, "\n"), r.Plan, r.Trace, r.Plan.Seed)
}

func replay(t *testing.T) {
	for range *tries {
		r := sim.Run(t, sim.Draw(*seed))
		r.Judge(*pictures)
		if len(r.Wrong) > 0 {
			report(t, r)
			return
		}
	}
	t.Logf("no violation in %d tries:\n%v", *tries, sim.Draw(*seed))
}

// searched is the outcome of a number of seeds.
type searched struct {
	seeds, grants, losses, faults, shown atomic.Int64
	batches, moves                       atomic.Int64
	took                                 time.Duration
	longest                              time.Duration
	found                                *sim.Result
}

func (s *searched) String() string {
	return fmt.Sprintf("%d seeds in %v (%.0f a minute): %d grants, %d losses, %d faults, %d moves, %d batches, %d statuses and batches of caches, longest wait for nothing %v",
		s.seeds.Load(), s.took.Round(time.Millisecond), float64(s.seeds.Load())/s.took.Minutes(), s.grants.Load(), s.losses.Load(), s.faults.Load(), s.moves.Load(), s.batches.Load(), s.shown.Load(), s.longest)
}

// search runs seeds until something is wrong, on all processors. It stops after
// n seeds if n is not 0, and otherwise after a time.
func search(t *testing.T, from uint64, n int, d time.Duration) *searched {
	s := new(searched)
	began := time.Now()
	var next atomic.Uint64
	var stop atomic.Bool
	wanted := regexp.MustCompile(*only)
	results := make(chan *sim.Result)
	workers := runtime.GOMAXPROCS(0)
	for range workers {
		go func() {
			defer func() { results <- nil }()
			for !stop.Load() {
				i := next.Add(1) - 1
				if n > 0 && i >= uint64(n) || n == 0 && time.Since(began) > d {
					return
				}
				if plan := sim.Draw(from + i); !wanted.MatchString(string(plan.Recipe)) || *kept && plan.Guardians == nil {
					continue
				}
				r := play(t, from+i)
				s.seeds.Add(1)
				results <- r
			}
		}()
	}
	for workers > 0 {
		r := <-results
		switch {
		case r == nil:
			workers--
			continue
		case len(r.Wrong) > 0 && s.found == nil:
			s.found = r
			stop.Store(true)
		}
		s.grants.Add(int64(r.Grants))
		s.losses.Add(int64(r.Losses))
		s.faults.Add(int64(len(r.Struck)))
		s.batches.Add(int64(r.Batches))
		for _, n := range r.Moves {
			s.moves.Add(int64(n))
		}
		s.shown.Add(int64(r.Shown))
		s.longest = max(s.longest, r.Longest)
	}
	s.took = time.Since(began)
	return s
}

const hangs = "has not ended in two minutes"

// play runs one seed. A seed that hangs ends the test binary, since virtual
// time stands still.
func play(t *testing.T, seed uint64) *sim.Result {
	plan := sim.Draw(seed)
	watchdog := time.AfterFunc(2*time.Minute, func() {
		buf := make([]byte, 8<<20)
		panic(fmt.Sprintf("%v\n%s\n%s", plan, hangs, buf[:runtime.Stack(buf, true)]))
	})
	defer watchdog.Stop()
	r := sim.Run(t, plan)
	r.Judge(*pictures)
	return r
}
