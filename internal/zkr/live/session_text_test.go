package live

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// TestSessionOfAHighMember: a session that a member with an id above 127 has
// made is printed as the servers print it, although its sign bit is set.
func TestSessionOfAHighMember(t *testing.T) {
	const want = "0xff00000000000001"
	session := -int64(0x00ffffffffffffff)
	if shown := contenderOf(&inspect.Contender{Session: session}, time.Now()); shown.Session != want {
		t.Errorf("zkr inspect shows %s, want %s", shown.Session, want)
	}
	for name, print := range map[string]func(*bytes.Buffer, recipes.Participant) error{
		"observe":        func(b *bytes.Buffer, p recipes.Participant) error { return printLeader(b, time.Now(), p) },
		"observe --json": func(b *bytes.Buffer, p recipes.Participant) error { return printLeaderJSON(b, time.Now(), p) },
	} {
		var text bytes.Buffer
		if err := print(&text, recipes.Participant{Path: "/a", Session: session}); err != nil || !strings.Contains(text.String(), want) {
			t.Errorf("%s prints %q, %v; want %s", name, text.String(), err, want)
		}
	}
}
