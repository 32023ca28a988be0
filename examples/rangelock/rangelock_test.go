package rangelock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/zkrecipes/zkrecipes/examples/rangelock"
	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

var seed = flag.Uint64("seed", 0, "of the random tests; 0: a new one")

// Random operations on random ranges, by three clients whose connections drop
// and whose sessions expire: all of them together are what some order of them,
// one after the other, would have been.
func TestInVirtualTime(t *testing.T) {
	rng := random(t)
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithLogger(func(string, ...any) {}))
			clients := connect(t, ens, 3)
			g := newGame(rng.Uint64(), locked(clients), 30, 2*time.Second)
			stop := make(chan struct{})
			go func() {
				for rng := rand.New(rand.NewPCG(rng.Uint64(), 0)); ; {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(1+rng.IntN(5)) * time.Second):
					}
					sess, err := clients[rng.IntN(len(clients))].Session()
					if err != nil {
						continue
					}
					if rng.IntN(3) > 0 {
						_ = ens.DropConnections(sess.ID())
					} else {
						_ = ens.ExpireSession(sess.ID())
					}
				}
			}()
			history := g.play(t)
			close(stop)
			if len(history) < 60 {
				t.Errorf("only %d operations came through", len(history))
			}
			if result := porcupine.CheckOperations(cells, history); !result {
				judge.Errorf(t, "not linearizable: two that conflict were in together")
			}
			for _, c := range clients {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			if left := ens.Children("/ranges"); len(left) > 0 {
				judge.Errorf(t, "left in line: %v", left)
			}
		})
	}
}

// The judge is shown a lock whose rule overlooks the last cell of a range, and
// must find that.
func TestABrokenRuleIsFound(t *testing.T) {
	rng := random(t)
	broken := func(mine, theirs string) bool {
		var a, b struct{ from, to int }
		fmt.Sscanf(mine, "%d,%d", &a.from, &a.to)
		fmt.Sscanf(theirs, "%d,%d", &b.from, &b.to)
		return a.from < b.to-1 && b.from < a.to-1
	}
	for range 20 {
		var linearizable bool
		synctest.Test(t, func(t *testing.T) {
			ens := testutil.Start(t, testutil.InMemory(), testutil.WithLogger(func(string, ...any) {}))
			clients := connect(t, ens, 3)
			history := newGame(rng.Uint64(), func(client int, _ bool, from, to uint64) (recipes.Acquirer, error) {
				return recipes.NewLine(clients[client], "/broken", "broken.v1", fmt.Sprintf("%d,%d", from, to), broken)
			}, 30, 2*time.Second).play(t)
			linearizable = porcupine.CheckOperations(cells, history)
		})
		if !linearizable {
			return
		}
	}
	t.Error("not found in 20 games")
}

// The same on real servers. It needs ZKR_REAL=1 and Apache ZooKeeper.
func TestOnRealServers(t *testing.T) {
	rng := random(t)
	ens := apache.Start(t, 3)
	clients := connect(t, ens, 3)
	g := newGame(rng.Uint64(), locked(clients), 25, 20*time.Millisecond)
	history := g.play(t)
	if len(history)+g.busy != 3*2*25 {
		t.Errorf("%d operations came through, and %d were busy", len(history), g.busy)
	}
	if !porcupine.CheckOperations(cells, history) {
		judge.Errorf(t, "not linearizable: two that conflict were in together")
	}
}

