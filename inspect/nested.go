package inspect

import (
	"bytes"
	"regexp"
	"strconv"
)

// nestedData is the data that zkr writes when the command of another zkr has
// started it: "web-1 pid 4711: sh parent=0x100a2b3c4d50001".
var nestedData = regexp.MustCompile(`^\S+ pid [1-9][0-9]*: .+ parent=0x([1-9a-f][0-9a-f]{0,15})$`)

// parentIn returns the parent that data names, and 0 if data has not exactly
// the form that zkr writes.
func parentIn(data []byte) int64 {
	if !bytes.Contains(data, []byte(" parent=0x")) { // the expression alone would take a second for 6 MB of other data
		return 0
	}
	found := nestedData.FindSubmatch(data)
	if found == nil {
		return 0
	}
	id, _ := strconv.ParseUint(string(found[1]), 16, 64) // the expression has 16 digits at most
	return int64(id)
}

// lacksAParent reports whether a waiter of lines descends from a session that
// has no contender in lines. Such a session may have a parent of its own, which
// only the data of its contenders says.
func lacksAParent(lines []*Line) bool {
	parents := map[int64]int64{} // of each session that was read
	for _, l := range lines {
		for _, c := range l.inOrder() {
			if c.read && parents[c.Session] == 0 {
				parents[c.Session] = c.Parent
			}
		}
	}
	climbed := map[int64]bool{0: true}
	for _, l := range lines {
		for _, c := range l.Waiting {
			for s := c.Session; !climbed[s]; s = parents[s] {
				if _, ok := parents[s]; !ok {
					return true
				}
				climbed[s] = true
			}
		}
	}
	return false
}

// isNested reports whether a contender of the line has a parent.
func (l *Line) isNested() bool {
	for _, c := range l.inOrder() {
		if c.Parent != 0 {
			return true
		}
	}
	return false
}
