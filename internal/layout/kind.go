package layout

import (
	"fmt"
	"strings"
)

// A contender in a line of a kind is created as
//
//	_c_<uuid>-<kind>~<name>~NNNNNNNNNN
//
// No other base ends with a '~', so that nobody's pattern takes one for its own;
// and neither a kind nor a name has one, so that there is one way to read it.
const kindMark = "~"

// The longest kind and name, in bytes. Thousands of names must go into the answer
// to a list.
const (
	MaxKind = 32
	MaxName = 128
)

// KindBase returns the base of a contender in a line of a kind.
func KindBase(kind, name string) string { return kind + kindMark + name + kindMark }

// cutKind takes a base that KindBase made apart.
func cutKind(base string) (kind, name string, ok bool) {
	rest, ok := strings.CutSuffix(base, kindMark)
	if !ok {
		return "", "", false
	}
	kind, name, ok = strings.Cut(rest, kindMark)
	return kind, name, ok && CheckKind(kind) == nil && !strings.Contains(name, kindMark)
}

// CheckKind returns why kind cannot stand in a znode's name, or nil.
func CheckKind(kind string) error {
	if kind == "" || len(kind) > MaxKind || !consistsOf(kind, ".") {
		return fmt.Errorf("kind %q: must be 1 to %d letters, digits and dots", kind, MaxKind)
	}
	return nil
}

// CheckName returns why name cannot stand in a znode's name, or nil.
func CheckName(name string) error {
	if len(name) > MaxName || !consistsOf(name, "._=,+-") {
		return fmt.Errorf("name %q: must be at most %d bytes of [a-zA-Z0-9._=,+-]", name, MaxName)
	}
	return nil
}

// consistsOf reports whether s has only ASCII letters, digits and others.
func consistsOf(s, others string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte(others, c) < 0:
			return false
		}
	}
	return true
}
