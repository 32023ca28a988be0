package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// tenure is one grant, as its holder lived it.
type tenure struct {
	client   string
	token    recipes.Token
	from, to time.Time // to: when it was released, or its holder stopped because it was lost
	posted   bool
}

// audit checks what the mutex promises against what happened; tenures are in the order in which they were granted.
func audit(tenures []tenure, balance int) []error {
	var faults []error
	postings := 0
	for i, t := range tenures {
		if t.posted {
			postings++
		}
		if t.to.Before(t.from) {
			faults = append(faults, fmt.Errorf("%s held token %v without an end", t.client, t.token))
		}
		if i == 0 {
			continue
		}
		before := tenures[i-1]
		if t.from.Before(before.to) {
			faults = append(faults, fmt.Errorf("two holders: %s (token %v) came %v before %s (token %v) had left",
				t.client, t.token, before.to.Sub(t.from), before.client, before.token))
		}
		if t.token.Compare(before.token) <= 0 {
			faults = append(faults, fmt.Errorf("tokens do not increase: %s got %v after %s had %v",
				t.client, t.token, before.client, before.token))
		}
	}
	if balance != postings {
		faults = append(faults, fmt.Errorf("%d postings make a balance of %d: some were lost", postings, balance))
	}
	return faults
}

// auditTerms checks what the election promises: one leader at a time, with tokens that grow, in the order of the line.
func auditTerms(terms []tenure, line []string) []error {
	faults := audit(terms, 0)
	var led []string
	for _, t := range terms {
		led = append(led, t.client)
	}
	if !slices.Equal(led, line) {
		faults = append(faults, fmt.Errorf("%q led one after the other, where the line was %q", led, line))
	}
	return faults
}

// stay is one grant of what several may have at once, as its holder lived it.
type stay struct {
	client         string
	writes         bool // under the read/write lock; otherwise it reads
	permits        int  // of the semaphore
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

// auditSides checks what the read/write lock promises: readers together, and at times they are; no writer beside anybody but
// the reader it becomes, which begins before the writer ends; and nobody passes a writer who came first.
func auditSides(stays []stay) []error {
	var faults []error
	together, downgraded := false, false
	became := func(s, t stay) bool { return s.client == t.client && t.writes && !s.writes && s.beside(t) }
	for i, s := range stays {
		if s.to.Before(s.from) {
			faults = append(faults, fmt.Errorf("%s came to %s and never left", s.client, s.doing()))
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
			continue // its place was the write's
		}
		for _, t := range stays {
			if t.writes && t.client != s.client && t.came.Before(s.came) && s.from.Before(t.from) {
				faults = append(faults, fmt.Errorf("%s came to %s after %s came to write, and passed it", s.client, s.doing(), t.client))
			}
		}
	}
	if !together {
		faults = append(faults, fmt.Errorf("no two ever read together"))
	}
	if !downgraded {
		faults = append(faults, fmt.Errorf("no writer became a reader without letting go"))
	}
	return faults
}

// auditShares checks what the semaphore promises: never more permits out than there are, and all of them at times.
func auditShares(shares []stay, limit int) []error {
	var faults []error
	most := 0
	for _, s := range shares {
		out := 0 // when s begins, for that is when it grows
		for _, t := range shares {
			if !t.from.After(s.from) && s.from.Before(t.to) {
				out += t.permits
			}
		}
		if most = max(most, out); out > limit {
			faults = append(faults, fmt.Errorf("%d permits of %d were out when %s began", out, limit, s.client))
		}
	}
	if most < limit {
		faults = append(faults, fmt.Errorf("never more than %d permits of %d were out", most, limit))
	}
	return faults
}
