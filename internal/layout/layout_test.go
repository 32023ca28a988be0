package layout_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

const (
	uuid = "2f1b6a5e-9c0d-4e4f-8a39-0f4f6f2c1d77"
	hex  = "2f1b6a5e9c0d4e4f8a390f4f6f2c1d77"
)

func TestParse(t *testing.T) {
	const ours = "_c_" + uuid + "-"
	for _, test := range []struct {
		name   string
		family layout.Family
		mode   layout.Mode
		id     string
		base   string
		seq    int32
	}{
		// Each layout.
		{ours + "lock-0000000042", layout.CuratorLock, layout.Exclusive, uuid, "lock-", 42},
		{ours + "__READ__0000000007", layout.CuratorRW, layout.Shared, uuid, "__READ__", 7},
		{ours + "__WRIT__0000000008", layout.CuratorRW, layout.Exclusive, uuid, "__WRIT__", 8},
		{ours + "web-1-R-0000000000", layout.PlainRW, layout.Shared, uuid, "web-1-R-", 0},
		{ours + "web-1-W-0000000001", layout.PlainRW, layout.Exclusive, uuid, "web-1-W-", 1},
		{ours + "latch-0000000003", layout.Latch, layout.Exclusive, uuid, "latch-", 3},
		{ours + "lease-0000000004", layout.Lease, layout.Shared, uuid, "lease-", 4},
		{hex + "__lock__0000000005", layout.KazooLock, layout.Exclusive, hex, "__lock__", 5},
		{hex + "__rlock__0000000006", layout.KazooRLock, layout.Shared, hex, "__rlock__", 6},
		{"_c_" + hex + "-lock-0000000042", layout.CuratorLock, layout.Exclusive, hex, "lock-", 42}, // go-zookeeper

		// The ends of the counter.
		{ours + "lock-2147483647", layout.CuratorLock, layout.Exclusive, uuid, "lock-", math.MaxInt32},
		{ours + "lock--2147483648", layout.CuratorLock, layout.Exclusive, uuid, "lock-", math.MinInt32},
		{ours + "lock--000000001", layout.CuratorLock, layout.Exclusive, uuid, "lock-", -1},
		{ours + "lock--1000000000", layout.CuratorLock, layout.Exclusive, uuid, "lock-", -1e9},
		{ours + "__READ__-000000001", layout.CuratorRW, layout.Shared, uuid, "__READ__", -1},
		{ours + "web-1-R--2147483648", layout.PlainRW, layout.Shared, uuid, "web-1-R-", math.MinInt32},
		{hex + "__lock__-2147483648", layout.KazooLock, layout.Exclusive, hex, "__lock__", math.MinInt32},

		// Hosts that look like something else.
		{ours + "a-R-b-W-0000000001", layout.PlainRW, layout.Exclusive, uuid, "a-R-b-W-", 1},
		{ours + "a-W-R-0000000001", layout.PlainRW, layout.Shared, uuid, "a-W-R-", 1},
		{ours + "lock-7-R-0000000001", layout.PlainRW, layout.Shared, uuid, "lock-7-R-", 1},
		{ours + "x__WRIT__-R-0000000001", layout.PlainRW, layout.Shared, uuid, "x__WRIT__-R-", 1},
		{ours + "lock-0000000002-R-0000000001", layout.PlainRW, layout.Shared, uuid, "lock-0000000002-R-", 1},
		{ours + "_c_" + uuid + "-R-0000000001", layout.PlainRW, layout.Shared, uuid, "_c_" + uuid + "-R-", 1},
		{ours + "R-0000000001", layout.PlainRW, layout.Shared, uuid, "R-", 1},
		{ours + "ÿ/-W-0000000001", layout.PlainRW, layout.Exclusive, uuid, "ÿ/-W-", 1},

		// Other forms that are contenders too: not protected, or protected in
		// another way.
		{"lock-0000000042", layout.CuratorLock, layout.Exclusive, "", "lock-", 42},
		{"x-17-lock-0000000042", layout.CuratorLock, layout.Exclusive, "", "x-17-lock-", 42},
		{"host__WRIT__0000000042", layout.CuratorRW, layout.Exclusive, "", "host__WRIT__", 42},
		{"any__lock__0000000042", layout.KazooLock, layout.Exclusive, "", "any__lock__", 42},
		{ours + "__lock__0000000042", layout.KazooLock, layout.Exclusive, uuid, "__lock__", 42},
		{"_c_" + hex + "-__lock__0000000042", layout.KazooLock, layout.Exclusive, "", "_c_" + hex + "-__lock__", 42},

		// These look like protections, but are not. Other clients panic on
		// them.
		{"_c_x-lock-0000000042", layout.CuratorLock, layout.Exclusive, "", "_c_x-lock-", 42},
		{"_c_" + uuid[1:] + "-lock-0000000042", layout.CuratorLock, layout.Exclusive, "", "_c_" + uuid[1:] + "-lock-", 42},
		{"_c_" + strings.Repeat("x", 36) + "-lock-0000000042", layout.CuratorLock, layout.Exclusive, "", "_c_" + strings.Repeat("x", 36) + "-lock-", 42},
	} {
		t.Run(test.name, func(t *testing.T) {
			node, ok := layout.Parse(test.name)
			if !ok {
				t.Fatal("not parsed")
			}
			want := layout.Node{
				Name: test.name, Family: test.family, Mode: test.mode, ID: test.id, Base: test.base, Seq: test.seq, RuleName: test.mode.String(),
				Digits: layout.FormatSequence(test.seq),
			}
			if node != want {
				t.Errorf("\n got %+v\nwant %+v", node, want)
			}
			if got := node.Format(); got != test.name {
				t.Errorf("Format() = %q", got)
			}
		})
	}
}

