package counter_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Whichever request the ensemble refuses, the caller is told so. It can do
// without the list that follows a create, and the create of what is there.
func TestEachRequestRefused(t *testing.T) {
	bubble.Usual(t, bubble.Below, bubble.NoContainers, bubble.OneShot) // lists the requests
	defer random.None()()                                              // no addition removes old markers
	addOnce := func(n *counter.Counter) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := n.AddOnce(ctx, "id", 1)
			return err
		}
	}
	plain := func(n *counter.Counter) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := n.Add(ctx, 1)
			return err
		}
	}
	for name, tt := range map[string]struct {
		before   func(t *testing.T, w *bubble.World, n, other *counter.Counter)
		call     func(n *counter.Counter) func(context.Context) error
		survived []testutil.Op
		lost     bool // an answer
	}{
		"the first addition": {nil, plain, []testutil.Op{testutil.OpGetChildren2, testutil.OpGetChildren2}, false},
		"an addition":        {func(t *testing.T, _ *bubble.World, n, _ *counter.Counter) { add(t, n, 1, 1) }, plain, nil, false},
		"an addition after a while": {func(t *testing.T, _ *bubble.World, n, _ *counter.Counter) {
			add(t, n, 1, 1)
			time.Sleep(5 * time.Minute)
		}, plain, []testutil.Op{testutil.OpGetChildren2, testutil.OpGetChildren2}, false},
		"an addition after that of another": {func(t *testing.T, _ *bubble.World, n, other *counter.Counter) {
			add(t, n, 1, 1)
			add(t, other, 1, 2)
		}, plain, nil, false},
		"an addition whose answer is lost": {func(t *testing.T, w *bubble.World, n, _ *counter.Counter) {
			add(t, n, 1, 1)
			time.AfterFunc(time.Millisecond, func() { w.Once(testutil.OpMulti, "/", testutil.DropAfter()) })
		}, func(n *counter.Counter) func(context.Context) error {
			return func(ctx context.Context) error {
				time.Sleep(2 * time.Millisecond)
				return plain(n)(ctx)
			}
		}, nil, true},
		"the first one with an id": {nil, addOnce, nil, false},
		"one with an id":           {func(t *testing.T, _ *bubble.World, n, _ *counter.Counter) { add(t, n, 1, 1) }, addOnce, nil, false},
		"one with an id, again": {func(t *testing.T, _ *bubble.World, n, _ *counter.Counter) {
			must(t, addOnce(n)(t.Context()))
		}, addOnce, nil, false},
		"one with an id that cannot be made": {func(t *testing.T, _ *bubble.World, n, _ *counter.Counter) {
			must(t, addOnce(n)(t.Context()))
			must(t, n.Set(t.Context(), 1<<63-1))
			time.Sleep(2 * time.Minute) // the receipt is removed after one
		}, addOnce, nil, false},
		"the removal of old markers": {func(t *testing.T, _ *bubble.World, n, _ *counter.Counter) {
			must(t, addOnce(n)(t.Context()))
			time.Sleep(2 * time.Hour)
		}, func(n *counter.Counter) func(context.Context) error {
			return func(context.Context) error { return counter.RemoveOld(n, "id", time.Now()) }
		}, []testutil.Op{testutil.OpMultiRead}, false},
		"a look": {func(t *testing.T, _ *bubble.World, n, _ *counter.Counter) { add(t, n, 1, 1) }, func(n *counter.Counter) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := n.Get(ctx)
				return err
			}
		}, nil, false},
		"a change that is not made": {func(t *testing.T, _ *bubble.World, n, _ *counter.Counter) { add(t, n, 1, 1) }, func(n *counter.Counter) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := n.CompareAndSet(ctx, 7, 8)
				return err
			}
		}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			survived := bubble.EachRefused(t, func(t *testing.T, w *bubble.World) (*framework.Client, func(context.Context) error) {
				c := w.ConnectNext()
				n, other := newCounter(t, c, counter.WithMarkerAge(time.Hour)), newCounter(t, w.ConnectNext())
				if tt.before != nil {
					tt.before(t, w, n, other)
				}
				call := tt.call(n)
				return c, func(ctx context.Context) error {
					err := call(ctx)
					if framework.MaybeApplied(err) && !tt.lost {
						t.Errorf("it was refused, but may have been applied: %v", err)
					}
					return err
				}
			})
			if !slices.Equal(survived, tt.survived) {
				t.Errorf("refused without an error: %v, want %v", survived, tt.survived)
			}
		})
	}
}
