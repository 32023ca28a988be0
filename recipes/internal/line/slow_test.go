package line_test

import (
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A contender is first in line, and every request of it is answered, but too
// slowly to prove its session. It kept all others waiting for good: its pings
// kept its session alive. Now it leaves after three session timeouts, with an
// error that names the figures, and the next contender is granted. This does
// not depend on its retry policy.
func TestAContenderThatIsTooSlowLeaves(t *testing.T) {
	bubble.Usual(t, bubble.ShortTimeout) // has times of its own
	for name, tt := range map[string]struct {
		timeout, margin time.Duration
		opts            []framework.Option
		slow            func(w *bubble.World, network *bubble.Net)
		want            string
	}{
		"slow network": {
			timeout: bubble.Timeout, margin: bubble.Margin,
			slow: func(_ *bubble.World, network *bubble.Net) {
				network.Latency(bubble.Timeout/8, bubble.Timeout/8)
			},
			want: "a round trip to the leader takes 2.5s; with a session timeout of 10s and a stop margin of 1s it may take",
		},
		// The settings of the cuts of internal/test/acceptance.
		"slow writes": {
			timeout: 5 * time.Second, margin: 1500 * time.Millisecond,
			opts: []framework.Option{framework.WithProof(framework.ProofWrite)},
			slow: func(_ *bubble.World, network *bubble.Net) {
				for _, op := range []testutil.Op{testutil.OpCreate, testutil.OpDelete, testutil.OpMulti} {
					network.Control(testutil.NewFault(testutil.Match{Op: op, Times: -1}, testutil.Delay(900*time.Millisecond)).Control)
				}
			},
			want: "a round trip to the leader takes 900ms; with a session timeout of 5s and a stop margin of 1.5s it may take",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				opts := append([]framework.Option{
					framework.WithSessionTimeout(tt.timeout), framework.WithStopMargin(tt.margin),
					framework.WithRetry(retry.Forever(100 * time.Millisecond)),
				}, tt.opts...)
				var queues [3]*locks.Mutex
				for i, client := range []string{"holder", "slow", "next"} {
					queues[i] = mutexOf(t, w.Connect(client, opts...))
				}
				held := bubble.Acquire(t, t.Context(), queues[0])
				tt.slow(w, w.ClientNet("slow"))
				slow := bubble.Acquiring(t.Context(), queues[1])
				w.InLine(lockPath, 2)
				next := bubble.Acquiring(t.Context(), queues[2])
				w.InLine(lockPath, 3)
				time.Sleep(3 * tt.timeout) // it waits, and is idle
				bubble.Release(t, held)
				began := time.Now()
				err := bubble.Await(t, "the end of the slow contender's wait", slow).Err
				bubble.WantErr(t, err, framework.ErrUnproven)
				if err == nil || !strings.Contains(err.Error(), "locks: acquire "+lockPath+": session not proven alive in ") || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %q, want %q in it", err, tt.want)
				}
				lease := bubble.Granted(t, next).Lease
				if took, most := time.Since(began), 4*tt.timeout; took > most {
					t.Errorf("the next contender was granted after %v, want at most %v", took, most)
				}
				if line := w.InLine(lockPath, 1); lockPath+"/"+line[0] != lease.Path() {
					t.Errorf("in line: %v, want only %s", line, lease.Path())
				}
				time.Sleep(2 * tt.timeout)
				if !lease.Held() {
					t.Errorf("the next contender's lease was lost: %v", lease.Err())
				}
				bubble.Release(t, lease)
				w.NothingLeft(lockPath)
			})
		})
	}
}
