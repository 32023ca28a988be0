package line

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A grant that backs off looks again after the pause, and at once when somebody
// waits for a look or it ends.
func TestBackOff(t *testing.T) {
	for name, tt := range map[string]struct {
		hurry, over bool
		took        time.Duration
	}{
		"the pause":      {false, false, time.Second},
		"somebody waits": {true, false, 0},
		"it ends":        {false, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &grant{contention: contention{hurry: make(chan struct{}, 1)}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.hurry {
					g.contention.hurry <- struct{}{}
				}
				if tt.over {
					cancel()
				}
				began := time.Now()
				if g.backOff(ctx, time.Second); time.Since(began) != tt.took {
					t.Errorf("%v, want %v", time.Since(began), tt.took)
				}
			})
		})
	}
}
