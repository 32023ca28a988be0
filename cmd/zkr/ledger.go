package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// ledger is what the demo's clients fight over: a balance that is read, thought about and written back, so that two who do it
// at once lose one of their postings. It remembers the highest fencing token that has written, as every resource that
// matters should, and turns away whoever comes with a lower one.
type ledger struct {
	mu      sync.Mutex // guards what follows; it makes single reads and writes whole, and nothing more
	balance int
	highest recipes.Token
}

var errFenced = errors.New("fenced off")

func (l *ledger) read() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.balance
}

func (l *ledger) write(balance int, token recipes.Token) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token.Compare(l.highest) < 0 {
		return fmt.Errorf("%w: token %v is older than %v, which has written since", errFenced, token, l.highest)
	}
	l.balance, l.highest = balance, token
	return nil
}

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
