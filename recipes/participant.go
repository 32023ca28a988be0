package recipes

import (
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// Mode says whether a participant excludes others of its name.
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

// A Participant is a holder or a waiter, of any process.
type Participant struct {
	Path    string    // of its znode, in the view of the client that listed it
	Name    string    // the contender's name: see NewLine
	Holder  bool      // it holds; otherwise it waits
	Mode    Mode      // whether it excludes others of its name
	Session int64     // its session's id
	Data    []byte    // its znode's data: see WithData; begins with __REVOKE__ once it was asked to release
	Since   time.Time // when it joined the line, by the ensemble's clock
}

func participantOf(p *line.Participant) Participant {
	mode := Exclusive
	if p.Shared {
		mode = Shared
	}
	return Participant{
		Path: p.Path, Name: p.Name, Holder: p.Holder, Mode: mode,
		Session: p.Session, Data: p.Data, Since: p.Since,
	}
}
