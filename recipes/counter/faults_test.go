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

func faults() []bubble.Fault {
	cancel := func(s *bubble.Strike) { s.Cancel() }
	return bubble.Faults([]bubble.Fault{
		{Name: "very late", Action: testutil.Delay(8 * time.Second)},
		{Name: "error, connection lost", Action: testutil.Fail(testutil.CodeConnectionLoss)},
		{Name: "late and dropped", Action: testutil.Delay(time.Second), Happen: drop},
		{Name: "very late and dropped", Action: testutil.Delay(30 * time.Second), Happen: drop},
		{Name: "cancelled, late and dropped", Action: testutil.Delay(100 * time.Millisecond), Happen: func(s *bubble.Strike) {
			s.Cancel()
			drop(s)
		}},
		{Name: "cut and late", Action: testutil.Delay(5 * time.Second), Happen: bubble.CutFor(4 * time.Second)},
		{Name: "expired and answer lost", Action: testutil.DropAfter(), Happen: bubble.ExpireNow},
		{Name: "cancelled", Happen: cancel},
		{Name: "cancelled and late", Action: testutil.Delay(20 * time.Second), Happen: cancel},
		{Name: "cancelled and answered late", Action: testutil.DelayReply(2 * time.Second), Happen: cancel},
		{Name: "receipts deleted", Happen: deleteReceipts},
		{Name: "receipts deleted and answer lost", Action: testutil.DropAfter(), Happen: deleteReceipts},
		{Name: "member lags", Happen: func(s *bubble.Strike) {
			s.Lag(s.Request.Member)
			time.Sleep(3 * time.Second)
			s.Unlag(s.Request.Member)
		}},
	}...)
}

func drop(s *bubble.Strike) { _ = s.DropConnections(s.Request.Session) }

func deleteReceipts(s *bubble.Strike) {
	admin := s.ConnectNext()
	for _, name := range s.Children(path + "-receipts") {
		_ = admin.Delete(context.Background(), path+"-receipts/"+name, -1)
	}
}

// Two clients add to one counter, and every single fault strikes at every
// request. Each addition has a decimal digit of its own. So the sum says how
// often each was executed: once if it was answered, never if the error says so,
// and never twice. Without ZKR_WHOLE it is a quarter of the requests, other
// ones for each fault.
func TestEveryFaultAtEveryRequest(t *testing.T) {
	bubble.EveryFault(t, faults(), 4, func(t *testing.T, at bubble.At) int { return run(t, at) })
}

// Pairs of faults are drawn at random.
func TestPairsOfFaults(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	draw, all := rand.New(rand.NewPCG(seed, 0)), faults()
	for range bubble.Few(*pairs/4, *pairs) {
		first := draw.IntN(40)
		run(t, bubble.At{Fault: all[draw.IntN(len(all))], N: first}, bubble.At{Fault: all[draw.IntN(len(all))], N: first + 1 + draw.IntN(8)})
		if t.Failed() {
			return
		}
	}
}

// run makes the run with faults, and returns how many requests it has made.
func run(t *testing.T, all ...bubble.At) (requests int) {
	where := ""
	for _, at := range all {
		where += fmt.Sprintf(" %q at %d", at.Name, at.N)
	}
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		strikes := w.Strikes(all...)
		defer strikes.End()
		var mu sync.Mutex              // guards what follows
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
				if err != nil || sess.ID() != r.Session || r.Op == testutil.OpCreateSession {
					return testutil.Pass()
				}
				mu.Lock()
				defer mu.Unlock()
				return strikes.Control(net, r, cancel)
			})
			n := newCounter(t, c, counter.WithMarkerAge(time.Hour))
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
		requests = strikes.End()
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