func TestForeign(t *testing.T) {
	for _, name := range []string{
		"", "_", "_c_", "_c_x", "_c_-", "c", "-", "0000000001", "-0000000001", "lock", "lock-", "locks", "leases",
		"_c_" + uuid, "_c_" + uuid + "-", "_c_" + uuid + "-0000000001", "_c_" + uuid + "-lock-", hex, uuid,
		"_c_" + uuid + "-lock-1", "_c_" + uuid + "-lock-000000001", "_c_" + uuid + "-lock-00000000001", // 9 and 11 digits
		"lock-2147483648", "lock-9999999999", "lock--2147483649", // beyond 32 bits
		"lock--0000000001", "lock--000000000", "lock-+000000001", "lock- 000000001", "lock-00000000x1", // not as a server writes it
		"clock-0000000001", "release-0000000001", "snatch-0000000001", "READ0000000001", "xR-0000000001", // not quite the base
		"lock-0000000001-", "config", "lock-0000000001/child", "member_0000000001", "n_0000000001", "x-lock-x",
	} {
		if node, ok := layout.Parse(name); ok {
			t.Errorf("%q was parsed as %+v", name, node)
		}
	}
}

func TestPlainNames(t *testing.T) {
	for _, test := range []struct{ host, want string }{
		{"web-1", "web-1-R-"},
		{"web_1.example.org", "web_1.example.org-R-"},
		{"", "host-R-"},
		{"a/b c\x00d\u007f", "a_b_c_d_-R-"},
		{"größe", "gr__e-R-"},
		{"\xff\xfe", "__-R-"},
		{"..", "..-R-"},
		{"a-R-", "a-R--R-"},
		{strings.Repeat("h", 300), strings.Repeat("h", 64) + "-R-"},
	} {
		if got := layout.PlainReadName(test.host); got != test.want {
			t.Errorf("read name of %q = %q, want %q", test.host, got, test.want)
		}
		want := strings.TrimSuffix(test.want, "R-") + "W-"
		if got := layout.PlainWriteName(test.host); got != want {
			t.Errorf("write name of %q = %q, want %q", test.host, got, want)
		}
	}
}

func TestCutProtection(t *testing.T) {
	for _, test := range []struct{ name, id, base string }{
		{layout.Protect(uuid, "lock-"), uuid, "lock-"},
		{layout.Protect(hex, "lock-"), hex, "lock-"},
		{layout.Protect(strings.ToUpper(uuid), "x"), strings.ToUpper(uuid), "x"},
		{layout.Protect(uuid, ""), uuid, ""},
		{layout.Protect(uuid, layout.Protect(hex, "lock-")), uuid, layout.Protect(hex, "lock-")},
		{"_c_x", "", "_c_x"},
		{"_c_" + uuid, "", "_c_" + uuid},
		{"_c_" + hex + "x", "", "_c_" + hex + "x"},
		{"_C_" + uuid + "-lock-", "", "_C_" + uuid + "-lock-"},
		{"lock-", "", "lock-"},
		{"", "", ""},
	} {
		id, base, found := layout.CutProtection(test.name)
		if id != test.id || base != test.base || found != (test.id != "") {
			t.Errorf("CutProtection(%q) = %q, %q, %t", test.name, id, base, found)
		}
	}
}

