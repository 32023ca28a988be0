package faults

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/maphash"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/sim"
)

var (
	scenarios = flag.String("faults.scenarios", "smallest", "which scenarios to try: the smallest of each recipe, the rest, all, or those that match a regular expression")
	every     = flag.Int("faults.every", 100, "single faults: try one of so many; 1: all")
	processes = flag.Int("faults.processes", runtime.NumCPU(), "how many processes")
	minutes   = flag.Float64("faults.minutes", 0, "how long each scenario is tried; 0: until all is tried")
	pairs     = flag.Bool("faults.pairs", false, "try pairs of faults")
	seconds   = flag.Int("faults.seconds", 0, "how many second faults are tried for each first one; 0: all")
	near      = flag.Int("faults.near", 0, "above 0: pairs only where a client replaces its znode, the second fault within so many steps of the first")
	triples   = flag.Int("faults.triples", 0, "how many sequences of three faults are drawn for each scenario")
	seed      = flag.Uint64("faults.seed", 1, "of what is drawn")
	record    = flag.String("faults.record", "", "a file that remembers which pairs were tried, so that the next run resumes")
	schedule  = flag.String("faults.schedule", "", "a file with a schedule to run, with what happens")
	vary      = flag.Uint64("faults.vary", 0, "above 0: goroutines let others go first, in another way for each number")
	keep      = flag.Bool("faults.keep", true, "write the schedules that fail to testdata/failures")
	failures  = flag.Int("faults.failures", 20, "after how many failures each process ends")
	shard     = flag.String("faults.shard", "", "one part of several, such as 0/2; the tests use it")
)

// modes are the ways to search a scenario.
var modes = map[string]func(s *Search, t *testing.T) Tally{
	"singles": (*Search).Singles,
	"pairs":   (*Search).Pairs,
	"triples": func(s *Search, t *testing.T) Tally { return s.Triples(t, *triples/s.Of) },
}

// TestSingles tries faults at every step of the smallest scenario of each
// recipe: one of a hundred of them, with -short one of four hundred, and with
// -faults.every=1 all.
func TestSingles(t *testing.T) {
	search(t, "singles")
}

// TestPairs tries every pair of faults.
func TestPairs(t *testing.T) {
	if !*pairs {
		t.Skip("takes long: make faults")
	}
	search(t, "pairs")
}

// TestTriples tries sequences of three faults, drawn at random.
func TestTriples(t *testing.T) {
	if *triples == 0 {
		t.Skip("make faults")
	}
	search(t, "triples")
}

func search(t *testing.T, mode string) {
	some := false
	for _, s := range Scenarios {
		if !wanted(s) {
			continue
		}
		some = true
		t.Run(s.Name, func(t *testing.T) {
			if *shard != "" {
				part(t, mode, s)
				return
			}
			whole(t, mode, s)
		})
	}
	if !some {
		t.Errorf("no scenario is called %q", *scenarios)
	}
}

func wanted(s Scenario) bool {
	switch *scenarios {
	case "smallest":
		return s.Smallest
	case "rest":
		return !s.Smallest
	case "all":
		return true
	}
	return regexp.MustCompile("^(" + *scenarios + ")$").MatchString(s.Name)
}

// part tries a part of the schedules, and prints its tally.
func part(t *testing.T, mode string, scenario Scenario) {
	defer random.None()()
	s := Search{Scenario: scenario.Name, Every: bubble.Few(4**every, *every), Seed: *seed, Vary: *vary, Most: *failures, Seconds: *seconds, Near: *near, Done: map[string]bool{}}
	if _, err := fmt.Sscanf(*shard, "%d/%d", &s.Shard, &s.Of); err != nil {
		t.Fatal(err)
	}
	if *minutes > 0 {
		s.Until = time.Now().Add(time.Duration(*minutes * float64(time.Minute)))
	}
	if *record != "" && mode == "pairs" {
		resume(t, &s)
	}
	tally := modes[mode](&s, t)
	text, err := json.Marshal(tally)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\ntally: %s\n", text)
}

// resume makes a search go on where the one before has ended.
func resume(t *testing.T, s *Search) {
	old, err := os.ReadFile(*record)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(old)) {
		var f First
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%s: %v", *record, err)
		}
		if f.Scenario == s.Scenario && f.Seed == s.Seed {
			s.Done[f.Fault] = true
		}
	}
	s.Note = func(f First) {
		line, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		to, err := os.OpenFile(*record, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		if _, err := to.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
	}
}

