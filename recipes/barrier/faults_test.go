package barrier_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func faults() []bubble.Fault {
	cancel := func(s *bubble.Strike) { s.Cancel() }
	return bubble.Faults(
		bubble.Fault{Name: "canceled", Happen: cancel, Fails: true},
		bubble.Fault{Name: "canceled and late", Action: testutil.Delay(20 * time.Second), Happen: cancel, Fails: true},
		bubble.Fault{Name: "canceled and answered late", Action: testutil.DelayReply(2 * time.Second), Happen: cancel, Fails: true},
		bubble.Fault{Name: "late, on a broken connection", Action: testutil.Delay(12 * time.Second), Happen: func(*bubble.Strike) {}},
		bubble.Fault{Name: forbidden, Action: testutil.Fail(testutil.CodeNoAuth), Fails: true},
		bubble.Fault{Name: "expired after the answer", Action: testutil.DelayReply(50 * time.Millisecond), Happen: func(s *bubble.Strike) {
			time.Sleep(time.Millisecond)
			bubble.ExpireNow(s)
		}},
		bubble.Fault{Name: "events lost", Happen: bubble.LoseEvents},
	)
}

const forbidden = "forbidden"

// everyFault makes a run of two clients with each fault at each request, or
// without ZKR_WHOLE at a quarter of them, other ones for each fault. In the end
// nothing is left.
func everyFault(t *testing.T, run func(t *testing.T, w *bubble.World, f bubble.Fault, clients [2]client)) {
	bubble.EveryFault(t, faults(), 4, func(t *testing.T, at bubble.At) (requests int) {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			defer func() {
				if t.Failed() {
					t.Logf("at request %d\n%s", at.N, w.Tree())
				}
			}()
			strikes := w.Strikes(at)
			defer strikes.End()
			var clients [2]client
			for i, name := range []string{"ours", "theirs"} {
				c := client{w.Connect(name, patient), new(caller)}
				clients[i] = c
				net := w.ClientNet(name)
				net.Control(func(r testutil.Request) testutil.Action {
					if r.Op == testutil.OpRemoveWatches && at.Name == forbidden { // no server asks for a right to that
						return testutil.Pass()
					}
					return strikes.Control(net, r, c.leave)
				})
			}
			run(t, w, at.Fault, clients)
			requests = strikes.End()
			time.Sleep(2 * time.Minute)
			nothingLeft(t, w)
		}, testutil.WithMembers(3))
		return requests
	})
}

// client is one of two in a run with a fault.
type client struct {
	*framework.Client
	*caller
}

// caller makes one call at a time, and may leave it.
type caller struct {
	mu     sync.Mutex
	cancel context.CancelFunc // of the call under way
}

// call begins one.
func (c *caller) call(ctx context.Context) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, c.cancel = context.WithCancel(ctx)
	return ctx
}

func (c *caller) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

// again calls a function, once more if the fault has made it fail.
func again(t *testing.T, f bubble.Fault, c client, call func(context.Context) error) {
	t.Helper()
	err := call(c.call(t.Context()))
	if f.Fails && err != nil {
		err = call(t.Context())
	}
	if err != nil {
		t.Error(err)
	}
}

// party is one of two members in a run with a fault.
type party struct {
	t       *testing.T
	f       bubble.Fault
	c       client
	d       *barrier.Double
	results chan party // of the call under way
	in      *barrier.Inside
	err     error
}

func (p *party) enter(ctx context.Context) {
	p.results = make(chan party, 1)
	go func() {
		in, err := p.d.Enter(p.c.call(ctx))
		if p.f.Fails && err != nil {
			in, err = p.d.Enter(ctx)
		}
		p.results <- party{in: in, err: err}
	}()
}

func (p *party) leave(ctx context.Context) {
	in := p.in
	p.results = make(chan party, 1)
	go func() { p.results <- party{err: in.Leave(p.c.call(ctx))} }()
}

// result waits for the result of a call. Only a fault may make a Leave fail.
func (p *party) result(leaving bool) {
	p.t.Helper()
	r := bubble.Await(p.t, "the call", p.results)
	lost := errors.Is(r.err, barrier.ErrGone) || errors.Is(r.err, framework.ErrSessionLost)
	if r.err != nil && (!leaving || !lost && !p.f.Fails) {
		p.t.Fatal(r.err)
	}
	p.in, p.err = r.in, r.err
}

// has reports whether there is a result after a while.
func (p *party) has() bool {
	time.Sleep(time.Second)
	synctest.Wait()
	return len(p.results) > 0
}

// Two members enter and leave twice, at once again, under every fault: nobody
// enters alone, nobody leaves before the other, and nothing is left.
func TestEveryFaultAtEveryRequest(t *testing.T) {
	everyFault(t, twoRounds)
}

func twoRounds(t *testing.T, _ *bubble.World, f bubble.Fault, clients [2]client) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	party := func(c client) *party { return &party{t: t, f: f, c: c, d: double(t, c.Client, 2)} }
	a, b := party(clients[0]), party(clients[1])
	for round := range 2 {
		a.enter(ctx)
		if a.has() {
			t.Fatalf("round %d: it has entered alone: %v", round, <-a.results)
		}
		b.enter(ctx)
		a.result(false)
		b.result(false)
		b.leave(ctx)
		alone := b.has() // it has failed, or has left before the other
		a.leave(ctx)
		a.result(true)
		if b.result(true); alone && a.err == nil && b.err == nil {
			t.Fatalf("round %d: it has left before the other", round)
		}
		a, b = b, a
	}
}
