package line

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

var exclusive = Rule{Kind: "test", Base: layout.CuratorLockName, Family: layout.CuratorLock, Blocker: Predecessor}

func name(seq int) string {
	return fmt.Sprintf("_c_00000000-0000-4000-8000-%012d-lock-%010d", seq&0xffff, seq)
}

func TestTurn(t *testing.T) {
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
		{"not in line", own, []string{name(8)}, "", errOut},
		{"an empty line", own, nil, "", errOut},
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
			blocker, err := exclusive.turn(name(test.own), test.children)
			if blocker != test.blocker || !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
				t.Errorf("got blocker %q, error %v; want %q, %v", blocker, err, test.blocker, test.err)
			}
		})
	}
}

func TestFree(t *testing.T) {
	tests := []struct {
		story    string
		children []string
		free     bool
		err      error
	}{
		{"nobody", nil, true, nil},
		{"nobody that counts", []string{"config"}, true, nil},
		{"one", []string{name(3)}, false, nil},
		{"another layout", []string{"0123456789abcdef0123456789abcdef__lock__0000000003"}, false, ErrLayout},
	}
	for _, test := range tests {
		blockers, err := exclusive.blockers(test.children)
		free := err == nil
		if free {
			for range blockers {
				free = false
			}
		}
		if free != test.free || !errors.Is(err, test.err) {
			t.Errorf("%s: got %v, %v; want %v, %v", test.story, free, err, test.free, test.err)
		}
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
		{"a negative hold", Config{MaxHold: -1}, false},
		{"an ACL of nobody", Config{ACL: []zk.ACL{}}, false},
	}
	for _, test := range tests {
		if err := test.cfg.validate(1 << 20); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.story, err)
		}
	}
}
