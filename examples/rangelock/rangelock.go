// Package rangelock is a lock of ranges, an example of a recipe that you build:
// two contenders conflict where their ranges overlap, unless both only read. It
// goes with the section "Building your own recipe" of package recipes.
package rangelock

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// kind is the version of the rule. Change it with the rule: contenders of two
// kinds refuse each other.
const kind = "range.v1"

// Lock is a lock of the ranges of one path. The znodes in line say which range
// they want:
//
//	<path>/_c_<uuid>-range.v1~r=10,20~0000000007    reads [10, 20)
//	<path>/_c_<uuid>-range.v1~w=15,30~0000000008    writes [15, 30), and waits
//
// A contender waits for all that came before it, overlap and conflict, and for
// nobody else.
type Lock struct {
	client *framework.Client
	path   string
	opts   []recipes.LineOption
}

// New returns a Lock at path. It does no I/O.
func New(c *framework.Client, path string, opts ...recipes.LineOption) *Lock {
	return &Lock{client: c, path: path, opts: opts}
}

// Read returns an Acquirer of [from, to), at the same time as other readers.
func (l *Lock) Read(from, to uint64) (recipes.Acquirer, error) { return l.line("r", from, to) }

// Write returns an Acquirer of [from, to), alone.
func (l *Lock) Write(from, to uint64) (recipes.Acquirer, error) { return l.line("w", from, to) }

func (l *Lock) line(mode string, from, to uint64) (recipes.Acquirer, error) {
	if from >= to {
		return nil, fmt.Errorf("rangelock: [%d, %d) is empty", from, to)
	}
	return recipes.NewLine(l.client, l.path, kind, fmt.Sprintf("%s=%d,%d", mode, from, to), conflicts, l.opts...)
}

// conflicts is the rule. A name that it cannot read conflicts with every other.
func conflicts(mine, theirs string) bool {
	a, okA := parse(mine)
	b, okB := parse(theirs)
	if !okA || !okB {
		return true
	}
	return a.from < b.to && b.from < a.to && (a.writes || b.writes)
}

// span is what a contender wants.
type span struct {
	from, to uint64
	writes   bool
}

func parse(name string) (s span, ok bool) {
	mode, limits, _ := strings.Cut(name, "=")
	from, to, _ := strings.Cut(limits, ",")
	var fromErr, toErr error
	s.from, fromErr = strconv.ParseUint(from, 10, 64)
	s.to, toErr = strconv.ParseUint(to, 10, 64)
	s.writes = mode == "w"
	return s, fromErr == nil && toErr == nil && (mode == "r" || mode == "w")
}
