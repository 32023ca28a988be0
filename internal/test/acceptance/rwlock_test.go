package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestReadWriteLockOnBoth(t *testing.T) {
	play(t, 1, []scenario{
		{"readers read together, a writer alone", readersTogether},
		{"readers and writers keep the order of the line", readWriteOrder},
		{"a writer's downgrade keeps its place", downgrade},
		{"an upgrade is refused", upgradeRefused},
		{"a release is heard by those who may go on", readWriteWakeUps},
		{"a writer that leaves lets the readers behind it in", writerLeaves},
		{"a reader's session expires", readerExpires},
		{"a reader's requests are lost, or the answers", readersRequestsAreLost},
	})
}

func (s *stage) rw(t *testing.T, p *peer) *rwlock.RWLock {
	t.Helper()
	rw, err := rwlock.New(p.Client, s.path)
	if err != nil {
		t.Fatal(err)
	}
	return rw
}

func readersTogether(t *testing.T, s *stage) {
	var held []*recipes.Lease
	for range 3 {
		held = append(held, acquire(t, t.Context(), s.rw(t, s.join(t)).Reader()))
	}
	s.inLine(t, "", 3)
	last := s.rw(t, s.join(t))
	busy(t, last.Writer())
	writing := acquiring(t.Context(), last.Writer())
	s.inLine(t, "", 4)
	late := s.rw(t, s.join(t))
	busy(t, late.Reader()) // behind a writer that waits
	reading := acquiring(t.Context(), late.Reader())
	s.inLine(t, "", 5)
	for _, l := range held {
		pending(t, writing, reading)
		release(t, l)
	}
	writer := granted(t, writing)
	pending(t, reading)
	busy(t, s.rw(t, s.join(t)).Reader())
	for _, l := range held {
		if writer.Token().Compare(l.Token()) <= 0 {
			judge.Errorf(t, "the writer has token %v, an earlier reader %v", writer.Token(), l.Token())
		}
	}
	release(t, writer)
	reader := granted(t, reading)
	if reader.Token().Compare(writer.Token()) <= 0 {
		judge.Errorf(t, "the reader has token %v, the earlier writer %v", reader.Token(), writer.Token())
	}
	release(t, reader)
	s.inLine(t, "", 0)
}

// Each group of readers is granted together, each writer alone, in the order of
// arrival. Holders leave in another order.
func readWriteOrder(t *testing.T, s *stage) {
	const line = "WRRWWRWRRR"
	waits := make([]<-chan grant, len(line))
	for i, who := range line {
		rw := s.rw(t, s.join(t))
		side := rw.Reader()
		if who == 'W' {
			side = rw.Writer()
		}
		waits[i] = acquiring(t.Context(), side)
		s.inLine(t, "", i+1)
	}
	for i := 0; i < len(line); {
		n := 1
		for line[i] == 'R' && i+n < len(line) && line[i+n] == 'R' {
			n++
		}
		var held []*recipes.Lease
		for _, ended := range waits[i : i+n] {
			held = append(held, granted(t, ended))
		}
		pending(t, waits[i+n:]...)
		slices.Reverse(held)
		release(t, held...)
		i += n
	}
	s.inLine(t, "", 0)
}

func downgrade(t *testing.T, s *stage) {
	a := s.rw(t, s.join(t))
	writing := acquire(t, t.Context(), a.Writer())
	early := acquiring(t.Context(), s.rw(t, s.join(t)).Reader())
	s.inLine(t, "", 2)
	writer := acquiring(t.Context(), s.rw(t, s.join(t)).Writer())
	s.inLine(t, "", 3)
	reading := acquire(t, writing.Context(), a.Reader())
	s.inLine(t, "", 4)
	if reading.Token() != writing.Token() {
		judge.Errorf(t, "the downgraded read has token %v, the write %v", reading.Token(), writing.Token())
	}
	pending(t, early, writer)
	release(t, writing)
	beside := granted(t, early)
	pending(t, writer)
	release(t, beside)
	pending(t, writer)
	release(t, reading) // held until now
	release(t, granted(t, writer))
	s.inLine(t, "", 0)
}

