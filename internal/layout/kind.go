package layout

import (
	"fmt"
	"strings"
)

// A contender in a recipes.Line is created as
//
//	_c_<uuid>-<kind>~<name>~NNNNNNNNNN
//
// No other base ends with '~', so no other client's pattern matches this one. A
// kind or a name cannot contain '~', so there is only one way to read the base.
const kindMark = "~"

// The maximum lengths of a kind and a name, in bytes. Thousands of names must
// fit into the reply to a list.
const (
	MaxKind = 32
	MaxName = 128
)

// KindBase returns the base of a contender with a name in a line of a kind.
func KindBase(kind, name string) string { return kind + kindMark + name + kindMark }

// cutKind splits a base that KindBase has made.
func cutKind(base string) (kind, name string, ok bool) {
	rest, ok := strings.CutSuffix(base, kindMark)
	if !ok {
		return "", "", false
	}
	kind, name, ok = strings.Cut(rest, kindMark)
	return kind, name, ok && kind != "" && !strings.Contains(name, kindMark)
}

// CheckKind returns an error unless kind can be part of a znode's name.
func CheckKind(kind string) error {
	if kind == "" || len(kind) > MaxKind || !consistsOf(kind, ".") {
		return fmt.Errorf("kind %q: must be 1 to %d letters, digits and dots", kind, MaxKind)
	}
	return nil
}

// CheckName returns an error unless name can be part of a znode's name.
func CheckName(name string) error {
	if len(name) > MaxName || !consistsOf(name, "._=,+-") {
		return fmt.Errorf("name %q: must be at most %d bytes of [a-zA-Z0-9._=,+-]", name, MaxName)
	}
	return nil
}

// consistsOf reports whether s has only ASCII letters, digits and characters of
// others.
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
