package line

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

var exclusive = Rule{
	Kind: "test", Name: "exclusive", Conflicts: func(mine, theirs string) bool { return true },
	Base: layout.CuratorLockName, Set: layout.Set{Family: layout.CuratorLock},
}

func name(seq int) string {
	return fmt.Sprintf("_c_00000000-0000-4000-8000-%012d-lock-%010d", seq&0xffff, seq)
}

func TestBlocker(t *testing.T) {
	const own = 7
	tests := []struct {
		story    string
		own      int
		children []string
		blocker  string
		err      error
	}{
		{"alone", own, []string{name(own)}, "", nil},
		{"first of several, listed in any order", own, []string{name(9), name(own), name(8)}, "", nil},
		{"behind one", own, []string{name(own), name(6)}, name(6), nil},
		{"behind several: the one directly ahead", own, []string{name(own), name(2), name(5), name(3), name(9)}, name(5), nil},
		{"children of no known form are ignored", own, []string{"config", "lock", "_c_x", name(own), "lock-12", "clock-0000000001"}, "", nil},
		{"one ahead without protection counts", own, []string{"lock-0000000003", name(own)}, "lock-0000000003", nil},
		{"one of go-zookeeper's form counts", own, []string{"_c_0123456789abcdef0123456789abcdef-lock-0000000003", name(own)}, "_c_0123456789abcdef0123456789abcdef-lock-0000000003", nil},
		{"not in line", own, []string{name(8)}, "", errNotInLine},
		{"an empty line", own, nil, "", errNotInLine},
		{"a Curator read", own, []string{name(own), "_c_00000000-0000-4000-8000-000000000000-__READ__0000000003"}, "", ErrLayout},
		{"a Curator write", own, []string{name(own), "_c_00000000-0000-4000-8000-000000000000-__WRIT__0000000003"}, "", ErrLayout},
		{"a plain read", own, []string{name(own), "_c_00000000-0000-4000-8000-000000000000-web-1-R-0000000003"}, "", ErrLayout},
		{"a latch", own, []string{name(own), "_c_00000000-0000-4000-8000-000000000000-latch-0000000003"}, "", ErrLayout},
		{"a semaphore's lease", own, []string{name(own), "_c_00000000-0000-4000-8000-000000000000-lease-0000000003"}, "", ErrLayout},
		{"a Kazoo lock", own, []string{name(own), "0123456789abcdef0123456789abcdef__lock__0000000003"}, "", ErrLayout},
		{"a Kazoo read lock, even behind", own, []string{name(own), "0123456789abcdef0123456789abcdef__rlock__0000000009"}, "", ErrLayout},
		{"the last number but a few", 1<<31 - 2, []string{name(1<<31 - 2)}, "", ErrExhausted},
		{"equal numbers", own, []string{name(own), "lock-0000000007"}, "", ErrExhausted},
		{"a counter that has wrapped comes after", -2147483640, []string{name(-2147483640), name(2147480000)}, name(2147480000), nil},
		{"before one that has wrapped", 2147480000, []string{name(-2147483640), name(2147480000)}, "", nil},
	}
	for _, test := range tests {
		t.Run(test.story, func(t *testing.T) {
			blocker, err := exclusive.blocker(name(test.own), test.children)
			if blocker != test.blocker || !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
				t.Errorf("got blocker %q, error %v; want %q, %v", blocker, err, test.blocker, test.err)
			}
		})
	}
}

func TestBusy(t *testing.T) {
	tests := []struct {
		story    string
		children []string
		busy     bool
		err      error
	}{
		{"nobody", nil, false, nil},
		{"nobody that counts", []string{"config"}, false, nil},
		{"one", []string{name(3)}, true, nil},
		{"another layout", []string{"0123456789abcdef0123456789abcdef__lock__0000000003"}, false, ErrLayout},
	}
	for _, test := range tests {
		members, err := exclusive.members(test.children)
		own := exclusive.newcomer(members)
		last, _ := exclusive.lastConflict(&own, members)
		if !errors.Is(err, test.err) || err == nil && (last >= 0) != test.busy {
			t.Errorf("%s: got %v, %v; want %v, %v", test.story, last, err, test.busy, test.err)
		}
	}
}