func upgradeRefused(t *testing.T, s *stage) {
	a := s.rw(t, s.join(t))
	reading := acquire(t, t.Context(), a.Reader())
	for _, acquire := range []func(context.Context) (*recipes.Lease, error){a.Writer().Acquire, a.Writer().TryAcquire} {
		if _, err := acquire(reading.Context()); !errors.Is(err, rwlock.ErrUpgrade) {
			t.Errorf("upgraded: %v", err)
		}
	}
	s.inLine(t, "", 1)
	release(t, reading)
	release(t, acquire(t, t.Context(), a.Writer()))
	s.inLine(t, "", 0)
}

// Behind a writer that holds stand two readers, a writer, and a reader. The
// writer's release grants the two readers, by its event: none of the four
// lists, and those who go on waiting send no request at all.
func readWriteWakeUps(t *testing.T, s *stage) {
	held := acquire(t, t.Context(), s.rw(t, s.join(t)).Writer())
	const line = "RRWR"
	var looks, lists [len(line)]atomic.Int32
	waits := make([]<-chan grant, len(line))
	for i, who := range line {
		p := s.joinFor(t, steady)
		side := s.rw(t, p).Reader()
		if who == 'W' {
			side = s.rw(t, p).Writer()
		}
		waits[i] = s.waiting(t, p, "", side)
		s.inLine(t, "", i+2)
		defer p.net.Control(countRequests(s.path, &looks[i]))()
		defer p.net.Control(countLists(s.path, &lists[i]))()
	}
	release(t, held)
	first, second := granted(t, waits[0]), granted(t, waits[1])
	pending(t, waits[2:]...)
	for i := range looks {
		if n := lists[i].Load(); n != 0 {
			t.Errorf("waiter %d has listed %d times", i, n)
		}
		if n := looks[i].Load(); i >= 2 && n != 0 {
			t.Errorf("waiter %d made %d requests", i, n)
		}
	}
	release(t, first, second)
	release(t, granted(t, waits[2]))
	release(t, granted(t, waits[3]))
	s.inLine(t, "", 0)
}

func writerLeaves(t *testing.T, s *stage) {
	held := acquire(t, t.Context(), s.rw(t, s.join(t)).Reader())
	ctx, cancel := context.WithCancel(t.Context())
	writing := acquiring(ctx, s.rw(t, s.join(t)).Writer())
	s.inLine(t, "", 2)
	var waits []<-chan grant
	for i := range 2 {
		waits = append(waits, acquiring(t.Context(), s.rw(t, s.join(t)).Reader()))
		s.inLine(t, "", i+3)
	}
	pending(t, waits...)
	cancel()
	refused(t, writing, context.Canceled)
	release(t, granted(t, waits[0]), granted(t, waits[1]), held)
	s.inLine(t, "", 0)
}

func readerExpires(t *testing.T, s *stage) {
	a, b := s.join(t), s.join(t)
	gone, stays := acquire(t, t.Context(), s.rw(t, a).Reader()), acquire(t, t.Context(), s.rw(t, b).Reader())
	writing := acquiring(t.Context(), s.rw(t, s.join(t)).Writer())
	s.inLine(t, "", 3)
	s.expire(t, a)
	lost(t, gone)
	pending(t, writing)
	release(t, stays)
	release(t, granted(t, writing))
	s.inLine(t, "", 0)
}

func readersRequestsAreLost(t *testing.T, s *stage) {
	a := s.join(t)
	rw := s.rw(t, a)
	beside := acquire(t, t.Context(), s.rw(t, s.join(t)).Reader())
	for _, op := range []testutil.Op{testutil.OpCreate, testutil.OpGetChildren2, testutil.OpDelete} {
		for _, loss := range losses {
			t.Run(fmt.Sprint(op, " ", loss.name), func(t *testing.T) {
				m := testutil.Match{Op: op, Path: s.path + "/"}
				if op == testutil.OpGetChildren2 {
					m.Path = s.path
				}
				a.upon(t, m, loss.action)
				l := acquire(t, t.Context(), rw.Reader())
				s.inLine(t, "", 2)
				release(t, l)
				s.inLine(t, "", 1)
			})
		}
	}
	release(t, beside)
}
