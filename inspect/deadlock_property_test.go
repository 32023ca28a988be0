package inspect_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/inspect"
)

// spot is a contender of a drawn line.
type spot struct {
	session int64
	writer  bool
}

// drawn is a drawn line: a read/write lock, or, with a limit, a semaphore,
// whose first contenders have its permits.
type drawn struct {
	limit  int
	hidden bool // the limit is not recorded, as with Curator
	line   []spot
}

// nested are the parents of sessions, each the session of a zkr whose command
// has started the other's. A parent holds something and waits for nothing but
// its children.
type nested map[int64]int64

// drawNested draws parents for the sessions of lines.
func drawNested(t *rapid.T, lines []drawn) nested {
	var holds, waits []int64
	for _, d := range lines {
		for i, c := range d.line {
			if d.holds(i) {
				holds = append(holds, c.session)
			} else {
				waits = append(waits, c.session)
			}
		}
	}
	slices.Sort(holds)
	parents := nested{}
	for _, s := range slices.DeleteFunc(slices.Compact(holds), func(s int64) bool { return slices.Contains(waits, s) }) {
		for child := s + 1; child <= 7; child++ { // so no session descends from itself
			if parents[child] == 0 && rapid.IntRange(0, 3).Draw(t, "nested") == 0 {
				parents[child] = s
			}
		}
	}
	return parents
}

// holds reports whether contender i waits for nobody.
func (d *drawn) holds(i int) bool {
	if d.limit > 0 {
		return i < d.limit
	}
	for _, ahead := range d.line[:i] {
		if ahead.writer || d.line[i].writer {
			return false
		}
	}
	return true
}

// drawLines draws lines in which each session waits at one place at most.
func drawLines(t *rapid.T) []drawn {
	sessions := rapid.IntRange(2, 7).Draw(t, "sessions")
	lines := make([]drawn, rapid.IntRange(2, 7).Draw(t, "lines"))
	waits := map[int64]bool{}
	for i := range lines {
		d := &lines[i]
		d.limit = rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(t, "limit")
		d.hidden = rapid.Bool().Draw(t, "hidden")
		order := rapid.Permutation(numbers(sessions)).Draw(t, "order")
		for _, s := range order[:rapid.IntRange(0, sessions).Draw(t, "contenders")] {
			d.line = append(d.line, spot{s, rapid.Bool().Draw(t, "writer")})
			last := len(d.line) - 1
			if d.holds(last) {
				continue
			}
			if waits[s] {
				d.line = d.line[:last]
			}
			waits[s] = true
		}
	}
	return lines
}

func numbers(n int) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(i + 1)
	}
	return all
}

// play lets every session that waits nowhere, and whose children have left,
// release all that it holds, again and again. It returns the sessions that are
// left then.
func play(lines []drawn, parents nested) map[int64]bool {
	left := make([]drawn, len(lines))
	for i, d := range lines {
		left[i] = drawn{d.limit, d.hidden, slices.Clone(d.line)}
	}
	for {
		waits, all := map[int64]bool{}, map[int64]bool{}
		for _, d := range left {
			for i, c := range d.line {
				all[c.session] = true
				if !d.holds(i) {
					waits[c.session] = true
				}
				if parent := parents[c.session]; parent != 0 {
					waits[parent] = true
				}
			}
		}
		maps.DeleteFunc(waits, func(s int64, _ bool) bool { return !all[s] })
		if len(all) == len(waits) {
			return waits
		}
		for i := range left {
			left[i].line = slices.DeleteFunc(left[i].line, func(c spot) bool { return !waits[c.session] })
		}
	}
}

// tree returns the znodes of lines.
func tree(lines []drawn, parents nested) *fake {
	f := &fake{}
	f.add("/x", "", 0)
	for i, d := range lines {
		at := fmt.Sprintf("/x/%d", i)
		if d.limit > 0 {
			f.add(at+"/locks/x", "", 0)
			if !d.hidden {
				f.add(at, fmt.Sprint(d.limit), 0)
			}
			f.add(at+"/leases/x", "", 0)
		}
		for n, c := range d.line {
			name := fmt.Sprintf("%s%s%010d", id(n), map[bool]string{true: "h-W-", false: "h-R-"}[c.writer], n)
			switch {
			case d.limit > 0 && d.holds(n):
				name = fmt.Sprintf("leases/%slease-%010d", id(n), n)
			case d.limit > 0:
				name = fmt.Sprintf("locks/%slock-%010d", id(n), n)
			}
			data := ""
			if parent := parents[c.session]; parent != 0 {
				data = nestedIn(parent)
			}
			f.add(at+"/"+name, data, c.session)
		}
	}
	return f
}

// nestedIn is the data of a zkr that the command of another one has started.
func nestedIn(parent int64) string { return fmt.Sprintf("host pid 1: zkr parent=%#x", uint64(parent)) }

// TestDeadlocksAgainstAGame: a game in which every session that waits nowhere
// releases all it has says whether there is a deadlock, and who is stuck. Each
// cycle that is reported goes through sessions that are stuck, and each of its
// steps waits for what the next one has. If anybody is stuck there is a cycle.
func TestDeadlocksAgainstAGame(t *testing.T) {
	var with, without, deep int
	rapid.Check(t, func(t *rapid.T) {
		lines := drawLines(t)
		parents := drawNested(t, lines)
		stuck := play(lines, parents)
		d, err := inspect.FindDeadlocks(context.Background(), tree(lines, parents), "/x", inspect.WithPause(time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if len(stuck) > 0 {
			with++
		} else {
			without++
		}
		if (len(d.Cycles) > 0) != (len(stuck) > 0) {
			t.Fatalf("%d cycles, and stuck are %v, in %+v, nested %v", len(d.Cycles), stuck, lines, parents)
		}
		if len(d.Possible) > 0 {
			t.Fatalf("possible: %v", d.Possible)
		}
		for _, c := range d.Cycles {
			checkCycle(t, c, stuck, parents)
			for _, step := range c.Steps {
				deep = max(deep, len(step.Nested))
			}
		}
	})
	if with+without >= 100 && (with == 0 || without == 0 || deep == 0) { // fewer, as with -short, may lack one by chance
		t.Errorf("drawn: %d with a deadlock, %d without, nested at most %d deep", with, without, deep)
	}
}

func checkCycle(t *rapid.T, c inspect.Cycle, stuck map[int64]bool, parents nested) {
	for i, step := range c.Steps {
		next := c.Steps[(i+1)%len(c.Steps)]
		waitsForIt := slices.ContainsFunc(step.For, func(b inspect.Contender) bool { return b.Path == next.Has.Path })
		waits := step.Session
		for _, child := range step.Nested {
			if parents[child] != waits {
				t.Fatalf("step %d of %v: %#x is not nested in %#x", i, c, child, waits)
			}
			waits = child
		}
		if !stuck[step.Session] || step.Has.Session != step.Session || step.Waits.Session != waits || step.Waits.Holds ||
			!waitsForIt || step.WaitsAt != next.HasAt || step.Has.Holds == (step.Has.Path == step.Waits.Path) {
			t.Fatalf("step %d of %v: %+v", i, c, step)
		}
	}
}
