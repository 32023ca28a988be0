package counter_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

var pairs = flag.Int("counter.pairs", bubble.Draw(50, 200), "how many pairs of faults are drawn")

// A fault strikes at one request of a run.
type fault struct {
	name   string
	action testutil.Action
	happen func(s *strike)
}

// strike is a fault that happens.
type strike struct {
	*bubble.World
	net    *testutil.ClientNet
	r      testutil.Request
	cancel context.CancelFunc // of the call that is under way
}

func faults() []fault {
	cut := func(d time.Duration) func(*strike) {
		return func(s *strike) {
			s.net.Cut()
			time.Sleep(d)
			s.net.Heal()
		}
	}
	return []fault{
		{name: "lost", action: testutil.DropBefore()},
		{name: "answer lost", action: testutil.DropAfter()},
		{name: "late", action: testutil.Delay(4 * time.Second)},
		{name: "very late", action: testutil.Delay(8 * time.Second)},
		{name: "answered late", action: testutil.DelayReply(4 * time.Second)},
		{name: "error, connection lost", action: testutil.Fail(testutil.CodeConnectionLoss)},
		{name: "error, throttled", action: testutil.Fail(testutil.CodeThrottled)},
		{name: "error, system", action: testutil.Fail(testutil.CodeSystemError)},
		{name: "error, moved", action: testutil.Fail(testutil.CodeSessionMoved)},
		{name: "late and dropped", action: testutil.Delay(time.Second), happen: drop},
		{name: "very late and dropped", action: testutil.Delay(30 * time.Second), happen: drop},
		{name: "cancelled, late and dropped", action: testutil.Delay(100 * time.Millisecond), happen: func(s *strike) {
			s.cancel()
			drop(s)
		}},
		{name: "short cut", happen: cut(2 * time.Second)},
		{name: "long cut", happen: cut(30 * time.Second)},
		{name: "cut and answer lost", action: testutil.DropAfter(), happen: cut(30 * time.Second)},
		{name: "cut and late", action: testutil.Delay(5 * time.Second), happen: cut(4 * time.Second)},
		{name: "expired", happen: func(s *strike) { _ = s.ExpireSession(s.r.Session) }},
		{name: "expired and answer lost", action: testutil.DropAfter(), happen: func(s *strike) { _ = s.ExpireSession(s.r.Session) }},
		{name: "cancelled", happen: func(s *strike) { s.cancel() }},
		{name: "cancelled and late", action: testutil.Delay(20 * time.Second), happen: func(s *strike) { s.cancel() }},
		{name: "cancelled and answered late", action: testutil.DelayReply(2 * time.Second), happen: func(s *strike) { s.cancel() }},
		{name: "receipts deleted", happen: deleteReceipts},
		{name: "receipts deleted and answer lost", action: testutil.DropAfter(), happen: deleteReceipts},
		{name: "member stops", happen: func(s *strike) {
			_ = s.Stop(s.r.Member)
			time.Sleep(20 * time.Second)
			_ = s.Restart(s.r.Member)
		}},
		{name: "member lags", happen: func(s *strike) {
			s.Lag(s.r.Member)
			time.Sleep(3 * time.Second)
			s.Unlag(s.r.Member)
		}},
	}
}

func drop(s *strike) { _ = s.DropConnections(s.r.Session) }

func deleteReceipts(s *strike) {
	admin := s.ConnectNext()
	for _, name := range s.Children(path + "-receipts") {
		_ = admin.Delete(context.Background(), path+"-receipts/"+name, -1)
	}
}

// at is when a fault strikes: at a request of all of a run.
type at struct {
	fault
	n int
}

// Two clients add to one counter, and every single fault strikes at every
// request. Each addition has a decimal digit of its own. So the sum says how
// often each was executed: once if it was answered, never if the error says so,
// and never twice. Without ZKR_WHOLE it is a quarter of the requests, other
// ones for each fault.
func TestEveryFaultAtEveryRequest(t *testing.T) {
	step := bubble.Draw(4, 1)
	for i, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			for n := i % step; !t.Failed() && n < run(t, at{f, n}); n += step {
			}
		})
	}
}

// Pairs of faults are drawn at random.
func TestPairsOfFaults(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	draw, all := rand.New(rand.NewPCG(seed, 0)), faults()
	for range *pairs {
		first := draw.IntN(40)
		run(t, at{all[draw.IntN(len(all))], first}, at{all[draw.IntN(len(all))], first + 1 + draw.IntN(8)})
		if t.Failed() {
			return
		}
	}
}

