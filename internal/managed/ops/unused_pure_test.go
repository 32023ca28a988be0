package ops

import "testing"

// Two callers make a directory at the same time. The server gets the request of
// the second one first, and tells the other one that the directory exists.
func TestADirectoryThatTwoMakeIsNotedUntilBothHaveFailed(t *testing.T) {
	c := &Client{}
	c.unused.runs = true // no timer
	c.noteUnused("/dir", 7)
	c.noteUnused("/dir", 9)
	c.unused.noteFailed("/dir")
	if d := c.unused.dirs["/dir"]; d.after != 7 || d.tries != 1 {
		t.Errorf("after one has failed: %+v", d)
	}
	c.unused.noteFailed("/dir")
	c.unused.noteFailed("/dir")
	if len(c.unused.dirs) > 0 {
		t.Errorf("after both have failed: %v", c.unused.dirs)
	}
}
