package main

import (
	"errors"
	"sync"

	"github.com/zkrecipes/zkrecipes/recipes"
)

var errLate = errors.New("a later holder has written")

// store is what the report is written to.
type store struct {
	mu       sync.Mutex
	greatest recipes.Token
}

func (s *store) write(token recipes.Token, line string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token.Compare(s.greatest) < 0 {
		return errLate
	}
	s.greatest = token
	return show(token, line)
}
