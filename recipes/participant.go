package recipes

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// Mode says whether a participant holds, or will hold, alone.
type Mode uint8

// The modes.
const (
	Exclusive Mode = iota
	Shared
)

func (m Mode) String() string {
	if m == Shared {
		return "shared"
	}
	return "exclusive"
}

// A Participant is one who holds or waits, of whatever process and client.
type Participant struct {
	Path    string    // of its znode, in the view of the client that listed it
	Holder  bool      // it holds; otherwise it waits
	Mode    Mode      // whether it excludes all others
	Session int64     // its session's id
	Data    []byte    // its znode's data: the owner's, or __REVOKE__ once it was asked to release
	Since   time.Time // when it joined the line, by the ensemble's clock
}

// Participants makes participants of the members of a line. It is for the recipes.
func Participants(members []line.Member) []Participant {
	all := make([]Participant, len(members))
	for i, m := range members {
		all[i] = Participant{Path: m.Path, Holder: m.Holds, Session: m.Session, Data: m.Data, Since: m.Since}
		if m.Mode == layout.Shared {
			all[i].Mode = Shared
		}
	}
	return all
}
