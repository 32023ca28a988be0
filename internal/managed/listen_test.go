package managed_test

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A listener that is slow, and one that panics, delay nobody else, and get
// every change in order. A known failure elsewhere: CURATOR-495.
func TestListenersDoNotHarmEachOther(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		quick := record(c)
		var slow, panicked []framework.State
		c.Listen(func(change framework.StateChange) {
			slow = append(slow, change.To)
			time.Sleep(10 * time.Second)
		})
		c.Listen(func(change framework.StateChange) {
			panicked = append(panicked, change.To)
			panic("a bug of the user's")
		})
		for range 100 {
			network.Drop()
			time.Sleep(3 * time.Second)
		}
		if n := len(quick.all()); n != 201 {
			t.Errorf("the quick one got %d changes, want 201", n)
		}
		must(t, c.Close())
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(slow) != 202 || len(panicked) != 202 {
			t.Errorf("%d and %d changes, want 202 each, CLOSED included", len(slow), len(panicked))
		}
		for i, s := range slow[1:] {
			want := []framework.State{framework.Suspended, framework.Connected}[i%2]
			if i == 200 {
				want = framework.Closed
			}
			if s != want {
				t.Fatalf("change %d is %v, want %v", i+1, s, want)
			}
		}
	})
}

// stop ends the calls. It may be called twice, and by the listener itself. A
// listener that begins after Close gets Closed.
func TestListenerStops(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		var calls atomic.Int32
		var stop func()
		ready := make(chan struct{})
		stop = c.Listen(func(framework.StateChange) {
			<-ready
			calls.Add(1)
			stop()
		})
		close(ready)
		synctest.Wait()
		stop()
		network.Drop()
		time.Sleep(3 * time.Second)
		if got := calls.Load(); got != 1 {
			t.Errorf("called %d times", got)
		}
		must(t, c.Close())
		late := record(c)
		if got := late.states(); got != "CLOSED " {
			t.Errorf("after Close a listener hears %q", got)
		}
	})
}

// State must return the new state before WaitConnected returns, and before a
// listener is called. A known failure elsewhere: CURATOR-218.
func TestStateIsSetBeforeAnybodyIsTold(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		network.Latency(time.Millisecond, time.Millisecond) // so that each state lasts until all have been told
		c.Listen(func(change framework.StateChange) {
			if s := c.State(); s != change.To {
				t.Errorf("told of %v in state %v", change.To, s)
			}
		})
		synctest.Wait()
		for range 50 {
			network.Drop()
			time.Sleep(time.Microsecond)
			must(t, c.WaitConnected(t.Context()))
			if s := c.State(); s != framework.Connected {
				t.Fatalf("WaitConnected returned in state %v", s)
			}
			time.Sleep(3 * time.Second)
		}
	})
}

// A listener that ends its goroutine, as t.FailNow does, gets every change too.
// It used to get none after the first, and those were kept for it until Close.
func TestListenerThatExitsMissesNothing(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		free := make(chan struct{})
		var states []framework.State
		c.Listen(func(change framework.StateChange) {
			<-free
			states = append(states, change.To)
			runtime.Goexit()
		})
		for range 2 {
			network.Drop()
			time.Sleep(3 * time.Second)
		}
		close(free)
		synctest.Wait()
		must(t, c.Close())
		synctest.Wait()
		want := []framework.State{
			framework.Connected, framework.Suspended, framework.Connected, framework.Suspended, framework.Connected, framework.Closed,
		}
		if !slices.Equal(states, want) {
			t.Errorf("got %v, want %v", states, want)
		}
	})
}

func TestAListenerStopsBehind(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		bubble.StoppedBehind(t, func(hear func()) func() { return c.Listen(func(framework.StateChange) { hear() }) }, func() {
			network.Drop()
			time.Sleep(time.Second)
		})
	})
}
