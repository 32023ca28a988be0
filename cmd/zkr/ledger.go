package main

import (
	"errors"
	"fmt"
	"sync"

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
