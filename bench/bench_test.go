package main

import (
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
)

func sampleResults() results {
	r := results{contest: contests["peers"], names: []string{ours, "other", "faster & furious"}}
	for _, w := range r.works {
		for _, round := range [][]float64{{100, 10, 1000}, {300, 10, 1000}, {200, 50, 100}} {
			var all []figures
			for _, rate := range round {
				all = append(all, figures{rate: rate, server: 12, transactions: math.NaN(), longest: 7})
			}
			r.add(w, all)
		}
	}
	return r
}

// TestRatios: a ratio is the median of the rounds' ratios, not the ratio of the
// medians.
func TestRatios(t *testing.T) {
	r := sampleResults()
	w := r.works[0]
	for peer, want := range map[int]float64{0: 1, 1: 10, 2: 0.3} {
		if got := r.ratio(w, peer, rate); got != want {
			t.Errorf("ratio to %s: %v, want %v", r.names[peer], got, want)
		}
	}
	if got := r.value(w, 0, rate); got != 200 {
		t.Errorf("rate %v", got)
	}
	if got := median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("the median of four is %v", got)
	}
	short, text := r.markdown(&options{rounds: 3, each: time.Second})
	for _, row := range []string{"| other | 10.0 (10.0) | 10.0 (10.0) | 10.0 (10.0) |", "| other | 12.0 | 12.0 | 12.0 |", "| other | - | - | - |"} {
		if !strings.Contains(text, row) {
			t.Errorf("no %q in\n%s", row, text)
		}
	}
	if !strings.HasPrefix(text, strings.TrimSpace(short)) || strings.Contains(short, "transactions") {
		t.Errorf("the page gets\n%s", short)
	}
	if strings.Contains(text, "longest") {
		t.Errorf("a table of processes, without processes:\n%s", text)
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
	if want := 2 * len(r.works); bars != want {
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
	got, err := replace([]byte(page), table{name: "x", text: "new\n"})
	if err != nil || string(got) != "a\n<!-- x: begin -->\n\nnew\n\n<!-- x: end -->\nb\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := replace([]byte(page), table{name: "y"}); err == nil {
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
		module + "recipes.NewLease " + module + "recipes/locks.(*Mutex).Acquire " + module + "internal/test/measure_test.measureGrants.func1",
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

// TestTogether: cycles of processes add up. The longest cycle is compared with
// the median of its own process.
func TestTogether(t *testing.T) {
	got := together([]outcome{
		{cycles: 30, took: 5, median: 1, longest: 9},
		{cycles: 40, took: 7, median: 2, longest: 10},
		{cycles: 10, took: 6, median: 3, longest: 4},
	})
	if want := (outcome{cycles: 80, took: 7, median: 2, longest: 10, evenness: 0.25}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestParseStat: the name of a program may have spaces and parentheses in it.
func TestParseStat(t *testing.T) {
	const stat = "42 (java) (x) 1) S 1 42 42 0 -1 4194304 1 0 0 0 250 50 7 7 20 0 1 0 100 1 1"
	if got := parseStat(stat); got != 3e6 {
		t.Errorf("%v microseconds, want 3,000,000", got)
	}
	if got := parseStat("42 (java) S"); !math.IsNaN(got) {
		t.Errorf("%v microseconds of too few fields", got)
	}
}

// TestFrames: frames are counted, however they are spread over writes.
func TestFrames(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go io.Copy(io.Discard, far) // ends with near
	var f frames
	f.begin()
	c := &countedConn{Conn: near, frames: &f}
	for _, text := range []string{"\x00\x00\x00\x02ab\x00\x00\x00\x00\x00\x00", "\x00", "\x03a", "bc\x00\x00"} {
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if all, largest := f.sum(); all != 3 || largest < 1 || largest > 3 {
		t.Errorf("%d frames, and %d in a second; want 3", all, largest)
	}
}

// TestEntries: each part that is a contest has peers, ours first.
func TestEntries(t *testing.T) {
	for part, c := range contests {
		i := slices.IndexFunc(entries, func(e entry) bool { return e.in(part) })
		if i < 0 || !strings.HasPrefix(entries[i].name, ours) {
			t.Errorf("%s: zkrecipes is not the first peer", part)
		}
		for _, w := range c.works {
			if max(w.threads, w.locks) > mostThreads {
				t.Errorf("%s: %s is more than the directories of the peers", part, w.name)
			}
		}
	}
	for _, part := range strings.Split(allParts, ",") {
		if new(options).part(part) == nil {
			t.Errorf("no part %q", part)
		}
	}
}

// TestWay: a process is at its own member first, and its guardian never at the
// one that it cannot reach.
func TestWay(t *testing.T) {
	var addresses []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	if plain, err := wayTo(addresses[0]); err != nil || plain != (way{Servers: addresses[0]}) {
		t.Errorf("%+v, %v", plain, err)
	}
	to, err := wayTo(way{Servers: strings.Join(addresses, ","), First: addresses[1], Unguarded: addresses[1]}.address())
	if err != nil {
		t.Fatal(err)
	}
	for guardian, want := range map[bool][]bool{false: {false, true, true}, true: {true, false, true}} {
		dial := to.dialer(guardian)
		for i, reached := range want {
			conn, err := dial("tcp", addresses[i%2], time.Second)
			if (err == nil) != reached {
				t.Errorf("guardian %v, dial %d: %v", guardian, i, err)
			}
			if err == nil {
				conn.Close()
			}
		}
	}
}

// TestPages: each table that is measured is in bench/results, and the page has
// places for measured tables alone, for two that tests compare, of
// internal/test/costs and internal/test/measure, and for one that a test logs.
func TestPages(t *testing.T) {
	text, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	places := strings.Count(string(text), ": begin -->")
	for _, compared := range []string{"costs", "slow", "replaced"} {
		places -= strings.Count(string(text), "<!-- "+compared+": begin -->")
	}
	replaced, err := os.ReadFile("results/replaced.txt") // by hand, of what internal/test/acceptance logs
	_, rows, _ := strings.Cut(string(replaced), "\n\n")
	if shown, err2 := replace(text, table{name: "replaced", short: rows}); err != nil || err2 != nil || string(shown) != string(text) {
		t.Errorf("the page has not the table of replaced.txt: %v, %v", err, err2)
	}
	for _, part := range strings.Split(allParts, ",") {
		if _, err := os.Stat("results/" + part + ".txt"); err != nil {
			t.Error(err)
		}
		if _, err := replace(text, table{name: part}); err == nil {
			places--
		} else if !errors.Is(err, errNoMarks) {
			t.Error(err)
		}
	}
	if places != 0 {
		t.Errorf("%d places are of no part", places)
	}
}

// TestTree: a directory comes before what is in it, and a tree that some can
// show no larger one of is small enough for them.
func TestTree(t *testing.T) {
	for levels, depth := range map[bool]int{false: 2, true: 4} {
		paths := tree{60_000, levels}.paths("/root")
		seen := map[string]bool{"": true}
		deepest := 0
		for _, path := range paths {
			if !seen[path[:strings.LastIndexByte(path, '/')]] || seen[path] {
				t.Fatalf("%s comes before its directory, or twice", path)
			}
			seen[path] = true
			deepest = max(deepest, strings.Count(path, "/"))
		}
		if deepest != depth || len(paths) < 60_000 || len(paths) > 65_000 {
			t.Errorf("%v: %d znodes, %d deep", tree{60_000, levels}, len(paths), deepest)
		}
	}
}

// TestRelay: the bytes of answers and the frames of requests are counted, and
// the end of one side ends the other.
func TestRelay(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var sent frames
	sent.begin()
	r, err := newRelay(l.Addr().String(), &sent)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	client, err := net.Dial("tcp", r.address())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(client, "\x00\x00\x00\x01a\x00\x00\x00\x01b")
	request, answer := make([]byte, 10), make([]byte, 3)
	if _, err := io.ReadFull(server, request); err != nil || !strings.HasSuffix(string(request), "b") {
		t.Fatalf("%q, %v", request, err)
	}
	io.WriteString(server, "abc")
	if _, err := io.ReadFull(client, answer); err != nil || string(answer) != "abc" {
		t.Fatalf("%q, %v", answer, err)
	}
	server.Close()
	if _, err := client.Read(answer); err == nil {
		t.Error("the client is still connected")
	}
	if n, _ := sent.sum(); n != 2 || r.received.Load() != 3 {
		t.Errorf("%d frames and %d bytes, want 2 and 3", n, r.received.Load())
	}
}
