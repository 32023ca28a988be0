package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// told returns the cycles of a world, with A, B and so on for the sessions of
// clients.
func told(t *testing.T, w *bubble.World, cycles []inspect.Cycle, clients ...*framework.Client) []string {
	t.Helper()
	var all []string
	for _, c := range cycles {
		text := c.String()
		for i, client := range clients {
			text = strings.ReplaceAll(text, fmt.Sprintf("session %#x", uint64(w.SessionID(client))), string(rune('A'+i)))
		}
		all = append(all, text)
	}
	return all
}

// wantCycles looks for deadlocks, as another client.
func wantCycles(t *testing.T, w *bubble.World, clients []*framework.Client, certain, possible []string, opts ...inspect.Option) inspect.Deadlocks {
	t.Helper()
	d, err := inspect.FindDeadlocks(t.Context(), w.ConnectNext(), "/", opts...)
	if err != nil {
		t.Fatal(err)
	}
	if got := told(t, w, d.Cycles, clients...); !slices.Equal(got, certain) {
		t.Errorf("deadlocks: %q, want %q", got, certain)
	}
	if got := told(t, w, d.Possible, clients...); !slices.Equal(got, possible) {
		t.Errorf("possible deadlocks: %q, want %q", got, possible)
	}
	return d
}

func three(w *bubble.World) []*framework.Client {
	return []*framework.Client{w.ConnectNext(), w.ConnectNext(), w.ConnectNext()}
}

// Two locks in two orders, across two clients. A client that waits behind them
// is no part of the cycle. When one gives up there is none.
func TestTwoLocksInTwoOrders(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := three(w)
		x, y := bubble.Acquire(t, t.Context(), mutex(t, c[0], "/x")), bubble.Acquire(t, t.Context(), mutex(t, c[1], "/y"))
		defer bubble.Release(t, x, y)
		waiter(t, w, mutex(t, c[0], "/y"), "/y", 2)
		giveUp := waiter(t, w, mutex(t, c[1], "/x"), "/x", 2)
		waiter(t, w, mutex(t, c[2], "/x"), "/x", 3)

		began := time.Now()
		d := wantCycles(t, w, c, []string{"A holds /x and waits for /y; B holds /y and waits for /x"}, nil)
		if took := time.Since(began); took < inspect.DefaultPause {
			t.Errorf("believed after %v", took)
		}
		step := d.Cycles[0].Steps[0]
		if string(step.Has.Data) != "owner of /x" || string(step.Waits.Data) != "owner of /y" || !step.Has.Since.Before(began) {
			t.Errorf("%+v", step)
		}
		giveUp()
		wantCycles(t, w, c, nil, nil)
	})
}

// A holder that waits for a mutex behind others, and three in a circle.
func TestThreeInACircle(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := three(w)
		paths := []string{"/deep/x", "/deep/er/y", "/z"}
		for i, p := range paths {
			defer bubble.Release(t, bubble.Acquire(t, t.Context(), mutex(t, c[i], p)))
		}
		wantCycles(t, w, c, nil, nil)
		for i := range paths {
			p := paths[(i+1)%3]
			waiter(t, w, mutex(t, c[i], p), p, 2)
		}
		wantCycles(t, w, c, []string{"B holds /deep/er/y and waits for /z; C holds /z and waits for /deep/x; A holds /deep/x and waits for /deep/er/y"}, nil)
	})
}

// Two deadlocks that share nobody are both found, and one that shares sessions
// with another is told once for each session that is in no other.
func TestSeveralCycles(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := append(three(w), w.ConnectNext())
		for i, p := range []string{"/a", "/b", "/c", "/d"} {
			defer bubble.Release(t, bubble.Acquire(t, t.Context(), mutex(t, c[i], p)))
		}
		waiter(t, w, mutex(t, c[0], "/b"), "/b", 2)
		waiter(t, w, mutex(t, c[1], "/a"), "/a", 2)
		waiter(t, w, mutex(t, c[2], "/d"), "/d", 2)
		waiter(t, w, mutex(t, c[3], "/c"), "/c", 2)
		wantCycles(t, w, c, []string{
			"A holds /a and waits for /b; B holds /b and waits for /a",
			"C holds /c and waits for /d; D holds /d and waits for /c",
		}, nil)
	})
}

