package serve

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// grantRecord is one grant, recorded by its holder.
type grantRecord struct {
	client   string
	token    recipes.Token
	from, to time.Time // to: when it was released, or when its holder stopped because it was lost
	posted   bool
}

// checkMutex checks the guarantees of the mutex. records are in the order of
// the grants.
func checkMutex(records []grantRecord, balance int) []error {
	var faults []error
	postings := 0
	for i, t := range records {
		if t.posted {
			postings++
		}
		if t.to.Before(t.from) {
			faults = append(faults, fmt.Errorf("%s never released token %v", t.client, t.token))
		}
		if i == 0 {
			continue
		}
		before := records[i-1]
		if t.from.Before(before.to) {
			faults = append(faults, fmt.Errorf("two holders: %s (token %v) was granted %v before %s (token %v) released",
				t.client, t.token, before.to.Sub(t.from), before.client, before.token))
		}
		if t.token.Compare(before.token) <= 0 {
			faults = append(faults, fmt.Errorf("tokens do not increase: %s got %v after %s got %v",
				t.client, t.token, before.client, before.token))
		}
	}
	if balance != postings {
		faults = append(faults, fmt.Errorf("%d postings, but the balance is %d: some were lost", postings, balance))
	}
	return faults
}

// checkTerms checks the guarantees of the election: one leader at a time,
// increasing tokens, in the order of the line.
func checkTerms(terms []grantRecord, line []string) []error {
	faults := checkMutex(terms, 0)
	var led []string
	for _, t := range terms {
		led = append(led, t.client)
	}
	if !slices.Equal(led, line) {
		faults = append(faults, fmt.Errorf("leaders were %q, but the line was %q", led, line))
	}
	return faults
}

// stay is one grant that several clients may have at once, recorded by its
// holder.
type stay struct {
	client         string
	writes         bool // a write lock; otherwise a read lock
	permits        int  // of a semaphore
	came, from, to time.Time
}

func (s stay) doing() string {
	if s.writes {
		return "write"
	}
	return "read"
}

// beside reports whether two stays overlap.
func (s stay) beside(t stay) bool { return s.from.Before(t.to) && t.from.Before(s.to) }

// checkReadersAndWriters checks the guarantees of the read/write lock. Readers
// overlap, at least once. No writer overlaps with another client, except with
// its own downgraded read, which starts before the write ends. Nobody overtakes
// a writer.
func checkReadersAndWriters(stays []stay) []error {
	var faults []error
	together, downgraded := false, false
	became := func(s, t stay) bool { return s.client == t.client && t.writes && !s.writes && s.beside(t) }
	for i, s := range stays {
		if s.to.Before(s.from) {
			faults = append(faults, fmt.Errorf("%s never released its lock to %s", s.client, s.doing()))
		}
		for _, t := range stays[:i] {
			switch {
			case became(s, t):
				downgraded = true
			case s.beside(t) && (s.writes || t.writes):
				faults = append(faults, fmt.Errorf("%s could %s while %s could %s", s.client, s.doing(), t.client, t.doing()))
			case s.beside(t):
				together = true
			}
		}
		if slices.ContainsFunc(stays, func(t stay) bool { return became(s, t) }) {
			continue // it took over the writer's place
		}
		for _, t := range stays {
			if t.writes && t.client != s.client && t.came.Before(s.came) && s.from.Before(t.from) {
				faults = append(faults, fmt.Errorf("%s asked to %s after %s asked to write, and overtook it", s.client, s.doing(), t.client))
			}
		}
	}
	if !together {
		faults = append(faults, errors.New("no two clients read together"))
	}
	if !downgraded {
		faults = append(faults, errors.New("no writer downgraded to a reader"))
	}
	return faults
}

// checkPermits checks the guarantees of the semaphore: never more permits out
// than there are, and all of them at least once.
func checkPermits(shares []stay, limit int) []error {
	var faults []error
	most := 0
	for _, s := range shares {
		out := 0 // at the start of s, since the number grows only then
		for _, t := range shares {
			if !t.from.After(s.from) && s.from.Before(t.to) {
				out += t.permits
			}
		}
		if most = max(most, out); out > limit {
			faults = append(faults, fmt.Errorf("%d of %d permits were taken when %s started", out, limit, s.client))
		}
	}
	if most < limit {
		faults = append(faults, fmt.Errorf("never more than %d of %d permits were taken", most, limit))
	}
	return faults
}
