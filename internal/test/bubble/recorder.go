package bubble

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Recorder has the history of calls that clients make at the same time.
type Recorder struct {
	clock atomic.Int64
	mu    sync.Mutex
	all   []porcupine.Operation
}

// Do makes a call. unknown is its output if it may have been executed, or may
// be some time. If it has failed otherwise, it is not in the history.
func (h *Recorder) Do(client int, input, unknown any, do func() (output any, err error)) {
	began := h.clock.Add(1)
	output, err := do()
	ended := h.clock.Add(1)
	if err != nil {
		if !framework.MaybeApplied(err) {
			return
		}
		output, ended = unknown, 1<<62
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, porcupine.Operation{ClientId: client, Input: input, Call: began, Output: output, Return: ended})
}

// Judge fails the test if no order of the calls, one after the other, explains
// what they have returned.
func (h *Recorder) Judge(t *testing.T, model porcupine.Model) {
	t.Helper()
	if porcupine.CheckOperationsTimeout(model, h.all, 20*time.Second) != porcupine.Illegal {
		return
	}
	judge.Errorf(t, "no order of the calls explains what they have returned")
	for _, o := range h.all {
		t.Logf("%d: %d to %d %+v %+v", o.ClientId, o.Call, o.Return, o.Input, o.Output)
	}
}

// Histories makes a number of random histories on three members, with -short a
// quarter of it, and judges each. seed is 0 for a new one. play gets a function
// that draws a number below its argument.
func Histories(t *testing.T, seed uint64, number int, model porcupine.Model, play func(t *testing.T, w *World, h *Recorder, n func(int) int)) {
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	for i := range Few(number/4, number) {
		Run(t, func(t *testing.T, w *World) {
			draw, mu, h := rand.New(rand.NewPCG(seed, uint64(i))), sync.Mutex{}, &Recorder{}
			w.Latency(time.Millisecond)
			play(t, w, h, func(below int) int {
				mu.Lock()
				defer mu.Unlock()
				return draw.IntN(below)
			})
			h.Judge(t, model)
		}, testutil.WithMembers(3))
		if t.Failed() {
			t.Fatalf("history %d", i)
		}
	}
}

// Storm lets requests and answers get lost or come late, sessions expire and
// members lag, until end is called. n draws a number below its argument.
func (w *World) Storm(n func(int) int, clients ...*framework.Client) (end func()) {
	stop := w.Control(func(r testutil.Request) testutil.Action {
		if r.Op != testutil.OpMulti && r.Op != testutil.OpGetData && r.Op != testutil.OpSetData && r.Op != testutil.OpCreate {
			return testutil.Pass()
		}
		switch n(20) {
		case 0:
			return testutil.DropBefore()
		case 1, 2:
			return testutil.DropAfter()
		case 3:
			return testutil.Delay(time.Duration(n(16000)) * time.Millisecond)
		case 4:
			return testutil.DelayReply(time.Duration(n(16000)) * time.Millisecond)
		}
		return testutil.Pass()
	})
	var all sync.WaitGroup
	ended := make(chan struct{})
	for _, c := range clients {
		all.Go(func() {
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
	}
	return func() {
		close(ended)
		all.Wait()
		stop()
	}
}
