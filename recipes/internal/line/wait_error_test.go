package line_test

import (
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// TestWaitingBehindASessionOfAHighMember: the id of a session that a member
// with an id above 127 has made is printed as the servers print it, although
// its sign bit is set.
func TestWaitingBehindASessionOfAHighMember(t *testing.T) {
	text := line.WaitingBehind("/lock", "znode", -int64(0x00ffffffffffffff))
	if !strings.Contains(text, "/lock/znode (session 0xff00000000000001)") {
		t.Error(text)
	}
}