func TestLine(t *testing.T) {
	children := []string{
		"config", // foreign
		"_c_" + uuid + "-lock-2147483647",
		"_c_" + uuid + "-lock--2147483648", // last: the counter has wrapped around
		"_c_x",                             // foreign
		"_c_" + hex + "-lock-2147483645",
	}
	line, conflict := layout.Line(children, layout.Set{Family: layout.CuratorLock})
	if conflict != "" {
		t.Errorf("conflict = %q", conflict)
	}
	want := []string{children[4], children[1], children[2]}
	if got := names(line); !slices.Equal(got, want) {
		t.Errorf("line = %q\nwant %q", got, want)
	}

	t.Run("Kazoo's two families in one line", func(t *testing.T) {
		children := []string{hex + "__rlock__0000000002", hex + "__lock__0000000001"}
		line, conflict := layout.Line(children, layout.Set{Family: layout.KazooLock, Also: layout.KazooRLock})
		if got := names(line); conflict != "" || !slices.Equal(got, []string{children[1], children[0]}) {
			t.Errorf("line = %q, conflict = %q", got, conflict)
		}
	})
	t.Run("a conflict is returned", func(t *testing.T) {
		children := []string{"config", "_c_" + uuid + "-latch-0000000002", "_c_" + uuid + "-lock-0000000001"}
		line, conflict := layout.Line(children, layout.Set{Family: layout.CuratorLock})
		if conflict != children[1] || len(line) != 1 {
			t.Errorf("line = %q, conflict = %q", names(line), conflict)
		}
	})
	t.Run("no children", func(t *testing.T) {
		if line, conflict := layout.Line(nil, layout.Set{Family: layout.CuratorLock}); line != nil || conflict != "" {
			t.Errorf("line = %v, conflict = %q", line, conflict)
		}
	})
}

// TestDowngradedReadStandsBehindItsWriter: in Curator a read that was
// downgraded from a write has the sequence of the write.
func TestDowngradedReadStandsBehindItsWriter(t *testing.T) {
	read := "_c_00000000-0000-0000-0000-000000000000-__READ__0000000005" // its name alone would put it first
	write := "_c_" + uuid + "-__WRIT__0000000005"
	line, _ := layout.Line([]string{read, write}, layout.Set{Family: layout.CuratorRW})
	if got := names(line); !slices.Equal(got, []string{write, read}) {
		t.Errorf("line = %q", got)
	}
	if layout.Twins(line) {
		t.Error("Twins returned true for a write and its read")
	}
	// Both of them belong to the front of either, and nothing behind them does.
	for _, self := range line {
		front := layout.NewFront(self, []string{read, "_c_" + uuid + "-__READ__0000000006", write}, layout.Set{Family: layout.CuratorRW})
		if last, err := front.Last(waits); last != "" || err != nil || !front.Joined || front.Twins {
			t.Errorf("the front of %q: %+v; the last is %q, %v", self.Name, front, last, err)
		}
	}
	if front := layout.NewFront(line[0], []string{write, "latch-0000000009"}, layout.Set{Family: layout.CuratorRW}); front.Other != "latch-0000000009" {
		t.Errorf("conflict behind = %q", front.Other)
	}
}

func waits(layout.Node) (bool, error) { return true, nil }

func TestTwins(t *testing.T) {
	for _, test := range []struct {
		name string
		line []string
		want bool
	}{
		{"no nodes", nil, false},
		{"one", []string{"lock-0000000001"}, false},
		{"consecutive", []string{"lock-0000000001", "lock-0000000002"}, false},
		{"two locks", []string{"a-lock-2147483647", "b-lock-2147483647"}, true},
		{"two reads", []string{"a-R-0000000001", "b-R-0000000001"}, false},
		{"a write and two reads of it", []string{"a-W-0000000001", "a-R-0000000001", "b-R-0000000001"}, false},
		{"two writes and a read", []string{"a-W-2147483647", "c-R-2147483647", "b-W-2147483647"}, true},
		{"a write and its read", []string{"a-W-0000000001", "a-R-0000000001"}, false},
	} {
		line, _ := layout.Line(test.line, layout.Set{Family: layout.CuratorLock, Also: layout.PlainRW})
		if len(line) != len(test.line) {
			t.Fatalf("%s: line = %q", test.name, names(line))
		}
		if got := layout.Twins(line); got != test.want {
			t.Errorf("%s: twins = %t", test.name, got)
		}
	}
}

