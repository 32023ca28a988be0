package counter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Whoever leaves, at any time, fails no other caller, whether that came before
// or after; also where there is no server for a while, and where others write
// all the time, so that the additions wait for the mutex.
func TestACallerThatLeavesFailsNoOther(t *testing.T) {
	for _, scene := range []string{"quiet", "cut", "contended"} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, first %v", scene, first), func(t *testing.T) {
				for left, after := true, 5*time.Millisecond; left && after < 2*bubble.Timeout; after += max(10*time.Millisecond, after/8) {
					bubble.Run(t, func(t *testing.T, w *bubble.World) {
						left = leaves(t, w, scene, first, after)
					})
				}
			})
		}
	}
}

// leaves has one caller leave after a while, and reports whether it did so
// before its call was over.
func leaves(t *testing.T, w *bubble.World, scene string, first bool, after time.Duration) (left bool) {
	n, other := newCounter(t, w.Connect("ours")), newCounter(t, w.ConnectNext())
	add(t, other, 1, 1)
	defer w.Control(func(testutil.Request) testutil.Action { return testutil.Delay(10 * time.Millisecond) })()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	stays, leaves := make(chan error, 1), make(chan error, 1)
	begin := func(ctx context.Context, returned chan<- error) {
		go func() {
			_, err := n.Add(ctx, 1)
			returned <- err
		}()
		synctest.Wait()
	}
	stop, over := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	switch scene {
	case "cut":
		w.ClientNet("ours").Cut()
		time.AfterFunc(bubble.Timeout/2, w.ClientNet("ours").Heal)
	case "contended":
		writing.Go(func() {
			for stop.Err() == nil {
				_, _ = other.Add(stop, 1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	if first {
		begin(ctx, leaves)
	}
	begin(t.Context(), stays)
	if !first {
		begin(ctx, leaves)
	}
	err := bubble.Await(t, "who leaves", leaves)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after %v, who leaves: %v", after, err)
	}
	if other := bubble.Await(t, "who stays", stays); other != nil {
		t.Errorf("after %v, who stays: %v", after, other)
	}
	over()
	writing.Wait()
	return err != nil
}