// Readers and writers: a writer waits for each reader. A reader that waits
// behind a writer waits for the readers that the writer waits for.
func TestReadersInADeadlock(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := three(w)
		defer bubble.Release(t,
			bubble.Acquire(t, t.Context(), shared(t, c[0], "/x").Reader()),
			bubble.Acquire(t, t.Context(), mutex(t, c[2], "/y")))
		waiter(t, w, mutex(t, c[0], "/y"), "/y", 2)
		wantCycles(t, w, c, nil, nil)
		waiter(t, w, shared(t, c[2], "/x").Writer(), "/x", 2)
		wantCycles(t, w, c, []string{"A holds /x and waits for /y; C holds /y and waits for /x"}, nil)
	})
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := three(w)
		defer bubble.Release(t,
			bubble.Acquire(t, t.Context(), shared(t, c[0], "/x").Reader()),
			bubble.Acquire(t, t.Context(), mutex(t, c[2], "/y")))
		waiter(t, w, mutex(t, c[0], "/y"), "/y", 2)
		waiter(t, w, shared(t, c[1], "/x").Writer(), "/x", 2)
		wantCycles(t, w, c, nil, nil)
		waiter(t, w, shared(t, c[2], "/x").Reader(), "/x", 3)
		wantCycles(t, w, c, []string{"A holds /x and waits for /y; C holds /y and waits for /x; B stands ahead and waits for /x"}, nil)
	})
}

// A semaphore's waiter is in a deadlock only when no permit can be released.
func TestPermitsInADeadlock(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := three(w)
		defer bubble.Release(t,
			bubble.Acquire(t, t.Context(), permits(t, c[0], "/s", 2)),
			bubble.Acquire(t, t.Context(), permits(t, c[1], "/s", 2)),
			bubble.Acquire(t, t.Context(), mutex(t, c[2], "/y")))
		waiter(t, w, permits(t, c[2], "/s", 2), "/s/locks", 1)
		waiter(t, w, mutex(t, c[0], "/y"), "/y", 2)
		wantCycles(t, w, c, nil, nil) // B may release
		giveUp := waiter(t, w, mutex(t, c[1], "/y"), "/y", 3)
		d := wantCycles(t, w, c, []string{"A holds /s and waits for /y; C holds /y and waits for /s", "B holds /s and waits for /y; C holds /y and waits for /s"}, nil)
		if waits := d.Cycles[0].Steps[1]; waits.Need != 1 || len(waits.For) != 2 {
			t.Errorf("it waits for %d of %d permits", waits.Need, len(waits.For))
		}
		giveUp()
		wantCycles(t, w, c, nil, nil)
	})
}

// With a permit free the first waiter wants several, or is about to take it.
func TestRoomInASemaphore(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := three(w)
		defer bubble.Release(t,
			bubble.Acquire(t, t.Context(), permits(t, c[0], "/s", 2)),
			bubble.Acquire(t, t.Context(), mutex(t, c[1], "/y")))
		waiter(t, w, permits(t, c[1], "/s", 2).Permits(2), "/s/locks", 1)
		waiter(t, w, mutex(t, c[0], "/y"), "/y", 2)
		d := wantCycles(t, w, c, nil, []string{"A holds /s and waits for /y; B holds /y and waits for /s"})
		if d.Possible[0].Condition == "" {
			t.Error("no condition")
		}
	})
}

// What only looks like a deadlock.
func TestNoDeadlock(t *testing.T) {
	for _, test := range []struct {
		name  string
		setUp func(t *testing.T, w *bubble.World, c []*framework.Client)
	}{
		{"readers wait for nobody", func(t *testing.T, w *bubble.World, c []*framework.Client) {
			for i, p := range []string{"/x", "/y", "/x", "/y"} {
				read := bubble.Acquire(t, t.Context(), shared(t, c[i/2%2], p).Reader())
				t.Cleanup(func() { bubble.Release(t, read) })
			}
		}},
		{"a waiter is no holder", func(t *testing.T, w *bubble.World, c []*framework.Client) {
			x := bubble.Acquire(t, t.Context(), mutex(t, c[0], "/x"))
			y := bubble.Acquire(t, t.Context(), mutex(t, c[2], "/y"))
			t.Cleanup(func() { bubble.Release(t, x, y) })
			waiter(t, w, mutex(t, c[1], "/x"), "/x", 2) // B stands before C here,
			waiter(t, w, mutex(t, c[2], "/x"), "/x", 3)
			waiter(t, w, mutex(t, c[1], "/y"), "/y", 2) // and waits for C there, in another goroutine
		}},
		{"all wait for one who works", func(t *testing.T, w *bubble.World, c []*framework.Client) {
			x := bubble.Acquire(t, t.Context(), mutex(t, c[0], "/x"))
			y := bubble.Acquire(t, t.Context(), mutex(t, c[1], "/y"))
			t.Cleanup(func() { bubble.Release(t, x, y) })
			waiter(t, w, mutex(t, c[1], "/x"), "/x", 2)
			waiter(t, w, mutex(t, c[2], "/x"), "/x", 3)
			waiter(t, w, mutex(t, c[2], "/y"), "/y", 2)
		}},
		{"a downgraded read", func(t *testing.T, w *bubble.World, c []*framework.Client) {
			rw := shared(t, c[0], "/x")
			write := bubble.Acquire(t, t.Context(), rw.Writer())
			read := bubble.Acquire(t, write.Context(), rw.Reader())
			t.Cleanup(func() { bubble.Release(t, read, write) })
			waiter(t, w, shared(t, c[1], "/x").Reader(), "/x", 3)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := three(w)
				test.setUp(t, w, c)
				began := time.Now()
				wantCycles(t, w, c, nil, nil)
				if time.Since(began) >= inspect.DefaultPause {
					t.Error("it looked twice")
				}
			})
		})
	}
}