// whole tries all schedules, in processes of one processor each: with more,
// Go's scheduler decides what happens first at one instant.
func whole(t *testing.T, mode string, scenario Scenario) {
	if *processes < 1 {
		t.Fatal("-faults.processes: at least 1")
	}
	var tally Tally
	var mu sync.Mutex
	var running sync.WaitGroup
	for i := range *processes {
		running.Go(func() {
			one, err := process(i, mode, scenario)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			tally.Add(one)
		})
	}
	running.Wait()
	t.Logf("%d schedules, in %d of them every fault happened; %d histories; %v",
		tally.Schedules, tally.Struck, tally.Histories, tally.Took.Round(time.Millisecond))
	// Each fault has its place in a run without faults. The race detector's
	// scheduler is random: some of the later runs do not come to that place.
	expected := tally.Schedules * 17 / 20
	if raceEnabled {
		expected = (tally.Schedules - 2) / 2 // with -short there may be two in all
	}
	if mode == "singles" && tally.Struck < expected {
		t.Errorf("only %d of %d faults happened", tally.Struck, tally.Schedules)
	}
	if mode == "pairs" {
		t.Logf("first faults tried: %d of %d; those have %d pairs, of which %d were tried", tally.Tried, tally.Firsts, tally.Pairs, tally.Tries)
	}
	for _, f := range tally.Failures {
		t.Errorf("%s\n%s# fails in %d of %d more tries; again: go test ./internal/test/faults -run Schedules -v -faults.schedule=%s\n%s",
			strings.Join(f.Wrong, "\n"), f.Schedule, f.Again, again, f.keep(t), f.Trace)
	}
}

// keep writes the schedule of a failure to a file, and returns its path.
func (f *Failure) keep(t *testing.T) (file string) {
	if !*keep {
		return ""
	}
	dir, err := filepath.Abs("testdata/failures")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		file = filepath.Join(dir, fmt.Sprintf("%x.txt", maphash.String(maphash.MakeSeed(), f.Schedule)))
		err = os.WriteFile(file, []byte("# "+strings.ReplaceAll(strings.Join(f.Wrong, "\n"), "\n", "\n# ")+"\n"+f.Schedule), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
	return file
}

// alone returns the value of -faults.scenarios that selects one scenario, even
// if its name is that of several.
func alone(s Scenario) string { return "(" + regexp.QuoteMeta(s.Name) + ")" }

// TestAlone selects each scenario alone, as the processes of a search do.
func TestAlone(t *testing.T) {
	defer func(old string) { *scenarios = old }(*scenarios)
	for _, s := range Scenarios {
		*scenarios = alone(s)
		for _, other := range Scenarios {
			if wanted(other) != (other.Name == s.Name) {
				t.Errorf("%s: %s is wanted: %t", *scenarios, other.Name, wanted(other))
			}
		}
	}
}

// TestParts checks that the parts of a search try what it chooses once.
func TestParts(t *testing.T) {
	defer random.None()()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	base := Schedule{Scenario: "mutex"}.Run(t, 0)
	all := singles(base.Plan, base.Moments, false)
	for _, every := range []int{1, 12} {
		const parts = 3
		tried := map[sim.Fault]int{}
		for shard := range parts {
			s := Search{Every: every, Shard: shard, Of: parts}
			for _, f := range s.chosen(all) {
				tried[f]++
			}
		}
		if n := len(all) / every; len(tried) < n/2 || len(tried) > 2*n {
			t.Errorf("one of %d: %d of %d", every, len(tried), len(all))
		}
		for f, n := range tried {
			if n != 1 {
				t.Errorf("one of %d: tried %d times: %v", every, n, f)
			}
		}
	}
}

// TestBatchesHappen checks that the scenarios that are there for batches have
// some, and that one of the operations in a batch can be refused.
func TestBatchesHappen(t *testing.T) {
	defer random.None()()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, name := range []string{"batches", "batches-again"} {
		r := Schedule{Scenario: name}.Run(t, 0)
		refused := 0
		for _, s := range singles(r.Plan, r.Moments, false) {
			if s.Nth > 0 {
				refused++
			}
		}
		if len(r.Wrong) > 0 || r.Batches == 0 || refused == 0 {
			t.Errorf("%s: %d batches, %d operations of them to refuse; %s\n%s", name, r.Batches, refused, strings.Join(r.Wrong, "\n"), r.Trace)
		}
	}
}

// TestReplacementsHappen checks that the scenarios for asynchronous release
// replace a znode, and that pairs are tried there.
func TestReplacementsHappen(t *testing.T) {
	defer random.None()()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, want := range map[string]bool{"async": true, "async-alone": true, "mutex": false} {
		r := Schedule{Scenario: name}.Run(t, 0)
		near := replacing(r.Moments, 2)
		replaces := sim.Moment{Client: 0, Point: sim.Sent, Op: "multi", N: 1}
		if got := slices.ContainsFunc(near, func(m sim.Seen) bool { return m.Moment == replaces }); got != want || got != (len(near) > 0) || len(near) > len(r.Moments)/3 {
			t.Errorf("%s: a multi replaces a znode: %t; moments: %v", name, got, near)
		}
	}
}

// TestOrphan checks that a request whose connection is gone is executed, and
// that what it has created is found and removed.
func TestOrphan(t *testing.T) {
	defer random.None()()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	sent := sim.Moment{Client: 0, Point: sim.Sent, Op: "create", N: 1}
	r := Schedule{Scenario: "mutex", Faults: []sim.Fault{{What: sim.Orphan, By: late, At: sim.When{Moment: sent}}}}.Run(t, 0)
	if len(r.Wrong) > 0 || len(r.Struck) != 1 {
		t.Errorf("struck %v; %s\n%s", r.Struck, strings.Join(r.Wrong, "\n"), r.Trace)
	}
	count := map[sim.Point]int{}
	for _, m := range r.Moments {
		if m.Client == 0 && m.Op == "create" {
			count[m.Point]++
		}
	}
	if count[sim.Sent] != 2 || count[sim.Executed] != 2 || count[sim.Answered] != 1 {
		t.Errorf("creates: %v\n%s", count, r.Trace)
	}
}

func process(i int, mode string, scenario Scenario) (tally Tally, err error) {
	name := map[string]string{"singles": "TestSingles", "pairs": "TestPairs", "triples": "TestTriples"}[mode]
	args := []string{"-test.run=^" + name + "$", "-test.timeout=0", "-faults.scenarios=" + alone(scenario), fmt.Sprintf("-faults.shard=%d/%d", i, *processes), fmt.Sprintf("-test.short=%t", testing.Short())}
	flag.Visit(func(f *flag.Flag) {
		if strings.HasPrefix(f.Name, "faults.") && f.Name != "faults.scenarios" && f.Name != "faults.shard" {
			args = append(args, fmt.Sprintf("-%s=%s", f.Name, f.Value))
		}
	})
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	out, err := cmd.CombinedOutput()
	_, text, ok := strings.Cut(string(out), "\ntally: ")
	if !ok {
		return tally, fmt.Errorf("%v: %w\n%.8000s", cmd, err, out)
	}
	if err != nil { // not for the failures of schedules, which the tally has
		return tally, fmt.Errorf("%v: %w\n%.8000s", cmd, err, out)
	}
	text, _, _ = strings.Cut(text, "\n")
	return tally, json.Unmarshal([]byte(text), &tally)
}

// TestSchedules runs the schedules that have failed once, or the one of
// -faults.schedule.
func TestSchedules(t *testing.T) {
	files, err := filepath.Glob("testdata/schedules/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if *schedule != "" {
		files = []string{*schedule}
	}
	defer random.None()()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := ParseSchedule(string(text))
			if err != nil {
				t.Fatal(err)
			}
			r := s.Run(t, *vary)
			if len(r.Struck) < len(r.Plan.Faults) {
				t.Errorf("only %v has happened", r.Struck)
			}
			if len(r.Wrong) > 0 {
				t.Errorf("%s\n%s", strings.Join(r.Wrong, "\n"), r.Trace)
			} else if *schedule != "" {
				t.Log(r.Trace)
			}
		})
	}
}