// TestCompareAtTheWrap: other clients compare text or signed numbers. After the
// counter's wrap they put the newest contender before the holder (kazoo 730).
func TestCompareAtTheWrap(t *testing.T) {
	for _, test := range []struct {
		a, b int32
		want int
	}{
		{0, 0, 0},
		{0, 1, -1},
		{41, 42, -1},
		{math.MaxInt32 - 1, math.MaxInt32, -1},
		{math.MaxInt32, math.MinInt32, -1},
		{math.MaxInt32, math.MinInt32 + 100, -1},
		{math.MaxInt32 - 100, -1 << 30, -1},
		{math.MinInt32, math.MinInt32 + 1, -1},
		{-2, -1, -1},
		{-1, 0, -1},
		{0, math.MaxInt32, -1},
		{0, math.MinInt32, 1}, // exactly opposite: any order, but antisymmetric
		{1, math.MinInt32, -1},
		{math.MaxInt32, -2, -1},
		{math.MaxInt32, 0, 1}, // more than 2^31 apart: the order of the shorter way around
	} {
		if got := layout.Compare(test.a, test.b); got != test.want {
			t.Errorf("Compare(%d, %d) = %d, want %d", test.a, test.b, got, test.want)
		}
		if got := layout.Compare(test.b, test.a); got != -test.want {
			t.Errorf("Compare(%d, %d) = %d, want %d", test.b, test.a, got, -test.want)
		}
	}
}

func TestExhausted(t *testing.T) {
	for _, test := range []struct {
		seq  int32
		want bool
	}{
		{0, false},
		{1 << 30, false},
		{math.MaxInt32 - 10_000, false},
		{math.MaxInt32 - 1, true},
		{math.MaxInt32, true},
		{math.MinInt32, false}, // an older server counts on after its wrap
		{-1, false},
	} {
		if got := layout.Exhausted(test.seq); got != test.want {
			t.Errorf("Exhausted(%d) = %t", test.seq, got)
		}
	}
}

// FuzzParse: Parse panics on no name, Format returns every name that Parse
// knows, and the parts of a Node agree.
func FuzzParse(f *testing.F) {
	for _, name := range []string{
		"", "_c_", "_c_x", "_c_x-lock-0000000001", "lock-0000000001", "lock--2147483648", "_c_" + uuid + "-web-R-0000000001",
		"_c_" + hex + "-lock-0000000001", hex + "__rlock__0000000001", "_c_" + hex + "-" + hex + "__lock__-000000001",
		"_c_" + uuid + "-__WRIT__0000000001", "_c_" + uuid + "-latch-0000000001", "_c_" + uuid + "-lease-0000000001", "\xff-R-0000000000",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		node, ok := layout.Parse(name)
		if !ok {
			if node != (layout.Node{}) {
				t.Errorf("%q is unknown, but parsed as %+v", name, node)
			}
			return
		}
		if got := node.Format(); got != name || node.Name != name {
			t.Errorf("%q was formatted as %q", name, got)
		}
		if node.Family == layout.Unknown || layout.FormatSequence(node.Seq) != node.Digits || !strings.HasSuffix(name, node.Digits) {
			t.Errorf("%q was parsed as %+v", name, node)
		}
		// The same name with the next number is parsed alike, and is behind
		// this one.
		next := node
		next.Seq++
		next.Digits = layout.FormatSequence(next.Seq)
		again, ok := layout.Parse(next.Format())
		if !ok || again.Family != node.Family || again.Mode != node.Mode || again.ID != node.ID || again.Base != node.Base {
			t.Errorf("next after %+v = %+v", node, again)
		}
		if layout.Compare(node.Seq, again.Seq) >= 0 {
			t.Errorf("%d is not before %d", node.Seq, again.Seq)
		}
	})
}

