package live

import (
	"context"
	"path"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// Snapshot is what is found at a path, as it is printed.
type Snapshot struct {
	Path      string      `json:"path"`
	Exists    bool        `json:"exists"`
	Recipe    string      `json:"recipe,omitempty"`     // empty if unknown
	MaxLeases int         `json:"max_leases,omitempty"` // the recorded limit of a semaphore
	Holders   []Contender `json:"holders"`
	Waiting   []Contender `json:"waiting"` // in order
	Others    []string    `json:"others,omitempty"`
	Conflict  string      `json:"conflict,omitempty"`

	leads bool // the holder is shown as the leader
}

// Contender is a holder or a waiter.
type Contender struct {
	Path       string  `json:"path"`
	Holds      bool    `json:"holds"`
	Unsure     bool    `json:"unsure,omitempty"` // it may hold: the rule of its kind is not known
	Mode       string  `json:"mode"`
	Session    string  `json:"session"`
	AgeSeconds float64 `json:"age_s"` // our clock against the ensemble's timestamp: as exact as the two agree
	Data       string  `json:"data"`
	Asked      bool    `json:"asked_to_release,omitempty"` // its data is the request

	name    string
	created version.Created // zero if the znode could not be read
}

// takeSnapshot reads a path. Each znode is read separately, so a change
// meanwhile may show in part.
func takeSnapshot(ctx context.Context, r inspect.Reader, at string) (Snapshot, error) {
	l, err := inspect.Read(ctx, r, at)
	if err == nil && !l.Exists {
		err = cli.CheckChroot(ctx, r)
	}
	return snapshotOf(&l, time.Now()), err
}

func snapshotOf(l *inspect.Line, now time.Time) Snapshot {
	return Snapshot{
		Path: l.Path, Exists: l.Exists, Recipe: l.Recipe, MaxLeases: l.Limit,
		Holders: ContendersOf(l.Holders, now), Waiting: ContendersOf(l.Waiting, now),
		Others: l.Others, Conflict: l.Conflict, leads: l.Election,
	}
}

func ContendersOf(all []inspect.Contender, now time.Time) []Contender {
	shown := make([]Contender, len(all))
	for i := range all {
		shown[i] = contenderOf(&all[i], now)
	}
	return shown
}

func contenderOf(c *inspect.Contender, now time.Time) Contender {
	mode := "exclusive"
	if c.Shared {
		mode = "shared"
	}
	shown := Contender{
		Path: c.Path, Holds: c.Holds, Unsure: c.Unsure, Mode: mode, Session: wire.SessionText(c.Session),
		Data: string(c.Data), Asked: identity.IsRequest(c.Data), name: path.Base(c.Path),
	}
	if !c.Since.IsZero() { // else the znode could not be read
		shown.created = version.Created{Czxid: c.Created, Ctime: c.Since.UnixMilli()}
		shown.AgeSeconds = max(0, now.Sub(c.Since).Seconds())
	}
	return shown
}
