package cache

// marks are the paths that have to be read, because of events or for another
// reason. Events and answers have places in one order. A read settles a mark if
// its answer came later than what has made the mark.
type marks struct {
	at map[string]mark
	// forgotten is the place of the first event that was not kept, since there
	// were too many: all has to be read. 0: none.
	forgotten uint64
}

// mark says that a znode may have changed since it was read.
type mark struct {
	first, last uint64 // no read has settled what came from the one to the other
	event       bool   // the last was an event, and the next read must find another state
}

// mostMarks bounds the memory of marks.
const mostMarks = 100_000

func (m *marks) add(path string, order uint64, event bool) {
	k, ok := m.at[path]
	switch {
	case m.forgotten > 0:
		return
	case !ok && len(m.at) >= mostMarks:
		m.forgotten = m.first()
		m.at = nil
		return
	case !ok:
		k.first = order
	}
	if m.at == nil {
		m.at = make(map[string]mark)
	}
	m.at[path] = mark{first: k.first, last: order, event: event}
}

// settle takes notice of an answer, and reports whether an event was the reason
// for the read.
func (m *marks) settle(path string, order uint64) (event bool) {
	k, ok := m.at[path]
	switch {
	case !ok:
		return false
	case k.last < order:
		delete(m.at, path)
		return k.event
	case k.first < order:
		k.first = order // what is left came later
		m.at[path] = k
	}
	return false
}

func (m *marks) empty() bool { return len(m.at) == 0 && m.forgotten == 0 }

// first returns the place of the first event that is not settled, 0 if there is
// none.
func (m *marks) first() uint64 {
	first := m.forgotten
	for _, k := range m.at {
		if first == 0 || k.first < first {
			first = k.first
		}
	}
	return first
}
