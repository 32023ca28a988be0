package line_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// What a client costs the ensemble in quiet times. An idle one sends pings, and
// nothing that reaches the leader. One that waits looks once each session
// timeout at the znode that it waits for, and its own: a sync and two reads.
// One that holds sends two syncs each sixth of the timeout, however many locks
// it holds.
func TestRequestsInQuietTimes(t *testing.T) {
	bubble.Usual(t, bubble.ProofWrite) // the heartbeat is not a write
	timeouts := bubble.Few(60, 300)
	for _, tt := range []struct {
		name         string
		holds        int
		waits        bool
		syncs, looks float64 // in a session timeout
	}{
		{name: "idle"},
		{name: "waiting", waits: true, syncs: 1, looks: 2},
		{name: "holding one", holds: 1, syncs: 12},
		{name: "holding a hundred", holds: 100, syncs: 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				ours, other := w.Connect("ours"), w.Connect("other")
				var mu sync.Mutex
				counted := map[testutil.Op]int{}
				session, err := ours.Session()
				if err != nil {
					t.Fatal(err)
				}
				defer w.Control(func(r testutil.Request) testutil.Action {
					if r.Session == session.ID() {
						mu.Lock()
						counted[r.Op]++
						mu.Unlock()
					}
					return testutil.Pass()
				})()
				for i := range tt.holds {
					defer bubble.Release(t, bubble.Acquire(t, t.Context(), mutexAt(t, ours, fmt.Sprint(lockPath, i))))
				}
				if tt.waits {
					held := bubble.Acquire(t, t.Context(), mutexOf(t, other))
					next := bubble.Acquiring(t.Context(), mutexOf(t, ours))
					w.InLine(lockPath, 2)
					defer func() {
						bubble.Release(t, held)
						bubble.Release(t, bubble.Granted(t, next).Lease)
					}()
				}
				time.Sleep(bubble.Timeout)
				mu.Lock()
				clear(counted)
				mu.Unlock()
				time.Sleep(time.Duration(timeouts) * bubble.Timeout)
				mu.Lock()
				defer mu.Unlock()
				for op, want := range map[testutil.Op]float64{
					testutil.OpSync: tt.syncs, testutil.OpExists: tt.looks, testutil.OpPing: 3,
				} {
					if got := float64(counted[op]) / float64(timeouts); got < want*0.9 || got > want*1.1 {
						t.Errorf("%.2f %v in a session timeout, want about %v", got, op, want)
					}
					delete(counted, op)
				}
				if len(counted) > 0 {
					t.Errorf("other requests: %v", counted)
				}
			})
		})
	}
}

// A holder that may hand its znode off looks at the line four times in a
// session timeout, since an event can be lost. Where other children come and go
// it looks once per T/40 at most, and at once when a release waits for the
// look.
func TestLooksForContention(t *testing.T) {
	for name, tt := range map[string]struct {
		churn time.Duration // time between changes; 0: none
		looks int           // in a session timeout
	}{
		"quiet":                {0, 4},
		"rare changes":         {bubble.Timeout, 5},
		"changes all the time": {20 * time.Millisecond, 38},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				m, other := mutexOf(t, w.Connect("a"), recipes.WithHandoffs(1<<30)), w.Connect("b")
				l := bubble.Acquire(t, t.Context(), m)
				next := bubble.Acquiring(t.Context(), m)
				bubble.Pending(t, next)
				time.Sleep(bubble.Timeout)
				if tt.churn > 0 {
					ctx, stop := context.WithCancel(t.Context())
					defer stop()
					go func() {
						for ctx.Err() == nil {
							_, _ = other.Create(ctx, lockPath+"/unrelated", nil, 0)
							_ = other.Delete(ctx, lockPath+"/unrelated", -1)
							select {
							case <-time.After(tt.churn):
							case <-ctx.Done():
							}
						}
					}()
				}
				w.ResetRequests()
				timeouts := bubble.Few(5, 10)
				time.Sleep(time.Duration(timeouts) * bubble.Timeout)
				if n := w.Requests()[testutil.OpGetChildren2]; n < timeouts*tt.looks*9/10 || n > timeouts*tt.looks*11/10 {
					t.Errorf("%d looks in %d session timeouts, want %d in each", n, timeouts, tt.looks)
				}
				for range 5 {
					released := time.Now()
					bubble.Release(t, l)
					g := bubble.Granted(t, next)
					if took := g.At.Sub(released); took > 20*time.Millisecond || g.Lease.Path() != l.Path() {
						t.Errorf("granted %s after %v, released %s", g.Lease.Path(), took, l.Path())
					}
					l, next = g.Lease, bubble.Acquiring(t.Context(), m)
					bubble.Pending(t, next)
				}
				bubble.Release(t, l)
				bubble.Release(t, bubble.Granted(t, next).Lease)
			})
		})
	}
}
