package sample

func both(s *state) int { return len(s.list) + s.read() }
