package faults

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/sim"
)

// Search tries the schedules of one scenario.
type Search struct {
	Scenario  string
	Shard, Of int             // it tries one part of several
	Seed      uint64          // of what is drawn
	Every     int             // of single faults it tries one of so many
	Vary      uint64          // see Schedule.Run
	Most      int             // it ends after so many failures
	Seconds   int             // for each first fault, how many second ones are tried, drawn at random; 0: all
	Near      int             // above 0: pairs only where a znode is replaced, the second within so many moments of the first
	Until     time.Time       // zero: until all are tried
	Done      map[string]bool // the first faults of pairs that were tried before
	Note      func(First)     // is told of each first fault whose pairs were tried
	tally     Tally
	t         *testing.T
	histories map[uint64]bool
}

// Tally is what a search has done.
type Tally struct {
	Schedules int // that were run
	Struck    int // in which every fault has happened
	Histories int // that differ
	Firsts    int // of pairs: first faults, and how many were tried
	Tried     int
	Pairs     int // of the first faults that were tried, and how many of them were
	Tries     int
	Took      time.Duration
	Failures  []Failure
}

// First is a first fault whose pairs were tried.
type First struct {
	Scenario        string
	Seed            uint64
	Fault           string
	Pairs, Run, Bad int
}

// Failure is a schedule that fails.
type Failure struct {
	Schedule string
	Wrong    []string
	Trace    string
	Again    int // in how many of some more tries
}

// Add adds another tally.
func (t *Tally) Add(o Tally) {
	t.Schedules += o.Schedules
	t.Struck += o.Struck
	t.Histories += o.Histories
	t.Firsts = max(t.Firsts, o.Firsts)
	t.Tried += o.Tried
	t.Pairs += o.Pairs
	t.Tries += o.Tries
	t.Took = max(t.Took, o.Took)
	t.Failures = append(t.Failures, o.Failures...)
}

func (s *Search) over() bool {
	return len(s.tally.Failures) >= s.Most || !s.Until.IsZero() && time.Now().After(s.Until)
}

func (s *Search) begin(t *testing.T) (end func()) {
	s.t, s.histories = t, map[uint64]bool{}
	began := time.Now()
	return func() { s.tally.Took, s.tally.Histories = time.Since(began), len(s.histories) }
}

// Singles tries every fault at every moment, or one of Every.
func (s *Search) Singles(t *testing.T) Tally {
	end := s.begin(t)
	base := s.run()
	for _, fault := range s.chosen(singles(base.Plan, base.Moments, false)) {
		if !s.over() {
			s.run(fault)
		}
	}
	end()
	return s.tally
}

// chosen returns those of single faults that the search tries.
func (s *Search) chosen(all []sim.Fault) []sim.Fault {
	return slices.DeleteFunc(slices.Clone(all), func(f sim.Fault) bool {
		n, every := number(0, f), uint64(s.Every)
		return n%every != 0 || !s.ours(n/every)
	})
}

// number returns a number of a fault that looks random. It does not depend on
// what else is tried: what happens first at one instant may differ between two
// processes.
func number(seed uint64, f sim.Fault) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, seed, f)
	return h.Sum64()
}

// ours reports whether the search tries the fault with a number, and no other
// part does.
func (s *Search) ours(number uint64) bool { return int(number%uint64(s.Of)) == s.Shard }

// Pairs tries, for every fault at every moment, every fault at every moment
// after it in the run that has the first one, or those of Near. The first
// faults are tried in the order of the seed.
func (s *Search) Pairs(t *testing.T) Tally {
	end := s.begin(t)
	base := s.run()
	moments := base.Moments
	if s.Near > 0 {
		moments = replacing(moments, s.Near)
	}
	firsts := singles(base.Plan, moments, true)
	s.tally.Firsts = len(firsts)
	slices.SortFunc(firsts, func(a, b sim.Fault) int { return cmp.Compare(number(s.Seed, a), number(s.Seed, b)) })
	for _, first := range firsts {
		if s.ours(number(s.Seed, first)) && !s.Done[first.String()] && !s.over() {
			s.pairsOf(first)
		}
	}
	end()
	return s.tally
}

func (s *Search) pairsOf(first sim.Fault) {
	bad := len(s.tally.Failures)
	seconds := s.after(s.run(first), first)
	all := len(seconds)
	if s.Seconds > 0 && s.Seconds < all {
		rnd := rand.New(rand.NewPCG(s.Seed, number(s.Seed, first)))
		rnd.Shuffle(all, func(i, j int) { seconds[i], seconds[j] = seconds[j], seconds[i] })
		seconds = seconds[:s.Seconds]
	}
	for n, second := range seconds {
		if s.over() {
			seconds = seconds[:n]
			break
		}
		s.run(first, second)
	}
	s.tally.Tried++
	s.tally.Pairs += all
	s.tally.Tries += len(seconds)
	if s.Note != nil && !s.over() {
		s.Note(First{s.Scenario, s.Seed, first.String(), all, len(seconds), len(s.tally.Failures) - bad})
	}
}

// after returns the faults that can follow those of a run: at a moment that the
// last of them precedes.
func (s *Search) after(r *sim.Result, faults ...sim.Fault) []sim.Fault {
	if len(r.Struck) < len(faults) {
		return nil
	}
	from := slices.IndexFunc(r.Moments, func(m sim.Seen) bool { return m.Struck >= len(r.Struck) })
	if from < 0 {
		return nil
	}
	moments := r.Moments[from:]
	if s.Near > 0 {
		moments = moments[:min(s.Near, len(moments))]
	}
	return singles(r.Plan, moments, true)
}

// Triples draws n sequences of three faults.
func (s *Search) Triples(t *testing.T, n int) Tally {
	end := s.begin(t)
	rnd := rand.New(rand.NewPCG(s.Seed, uint64(s.Shard)))
	base := s.run()
	for range n {
		if s.over() {
			break
		}
		var faults []sim.Fault
		next := singles(base.Plan, base.Moments, true)
		for len(faults) < 3 && len(next) > 0 {
			faults = append(faults, next[rnd.IntN(len(next))])
			next = s.after(s.run(faults...), faults...)
		}
	}
	end()
	return s.tally
}

// again is how often a failure is repeated.
const again = 5

// run runs the scenario with faults.
func (s *Search) run(faults ...sim.Fault) *sim.Result {
	schedule := Schedule{s.Scenario, faults}
	r := schedule.Run(s.t, s.Vary)
	s.tally.Schedules++
	if len(r.Struck) >= len(r.Plan.Faults) {
		s.tally.Struck++
	}
	s.histories[history(r)] = true
	if len(r.Wrong) > 0 {
		small := schedule
		if s.Most > 1 {
			small = schedule.Shrink(s.t, 2)
		}
		f := Failure{Schedule: small.String(), Wrong: r.Wrong, Trace: r.Trace}
		for vary := range uint64(again) {
			if len(small.Run(s.t, vary).Wrong) > 0 {
				f.Again++
			}
		}
		s.tally.Failures = append(s.tally.Failures, f)
	}
	return r
}
