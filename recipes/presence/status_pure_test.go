package presence

import "testing"

// The id of a session of a member with a number above 127 is negative. It is
// named as other tools name it.
func TestWhyNamesTheSession(t *testing.T) {
	if got := (Status{State: Taken, Session: -1 << 56}).why().Error(); got != "there is a znode of session 0xff00000000000000" {
		t.Error(got)
	}
}
