package timelines

import (
	"slices"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/tables"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const (
	timeout = 10 * time.Second
	margin  = timeout / 10
	cutAt   = 6 * time.Second
)

// scene is what both drawings are made of: A holds a lock for which B waits,
// and is cut off.
type scene struct {
	suspended, lost, deadline, granted time.Duration
	ofA, ofB                           recipes.Token
}

// play plays it. Times count from the grant, which is a minute after A has
// connected: the heartbeats have begun by the cut.
func play(t *testing.T) (s scene) {
	defer random.None()()
	bubble.RunBelow(t, bubble.View{}, func(t *testing.T, w *bubble.World) {
		acquire := func(name string) (*framework.Client, *locks.Mutex) {
			c := w.Connect(name, framework.WithSessionTimeout(timeout))
			m, err := locks.NewMutex(c, "/report")
			if err != nil {
				t.Fatal(err)
			}
			return c, m
		}
		a, of := acquire("A")
		time.Sleep(time.Minute)
		lease := bubble.Acquire(t, t.Context(), of)
		began := time.Now()
		s.ofA = lease.Token()
		a.Listen(func(change framework.StateChange) {
			if change.To == framework.Suspended {
				s.suspended = time.Since(began)
			}
		})
		_, of = acquire("B")
		granted := make(chan *recipes.Lease, 1)
		go func() {
			lease, err := of.Acquire(t.Context())
			if err != nil {
				t.Error(err)
			}
			granted <- lease
		}()
		time.Sleep(cutAt - time.Since(began))
		w.ClientNet("A").Cut()
		bubble.Await(t, "A's loss", lease.Lost())
		s.lost, s.deadline = time.Since(began), lease.Deadline().Sub(began)
		second := bubble.Await(t, "B's grant", granted)
		s.granted, s.ofB = time.Since(began), second.Token()
		w.ClientNet("A").Heal()
		_ = lease.Release(t.Context()) // lost
		if err := second.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}, testutil.WithMembers(3))
	return s
}

// A loses its connection, stops, and only then B is granted the lock.
func TestLoss(t *testing.T) {
	s := play(t)
	in := []time.Duration{cutAt, s.suspended, s.lost, s.deadline, s.granted}
	if !slices.IsSorted(in) || s.deadline-s.lost != margin || s.granted == s.deadline {
		t.Fatalf("the order is another: %v", in)
	}
	end := (s.granted + 3*time.Second).Truncate(time.Second)
	l := &timeline{
		title: "A lock holder is cut off: it stops one stop margin before its deadline, and the next client is granted the lock after it",
		lanes: []string{"A", "network", "B"}, length: end,
		bars: []bar{
			{"A", 0, s.lost, "holds", "A holds the lock, and works"},
			{"A", s.lost, s.deadline, "margin", "M"},
			{"network", cutAt, end, "cut", "A reaches no server"},
			{"B", 0, s.granted, "waits", "B waits in line"},
			{"B", s.granted, end, "holds", "B holds"},
		},
		moments: []moment{
			{"A", s.deadline - timeout, "A sends the latest contact that is proven: the deadline is T = 10 s after it"},
			{"network", cutAt, "the network is cut"},
			{"A", s.suspended, "no answer: A gives the connection up (state SUSPENDED), and tries other servers"},
			{"A", s.lost, "one stop margin M = 1 s before the deadline the lease is lost, by A's clock: the work must stop"},
			{"A", s.deadline, "the deadline: before it the ensemble cannot have ended A's session"},
			{"B", s.granted, "the ensemble has ended A's session: B is granted the lock"},
		},
	}
	tables.File(t, "../../../docs/pictures/loss.svg", l.svg())
}

// A's work does not stop. What it writes after B has written is refused.
func TestToken(t *testing.T) {
	s := play(t)
	writesB, writesA := s.granted+time.Second, s.granted+2*time.Second
	greatest := s.ofA
	accept := func(token recipes.Token) bool {
		if token.Compare(greatest) < 0 {
			return false
		}
		greatest = token
		return true
	}
	if !accept(s.ofA) || !accept(s.ofB) || accept(s.ofA) || accept(recipes.Token{}) {
		t.Fatalf("tokens %v, %v", s.ofA, s.ofB)
	}
	end := (s.granted + 4*time.Second).Truncate(time.Second)
	l := &timeline{
		title: "Work that does not stop: its late write is refused, because the resource has seen a greater token",
		lanes: []string{"A", "resource", "B"}, length: end,
		bars: []bar{
			{"A", 0, s.lost, "holds", "A holds: token 1"},
			{"A", s.lost, end, "over", "its work does not stop"},
			{"resource", time.Second, writesB, "holds", "has seen 1"},
			{"resource", writesB, end, "waits", "has seen 2"},
			{"B", 0, s.granted, "waits", "B waits in line"},
			{"B", s.granted, end, "holds", "B holds: token 2"},
		},
		moments: []moment{
			{"resource", time.Second, "A writes with token 1: accepted"},
			{"A", s.lost, "A's lease is lost; its work does not look at the context, or stands still"},
			{"B", s.granted, "B is granted the lock, with a greater token"},
			{"resource", writesB, "B writes with token 2: accepted"},
			{"resource", writesA, "A writes with token 1, too late: refused"},
		},
	}
	tables.File(t, "../../../docs/pictures/token.svg", l.svg())
}
