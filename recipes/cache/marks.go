package cache

import (
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// marks are the reads that have to be made, because of events or for another
// reason. Events and answers have places in one order. A read settles a mark if
// its answer came later than what has made the mark.
type marks struct {
	at map[request.Read]mark
	// forgotten is the place of the first event that was not kept, since there
	// were too many: all has to be read. 0: none.
	forgotten uint64
}

// mark says that what is read may have changed since it was read before.
type mark struct {
	first, last uint64 // no read has settled what came from the one to the other
	kind        markKind
}

type markKind int

const (
	unsure      markKind = iota
	sureChanged          // there was an event, and the next read must find another state
	wasDeleted           // with one-shot watches: a list of the parent says whether it is there again
)

// mostMarks bounds the memory of marks.
const mostMarks = 100_000

func (m *marks) add(read request.Read, order uint64, kind markKind) {
	k, ok := m.at[read]
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
		m.at = make(map[request.Read]mark)
	}
	m.at[read] = mark{first: k.first, last: order, kind: kind}
}

// settle takes notice of an answer, and reports whether it must differ from the
// one before.
func (m *marks) settle(read request.Read, order uint64) (changed bool) {
	k, ok := m.at[read]
	switch {
	case !ok:
		return false
	case k.last < order:
		delete(m.at, read)
		return k.kind == sureChanged
	case k.first < order:
		k.first = order // what is left came later
		m.at[read] = k
	}
	return false
}

// restore takes back what the answers of a round have settled, whose result is
// not shown.
func (m *marks) restore(before map[request.Read]mark) {
	for read, k := range before {
		now, ok := m.at[read]
		m.add(read, k.last, k.kind)
		switch {
		case m.forgotten > 0:
			return
		case ok:
			k.last, k.kind = now.last, now.kind
		}
		m.at[read] = k
	}
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
