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

// A fault strikes at one request of a run.
type fault struct {
	name   string
	action testutil.Action
	happen func(w *bubble.World, net *testutil.ClientNet, r testutil.Request)
	fails  bool // the call that is struck fails
}

func faults() []fault {
	cut := func(d time.Duration) func(*bubble.World, *testutil.ClientNet, testutil.Request) {
		return func(_ *bubble.World, net *testutil.ClientNet, _ testutil.Request) {
			net.Cut()
			time.Sleep(d)
			net.Heal()
		}
	}
	return []fault{
		{name: "lost", action: testutil.DropBefore()},
		{name: "answer lost", action: testutil.DropAfter()},
		{name: "late", action: testutil.Delay(4 * time.Second)},
		{name: "answered late", action: testutil.DelayReply(4 * time.Second)},
		{name: "late, on a broken connection", action: testutil.Delay(12 * time.Second), happen: func(_ *bubble.World, _ *testutil.ClientNet, _ testutil.Request) {}},
		{name: "throttled", action: testutil.Fail(testutil.CodeThrottled)},
		{name: "refused", action: testutil.Fail(testutil.CodeSystemError), fails: true},
		{name: "forbidden", action: testutil.Fail(testutil.CodeNoAuth), fails: true},
		{name: "moved", action: testutil.Fail(testutil.CodeSessionMoved)},
		{name: "short cut", happen: cut(2 * time.Second)},
		{name: "long cut", happen: cut(30 * time.Second)},
		{name: "cut and answer lost", action: testutil.DropAfter(), happen: cut(30 * time.Second)},
		{name: "expired", happen: func(w *bubble.World, _ *testutil.ClientNet, r testutil.Request) { _ = w.ExpireSession(r.Session) }},
		{name: "expired after the answer", action: testutil.DelayReply(50 * time.Millisecond), happen: func(w *bubble.World, _ *testutil.ClientNet, r testutil.Request) {
			time.Sleep(time.Millisecond)
			_ = w.ExpireSession(r.Session)
		}},
		{name: "member stops", happen: func(w *bubble.World, _ *testutil.ClientNet, r testutil.Request) {
			_ = w.Stop(r.Member)
			time.Sleep(20 * time.Second)
			_ = w.Restart(r.Member)
		}},
		{name: "events lost", happen: func(_ *bubble.World, net *testutil.ClientNet, _ testutil.Request) {
			net.LoseEvents(true)
			time.Sleep(time.Second)
			net.LoseEvents(false)
		}},
	}
}

// everyFault makes a run of two clients with each fault at each request, or
// without ZKR_WHOLE at a quarter of them, other ones for each fault. In the end
// nothing is left.
func everyFault(t *testing.T, run func(t *testing.T, w *bubble.World, f fault, clients [2]*framework.Client)) {
	step := bubble.Draw(4, 1)
	for i, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			at := i % step
			for strikes(t, f, at, run) && !t.Failed() {
				at += step
			}
			t.Logf("%d requests", at)
		})
	}
}

// strikes makes the run with the fault at one request, and reports whether
// there was such a request.
func strikes(t *testing.T, f fault, at int, run func(t *testing.T, w *bubble.World, f fault, clients [2]*framework.Client)) (struck bool) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		defer func() {
			if t.Failed() {
				t.Logf("at request %d\n%s", at, w.Tree())
			}
		}()
		var mu sync.Mutex
		var background sync.WaitGroup
		defer background.Wait()
		count, ended := 0, false
		var clients [2]*framework.Client
		for i, name := range []string{"ours", "theirs"} {
			clients[i] = w.Connect(name, patient)
			net := w.ClientNet(name)
			net.Control(func(r testutil.Request) testutil.Action {
				if r.Op == testutil.OpPing || r.Op == testutil.OpRemoveWatches && f.name == "forbidden" { // no server asks for a right to that
					return testutil.Pass()
				}
				mu.Lock()
				defer mu.Unlock()
				if count++; count != at+1 || ended {
					return testutil.Pass()
				}
				struck = true
				if f.happen != nil {
					background.Go(func() { f.happen(w, net, r) })
				}
				return f.action
			})
		}
		run(t, w, f, clients)
		mu.Lock()
		ended = true
		mu.Unlock()
		background.Wait()
		time.Sleep(2 * time.Minute)
		nothingLeft(t, w)
	}, testutil.WithMembers(3))
	return struck
}

// again calls a function, once more if the fault has made it fail.
func again(t *testing.T, f fault, call func() error) {
	t.Helper()
	err := call()
	if f.fails && err != nil {
		err = call()
	}
	if err != nil {
		t.Error(err)
	}
}

// party is one of two members in a run with a fault.
type party struct {
	t       *testing.T
	f       fault
	d       *barrier.Double
	results chan party // of the call under way
	in      *barrier.Inside
	err     error
}

func (p *party) enter(ctx context.Context) {
	p.results = make(chan party, 1)
	go func() {
		in, err := p.d.Enter(ctx)
		if p.f.fails && err != nil {
			in, err = p.d.Enter(ctx)
		}
		p.results <- party{in: in, err: err}
	}()
}

func (p *party) leave(ctx context.Context) {
	in := p.in
	p.results = make(chan party, 1)
	go func() { p.results <- party{err: in.Leave(ctx)} }()
}

// result waits for the result of a call. Only a fault may make a Leave fail.
func (p *party) result(leaving bool) {
	p.t.Helper()
	r := bubble.Await(p.t, "the call", p.results)
	lost := errors.Is(r.err, barrier.ErrGone) || errors.Is(r.err, framework.ErrSessionLost)
	if r.err != nil && (!leaving || !lost && !p.f.fails) {
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

func twoRounds(t *testing.T, _ *bubble.World, f fault, clients [2]*framework.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	a, b := &party{t: t, f: f, d: double(t, clients[0], 2)}, &party{t: t, f: f, d: double(t, clients[1], 2)}
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
