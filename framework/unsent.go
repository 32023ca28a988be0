package framework

// unsentWrite is a request that is not on the wire yet.
type unsentWrite struct {
	path string
	then func(*link)
}

// awaitSent calls then as soon as a write of path is about to be sent, unless
// forgetSent comes first. path is the first one of a multi.
func (s *session) awaitSent(path string, then func(*link)) *unsentWrite {
	u := &unsentWrite{path, then}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsent == nil {
		s.unsent = make(map[string]*unsentWrite)
	}
	s.unsent[path] = u
	return u
}

func (s *session) forgetSent(u *unsentWrite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsent[u.path] == u {
		delete(s.unsent, u.path)
	}
}
