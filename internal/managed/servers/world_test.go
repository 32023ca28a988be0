package servers

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// of returns servers that are called in this way. The client neither closes nor
// is told anything.
func of(cfg Config) *Servers {
	if cfg.Log = zap.NewNop(); cfg.Root == "" {
		cfg.Root = "/"
	}
	return New(cfg, nil, make(chan struct{}), make(chan struct{}))
}

// checkDials fails the test unless there were n dials, each within a second.
func checkDials(t *testing.T, limits []time.Duration, n int) {
	t.Helper()
	if len(limits) != n || slices.ContainsFunc(limits, func(d time.Duration) bool { return d != time.Second }) {
		t.Errorf("dialed within %v, want %d times", limits, n)
	}
}

// inVirtualTime runs a subtest in virtual time.
func inVirtualTime(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}