// Readers and writers: of those ahead the last that conflicts is watched.
func TestBlockerOfReadersAndWriters(t *testing.T) {
	const r, w = "a-R-000000000", "a-W-000000000"
	tests := []struct {
		story string
		own   string
		ahead []string
		want  string
	}{
		{"a reader alone", r + "1", nil, ""},
		{"a writer alone", w + "1", nil, ""},
		{"a reader behind readers", r + "3", []string{r + "1", r + "2"}, ""},
		{"a reader behind a writer", r + "2", []string{w + "1"}, w + "1"},
		{"a reader behind several writers: the last one", r + "4", []string{w + "1", w + "2", w + "3"}, w + "3"},
		{"a reader behind a writer that other readers follow", r + "5", []string{r + "1", w + "2", r + "3", r + "4"}, w + "2"},
		{"a writer behind a reader", w + "2", []string{r + "1"}, r + "1"},
		{"a writer behind readers: the last one", w + "3", []string{r + "1", r + "2"}, r + "2"},
		{"a writer behind writers: the last one", w + "3", []string{w + "1", w + "2"}, w + "2"},
		{"a downgraded read beside its write", r + "2", []string{w + "2"}, ""},
		{"a downgraded read beside its write and another read of it", r + "2", []string{w + "2", "b-R-0000000002"}, ""},
		{"a downgraded read with a write ahead, which cannot be", r + "2", []string{w + "1", w + "2"}, w + "1"},
		{"a writer behind a downgraded read", w + "3", []string{w + "2", r + "2"}, r + "2"},
		{"a reader behind a write and its read", r + "3", []string{w + "2", r + "2"}, w + "2"},
		{"a reader behind a read that was downgraded and its write gone", r + "3", []string{r + "2"}, ""},
	}
	for _, test := range tests {
		own, _ := layout.Parse(test.own)
		rule := Rule{
			Name: own.RuleName, Set: layout.Set{Family: layout.PlainRW},
			Conflicts: func(mine, theirs string) bool { return mine == "exclusive" },
		}
		got, err := rule.blocker(test.own, append(test.ahead, test.own))
		if got != test.want || err != nil {
			t.Errorf("%s: waits for %q, %v; want %q", test.story, got, err, test.want)
		}
	}
}

// A name that no release of this module writes, or a function that panics, lets
// nobody in.
func TestConflictsInDoubt(t *testing.T) {
	const uuid = "00000000-0000-4000-8000-000000000001"
	never := func(mine, theirs string) bool { return false }
	rule := Rule{Name: "a", Conflicts: never, Set: layout.Set{Family: layout.KindLine, Kind: "k.v1"}}
	own := layout.Protect(uuid, layout.KindBase("k.v1", "a")) + layout.FormatSequence(5)
	odd := layout.Protect(uuid, layout.KindBase("k.v1", "no such name")) + layout.FormatSequence(3)
	if got, err := rule.blocker(own, []string{odd, own}); got != odd || err != nil {
		t.Errorf("an odd name: waits for %q, %v", got, err)
	}
	other := layout.Protect(uuid, layout.KindBase("k.v2", "a")) + layout.FormatSequence(9)
	if _, err := rule.blocker(own, []string{own, other}); !errors.Is(err, ErrLayout) {
		t.Errorf("another kind: %v", err)
	}
	rule.Conflicts = func(mine, theirs string) bool { panic("no") }
	plain := layout.Protect(uuid, layout.KindBase("k.v1", "b")) + layout.FormatSequence(3)
	if _, err := rule.blocker(own, []string{plain, own}); err == nil {
		t.Error("a panic: granted")
	}
	if err := rule.init(); err == nil {
		t.Error("a panic: the constructor succeeds")
	}
	// Either order decides.
	rule.Conflicts = func(mine, theirs string) bool { return mine == "b" }
	if got, err := rule.blocker(own, []string{plain, own}); got != plain || err != nil {
		t.Errorf("a conflict that the other names: waits for %q, %v", got, err)
	}
}

func TestConfigIsValidated(t *testing.T) {
	tests := []struct {
		story string
		cfg   Config
		ok    bool
	}{
		{"the zero value", Config{}, true},
		{"data", Config{Data: []byte("host")}, true},
		{"too much data", Config{Data: make([]byte, 1<<20)}, false},
		{"data that asks for the release", Config{Data: []byte("__REVOKE__")}, false},
		{"data that asks for the release, with a text", Config{Data: []byte("__REVOKE__ host")}, false},
		{"data that begins in the same way", Config{Data: []byte("__REVOKE__host")}, true},
		{"a negative hold", Config{MaxHold: -1}, false},
		{"a negative number of handoffs", Config{Handoffs: -1}, false},
		{"a negative linger", Config{Linger: -1}, false},
		{"an ACL of nobody", Config{ACL: []zk.ACL{}}, false},
	}
	for _, test := range tests {
		if err := test.cfg.validate(1 << 20); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.story, err)
		}
	}
}

// Whoever stands behind is found, whatever else is in the directory.
func TestContended(t *testing.T) {
	for _, behind := range []string{name(9), "_c_00000000-0000-4000-8000-000000000000-latch-0000000009"} {
		for _, children := range [][]string{{name(7), behind}, {"config", name(7), behind}, {"config", behind, name(7)}} {
			if contended, err := exclusive.contended(name(7), children); !contended || err != nil {
				t.Errorf("%q: %v, %v", children, contended, err)
			}
		}
	}
	if contended, err := exclusive.contended(name(7), []string{"config", name(7), "x"}); contended || err != nil {
		t.Errorf("alone: %v, %v", contended, err)
	}
}
