package bubble

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// Fault strikes at one request of a run.
type Fault struct {
	Name   string
	Action testutil.Action // what becomes of the request
	Happen func(*Strike)   // what happens meanwhile; nil: nothing
	Fails  bool            // the call that is struck fails
}

// Strike is a fault that happens.
type Strike struct {
	*World
	Net     *Net
	Request testutil.Request
	Cancel  context.CancelFunc // of the call that is under way, if the run has one
}

// Faults returns those that every recipe is tested with, and more.
func Faults(more ...Fault) []Fault {
	return append([]Fault{
		{Name: "lost", Action: testutil.DropBefore()},
		{Name: "answer lost", Action: testutil.DropAfter()},
		{Name: "late", Action: testutil.Delay(4 * time.Second)},
		{Name: "answered late", Action: testutil.DelayReply(4 * time.Second)},
		{Name: "throttled", Action: testutil.Fail(testutil.CodeThrottled)},
		{Name: "refused", Action: testutil.Fail(testutil.CodeSystemError), Fails: true},
		{Name: "moved", Action: testutil.Fail(testutil.CodeSessionMoved)},
		{Name: "short cut", Happen: CutFor(2 * time.Second)},
		{Name: "long cut", Happen: CutFor(30 * time.Second)},
		{Name: "cut and answer lost", Action: testutil.DropAfter(), Happen: CutFor(30 * time.Second)},
		{Name: "expired", Happen: ExpireNow},
		{Name: "member stops", Happen: func(s *Strike) {
			_ = s.Stop(s.Request.Member)
			time.Sleep(20 * time.Second)
			_ = s.Restart(s.Request.Member)
		}},
	}, more...)
}

// CutFor returns what cuts the client off for a while.
func CutFor(d time.Duration) func(*Strike) {
	return func(s *Strike) {
		s.Net.Cut()
		time.Sleep(d)
		s.Net.Heal()
	}
}

// ExpireNow ends the session.
func ExpireNow(s *Strike) { _ = s.ExpireSession(s.Request.Session) }

// LoseEvents loses the events of a second.
func LoseEvents(s *Strike) {
	s.Net.LoseEvents(true)
	time.Sleep(time.Second)
	s.Net.LoseEvents(false)
}

// At is when a fault strikes: at a request of all of a run, counted from 0.
type At struct {
	Fault
	N int
}

// EveryFault makes a run with each fault at each request, or without ZKR_WHOLE
// at one of step, other ones for each fault, with -short at one of 4*step. run
// returns how many requests it has made.
func EveryFault(t *testing.T, faults []Fault, step int, run func(t *testing.T, at At) (requests int)) {
	step = Few(4*step, Draw(step, 1))
	for i, f := range faults {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			n := i % step
			for !t.Failed() && n < run(t, At{f, n}) {
				n += step
			}
			t.Logf("%d requests", n)
		})
	}
}

// Strikes counts the requests of a run, and lets faults strike.
type Strikes struct {
	w        *World
	at       []At
	underWay sync.WaitGroup

	mu       sync.Mutex // guards what follows
	requests int
	over     bool
}

// Strikes returns the strikes of a run. The caller must call End.
func (w *World) Strikes(at ...At) *Strikes { return &Strikes{w: w, at: at} }

// Control decides about a request of the run. cancel may be nil: see Strike.
func (s *Strikes) Control(net *Net, r testutil.Request, cancel context.CancelFunc) testutil.Action {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || r.Op == testutil.OpPing {
		return testutil.Pass()
	}
	s.requests++
	for _, at := range s.at {
		if at.N != s.requests-1 {
			continue
		}
		if at.Happen != nil {
			s.underWay.Go(func() { at.Happen(&Strike{s.w, net, r, cancel}) })
		}
		return at.Action
	}
	return testutil.Pass()
}

// End lets no fault strike any more, waits for those that happen, and returns
// how many requests there were.
func (s *Strikes) End() (requests int) {
	s.mu.Lock()
	s.over = true
	requests = s.requests
	s.mu.Unlock()
	s.underWay.Wait()
	return requests
}
