package line_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// What a client costs the ensemble in quiet times. An idle one sends pings, and
// nothing that reaches the leader. One that waits looks once each session
// timeout at the znode that it waits for: a sync and a read. One that holds
// sends two syncs each sixth of the timeout, however many locks it holds.
func TestRequestsInQuietTimes(t *testing.T) {
	const timeouts = 300
	for _, tt := range []struct {
		name         string
		holds        int
		waits        bool
		syncs, looks float64 // in a session timeout
	}{
		{name: "idle"},
		{name: "waiting", waits: true, syncs: 1, looks: 1},
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
				time.Sleep(timeouts * bubble.Timeout)
				mu.Lock()
				defer mu.Unlock()
				for op, want := range map[testutil.Op]float64{
					testutil.OpSync: tt.syncs, testutil.OpExists: tt.looks, testutil.OpPing: 3,
				} {
					if got := float64(counted[op]) / timeouts; got < want*0.9 || got > want*1.1 {
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
