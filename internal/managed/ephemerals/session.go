package ephemerals

import (
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// Session has the creates of ephemeral znodes in a session that have no answer,
// by path. An ephemeral znode of the session is known to be that of a create
// only if no other one was open at the same time. One whose answer was lost
// stays open until a look behind a sync has shown what it did, or until the end
// of the session. Names that only one create can have are not counted.
type Session struct {
	mu   sync.Mutex // guards what follows
	open map[string]*openCreate
}

type openCreate struct {
	count   int
	several bool // were open at a time, since there were none
}

// Begin notes creates that are about to be sent, at fixed paths: see Fixed. end
// must be called when they are answered, or their answer is lost. Only the
// first call of it counts.
func (s *Session) Begin(paths ...string) (end func(lost bool)) {
	if len(paths) == 0 {
		return func(bool) {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range paths {
		c := s.open[path]
		if c == nil {
			c = &openCreate{}
			if s.open == nil {
				s.open = make(map[string]*openCreate)
			}
			s.open[path] = c
		}
		c.count++
		c.several = c.several || c.count > 1
	}
	var once sync.Once
	return func(lost bool) {
		once.Do(func() {
			if !lost {
				for _, path := range paths {
					s.Resolve(path)
				}
			}
		})
	}
}

// Resolve notes that it is known what a create has done, and reports whether
// another one may have made the znode.
func (s *Session) Resolve(path string) (several bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.open[path]
	if c == nil {
		return false
	}
	if c.count--; c.count == 0 {
		delete(s.open, path)
	}
	return c.several
}

// Fixed returns the path of an ephemeral znode that a create with these flags
// makes there, and nothing if it makes another one.
func Fixed(path string, flags int32) []string {
	if request.IsEphemeral(flags) && !request.IsSequential(flags) {
		return []string{path}
	}
	return nil
}
