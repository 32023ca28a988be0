package layout_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// TestFront compares the front of random lines with what the sorted line says:
// who is asked about, in which order, and what is found.
func TestFront(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.SampledFrom([]layout.Set{
			{Family: layout.CuratorLock},
			{Family: layout.CuratorRW},
			{Family: layout.PlainRW},
			{Family: layout.KazooLock, Also: layout.KazooRLock},
			{Family: layout.KindLine, Kind: "k.v1"},
		}).Draw(t, "set")
		children := rapid.SliceOfNDistinct(childOf(set), 1, 60, rapid.ID[string]).Draw(t, "children")
		own := rapid.SampledFrom(children).Draw(t, "own")
		self, ok := layout.Parse(own)
		if !ok || !set.Has(self) {
			t.Skip("not a contender")
		}
		if rapid.IntRange(0, 9).Draw(t, "gone") == 0 {
			children = slices.DeleteFunc(slices.Clone(children), func(name string) bool { return name == own })
		}
		conflicting := rapid.SliceOf(rapid.SampledFrom(append(children, own))).Draw(t, "conflicting")
		failing := rapid.SampledFrom(append(children, "none", "none", "none")).Draw(t, "failing")

		var asked, asked2, askedSorted []string
		rule := func(asked *[]string) func(layout.Node) (bool, error) {
			return func(n layout.Node) (bool, error) {
				*asked = append(*asked, n.Format())
				if n.Name == failing {
					return true, errFailing
				}
				return slices.Contains(conflicting, n.Name), nil
			}
		}
		front := layout.NewFront(self, children, set)
		last, err := front.Last(rule(&asked))
		want := sortedFront(self, children, set)
		wantLast, wantErr := want.last(self, rule(&askedSorted))
		if front.Joined != want.joined || front.Twins != want.twins || front.Other != want.conflict {
			t.Fatalf("front = %+v\nwant %+v", front, want)
		}
		most := rapid.IntRange(2, 5).Draw(t, "most")
		found, all, err2 := front.Nearest(most, rule(&asked2))
		wantFound, wantAll := want.nearest(most, conflicting)
		if err2 == nil && (!slices.Equal(found, wantFound) || all != wantAll) {
			t.Fatalf("nearest %d: %q, all %t\nwant %q, %t", most, found, all, wantFound, wantAll)
		}
		if err2 != nil && !slices.Contains(asked2, failing) {
			t.Fatal(err2)
		}
		if n := len(wantFound); n > 0 && front.AreNearest(wantFound[:1]) != (wantFound[0] == want.ahead[len(want.ahead)-1].Name) {
			t.Fatalf("%q among %+v", wantFound[0], want.ahead)
		}
		if last != wantLast || !errors.Is(err, wantErr) || !slices.Equal(asked, askedSorted) {
			t.Fatalf("found %q, %v after %q\nwant %q, %v after %q", last, err, asked, wantLast, wantErr, askedSorted)
		}
	})
}

var errFailing = errors.New("the rule fails")

// childOf draws a child of a directory: mostly a contender of the set, with a
// number near one of those where something may go wrong.
func childOf(set layout.Set) *rapid.Generator[string] {
	bases := map[layout.Family][]string{
		layout.CuratorLock: {"lock-"},
		layout.CuratorRW:   {"__READ__", "__WRIT__"},
		layout.PlainRW:     {"web-1-R-", "web-2-W-", "lock--R-"},
		layout.KazooLock:   {"__lock__", "__rlock__"},
		layout.KindLine:    {"k.v1~a~", "k.v1~b~", "k.v1~~"},
	}[set.Family]
	return rapid.Custom(func(t *rapid.T) string {
		if rapid.IntRange(0, 99).Draw(t, "other") == 0 {
			return rapid.SampledFrom([]string{"config", "latch-0000000003", "k.v2~a~0000000003", "lock-12"}).Draw(t, "name")
		}
		near := rapid.SampledFrom([]int32{0, 0, 0, 5000, math.MaxInt32 - 5, math.MinInt32 + 5, -5}).Draw(t, "near")
		seq := near + rapid.Int32Range(-40, 40).Draw(t, "offset") // wraps, and is meant to
		base := rapid.SampledFrom(bases).Draw(t, "base")
		digits := layout.FormatSequence(seq)
		id := fmt.Sprintf("%08x-9c0d-4e4f-8a39-0f4f6f2c1d77", rapid.IntRange(0, 99).Draw(t, "id"))
		if set.Family == layout.KazooLock {
			return id[:8] + hex[8:] + base + digits
		}
		return layout.Protect(id, base) + digits
	})
}

// sorted is a front that is found by sorting the line.
type sorted struct {
	joined, twins bool
	conflict      string
	ahead         []layout.Node
}

func sortedFront(self layout.Node, children []string, set layout.Set) (f sorted) {
	line, conflict := layout.Line(children, set)
	line = slices.DeleteFunc(line, func(n layout.Node) bool { return layout.Compare(n.Seq, self.Seq) > 0 })
	layout.Sort(line)
	f.conflict, f.twins = conflict, layout.Twins(line)
	for _, n := range line {
		f.joined = f.joined || n.Name == self.Name
		if n.Seq != self.Seq {
			f.ahead = append(f.ahead, n)
		}
	}
	return f
}

func (f sorted) nearest(most int, conflicting []string) (found []string, all bool) {
	for _, n := range slices.Backward(f.ahead) {
		if slices.Contains(conflicting, n.Name) {
			if len(found) == most {
				return found, false
			}
			found = append(found, n.Name)
		}
	}
	return found, true
}

func (f sorted) last(_ layout.Node, conflicts func(layout.Node) (bool, error)) (string, error) {
	for _, n := range slices.Backward(f.ahead) {
		found, err := conflicts(n)
		if found {
			return n.Name, err
		}
	}
	return "", nil
}

// TestFrontOfALongLine: who joins at the end of a line, and waits for its
// predecessor, allocates nothing.
func TestFrontOfALongLine(t *testing.T) {
	children := longLine(1000)
	self, _ := layout.Parse(children[len(children)-1])
	for _, n := range children {
		if node, _ := layout.Parse(n); layout.Compare(node.Seq, self.Seq) > 0 {
			self = node
		}
	}
	allocated := testing.AllocsPerRun(20, func() {
		front := layout.NewFront(self, children, layout.Set{Family: layout.CuratorLock})
		last, err := front.Last(waits)
		if node, _ := layout.Parse(last); node.Seq != self.Seq-1 || err != nil {
			t.Fatalf("waits for %q, %v", last, err)
		}
	})
	if allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
}
