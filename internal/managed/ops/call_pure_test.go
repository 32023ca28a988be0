package ops

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/standing"
)

// A call is left when its caller's context or the session ends. Whoever is told
// then gets the result, and only then.
func TestDetach(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	endless := context.Background()
	for name, tt := range map[string]struct {
		ctx              context.Context
		cancels          bool          // meanwhile
		over, overBehind bool          // the session: meanwhile, and just before the result
		took             time.Duration // until it returns; 0: nothing is called
		detached         bool
	}{
		"a result":                        {t.Context(), false, false, false, time.Second, false},
		"for a context that cannot end":   {endless, false, false, false, time.Second, false},
		"it has ended":                    {ended, false, false, false, 0, false},
		"it ends":                         {t.Context(), true, false, false, 500 * ms, true},
		"the session ends":                {t.Context(), false, true, false, 500 * ms, true},
		"the session ends before":         {t.Context(), false, false, true, time.Second, true},
		"before the end of what does not": {endless, false, false, true, time.Second, true},
	} {
		for _, wanted := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				s := sessionFor(6*time.Second, standing.Silent, nil)
				ctx := tt.ctx
				if ctx != endless && ctx != ended {
					var cancel context.CancelFunc
					ctx, cancel = context.WithCancel(context.Background())
					defer cancel()
					if tt.cancels {
						time.AfterFunc(500*ms, cancel)
					}
				}
				if tt.over {
					time.AfterFunc(500*ms, func() { s.End(zkerr.SessionLost) })
				}
				called, lates := false, 0
				late := func(v int, err error) {
					if lates++; v != 3 || err != nil {
						t.Errorf("%s: late %d, %v", name, v, err)
					}
				}
				if !wanted {
					late = nil
				}
				began := time.Now()
				v, err := Detach(ctx, s, func() (int, error) {
					called = true
					if time.Sleep(time.Second); tt.overBehind {
						s.End(zkerr.SessionLost)
					}
					return 3, nil
				}, late)
				took := time.Since(began)
				time.Sleep(time.Minute)
				synctest.Wait()
				calls := tt.took > 0
				fails := tt.detached || !calls
				if (v == 3) == fails || (err != nil) != fails || IsDetached(err) != tt.detached || took != tt.took || called != calls || (lates == 1) != (tt.detached && wanted) {
					t.Errorf("%s: %d, %v after %v, called %t, %d late", name, v, err, took, called, lates)
				}
			})
		}
	}
}

// Without a session nothing explains the loss of a connection.
func TestExplainWithoutASession(t *testing.T) {
	if err := (*Session)(nil).explain(zk.ErrConnectionClosed, time.Now()); !errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zkerr.Malformed) {
		t.Error(err)
	}
}
