package faults

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/sim"
)

// Schedule is a scenario with faults. Its text is a file that
// repeats it alone.
type Schedule struct {
	Scenario string
	Faults   []sim.Fault
}

// String returns the schedule as ParseSchedule reads it.
func (s Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "scenario: %s\n", s.Scenario)
	for _, fault := range s.Faults {
		fmt.Fprintf(&b, "fault: %v\n", fault)
	}
	return b.String()
}

// ParseSchedule reads a schedule. It skips empty lines and those that begin
// with #.
func ParseSchedule(text string) (s Schedule, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case key == "scenario":
			s.Scenario = value
		case key == "fault":
			fault, err := sim.ParseFault(value)
			if err != nil {
				return Schedule{}, err
			}
			s.Faults = append(s.Faults, fault)
		default:
			return Schedule{}, fmt.Errorf("not a line of a schedule: %q", line)
		}
	}
	if _, ok := Find(s.Scenario); !ok {
		return Schedule{}, fmt.Errorf("no scenario %q", s.Scenario)
	}
	return s, nil
}

// Run runs the schedule once and judges it. Where vary is not 0, goroutines let
// others of the same instant go first, in a way that it decides.
func (s Schedule) Run(t *testing.T, vary uint64) *sim.Result {
	scenario, ok := Find(s.Scenario)
	if !ok {
		t.Fatalf("no scenario %q", s.Scenario)
	}
	p := scenario.Plan(s.Faults)
	p.Vary = vary
	r := sim.Run(t, p)
	r.Judge("")
	return r
}

// Shrink returns the schedule with as few faults as fail in one of some tries.
func (s Schedule) Shrink(t *testing.T, tries uint64) Schedule {
	for i := 0; i < len(s.Faults) && len(s.Faults) > 1; {
		fewer := Schedule{s.Scenario, append(append([]sim.Fault{}, s.Faults[:i]...), s.Faults[i+1:]...)}
		if fewer.fails(t, tries) {
			s = fewer
		} else {
			i++
		}
	}
	return s
}

func (s Schedule) fails(t *testing.T, tries uint64) bool {
	for vary := range tries {
		if len(s.Run(t, vary).Wrong) > 0 {
			return true
		}
	}
	return false
}

// history returns a number for the order of the moments of a run: two runs with
// the same number were the same but for their times.
func history(r *sim.Result) uint64 {
	h := fnv.New64a()
	for _, m := range r.Moments {
		fmt.Fprintln(h, m.Moment, m.Struck)
	}
	return h.Sum64()
}