// run makes the run with faults, and returns how many requests it has made.
func run(t *testing.T, strikes ...at) (requests int) {
	where := ""
	for _, s := range strikes {
		where += fmt.Sprintf(" %q at %d", s.name, s.n)
	}
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var mu sync.Mutex // guards what follows, and requests
		var background sync.WaitGroup
		defer background.Wait()
		ended := false
		executed := map[int64]string{} // what is known of each addition, by its digit
		note := func(digit int64, err error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				executed[digit] = "once"
			case framework.MaybeApplied(err):
				executed[digit] = "perhaps"
			default:
				executed[digit] = "never"
			}
		}
		client := func(name string, first int64) (*counter.Counter, func()) {
			c, net := w.Connect(name), w.ClientNet(name)
			var cancel context.CancelFunc
			w.Control(func(r testutil.Request) testutil.Action {
				sess, err := c.Session()
				mu.Lock()
				defer mu.Unlock()
				if err != nil || sess.ID() != r.Session || r.Op == testutil.OpPing || r.Op == testutil.OpCreateSession || ended {
					return testutil.Pass()
				}
				requests++
				for _, s := range strikes {
					if s.n == requests-1 {
						if s.happen != nil {
							s2 := &strike{w, net, r, cancel}
							background.Go(func() { s.happen(s2) })
						}
						return s.action
					}
				}
				return testutil.Pass()
			})
			n := newCounter(t, c)
			call := func(digit int64, call func(context.Context) (int64, error)) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				mu.Lock()
				cancel = stop
				mu.Unlock()
				after, err := call(ctx)
				if note(digit, err); err == nil && after/digit%10 != 1 {
					t.Errorf("%s: %d after %d was added", where, after, digit)
				}
			}
			return n, func() {
				d := first
				next := func() int64 { d *= 10; return d / 10 }
				plain := next()
				call(plain, func(ctx context.Context) (int64, error) { return n.Add(ctx, plain) })
				once := next()
				id := fmt.Sprint("id ", once)
				for range 20 { // until it is known
					call(once, func(ctx context.Context) (int64, error) {
						r, err := n.AddOnce(ctx, id, once)
						return r.Value, err
					})
					mu.Lock()
					done := executed[once] == "once"
					mu.Unlock()
					if done {
						break
					}
				}
				block := next()
				call(block, func(ctx context.Context) (int64, error) {
					low, err := n.Reserve(ctx, block)
					return low + block - 1, err
				})
				both := []int64{next(), next()}
				var two sync.WaitGroup
				for _, digit := range both {
					two.Go(func() {
						after, err := n.Add(t.Context(), digit)
						if note(digit, err); err == nil && after/digit%10 != 1 {
							t.Errorf("%s: %d after %d was added", where, after, digit)
						}
					})
				}
				two.Wait()
				swap := next()
				call(swap, func(ctx context.Context) (int64, error) {
					for {
						old, err := n.Get(ctx)
						if err != nil {
							return 0, err
						}
						if ok, err := n.CompareAndSet(ctx, old, old+swap); ok || err != nil {
							return old + swap, err
						}
					}
				})
			}
		}
		judge := newCounter(t, w.Connect("judge"))
		ours, runOurs := client("ours", 1)
		_, runTheirs := client("theirs", 1e8)
		var all sync.WaitGroup
		all.Go(runOurs)
		all.Go(runTheirs)
		all.Wait()
		mu.Lock()
		ended = true
		mu.Unlock()
		check := func() {
			sum, err := judge.Get(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			for digit, what := range executed {
				n := sum / digit % 10
				if n > 1 || what == "once" && n != 1 || what == "never" && n != 0 {
					t.Errorf("%s: the sum is %d, %d was executed %s", where, sum, digit, what)
				}
			}
		}
		background.Wait()
		check()
		time.Sleep(3 * time.Minute) // what is late comes, and the receipts go
		check()
		if _, err := ours.Add(t.Context(), 1); err != nil && !errors.Is(err, framework.ErrSessionLost) {
			t.Errorf("%s: %v", where, err)
		}
		time.Sleep(3 * time.Minute)
		w.NothingLeft(path+"-receipts", path+"-lock")
	}, testutil.WithMembers(3))
	return requests
}
