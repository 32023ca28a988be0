package managed

import (
	"slices"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/retry"
)

// The defaults are those that the doc comments of the options name.
func TestDefaults(t *testing.T) {
	cfg, err := Configure[func(*Config)]()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.SessionTimeout != 10*time.Second || cfg.margin(cfg.SessionTimeout) != time.Second || cfg.MaxRequest != 1048575 ||
		cfg.Proof != ProofSync || cfg.ErrorPolicy != ErrorPolicySession || !slices.Equal(cfg.ACL, zk.WorldACL(zk.PermAll)) {
		t.Errorf("%+v", cfg)
	}
	// retry.Exponential(50ms, 2s, 20): each pause is drawn evenly up to its
	// bound. A watch is retried with the same pauses, without end.
	for retries, policy := range map[int]retry.Policy{20: cfg.Retry, 25: ops.Endless} {
		longest := make([]time.Duration, 25)
		most := 0
		for range 1000 {
			again := policy()
			for i := range longest {
				pause := again.NextBackOff()
				if pause == backoff.Stop {
					break
				}
				most = max(most, i+1)
				longest[i] = max(longest[i], pause)
			}
		}
		if most != retries {
			t.Fatalf("%d retries, want %d", most, retries)
		}
		for i, got := range longest[:most] {
			want := min(50*time.Millisecond<<i, 2*time.Second)
			if got > want || got < want*9/10 {
				t.Errorf("pause %d is up to %v, want %v", i+1, got, want)
			}
		}
	}
}

// A server may shorten a session, or extend it, up to these bounds.
func TestTimeoutsThatAreAccepted(t *testing.T) {
	const ms, second, hour = time.Millisecond, time.Second, time.Hour
	for _, tt := range []struct {
		requested, granted time.Duration
		ok                 bool
	}{
		{second, 100 * ms, true},
		{second, 99 * ms, false},
		{50 * ms, 50 * ms, true},
		{50*ms + 1, 50 * ms, true}, // as it is sent
		{50 * ms, 49 * ms, false},
		{second, hour, true},
		{second, hour + ms, false},
		{2 * hour, 2 * hour, true},
		{2 * hour, 2*hour + ms, false},
	} {
		if err := (&Config{SessionTimeout: tt.requested}).accepts(tt.granted); (err == nil) != tt.ok {
			t.Errorf("%v requested, %v granted: %v", tt.requested, tt.granted, err)
		}
	}
	none, one, two := 0*second, second, 2*second
	for _, tt := range []struct {
		margin        *time.Duration
		timeout, want time.Duration
	}{{nil, 6 * second, 600 * ms}, {&none, 6 * second, 0}, {&one, 6 * second, second}, {&two, 3 * second, second}} {
		if got := (&Config{StopMargin: tt.margin}).margin(tt.timeout); got != tt.want {
			t.Errorf("margin %v at a timeout of %v: %v, want %v", orZero(tt.margin), tt.timeout, got, tt.want)
		}
	}
}
