package counter_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
)

var (
	seed      = flag.Uint64("counter.seed", 0, "of the random histories; 0: a new one")
	histories = flag.Int("counter.histories", 30, "how many random histories are made")
)

// call is an operation in a history.
type call struct {
	what     string
	argument int64 // of add once: also which id, two amounts have one
	old      int64
}

// answer is what a call has returned.
type answer struct {
	unknown  bool // it was executed some time, or never
	value    int64
	ok       bool
	repeated bool
	other    bool // the id was counted with another amount
}

const ids = 4

// number is the state of the model: a number in one process.
type number struct {
	value   int64
	counts  [ids]bool
	amounts [ids]int64
	after   [ids]int64
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
			n.counts[id], n.amounts[id], n.after[id] = true, c.argument, n.value
		}
		if n.amounts[id] != c.argument {
			return a.unknown || a.other, n
		}
		return a.unknown || !a.other && a.value == n.after[id] && (!a.repeated || repeated), n
	},
	Equal: func(a, b any) bool { return a.(number) == b.(number) },
}

// Random calls of three processes whose connections drop, whose answers get
// lost, whose sessions expire and whose members lag: all of them together are
// what some order of them, one after the other, would have been.
func TestHistories(t *testing.T) {
	bubble.Histories(t, *seed, *histories, oneNumber, play)
}

func play(t *testing.T, w *bubble.World, h *bubble.Recorder, n func(int) int) {
	var clients []*framework.Client
	for range 3 {
		clients = append(clients, w.ConnectNext())
	}
	end := w.Storm(n, clients...)
	var all sync.WaitGroup
	for i, c := range clients {
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
	end()
	time.Sleep(time.Minute)
	judge := newCounter(t, w.ConnectNext())
	h.Do(9, call{what: "get"}, nil, func() (any, error) {
		value, err := judge.Get(t.Context())
		if err != nil {
			t.Error(err)
		}
		return answer{value: value}, err
	})
}

// randomCall makes a random call.
func randomCall(ctx context.Context, h *bubble.Recorder, k *counter.Counter, client int, n func(int) int) {
	argument, unknown := int64(n(5))-1, answer{unknown: true}
	switch n(8) {
	case 0, 1, 2:
		h.Do(client, call{what: "add", argument: argument}, unknown, func() (any, error) {
			value, err := k.Add(ctx, argument)
			return answer{value: value}, err
		})
	case 3:
		argument = int64(n(100))
		h.Do(client, call{what: "set", argument: argument}, unknown, func() (any, error) {
			return answer{}, k.Set(ctx, argument)
		})
	case 4:
		old := int64(0)
		h.Do(client, call{what: "get"}, unknown, func() (any, error) {
			value, err := k.Get(ctx)
			old = value
			return answer{value: value}, err
		})
		h.Do(client, call{what: "swap", argument: argument, old: old}, unknown, func() (any, error) {
			ok, err := k.CompareAndSet(ctx, old, argument)
			return answer{ok: ok}, err
		})
	case 5, 6:
		argument = int64(n(2 * ids))
		h.Do(client, call{what: "add once", argument: argument}, unknown, func() (any, error) {
			r, err := k.AddOnce(ctx, fmt.Sprint("id ", argument%ids), argument)
			if errors.Is(err, counter.ErrAmount) {
				return answer{other: true}, nil
			}
			return answer{value: r.Value, repeated: r.Repeated}, err
		})
	default:
		h.Do(client, call{what: "get"}, unknown, func() (any, error) {
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
		"an id with two amounts": {
			{Input: call{what: "add once", argument: 1}, Call: 1, Output: answer{value: 1}, Return: 2},
			{Input: call{what: "add once", argument: 1 + ids}, Call: 3, Output: answer{value: 1, repeated: true}, Return: 4},
		},
		"another amount that was this one": {
			{Input: call{what: "add once", argument: 1}, Call: 1, Output: answer{value: 1}, Return: 2},
			{Input: call{what: "add once", argument: 1}, Call: 3, Output: answer{other: true}, Return: 4},
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
