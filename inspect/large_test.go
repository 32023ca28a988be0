package inspect

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

// crowded are lines in which many wait for many. In each, the holders and the
// waiters are n sessions each, and a mutex, which the first waiter's session
// holds, makes a deadlock of all.
var crowded = []struct {
	name string
	line func(n int) *Line
}{
	{"writers behind readers", func(n int) *Line { return lineOf(n, "h-R-", n, "h-W-") }},
	{"readers behind a writer behind readers", func(n int) *Line { return lineOf(n, "h-R-", 1, "h-W-", n, "h-R-") }},
	{"a mutex", func(n int) *Line { return lineOf(1, "lock-", 2*n, "lock-") }},
	{"upgrades", func(n int) *Line {
		l := lineOf(n, "h-R-", n, "h-W-")
		for i := range n {
			l.entries[n+i].Session = l.entries[i].Session
		}
		return l
	}},
	{"a kind", func(n int) *Line { return lineOf(n, "kind~read~", n, "kind~write~") }},
	{"a kind that is a mutex", func(n int) *Line { return lineOf(1, "kind~write~", 2*n, "kind~write~") }},
	{"a semaphore", permitsOf},
	{"a semaphore whose holders want more", func(n int) *Line {
		l := permitsOf(n)
		for i := range l.entries {
			l.entries[i].Session = l.permits[i].Session
		}
		return l
	}},
}

var largeRules = rules{"kind": func(mine, theirs string) bool { return mine == "write" || theirs == "write" }}

// lineOf returns a line at /x of so many contenders with such names.
func lineOf(parts ...any) *Line {
	l := &Line{Path: "/x"}
	for i := 0; i < len(parts); i += 2 {
		for range parts[i].(int) {
			l.entries = append(l.entries, contenderOf("/x/", parts[i+1].(string), len(l.entries)))
		}
	}
	return l
}

func contenderOf(dir, base string, n int) Contender {
	const id = "_c_2f1b6a5e-9c0d-4e4f-8a39-0f4f6f2c1d77-"
	node, _ := layout.Parse(fmt.Sprintf("%s%s%010d", id, base, n))
	return Contender{
		Path: dir + node.Name, Shared: node.Mode == layout.Shared, node: node, read: true,
		Session: int64(n + 1), Created: int64(n + 1),
	}
}

func permitsOf(n int) *Line {
	l := &Line{Path: "/x", Limit: n, form: semaphore}
	for i := range n {
		l.permits = append(l.permits, contenderOf("/x/leases/", "lease-", i))
		l.entries = append(l.entries, contenderOf("/x/locks/", "lock-", n+i))
	}
	return l
}

// crowdedLines returns a line, and the mutex /y that all of its holders wait
// for and the first waiter holds.
func crowdedLines(t testing.TB, line func(n int) *Line, n int) []*Line {
	l := line(n)
	if err := l.arrange(largeRules); err != nil {
		t.Fatal(err)
	}
	y := &Line{Path: "/y"}
	for i, c := range append([]Contender{l.Waiting[0]}, l.Holders...) {
		waits := contenderOf("/y/", "lock-", i)
		waits.Session = c.Session
		y.entries = append(y.entries, waits)
	}
	if err := y.arrange(nil); err != nil {
		t.Fatal(err)
	}
	return []*Line{l, y}
}

// lookTwice looks twice at lines that do not change.
func lookTwice(t testing.TB, lines []*Line) []Cycle {
	g := &reading{settings: settings{rules: largeRules}}
	suspects, first, err := g.suspects(lines)
	if err != nil {
		t.Fatal(err)
	}
	certain, possible, err := cycles(suspects, largeRules, first)
	if err != nil {
		t.Fatal(err)
	}
	return append(certain, possible...)
}

// Twice as many holders and waiters cost twice as much memory, not four times.
func TestManyWaitForMany(t *testing.T) {
	for _, test := range crowded {
		t.Run(test.name, func(t *testing.T) {
			used := func(n int) uint64 {
				lines := crowdedLines(t, test.line, n)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				found := lookTwice(t, lines)
				runtime.ReadMemStats(&after)
				if len(found) == 0 {
					t.Error("no deadlock")
				}
				return after.TotalAlloc - before.TotalAlloc
			}
			if few, many := used(bubble.Few(100, 250)), used(bubble.Few(400, 1000)); many > 8*few {
				t.Errorf("%d bytes, and for four times as many %d", few, many)
			}
		})
	}
}

// Each of a long row of sessions waits for the next, and the last for the
// first.
func TestLongCircle(t *testing.T) {
	n := bubble.Few(4000, 20000)
	lines := make([]*Line, n)
	for i := range lines {
		dir := fmt.Sprintf("/%05d/", i)
		holder, waiter := contenderOf(dir, "lock-", 1), contenderOf(dir, "lock-", 2)
		holder.Session, waiter.Session = int64(i+1), int64((i+1)%n+1)
		lines[i] = &Line{Path: dir[:len(dir)-1], entries: []Contender{holder, waiter}}
		if err := lines[i].arrange(nil); err != nil {
			t.Fatal(err)
		}
	}
	if found := lookTwice(t, lines); len(found) != 1 || len(found[0].Steps) != n {
		t.Errorf("%d cycles", len(found))
	}
	lines[n/2].Waiting = nil
	if found := lookTwice(t, lines); len(found) != 0 {
		t.Errorf("%d cycles in a row with a gap", len(found))
	}
}

func BenchmarkManyWaitForMany(b *testing.B) {
	for _, test := range crowded {
		b.Run(test.name, func(b *testing.B) {
			lines := crowdedLines(b, test.line, 5000)
			b.ReportAllocs()
			for b.Loop() {
				lookTwice(b, lines)
			}
		})
	}
}
