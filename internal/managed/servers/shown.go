package servers

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
)

// This file says which of the members that an ensemble has shown in its config
// count. track.go follows the config.

// memory is how long it counts what a member has shown, as long as none has
// shown a later version.
const memory = time.Hour

// tracked is what members have shown of the config.
type tracked struct {
	known   bool // some member has shown something
	history int  // of the ensemble: see ensemble.histories
	version int64
	latest  []string             // in what was shown last
	earlier map[string]time.Time // in what was shown of this version before: until when
	unsure  []byte               // a config that is older, and nobody has said why yet
	none    bool                 // the latest member has shown no config
	warned  map[string]bool      // what was logged of members that are left out
}

// isNew reports whether a warning was not logged before. A client that goes
// from member to member meets the same ones again and again.
func (t *tracked) isNew(warning string) bool {
	if t.warned[warning] {
		return false
	}
	if t.warned == nil || len(t.warned) >= serverlist.MostMembers {
		t.warned = make(map[string]bool)
	}
	t.warned[warning] = true
	return true
}

// forget drops what was shown in another history, if that was found only
// afterwards.
func (t *tracked) forget(history int) {
	switch {
	case history == t.history:
	case t.none:
		*t = tracked{history: history, warned: t.warned}
	default:
		t.earlier = nil
	}
}

// add adds what a member of the ensemble in a history has shown. anew says that
// it counts even if it is older than what was known: the history was replaced.
func (t *tracked) add(members []string, version int64, history int, anew bool, now time.Time) (how serverlist.Change) {
	switch {
	case !t.known, version == t.version:
	case version > t.version:
		how = serverlist.LaterVersion
	case anew:
		how = serverlist.AnotherHistory
	default:
		return serverlist.Older
	}
	if how == serverlist.SameVersion && history == t.history {
		for _, name := range t.latest {
			if t.earlier == nil {
				t.earlier = make(map[string]time.Time)
			}
			t.earlier[name] = now
		}
	} else {
		t.earlier = nil
	}
	t.known, t.history, t.version, t.latest = true, history, version, members
	return how
}

// all returns the members that count: those that were shown last, and those
// that were shown at the same version within an hour. If they are too many, the
// ones that were not shown for longest are left out.
func (t *tracked) all(now time.Time) []string {
	var others []string
	for name, until := range t.earlier {
		switch {
		case now.Sub(until) >= memory:
			delete(t.earlier, name)
		case !slices.Contains(t.latest, name):
			others = append(others, name)
		}
	}
	slices.SortFunc(others, func(a, b string) int { return cmp.Or(t.earlier[b].Compare(t.earlier[a]), strings.Compare(a, b)) })
	all := slices.Concat(t.latest, others)
	return slices.Sorted(slices.Values(all[:min(len(all), serverlist.MostMembers)]))
}
