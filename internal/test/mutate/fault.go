package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// A fault is one edit of one source file.
type fault struct {
	Package  string // import path below the module, "framework"
	File     string // path below the module
	Func     string // "(*session).look"; empty in a declaration outside of functions
	Operator string
	Old, New string // the lines around the edit, before and after
	Same     int    // number of equal faults before it

	decl       *ast.FuncDecl // nil outside of functions
	start, end int           // offsets of the text to replace
	text       string        // the replacement
	probe      int           // offset of the statement that a test must reach
}

// key identifies the fault. It stays the same when lines move and code around
// it changes.
func (f *fault) key() string {
	k := fmt.Sprintf("%s %s\n\t- %s\n\t+ %s", f.Package, cmp.Or(f.Func, "declaration"), f.Old, f.New)
	if f.Same > 0 {
		k += fmt.Sprintf("\n\tagain: %d", f.Same)
	}
	return k
}

// rank orders faults at random. It depends on the fault alone, so a draw stays
// almost the same when the sources change elsewhere.
func (f *fault) rank(seed uint64) uint64 {
	h := sha256.Sum256(fmt.Appendf(nil, "%d\n%s", seed, f.key()))
	return binary.BigEndian.Uint64(h[:])
}

// describe sets Old and New from the source, and Same for equal faults.
func describe(src []byte, faults []*fault) {
	for _, f := range faults {
		from := strings.LastIndexByte(string(src[:f.start]), '\n') + 1
		to := len(src)
		if i := strings.IndexByte(string(src[f.end:]), '\n'); i >= 0 {
			to = f.end + i
		}
		f.Old = shorten(string(src[from:to]))
		f.New = shorten(string(src[from:f.start]) + f.text + string(src[f.end:to]))
		if f.New == "" {
			f.New = "(nothing)"
		}
	}
	slices.SortStableFunc(faults, func(a, b *fault) int { return cmp.Compare(a.start, b.start) })
	seen := map[string]int{}
	for _, f := range faults {
		f.Same = 0
		k := f.key()
		f.Same = seen[k]
		seen[k]++
	}
}

// shorten returns one line of source, with a hash of what it leaves out.
func shorten(source string) string {
	const most = 160
	line := strings.Join(strings.Fields(source), " ")
	if len(line) <= most {
		return line
	}
	return fmt.Sprintf("%s … %.8x", line[:most], sha256.Sum256([]byte(line)))
}

// apply returns the source with the fault in it.
func (f *fault) apply(src []byte) []byte {
	return slices.Concat(src[:f.start], []byte(f.text), src[f.end:])
}