func TestNames(t *testing.T) {
	ens := testutil.Start(t)
	c := connect(t, ens, 1)[0]
	l := rangelock.New(c, "/ranges")
	if _, err := l.Write(5, 5); err == nil {
		t.Error("an empty range")
	}
	write, err := l.Write(10, 20)
	if err != nil {
		t.Fatal(err)
	}
	held, err := write.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(held.Path(), "-range.v1~w=10,20~") {
		t.Errorf("znode %s", held.Path())
	}
	for _, test := range []struct {
		line func(from, to uint64) (recipes.Acquirer, error)
		from uint64
		to   uint64
		busy bool
	}{
		{l.Read, 0, 10, false},
		{l.Read, 20, 21, false},
		{l.Write, 20, 30, false},
		{l.Read, 0, 11, true},
		{l.Read, 19, 20, true},
		{l.Write, 12, 13, true},
		{l.Write, 0, 100, true},
	} {
		a, err := test.line(test.from, test.to)
		if err != nil {
			t.Fatal(err)
		}
		lease, err := a.TryAcquire(t.Context())
		if busy := errors.Is(err, recipes.ErrBusy); busy != test.busy {
			t.Errorf("[%d, %d): %v, want busy %v", test.from, test.to, err, test.busy)
		}
		// With the lease's own context it would wait for itself.
		if test.busy {
			if _, err := a.Acquire(held.Context()); !errors.Is(err, recipes.ErrDeadlock) {
				t.Errorf("[%d, %d) under the lease: %v", test.from, test.to, err)
			}
		} else if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// game is random operations on a row of cells by two goroutines of each client.
type game struct {
	seed  uint64
	line  func(client int, writes bool, from, to uint64) (recipes.Acquirer, error)
	each  int // operations a goroutine
	pause time.Duration

	mu      sync.Mutex // guards what follows
	cells   row
	history []porcupine.Operation
	busy    int // tries that were refused
}

type row [8]int

// operation reads its cells, one half before a pause and one half after it. One
// that writes makes each of them one more than it was before the pause.
type operation struct {
	from, to uint64
	writes   bool
}

func newGame(seed uint64, line func(int, bool, uint64, uint64) (recipes.Acquirer, error), each int, pause time.Duration) *game {
	return &game{seed: seed, line: line, each: each, pause: pause}
}

func locked(clients []*framework.Client) func(int, bool, uint64, uint64) (recipes.Acquirer, error) {
	return func(client int, writes bool, from, to uint64) (recipes.Acquirer, error) {
		l := rangelock.New(clients[client], "/ranges")
		if writes {
			return l.Write(from, to)
		}
		return l.Read(from, to)
	}
}

// play returns the operations that came through. One whose lease was lost on
// the way changes nothing, and is left out.
func (g *game) play(t *testing.T) []porcupine.Operation {
	var all sync.WaitGroup
	for player := range 6 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(g.seed, uint64(player)))
			for range g.each {
				from := rng.Uint64N(8)
				op := operation{from: from, to: from + 1 + rng.Uint64N(min(4, 8-from)), writes: rng.IntN(2) == 0}
				a, err := g.line(player/2, op.writes, op.from, op.to)
				if err != nil {
					t.Error(err)
					return
				}
				call := time.Now()
				if rng.IntN(4) == 0 {
					a = recipes.Try(a)
				}
				err = recipes.Do(t.Context(), a, func(ctx context.Context, l *recipes.Lease) error {
					return g.work(ctx, l, player, op, call, time.Duration(rng.Int64N(int64(g.pause))))
				})
				switch {
				case err == nil, errors.Is(err, recipes.ErrNotHeld), errors.Is(err, context.Canceled):
				case errors.Is(err, recipes.ErrBusy):
					g.mu.Lock()
					g.busy++
					g.mu.Unlock()
				default:
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	return g.history
}

func (g *game) work(ctx context.Context, l *recipes.Lease, player int, op operation, call time.Time, pause time.Duration) error {
	half := (op.from + op.to) / 2
	g.mu.Lock()
	before := g.cells
	g.mu.Unlock()
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !l.Held() {
		return recipes.ErrNotHeld
	}
	seen := slices.Concat(before[op.from:half], g.cells[half:op.to])
	for i := op.from; op.writes && i < op.to; i++ {
		g.cells[i] = before[i] + 1
	}
	g.history = append(g.history, porcupine.Operation{
		ClientId: player, Input: op, Output: seen,
		Call: call.UnixNano(), Return: time.Now().UnixNano() + 1,
	})
	return nil
}

// cells is what operations do that are executed one after the other.
var cells = porcupine.Model{
	Init: func() any { return row{} },
	Step: func(state, input, output any) (bool, any) {
		now, op := state.(row), input.(operation)
		ok := slices.Equal(now[op.from:op.to], output.([]int))
		for i := op.from; op.writes && i < op.to; i++ {
			now[i]++
		}
		return ok, now
	},
}

func random(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d", s)
	return rand.New(rand.NewPCG(s, 0))
}

func connect(t *testing.T, ens testutil.Ensemble, n int) []*framework.Client {
	t.Helper()
	clients := make([]*framework.Client, n)
	for i := range clients {
		c, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		clients[i] = c
	}
	return clients
}