// What changes between the two looks is not believed, even if the second look
// shows a deadlock too.
func TestLooksTwice(t *testing.T) {
	const a, b = "/x/", "/y/"
	for _, test := range []struct {
		name   string
		change func(t *testing.T, c []*framework.Client)
	}{
		{"a holder releases", func(t *testing.T, c []*framework.Client) { remove(t, c[0], a+id(1)+"lock-0000000001") }},
		{"a waiter gives up", func(t *testing.T, c []*framework.Client) { remove(t, c[0], b+id(4)+"lock-0000000002") }},
		{"both lines move on, into another deadlock", func(t *testing.T, c []*framework.Client) {
			remove(t, c[0], a+id(1)+"lock-0000000001", b+id(3)+"lock-0000000001")
			plant(t, c[0], a+id(5)+"lock-0000000003")
			plant(t, c[1], b+id(6)+"lock-0000000003")
		}},
		{"a waiter comes again", func(t *testing.T, c []*framework.Client) {
			remove(t, c[0], b+id(4)+"lock-0000000002")
			plant(t, c[0], b+id(4)+"lock-0000000002")
		}},
		{"a lock is deleted", func(t *testing.T, c []*framework.Client) {
			remove(t, c[0], a+id(1)+"lock-0000000001", a+id(2)+"lock-0000000002", "/x")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := three(w)
				plant(t, c[0], a+id(1)+"lock-0000000001", b+id(4)+"lock-0000000002")
				plant(t, c[1], a+id(2)+"lock-0000000002", b+id(3)+"lock-0000000001")
				began := time.Now()
				changed := make(chan struct{})
				time.AfterFunc(inspect.DefaultPause/2, func() {
					defer close(changed)
					test.change(t, c)
				})
				wantCycles(t, w, c, nil, nil)
				<-changed
				if time.Since(began) < inspect.DefaultPause {
					t.Error("it looked once")
				}
			})
		})
	}
}

// remove deletes znodes.
func remove(t *testing.T, c *framework.Client, paths ...string) {
	t.Helper()
	for _, at := range paths {
		if err := c.Delete(t.Context(), at, -1); err != nil {
			t.Error(at, err)
		}
	}
}

// A session that waits for itself may be two goroutines. Two that hold for
// reading and both want to write are a deadlock: Curator does not refuse it.
func TestSelfAndUpgrade(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := three(w)
		plant(t, c[0], "/x/"+id(1)+"__READ__0000000001", "/x/"+id(2)+"__WRIT__0000000003")
		d := wantCycles(t, w, c, nil, []string{"A holds /x and waits for /x"})
		if !strings.Contains(d.Possible[0].Condition, "itself") {
			t.Errorf("condition %q", d.Possible[0].Condition)
		}
		plant(t, c[1], "/x/"+id(3)+"__READ__0000000002", "/x/"+id(4)+"__WRIT__0000000004")
		wantCycles(t, w, c, []string{"A holds /x and waits for /x; B holds /x and waits for /x"}, nil)
	})
}

