package counter_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

var (
	seed      = flag.Uint64("counter.seed", 0, "of the random histories; 0: a new one")
	histories = flag.Int("counter.histories", 30, "how many random histories are made")
)

// call is an operation in a history.
type call struct {
	what     string
	argument int64 // of add once: also which id
	old      int64
}

// answer is what a call has returned.
type answer struct {
	unknown  bool // it was executed some time, or never
	value    int64
	ok       bool
	repeated bool
}

const ids = 4

// number is the state of the model: a number in one process.
type number struct {
	value  int64
	counts [ids]bool
	after  [ids]int64
}

var oneNumber = porcupine.Model{
	Init: func() any { return number{} },
	Step: func(state, input, output any) (bool, any) {
		n, c, a := state.(number), input.(call), output.(answer)
		switch c.what {
		case "get":
			return a.value == n.value, n
		case "add":
			n.value += c.argument
			return a.unknown || a.value == n.value, n
		case "set":
			n.value = c.argument
			return true, n
		case "swap":
			was := n.value == c.old
			if was {
				n.value = c.argument
			}
			return a.unknown || a.ok == was, n
		}
		id := c.argument % ids
		repeated := n.counts[id]
		if !repeated {
			n.value += c.argument
			n.counts[id], n.after[id] = true, n.value
		}
		return a.unknown || a.value == n.after[id] && (!a.repeated || repeated), n
	},
	Equal: func(a, b any) bool { return a.(number) == b.(number) },
}

// recorder has the history of a run.
type recorder struct {
	clock atomic.Int64
	mu    sync.Mutex
	all   []porcupine.Operation
}

func (h *recorder) do(client int, c call, do func() (answer, error)) {
	began := h.clock.Add(1)
	a, err := do()
	ended := h.clock.Add(1)
	if err != nil {
		if !framework.MaybeApplied(err) {
			return // it was not executed
		}
		a, ended = answer{unknown: true}, 1<<62
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, porcupine.Operation{ClientId: client, Input: c, Call: began, Output: a, Return: ended})
}

// Random calls of three processes whose connections drop, whose answers get
// lost, whose sessions expire and whose members lag: all of them together are
// what some order of them, one after the other, would have been.
func TestHistories(t *testing.T) {
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	t.Logf("-counter.seed=%d", from)
	for i := range *histories {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			h := &recorder{}
			play(t, w, h, rand.New(rand.NewPCG(from, uint64(i))))
			if porcupine.CheckOperationsTimeout(oneNumber, h.all, 20*time.Second) == porcupine.Illegal {
				t.Errorf("history %d is not linearizable:", i)
				for _, o := range h.all {
					t.Logf("%d: %d to %d %+v %+v", o.ClientId, o.Call, o.Return, o.Input, o.Output)
				}
			}
		}, testutil.WithMembers(3))
		if t.Failed() {
			return
		}
	}
}

