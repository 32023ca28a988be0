package look

import (
	"cmp"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/identity"
)

// Row is what is shown of one line.
type Row struct {
	Path      string  `json:"path"`
	Recipe    string  `json:"recipe"`
	Holder    string  `json:"holder"`                     // the data of the first holder
	Host      string  `json:"host,omitempty"`             // of the first holder, if its znode says it
	Asked     bool    `json:"asked_to_release,omitempty"` // the first holder
	Holders   int     `json:"holders"`                    // of a semaphore: the permits that are held
	Limit     int     `json:"max_leases,omitempty"`
	HeldFor   float64 `json:"held_s"`     // how long the first holder has held, in seconds
	HeldExact bool    `json:"held_exact"` // zkr saw the grant; otherwise it is the age of the znode, the time in line included
	Waiting   int     `json:"waiting"`
	Oldest    float64 `json:"oldest_s"` // how long the first waiter has been in line
	Grants    float64 `json:"grants_per_s"`
	Sessions  int     `json:"sessions"`           // different ones
	AtLeast   bool    `json:"at_least,omitempty"` // there may be more sessions: not all contenders were read
	Conflict  string  `json:"conflict,omitempty"` // see zkr inspect

	semaphore bool
	rated     bool // Grants is known
	detailed  bool // its first holder was read
	aged      bool // Oldest is known
}

func (m *Model) row(l *inspect.Line) Row {
	h := m.seen[l.Path]
	r := Row{
		Path: l.Path, Recipe: l.Recipe, Holders: len(l.Holders), Limit: l.Limit, Waiting: len(l.Waiting),
		Conflict: l.Conflict, semaphore: l.Semaphore, rated: m.weight > 0,
	}
	if h != nil { // else the line was not listed in the last look
		r.Grants = m.rate(h)
	}
	age := func(since time.Time) float64 { return max(0, m.Now.Sub(since).Seconds()) }
	if len(l.Holders) > 0 {
		first := &l.Holders[0]
		r.Holder, r.Host, r.Asked = string(first.Data), HostOf(first), identity.IsRequest(first.Data)
		if since, exact := m.Since(l, first); !since.IsZero() {
			r.HeldFor, r.HeldExact = age(since), exact
		}
		r.detailed = first.Created != 0
	}
	if len(l.Waiting) > 0 && !l.Waiting[0].Since.IsZero() {
		r.Oldest, r.aged = age(l.Waiting[0].Since), true
	}
	sessions := map[int64]bool{}
	for _, some := range [][]inspect.Contender{l.Holders, l.Waiting} {
		for i := range some { // there may be 200,000
			if some[i].Created != 0 {
				sessions[some[i].Session] = true
			} else {
				r.AtLeast = true
			}
		}
	}
	r.Sessions = len(sessions)
	return r
}

// AgeKnown reports whether it is known how long the first holder has held, or
// at most, or that there is none.
func (r *Row) AgeKnown() bool { return r.detailed || r.HeldExact || r.Holders == 0 }

// compareAge orders rows that are held for a longer time first, as far as is
// known without more reads: whoever held when the model first looked holds for
// longer than those whose grants it has seen. Of the former, those that were
// read are first, so that they stay among those that are shown.
func (r *Row) compareAge(other *Row) int {
	class := func(r *Row) int {
		switch {
		case r.Holders == 0:
			return 3
		case r.HeldExact:
			return 2
		case !r.detailed:
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(class(r), class(other)), cmp.Compare(other.HeldFor, r.HeldFor))
}

// HeldText says how long the first holder has held. A "<" means that the time
// in line may be included.
func (r *Row) HeldText() string {
	if !r.detailed && !r.HeldExact {
		return "-"
	}
	text := Seconds(r.HeldFor, r.Holders > 0)
	if !r.HeldExact && r.Holders > 0 {
		return "<" + text // it includes the time in line
	}
	return text
}

// HolderText names the holder, or says how many there are.
func (r *Row) HolderText() string {
	switch {
	case r.Limit > 0:
		return fmt.Sprintf("%d of %d permits", r.Holders, r.Limit)
	case r.semaphore && r.Holders > 0: // its limit is not known, or not read yet
		return Count(r.Holders, "permit")
	case r.Holders > 1:
		return Count(r.Holders, "holder")
	default:
		return DataText(r.Holder)
	}
}

// RateText shows the grants per second, which are not known after only one
// look.
func (r *Row) RateText() string {
	if !r.rated {
		return "-"
	}
	return fmt.Sprintf("%.1f", r.Grants)
}

// SessionsText says how many sessions there are, or are at least.
func (r *Row) SessionsText() string {
	switch {
	case r.Sessions == 0:
		return "-"
	case r.AtLeast:
		return fmt.Sprintf("%d+", r.Sessions)
	default:
		return fmt.Sprint(r.Sessions)
	}
}

// OldestText says how long the first waiter has been in line.
func (r *Row) OldestText() string { return Seconds(r.Oldest, r.aged) }