// The rule of a kind is not known, unless the caller says it.
func TestKindsInADeadlock(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := three(w)
		even := func(mine, theirs string) bool { return mine == theirs }
		line := func(c *framework.Client, name string) recipes.Acquirer {
			return ensure(recipes.NewLine(c, "/k", "parity.v1", name, even))(t)
		}
		defer bubble.Release(t,
			bubble.Acquire(t, t.Context(), line(c[0], "odd")),
			bubble.Acquire(t, t.Context(), line(c[1], "even")),
			bubble.Acquire(t, t.Context(), mutex(t, c[1], "/y")),
			bubble.Acquire(t, t.Context(), mutex(t, c[2], "/z")))
		waiter(t, w, mutex(t, c[0], "/y"), "/y", 2)
		if d := wantCycles(t, w, c, nil, []string{"A holds /k and waits for /y; B holds /y and waits for /k"}); !strings.Contains(d.Possible[0].Condition, "kind") {
			t.Errorf("condition %q", d.Possible[0].Condition)
		}
		wantCycles(t, w, c, nil, nil, inspect.WithKind("parity.v1", even))
		waiter(t, w, line(c[2], "odd"), "/k", 3)
		waiter(t, w, mutex(t, c[0], "/z"), "/z", 2)
		wantCycles(t, w, c, []string{"A holds /k and waits for /z; C holds /z and waits for /k"}, nil, inspect.WithKind("parity.v1", even))
	})
}

// Znodes of Curator's, Kazoo's and go-zookeeper's take part. Curator's waiter
// for a permit has a znode among the permits already.
func TestOtherClientsInADeadlock(t *testing.T) {
	const hex = "2f1b6a5e9c0d4e4f8a390f4f6f2c1d77"
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := three(w)
		// Curator's semaphore, of one permit, whose limit is not recorded.
		plant(t, c[0], "/s/locks", "/s/leases/"+id(1)+"lease-0000000001")
		plant(t, c[1], "/s/locks/"+id(2)+"lock-0000000002", "/s/leases/"+id(2)+"lease-0000000002")
		wantCycles(t, w, c, nil, nil)
		// Kazoo's lock, and its semaphore of one permit.
		plant(t, c[1], "/k/"+hex+"__lock__0000000000", "/p=1", "/p/"+hex)
		plant(t, c[0], "/k/"+id(5)+"__lock__0000000001")
		wantCycles(t, w, c, []string{"B holds /k and waits for /s; A holds /s and waits for /k"}, nil)
		plant(t, c[2], "/p-__lock__/"+hex+"__lock__0000000007", "/g/_c_"+hex+"-lock-0000000000")
		wantCycles(t, w, c, []string{"B holds /k and waits for /s; A holds /s and waits for /k"}, nil)
	})
}

// What it costs, counted: nobody waits; somebody waits; a deadlock, looked at
// twice.
func TestCostOfDeadlocks(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := three(w)
		const idle = 20
		for i := range idle {
			defer bubble.Release(t, bubble.Acquire(t, t.Context(), mutex(t, c[0], fmt.Sprintf("/all/idle/%d", i))))
		}
		x, y := bubble.Acquire(t, t.Context(), mutex(t, c[0], "/all/x")), bubble.Acquire(t, t.Context(), mutex(t, c[1], "/all/y"))
		defer bubble.Release(t, x, y)
		look := func(reads, requests int) {
			t.Helper()
			watcher := w.ConnectNext()
			w.ResetRequests()
			d, err := inspect.FindDeadlocks(t.Context(), watcher, "/all")
			if err != nil {
				t.Fatal(err)
			}
			got := w.Requests()
			if sent := got[testutil.OpMultiRead]; d.Reads != reads || sent > requests {
				t.Errorf("%d reads, want %d: %v, want at most %d requests", d.Reads, reads, got, requests)
			}
		}
		const directories = idle + 4 // /all, /all/idle, /all/x, /all/y
		look(directories, 4)
		waiter(t, w, mutex(t, c[0], "/all/y"), "/all/y", 2)
		look(directories+2, 5)
		waiter(t, w, mutex(t, c[1], "/all/x"), "/all/x", 2)
		look(directories+2+4+4, 6)
	})
}

// FindDeadlocks ends with its context, also during the pause.
func TestDeadlocksCanceled(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := three(w)
		x, y := bubble.Acquire(t, t.Context(), mutex(t, c[0], "/x")), bubble.Acquire(t, t.Context(), mutex(t, c[1], "/y"))
		defer bubble.Release(t, x, y)
		waiter(t, w, mutex(t, c[0], "/y"), "/y", 2)
		waiter(t, w, mutex(t, c[1], "/x"), "/x", 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := inspect.FindDeadlocks(ctx, c[2], "/"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}
