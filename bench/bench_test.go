package main

import (
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
)

func sampleResults() results {
	r := results{names: []string{ours, "other", "faster & furious"}}
	for _, w := range works {
		r.add(w, []float64{100, 10, 1000})
		r.add(w, []float64{300, 10, 1000})
		r.add(w, []float64{200, 50, 100})
	}
	return r
}

// TestRatios: a ratio is the median of the rounds' ratios, not the ratio of the
// medians.
func TestRatios(t *testing.T) {
	r := sampleResults()
	for peer, want := range map[int]float64{0: 1, 1: 10, 2: 0.3} {
		if got := r.ratio(works[0], peer); got != want {
			t.Errorf("ratio to %s: %v, want %v", r.names[peer], got, want)
		}
	}
	if got := r.rate(works[0], 0); got != 200 {
		t.Errorf("rate %v", got)
	}
	if got := median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("the median of four is %v", got)
	}
	text := r.markdown(&options{rounds: 3, each: time.Second})
	if !strings.Contains(text, "| other | 10.0 (10.0) | 10.0 (10.0) | 10.0 (10.0) |") {
		t.Errorf("got table\n%s", text)
	}
}

// TestPlot: the plot is well-formed, and has a bar for each peer except ours.
func TestPlot(t *testing.T) {
	r := sampleResults()
	bars := -1 // the background
	for in := xml.NewDecoder(strings.NewReader(r.plot())); ; {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			bars++
		}
	}
	if want := 2 * len(works); bars != want {
		t.Errorf("%d bars, want %d", bars, want)
	}
}

func TestParse(t *testing.T) {
	got := parse(`goos: linux
BenchmarkFloor/loopback/real-2         	      93	      2815 floor-µs	      2965 mutex-µs	         1.054 ratio
BenchmarkHeld/real-nosync-16 	 1	 11239339628 ns/op	 7603 B/lock
PASS
ok  	github.com/zkrecipes/zkrecipes/recipes	196.939s
`)
	if len(got) != 2 || got[0].name != "Floor/loopback/real" || got[1].name != "Held/real-nosync" || got[0].values["ratio"] != 1.054 || got[1].values["B/lock"] != 7603 {
		t.Errorf("%+v", got)
	}
	if text := grid(got[:1], []string{"floor-µs", "ratio"}); !strings.Contains(text, "| loopback/real | 2820 | 1.05 |") {
		t.Errorf("%s", text)
	}
	if text := list(got[1:], []string{"floor-µs", "B/lock"}); !strings.Contains(text, "| Held/real-nosync | 7600 B/lock |") {
		t.Errorf("%s", text)
	}
}

func TestReplace(t *testing.T) {
	const page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n"
	got, err := replace([]byte(page), table{"x", "new\n"})
	if err != nil || string(got) != "a\n<!-- x: begin -->\n\nnew\n\n<!-- x: end -->\nb\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := replace([]byte(page), table{"y", ""}); err == nil {
		t.Error("y was accepted, which has no marks")
	}
}

func TestSignificant(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.012345: "0.0123", 1: "1.00", 12.345: "12.3", 999.9: "1000", 123456: "123000"} {
		if got := significant(x); got != want {
			t.Errorf("%v is %s, want %s", x, got, want)
		}
	}
}

// TestLayers: a sample counts for the layer of the frame that is nearest to
// where it was taken, runtime frames left out. A sample without such a frame
// counts for the rest.
func TestLayers(t *testing.T) {
	var p profile.Profile
	p.SampleType = []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}
	for i, stack := range []string{ // innermost frame first
		"runtime.mallocgc runtime.newobject " + module + "framework.call[go.shape.int] " + module + "recipes/internal/line.(*gate).drive",
		"syscall.Syscall syscall.write internal/poll.(*FD).Write net.(*conn).Write " + module + "framework.(*link).Write github.com/go-zookeeper/zk.(*Conn).sendLoop",
		module + "internal/layout.Parse " + module + "recipes/internal/line.(*Rule).turn",
		module + "recipes.NewLease " + module + "recipes/locks.(*Mutex).Acquire " + module + "internal/measure_test.cycles.func1",
		"runtime.futex runtime.findRunnable runtime.schedule runtime.mcall",
		"runtime.scanobject runtime.gcBgMarkWorker",
		"runtime.sysmon",
	} {
		sample := &profile.Sample{Value: []int64{1, 1 << i}}
		for _, name := range strings.Fields(stack) {
			sample.Location = append(sample.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
		}
		p.Sample = append(p.Sample, sample)
	}
	got, err := byLayer(&p, "cpu")
	want := map[string]float64{
		"framework": 1, "the system, for the socket": 2, "the line": 4, "the recipe": 8, "the scheduler": 16, "the collector": 32, rest: 64,
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := byLayer(&p, "alloc_objects"); err == nil {
		t.Error("a profile without allocations was accepted")
	}
	text := shares("what", []map[string]float64{got, got, got, got})
	for _, row := range []string{"| the line | 4.00 |", "| the wire client | 0 |", "| others | 64.0 |", "| **in all** | **127** |"} {
		if !strings.Contains(text, row) {
			t.Errorf("no %q in\n%s", row, text)
		}
	}
}