func play(t *testing.T, w *bubble.World, h *recorder, draw *rand.Rand) {
	var mu sync.Mutex // guards draw
	n := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return draw.IntN(n)
	}
	w.Latency(time.Millisecond)
	stop := w.Control(func(r testutil.Request) testutil.Action {
		if r.Op != testutil.OpMulti && r.Op != testutil.OpGetData && r.Op != testutil.OpCreate {
			return testutil.Pass()
		}
		switch n(20) {
		case 0:
			return testutil.DropBefore()
		case 1, 2:
			return testutil.DropAfter()
		case 3:
			return testutil.Delay(time.Duration(n(8000)) * time.Millisecond)
		case 4:
			return testutil.DelayReply(time.Duration(n(8000)) * time.Millisecond)
		}
		return testutil.Pass()
	})
	var all, others sync.WaitGroup
	ended := make(chan struct{})
	for i := range 3 {
		c := w.ConnectNext()
		others.Go(func() {
			for {
				select {
				case <-ended:
					return
				case <-time.After(time.Duration(n(20)) * time.Second):
				}
				switch s, err := c.Session(); {
				case err != nil:
				case n(2) == 0:
					_ = w.ExpireSession(s.ID())
				default:
					member := n(3)
					w.Lag(member)
					time.Sleep(time.Duration(n(2000)) * time.Millisecond)
					w.Unlag(member)
				}
			}
		})
		k := newCounter(t, c)
		for j := range 2 {
			all.Go(func() {
				for range 6 {
					time.Sleep(time.Duration(n(3000)) * time.Millisecond)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n(60))*time.Second)
					randomCall(ctx, h, k, 2*i+j, n)
					cancel()
				}
			})
		}
	}
	all.Wait()
	close(ended)
	others.Wait()
	stop()
	time.Sleep(time.Minute)
	judge := newCounter(t, w.ConnectNext())
	h.do(9, call{what: "get"}, func() (answer, error) {
		value, err := judge.Get(t.Context())
		if err != nil {
			t.Error(err)
		}
		return answer{value: value}, err
	})
}

// randomCall makes a random call.
func randomCall(ctx context.Context, h *recorder, k *counter.Counter, client int, n func(int) int) {
	argument := int64(n(5)) - 1
	switch n(8) {
	case 0, 1, 2:
		h.do(client, call{what: "add", argument: argument}, func() (answer, error) {
			value, err := k.Add(ctx, argument)
			return answer{value: value}, err
		})
	case 3:
		argument = int64(n(100))
		h.do(client, call{what: "set", argument: argument}, func() (answer, error) {
			return answer{}, k.Set(ctx, argument)
		})
	case 4:
		old := int64(0)
		h.do(client, call{what: "get"}, func() (answer, error) {
			value, err := k.Get(ctx)
			old = value
			return answer{value: value}, err
		})
		h.do(client, call{what: "swap", argument: argument, old: old}, func() (answer, error) {
			ok, err := k.CompareAndSet(ctx, old, argument)
			return answer{ok: ok}, err
		})
	case 5, 6:
		argument = int64(n(ids))
		h.do(client, call{what: "add once", argument: argument}, func() (answer, error) {
			r, err := k.AddOnce(ctx, fmt.Sprint("id ", argument), argument)
			return answer{value: r.Value, repeated: r.Repeated}, err
		})
	default:
		h.do(client, call{what: "get"}, func() (answer, error) {
			value, err := k.Get(ctx)
			return answer{value: value}, err
		})
	}
}

// The judge finds what it is for.
func TestBrokenHistories(t *testing.T) {
	for name, h := range map[string][]porcupine.Operation{
		"added twice": {
			{Input: call{what: "add", argument: 1}, Call: 1, Output: answer{value: 1}, Return: 2},
			{Input: call{what: "get"}, Call: 3, Output: answer{value: 2}, Return: 4},
		},
		"lost": {
			{Input: call{what: "add", argument: 1}, Call: 1, Output: answer{value: 1}, Return: 2},
			{ClientId: 1, Input: call{what: "get"}, Call: 3, Output: answer{}, Return: 4},
		},
		"unknown, and twice": {
			{Input: call{what: "add", argument: 1}, Call: 1, Output: answer{unknown: true}, Return: 9},
			{ClientId: 1, Input: call{what: "get"}, Call: 3, Output: answer{value: 2}, Return: 4},
		},
		"an id twice": {
			{Input: call{what: "add once", argument: 1}, Call: 1, Output: answer{value: 1}, Return: 2},
			{Input: call{what: "add once", argument: 1}, Call: 3, Output: answer{value: 2}, Return: 4},
		},
		"swapped in vain": {
			{Input: call{what: "swap", argument: 1}, Call: 1, Output: answer{}, Return: 2},
		},
	} {
		if porcupine.CheckOperations(oneNumber, h) {
			t.Errorf("%s: not found", name)
		}
	}
}