// FuzzSequence: Parse takes a text after a base as a sequence if and only if
// FormatSequence writes some number like that.
func FuzzSequence(f *testing.F) {
	for _, text := range []string{
		"", "0", "0000000000", "0000000042", "2147483647", "2147483648", "9999999999", "00000000042", "-000000000", "-000000001", "-999999999",
		"-0000000001", "-1000000000", "-2147483648", "-2147483649", "-9999999999", "--00000001", "+000000001", "000000004x", " 000000042", "0x00000001",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := strconv.ParseInt(text, 10, 32)
		want := err == nil && layout.FormatSequence(int32(n)) == text
		node, ok := layout.Parse("lock-" + text)
		if ok = ok && node.Base == "lock-"; ok != want || ok && node.Seq != int32(n) { // "x-lock-0000000001" has another base
			t.Errorf("%q: %+v, %t; want %d, %t", text, node, ok, n, want)
		}
	})
}

// FuzzFormat: Parse recognizes every name that a recipe creates, with any host.
func FuzzFormat(f *testing.F) {
	f.Add("web-1", int32(0))
	f.Add("-R-", int32(-1))
	f.Add("lock-", int32(math.MaxInt32))
	f.Add("__WRIT__0000000001", int32(math.MinInt32))
	f.Add("_c_"+uuid, int32(7))
	f.Fuzz(func(t *testing.T, host string, seq int32) {
		for _, created := range []struct {
			base   string
			family layout.Family
			mode   layout.Mode
		}{
			{layout.PlainReadName(host), layout.PlainRW, layout.Shared},
			{layout.PlainWriteName(host), layout.PlainRW, layout.Exclusive},
			{layout.CuratorLockName, layout.CuratorLock, layout.Exclusive},
			{layout.CuratorReadName, layout.CuratorRW, layout.Shared},
			{layout.CuratorWriteName, layout.CuratorRW, layout.Exclusive},
			{layout.LatchName, layout.Latch, layout.Exclusive},
			{layout.LeaseName, layout.Lease, layout.Shared},
			{layout.KazooLockName, layout.KazooLock, layout.Exclusive},
			{layout.KazooRLockName, layout.KazooRLock, layout.Shared},
		} {
			name := layout.Protect(uuid, created.base) + layout.FormatSequence(seq)
			node, ok := layout.Parse(name)
			if !ok || node.Family != created.family || node.Mode != created.mode || node.ID != uuid || node.Base != created.base || node.Seq != seq {
				t.Errorf("%q was parsed as %+v, %t", name, node, ok)
			}
			if strings.ContainsAny(name, "/\x00") {
				t.Errorf("%q is not a valid znode name", name)
			}
		}
	})
}

// FuzzSort: Line sorts any shuffled list of numbers within 2^31 of each other
// in the order in which the server assigned them, wherever the counter began.
// The front of each contender has those before it.
func FuzzSort(f *testing.F) {
	f.Add(int32(0), uint32(1), uint64(1))
	f.Add(int32(math.MaxInt32-3), uint32(1), uint64(2))
	f.Add(int32(-3), uint32(1<<27), uint64(3))
	f.Add(int32(math.MinInt32), uint32(1<<27), uint64(4))
	f.Fuzz(func(t *testing.T, first int32, step uint32, seed uint64) {
		const contenders = 16
		step = 1 + step%(math.MaxInt32/contenders)
		want := make([]string, contenders)
		for i := range want {
			seq := first + int32(uint32(i)*step)
			want[i] = fmt.Sprintf("lock-%s", layout.FormatSequence(seq))
		}
		children := slices.Clone(want)
		rand.New(rand.NewPCG(seed, seed)).Shuffle(contenders, func(i, j int) { children[i], children[j] = children[j], children[i] })
		line, _ := layout.Line(children, layout.Set{Family: layout.CuratorLock})
		if got := names(line); !slices.Equal(got, want) {
			t.Errorf("line = %q\nwant %q", got, want)
		}
		for i, self := range line {
			front := layout.NewFront(self, children, layout.Set{Family: layout.CuratorLock})
			if got := ahead(t, &front); !front.Joined || !slices.Equal(got, want[:i]) {
				t.Errorf("ahead of %q: %q\nwant %q", self.Name, got, want[:i])
			}
		}
	})
}

