package locks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// ledger checks a history of grants: never two workers at once, and increasing
// tokens.
type ledger struct {
	t      testing.TB
	mu     sync.Mutex // guards what follows
	worker string     // who works now; empty: nobody
	last   recipes.Token
	grants int
	losses int
}

func (l *ledger) begin(worker string, token recipes.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.worker != "" {
		l.t.Errorf("%s begins while %s works", worker, l.worker)
	}
	if token.Compare(l.last) <= 0 {
		l.t.Errorf("%s has token %v after %v", worker, token, l.last)
	}
	l.worker, l.last = worker, token
	l.grants++
}

func (l *ledger) end(lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.worker = ""
	if lost {
		l.losses++
	}
}

// Under random faults of clients and members no two workers work at once, if
// work stops within the stop margin after a loss. After the faults every waiter
// is granted, and nothing is left.
func TestNeverTwoWorkersUnderRandomFaults(t *testing.T) {
	r := random(t)
	grants, losses := 0, 0
	for range 3 {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			history := &ledger{t: t}
			chaos(t, w, rand.New(rand.NewPCG(r.Uint64(), 0)), history)
			grants, losses = grants+history.grants, losses+history.losses
		}, testutil.WithMembers(3), testutil.WithSyncLimit(8))
	}
	if grants < 150 || losses == 0 {
		t.Errorf("%d grants, %d of them lost: too few for a test", grants, losses)
	}
}

func chaos(t *testing.T, w *bubble.World, r *rand.Rand, history *ledger) {
	const clients, span = 4, 20 * time.Minute
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for i := range clients {
		name := fmt.Sprint("client ", i)
		m := mutexOf(t, w.Connect(name))
		for g := range 2 {
			worker := fmt.Sprint(name, ", goroutine ", g)
			pace := rand.New(rand.NewPCG(r.Uint64(), 0))
			wg.Go(func() {
				for ctx.Err() == nil {
					wait, cancel := context.WithTimeout(ctx, time.Duration(pace.Int64N(int64(time.Minute))))
					l, err := m.Acquire(wait)
					cancel()
					if err != nil {
						if !expected(err) {
							t.Errorf("%s: %v", worker, err)
						}
						continue
					}
					history.begin(worker, l.Token())
					work := time.Duration(pace.Int64N(int64(8 * time.Second)))
					if pace.IntN(4) == 0 {
						work *= 5
					}
					select {
					case <-time.After(work):
						history.end(false)
					case <-l.Lost():
						time.Sleep(bubble.Margin - time.Nanosecond) // stops at the last moment
						history.end(true)
					}
					release, cancel := context.WithTimeout(context.Background(), time.Duration(pace.Int64N(int64(20*time.Second))))
					_ = l.Release(release)
					cancel()
				}
			})
		}
	}
	for end := time.Now().Add(span); time.Now().Before(end); {
		heal := oneFault(w, r, clients)
		time.Sleep(time.Duration(r.Int64N(int64(25 * time.Second))))
		heal()
		time.Sleep(time.Duration(r.Int64N(int64(15 * time.Second))))
	}
	stop()
	wg.Wait()
	time.Sleep(time.Minute)
	w.NothingLeft(lockPath)
	for i := range clients {
		m := mutexOf(t, w.Connect(fmt.Sprint("another ", i)))
		bubble.Release(t, bubble.Acquire(t, t.Context(), m))
	}
}

// expected reports whether an Acquire may fail with err: its context has ended,
// or a step has used up its retry budget.
func expected(err error) bool {
	for _, e := range []error{context.DeadlineExceeded, context.Canceled, zk.ErrNoServer, zk.ErrConnectionClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// oneFault starts one fault. heal ends it.
func oneFault(w *bubble.World, r *rand.Rand, clients int) (heal func()) {
	client := w.ClientNet(fmt.Sprint("client ", r.IntN(clients)))
	member := r.IntN(w.Members())
	w.Latency(time.Duration(r.Int64N(int64(50 * time.Millisecond))))
	switch r.IntN(9) {
	case 0, 1:
		client.Cut()
		return client.Heal
	case 2:
		client.CutOneWay(r.IntN(2) == 0)
		return client.Heal
	case 3:
		client.Drop()
		return func() {}
	case 4:
		if err := w.Stop(member); err != nil {
			w.T.Error(err)
		}
		return func() {
			if err := w.Restart(member); err != nil {
				w.T.Error(err)
			}
		}
	case 5:
		w.Isolate(member)
		return w.Heal
	case 6:
		if err := w.Pause(member); err != nil {
			w.T.Error(err)
		}
		return func() {
			if err := w.Resume(member); err != nil {
				w.T.Error(err)
			}
		}
	case 7:
		w.Wedge(member)
		return func() { w.Unwedge(member) }
	default:
		// Requests on the line, or their replies, are lost.
		lose := r.IntN(2) == 0
		pick := rand.New(rand.NewPCG(r.Uint64(), 0))
		var mu sync.Mutex
		return w.Control(func(req testutil.Request) testutil.Action {
			mu.Lock()
			hit := pick.IntN(5) == 0
			mu.Unlock()
			switch {
			case req.Op == testutil.OpPing || req.Op == testutil.OpCreateSession || !hit:
				return testutil.Pass()
			case lose:
				return testutil.DropBefore()
			}
			return testutil.DropAfter()
		})
	}
}

// The ledger detects what it is there to detect.
func TestLedgerRejects(t *testing.T) {
	broken := func(history func(l *ledger)) bool {
		probe := &probe{TB: t}
		history(&ledger{t: probe})
		return probe.failed
	}
	newer, older := parse(t, "00000000000000020000000000000000"), parse(t, "00000000000000010000000100000000")
	if !broken(func(l *ledger) { l.begin("a", older); l.begin("b", newer) }) {
		t.Error("two workers at once passed")
	}
	if !broken(func(l *ledger) { l.begin("a", newer); l.end(false); l.begin("b", older) }) {
		t.Error("a smaller token passed")
	}
	if !broken(func(l *ledger) { l.begin("a", newer); l.end(false); l.begin("b", newer) }) {
		t.Error("an equal token passed")
	}
	if broken(func(l *ledger) { l.begin("a", older); l.end(true); l.begin("b", newer); l.end(false) }) {
		t.Error("a correct history failed")
	}
}

// probe is a test that may fail.
type probe struct {
	testing.TB
	failed bool
}

func (p *probe) Errorf(string, ...any) { p.failed = true }

func parse(t *testing.T, text string) recipes.Token {
	t.Helper()
	token, err := recipes.ParseToken(text)
	if err != nil {
		t.Fatal(err)
	}
	return token
}