// steps returns the moments of a run with their times, sorted. Which of two
// comes first at one instant is up to the goroutines of one client: a ping and
// a heartbeat may be due together.
func steps(r *sim.Result) (all []string) {
	for _, m := range r.Moments {
		all = append(all, fmt.Sprintf("%12d %v", m.At, m.Moment))
	}
	slices.Sort(all)
	return all
}

// TestBaseIsTheSame runs each scenario without faults: nothing is wrong, and
// two runs have the same steps at the same times. Under the race detector it is
// one run.
func TestBaseIsTheSame(t *testing.T) {
	defer random.None()()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, s := range Scenarios {
		t.Run(s.Name, func(t *testing.T) {
			a := Schedule{Scenario: s.Name}.Run(t, 0)
			if len(a.Wrong) > 0 {
				t.Errorf("%s\n%s", strings.Join(a.Wrong, "\n"), a.Trace)
			}
			for _, f := range a.Plan.Faults {
				if (f.What == sim.Replace || f.What == sim.ListWithout) && a.Moves[f.Client] == 0 {
					t.Errorf("client %d has not moved to another server, although its own was taken from it: %v\n%s", f.Client, f, a.Trace)
				}
			}
			if raceEnabled {
				return // the scheduler is random then, and the order of goroutines decides which writes share a multi
			}
			b := Schedule{Scenario: s.Name}.Run(t, 0)
			if len(b.Wrong) > 0 {
				t.Errorf("%s\n%s", strings.Join(b.Wrong, "\n"), b.Trace)
			}
			x, y := steps(a), steps(b)
			for i := range max(len(x), len(y)) {
				if i >= len(x) || i >= len(y) || x[i] != y[i] {
					t.Fatalf("two runs differ:\n%s\nand\n%s", strings.Join(x[i:], "\n"), strings.Join(y[i:], "\n"))
				}
			}
			t.Logf("%d moments, moves by client %v, %d single faults, %d of pairs", len(a.Moments), a.Moves, len(singles(a.Plan, a.Moments, false)), len(singles(a.Plan, a.Moments, true)))
		})
	}
}