// FuzzLine: whatever names the children have, each is in line, or the conflict,
// or ignored, as Parse alone says. Those at most 2^31 ahead of a contender are
// in front of it, in the order of their numbers.
func FuzzLine(f *testing.F) {
	f.Add("lock-0000000002\nlock-0000000001\nconfig\nhost-R-0000000001", int32(2))
	f.Add("lock--2147483648\nlock-0000000000\nlock-2147483647\nlock--000000001", int32(-1))
	f.Add("lock-0000000001\nlock-0000000001\nx-lock-0000000001\n_c_"+uuid+"-lock-0000000001\nlatch-0000000000", int32(math.MinInt32))
	f.Fuzz(func(t *testing.T, list string, seq int32) {
		self := "lock-" + layout.FormatSequence(seq)
		children := append(strings.Split(list, "\n"), self)
		set := layout.Set{Family: layout.CuratorLock}
		var inLine []string
		others := map[string]bool{"": true}
		for _, name := range children {
			node, known := layout.Parse(name)
			if known && node.Family == layout.CuratorLock {
				inLine = append(inLine, name)
			} else if known {
				others[name] = true
			}
		}
		line, conflict := layout.Line(children, set)
		got := names(line)
		slices.Sort(got)
		slices.Sort(inLine)
		if !slices.Equal(got, inLine) || !others[conflict] || (conflict == "") != (len(others) == 1) {
			t.Errorf("%q: line %q, conflict %q", children, got, conflict)
		}
		own, _ := layout.Parse(self)
		front := layout.NewFront(own, children, set)
		if !front.Joined || front.Other != conflict {
			t.Errorf("front %+v of %q", front, self)
		}
		want := slices.DeleteFunc(inLine, func(name string) bool {
			node, _ := layout.Parse(name)
			return seq-node.Seq <= 0 && !(seq-node.Seq == math.MinInt32 && node.Seq < seq)
		})
		got = ahead(t, &front)
		for i := 1; i < len(got); i++ {
			before, _ := layout.Parse(got[i-1])
			after, _ := layout.Parse(got[i])
			if layout.Compare(before.Seq, after.Seq) > 0 {
				t.Errorf("%q stands before %q", got[i-1], got[i])
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("ahead %q, want %q", got, want)
		}
	})
}

// ahead returns all names ahead of the contender that a front ends with, in the
// order of their line.
func ahead(t *testing.T, f *layout.Front) (all []string) {
	last, err := f.Last(func(n layout.Node) (bool, error) {
		all = append(all, n.Name)
		return false, nil
	})
	if last != "" || err != nil {
		t.Errorf("nothing conflicts, and yet: %q, %v", last, err)
	}
	slices.Reverse(all)
	return all
}

// FuzzParseSequence: a number is exactly what FormatSequence writes.
func FuzzParseSequence(f *testing.F) {
	for _, text := range []string{"", "0000000042", "-000000001", "-2147483648", "2147483648", "-0000000001", "-99999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := strconv.ParseInt(text, 10, 32)
		want := err == nil && layout.FormatSequence(int32(n)) == text
		if got, ok := layout.ParseSequence(text); ok != want || ok && got != int32(n) {
			t.Errorf("%q: %d, %t; want %d, %t", text, got, ok, n, want)
		}
	})
}

func names(line []layout.Node) []string {
	out := make([]string, len(line))
	for i, node := range line {
		out[i] = node.Name
	}
	return out
}

// FuzzKind: Parse returns the kind and name that KindBase was called with, and
// no kind and name together match another layout, with any protection.
func FuzzKind(f *testing.F) {
	f.Add("range.v1", "r=10,20", int32(7))
	f.Add("lock", "lock-", int32(0))
	f.Add("R", "__READ__", int32(1))
	f.Add("latch", "-R-", int32(-5))
	f.Add("k", "", int32(math.MaxInt32))
	f.Fuzz(func(t *testing.T, kind, name string, seq int32) {
		base := layout.KindBase(kind, name)
		valid := layout.CheckKind(kind) == nil && layout.CheckName(name) == nil
		for _, protected := range []string{base, layout.Protect(uuid, base), layout.Protect(hex, base), hex + base} {
			node, known := layout.Parse(protected + layout.FormatSequence(seq))
			if valid && protected != hex+base && (!known || node.Kind != kind || node.RuleName != name || node.Seq != seq) {
				t.Errorf("%q: known %v, %+v", protected, known, node)
			}
			if known && node.Family != layout.KindLine {
				t.Errorf("%q: parsed as a %v", protected, node.Family)
			}
		}
		if valid && layout.MayBeKazooLease(layout.Protect(uuid, base)+layout.FormatSequence(seq)) {
			t.Errorf("%q looks like a lease of Kazoo's semaphore", base)
		}
	})
}
