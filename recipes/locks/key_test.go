package locks

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/zkrecipes/zkrecipes/framework"
)

func TestKeyNames(t *testing.T) {
	tests := []struct{ key, name string }{
		{"", "%"},
		{"orders", "orders"},
		{"order 7, EU", "order 7, EU"},
		{"a/b", "a%2Fb"},
		{"/", "%2F"},
		{"//", "%2F%2F"},
		{".", "%2E"},
		{"..", "%2E%2E"},
		{"...", "..."},
		{"./..", ".%2F.."},
		{".hidden", ".hidden"},
		{"%", "%25"},
		{"%2F", "%252F"},
		{"a\x00b", "a%00b"},
		{"tab\tnewline\n", "tab%09newline%0A"},
		{"\x7f\u0085", "%7F%C2%85"},
		{"straße", "straße"},
		{"鍵", "鍵"},
		{"\ue000", "%EE%80%80"}, // private use: servers refuse it
		{"\ufff9", "%EF%BF%B9"},
		{"\ufeff", "\ufeff"},
		{"\u001f \u007e\u009f\u00a0", "%1F \u007e%C2%9F\u00a0"}, // the first and the last of what servers refuse
		{"\ud7ff\uf8ff\uf900\uffef\ufff0", "\ud7ff%EF%A3%BF\uf900\uffef%EF%BF%B0"},
		{"🔑", "%F0%9F%94%91"},
		{"\xff", "%FF"},
		{"a\xe9", "a%E9"},
		{"\ufffd", "%EF%BF%BD"},
		{"lock-0000000001", "lock-0000000001"},
	}
	for _, test := range tests {
		name := keyName(test.key)
		if name != test.name {
			t.Errorf("the name of %q is %q, want %q", test.key, name, test.name)
		}
		if key, ok := keyOf(name); !ok || key != test.key {
			t.Errorf("%q is the name of %q, %v, want %q", name, key, ok, test.key)
		}
	}
}

func TestInvalidKeyNames(t *testing.T) {
	for _, name := range []string{
		"", "%2", "%2f", "%41", "%%", "a%", "%GG", "a/b", ".", "..", "%2E%2Ea", "%2E.", "%25%", "🔑", "\xff", "\x00", "%+1", "%...",
	} {
		if key, ok := keyOf(name); ok {
			t.Errorf("%q was parsed as the name of %q", name, key)
		}
	}
}

// FuzzKeyNames: the name of every key is valid for ZooKeeper, and no other key
// has it.
func FuzzKeyNames(f *testing.F) {
	for _, seed := range []string{"", ".", "..", "/", "%", "%2F", "a/b\x00", "🔑", "\xff\xfe", "\ud7ff\ue000\uf8ff\uf900"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name := keyName(s)
		if err := framework.ValidatePath("/root/" + name); err != nil {
			t.Errorf("the name of %q: %v", s, err)
		}
		if strings.Contains(name, "/") || name == "zookeeper" && s != name {
			t.Errorf("the name of %q: %q", s, name)
		}
		for _, r := range name {
			if r > 0xffff || r == utf8.RuneError {
				t.Errorf("the name of %q has %U", s, r)
			}
		}
		if key, ok := keyOf(name); !ok || key != s {
			t.Errorf("%q is the name of %q, %v, want %q", name, key, ok, s)
		}
		if key, ok := keyOf(s); ok && keyName(key) != s {
			t.Errorf("%q was parsed as the name of %q, whose name is %q", s, key, keyName(key))
		}
	})
}

// Callers that disturb each other pause for a millisecond at most at first, and
// for a second at most later.
func TestGroupPauses(t *testing.T) {
	var first, later time.Duration
	pauses := groupPauses()
	for range 5000 {
		first, later = max(first, groupPauses().NextBackOff()), max(later, pauses.NextBackOff())
	}
	if first < 900*time.Microsecond || first > time.Millisecond || later < 900*time.Millisecond || later > time.Second {
		t.Errorf("%v at first, then %v", first, later)
	}
}
