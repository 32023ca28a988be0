package directories

import "testing"

// Two callers make a directory at the same time. The server gets the request of
// the second one first, and tells the other one that the directory exists.
func TestADirectoryThatTwoMakeIsNotedUntilBothHaveFailed(t *testing.T) {
	var u Unused
	if !u.NoteUnused("/dir", 7) || u.NoteUnused("/dir", 9) {
		t.Error("not the first note begins")
	}
	u.NoteFailed("/dir")
	if d := u.dirs["/dir"]; d.after != 7 || d.tries != 1 {
		t.Errorf("after one has failed: %+v", d)
	}
	u.NoteFailed("/dir")
	u.NoteFailed("/dir")
	if len(u.dirs) > 0 {
		t.Errorf("after both have failed: %v", u.dirs)
	}
}
