package barrier_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Whichever request the ensemble refuses, the caller is told so. It can do
// without the watch, its removal, the list that follows a create, and the
// delete of a znode that is tried again.
func TestEachRequestRefused(t *testing.T) {
	bubble.Usual(t, bubble.OneShot) // needs multiRead, or recursive watches
	const list, unwatch, watch = testutil.OpGetChildren2, testutil.OpRemoveWatches, testutil.OpAddWatch
	type call = func(context.Context) error
	enter := func(d *barrier.Double) call {
		return func(ctx context.Context) error {
			_, err := d.Enter(ctx)
			return err
		}
	}
	for name, tt := range map[string]struct {
		prepare  func(t *testing.T, w *bubble.World, c *framework.Client) call
		survived []testutil.Op
	}{
		"the first Enter": {func(t *testing.T, _ *bubble.World, c *framework.Client) call {
			return enter(double(t, c, 1))
		}, []testutil.Op{list, list, unwatch, unwatch, watch, watch}},
		"the last Enter of two": {func(t *testing.T, w *bubble.World, c *framework.Client) call {
			pending(t, entering(t.Context(), double(t, w.ConnectNext(), 2)))
			return enter(double(t, c, 2))
		}, []testutil.Op{list, unwatch, watch}},
		"the first Enter of two": {func(t *testing.T, w *bubble.World, c *framework.Client) call {
			first, second := double(t, c, 2), double(t, w.ConnectNext(), 2)
			return func(ctx context.Context) error {
				time.AfterFunc(time.Second, func() { _, _ = second.Enter(ctx) })
				during, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				return enter(first)(during)
			}
		}, []testutil.Op{list, list, unwatch, unwatch, watch, watch}},
		"an Enter that is late": {func(t *testing.T, w *bubble.World, c *framework.Client) call {
			enterTogether(t, double(t, w.ConnectNext(), 1))
			return enter(double(t, c, 1))
		}, []testutil.Op{unwatch, watch}},
		"an Enter after a crash": {func(t *testing.T, w *bubble.World, c *framework.Client) call {
			makeReady(t, w.ConnectNext())
			return enter(double(t, c, 1))
		}, []testutil.Op{unwatch, watch}},
		"an Enter while ready is made": {func(t *testing.T, w *bubble.World, c *framework.Client) call {
			d, admin := double(t, c, 1), w.ConnectNext()
			must(t, c.MakeContainerPath(t.Context(), path))
			return func(ctx context.Context) error {
				held := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.Delay(time.Second))
				defer w.Control(held.Control)()
				during, cancel := context.WithCancel(ctx)
				defer cancel()
				go func() {
					select {
					case <-held.Hit():
						makeReady(t, admin)
					case <-during.Done():
					}
				}()
				return enter(d)(during)
			}
		}, []testutil.Op{testutil.OpDelete, list, unwatch, unwatch, watch, watch}},
		"the first Leave": {func(t *testing.T, w *bubble.World, c *framework.Client) call {
			inside := enterTogether(t, double(t, w.ConnectNext(), 2), double(t, c, 2))
			leaving(t.Context(), inside[0])
			return inside[1].Leave
		}, nil},
		"the last Leave": {func(t *testing.T, w *bubble.World, c *framework.Client) call {
			inside := enterTogether(t, double(t, c, 2), double(t, w.ConnectNext(), 2))
			leaving(t.Context(), inside[1])
			return inside[0].Leave
		}, nil},
		"a Leave after a crash": {func(t *testing.T, w *bubble.World, c *framework.Client) call {
			other := w.ConnectNext()
			inside := enterTogether(t, double(t, other, 2), double(t, c, 2))
			return func(ctx context.Context) error {
				time.AfterFunc(time.Second, func() { w.Expire(other) })
				return inside[1].Leave(ctx)
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			survived := bubble.EachRefused(t, func(t *testing.T, w *bubble.World) (*framework.Client, call) {
				c := w.ConnectNext()
				call := tt.prepare(t, w, c)
				time.Sleep(time.Second) // the watch of an Enter is removed behind it
				return c, call
			})
			// The second of two who leave in one instant finds no ready, and
			// asks whether there is a chroot.
			survived = slices.DeleteFunc(survived, func(op testutil.Op) bool { return op == testutil.OpExists })
			if !slices.Equal(survived, tt.survived) {
				t.Errorf("refused without an error: %v, want %v", survived, tt.survived)
			}
		})
	}
}

// makeReady makes the ready that a crash leaves.
func makeReady(t *testing.T, c *framework.Client) {
	t.Helper()
	must(t, c.MakeContainerPath(t.Context(), path))
	_, err := c.Create(t.Context(), ready, nil, zk.FlagPersistent)
	must(t, err)
}
