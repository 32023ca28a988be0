package sample

func (s *state) write() *int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.TryLock()
	s.free, s.assigned = 1, 2
	s.counted++
	s.mapped[1] = 2
	delete(s.deleted, 1)
	(s.part).n = s.called.sum()
	s.far.add()
	close(s.signal)
	return &s.pointed
}

func (s *state) call() {
	s.mu.Lock()
	s.called.add()
	s.mu.Unlock()
}

func (s *state) read() int {
	s.other.RLock()
	defer s.other.RUnlock()
	return s.list[0] + both(s)
}
