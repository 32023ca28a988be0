package semaphore_test

import (
	"context"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Whichever request the ensemble refuses, the caller is told so. It can do
// without the reads behind a create. Of the first permit there are two creates:
// the directory of the first one is missing.
func TestEachRequestRefused(t *testing.T) {
	bubble.Usual(t, bubble.Below, bubble.OneShot) // lists the requests
	behind := []testutil.Op{testutil.OpMultiRead, testutil.OpMultiRead, testutil.OpMultiRead, testutil.OpMultiRead}
	for name, tt := range map[string]struct {
		before   func(t *testing.T, w *bubble.World)
		survived []testutil.Op
	}{
		"the first permit": {func(*testing.T, *bubble.World) {}, slices.Concat(behind, behind)},
		"the second permit": {func(t *testing.T, w *bubble.World) {
			bubble.Acquire(t, t.Context(), newSemaphore(t, w.ConnectNext(), 2))
		}, behind},
		"a permit beside what may be Kazoo's": {func(t *testing.T, w *bubble.World) {
			c := w.ConnectNext()
			if err := c.MakeContainerPath(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Create(t.Context(), path+"/0123456789abcdef0123456789abcdef", nil, zk.FlagEphemeral); err != nil {
				t.Fatal(err)
			}
		}, slices.Concat(behind, behind)},
	} {
		t.Run(name, func(t *testing.T) {
			survived := bubble.EachRefused(t, func(t *testing.T, w *bubble.World) (*framework.Client, func(context.Context) error) {
				tt.before(t, w)
				c := w.ConnectNext()
				knowsMultiRead(t, c)
				s := newSemaphore(t, c, 2)
				return c, func(ctx context.Context) error {
					_, err := s.Acquire(ctx)
					return err
				}
			})
			if !slices.Equal(survived, tt.survived) {
				t.Errorf("refused without an error: %v, want %v", survived, tt.survived)
			}
		})
	}
}

// Nobody is told of free permits after a read that was refused.
func TestAvailableRefused(t *testing.T) {
	survived := bubble.EachRefused(t, func(t *testing.T, w *bubble.World) (*framework.Client, func(context.Context) error) {
		bubble.Acquire(t, t.Context(), newSemaphore(t, w.ConnectNext(), 2))
		c := w.ConnectNext()
		s := newSemaphore(t, c, 2)
		return c, func(ctx context.Context) error {
			_, err := s.Available(ctx)
			return err
		}
	})
	if len(survived) > 0 {
		t.Errorf("refused without an error: %v", survived)
	}
}
