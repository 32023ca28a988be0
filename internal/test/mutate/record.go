package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// A record is the outcome of every fault that was ever tried, by its key.
type record struct {
	file     string
	outcomes map[string]outcome
	reasons  map[string]reason
}

func (r *record) read() {
	if text, err := os.ReadFile(r.file); err == nil {
		_ = json.Unmarshal(text, &r.outcomes) // an unreadable outcome is tried again
	}
}

func (r *record) note(f *fault, o outcome) error {
	r.outcomes[f.key()] = o
	return save(r.file, r.outcomes)
}

// line describes the outcome of a fault in one line, and shows the fault if it
// survived.
func (r *record) line(number int, f *fault) string {
	o := r.outcomes[f.key()]
	line := fmt.Sprintf("%4d  %5.1f s  %s", number, o.Seconds, o.Verdict)
	if o.Package != "" {
		line += fmt.Sprintf("  %s %s", o.Package, o.Test)
	}
	reason, listed := r.reasons[f.key()]
	switch {
	case o.Verdict.lives() && reason.equivalent:
		line += "  (equivalent)"
	case o.Verdict.lives() && listed:
		line += "  (accepted)"
	case listed:
		line += "  (although it is listed as one that may survive)"
	}
	if !o.Verdict.lives() {
		return line + "  " + f.Operator + ", " + f.Package + " " + f.Func
	}
	return fmt.Sprintf("%s\n%s, %s\n%s", line, f.Operator, f.File, f.key())
}

// sum prints all outcomes, and reports whether no fault survived that may not.
func (r *record) sum(faults []*fault) (ok bool) {
	count := map[verdict]int{}
	var equivalent, listed, alive, open int
	var seconds float64
	byTest := map[string]int{}
	for _, f := range faults {
		o, tried := r.outcomes[f.key()]
		if !tried {
			open++
			continue
		}
		count[o.Verdict]++
		seconds += o.Seconds
		if o.Package != "" {
			byTest[o.Package]++
		}
		if reason, ok := r.reasons[f.key()]; o.Verdict.lives() && ok {
			if reason.equivalent {
				equivalent++
			} else {
				listed++
			}
		} else if o.Verdict.lives() {
			alive++
			fmt.Printf("\n%s\n", f.key())
		}
	}
	fmt.Println()
	for _, v := range []verdict{killed, hung, sometimes, survived, unreached} {
		fmt.Printf("%4d %s\n", count[v], v)
	}
	dead := count[killed] + count[hung] + count[sometimes]
	fmt.Printf("of those that survived %d are equivalent, %d accepted, %d not listed\n", equivalent, listed, alive)
	if tried := len(faults) - open - equivalent; tried > 0 {
		fmt.Printf("%d of %d that are not equivalent are killed: %.1f %%; %.1f s each\n", dead, tried, 100*float64(dead)/float64(tried), seconds/float64(len(faults)-open))
	}
	if open > 0 {
		fmt.Printf("%d have not been tried\n", open)
	}
	for _, p := range sortedKeys(byTest) {
		fmt.Printf("%4d by the tests of %s\n", byTest[p], p)
	}
	return alive == 0 && open == 0
}

func sortedKeys(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
