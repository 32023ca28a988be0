package run

import (
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// parsed returns what zkr lock with these flags has before it connects.
func parsed(t *testing.T, flags ...string) *lockCommand {
	t.Helper()
	to := &cli.Ensemble{SessionTimeout: framework.DefaultSessionTimeout}
	c := &lockCommand{leaseCommand: leaseCommand{jobCommand: jobCommand{to: to}}}
	cmd := &cobra.Command{Use: "lock", Args: c.parse, RunE: func(*cobra.Command, []string) error { return nil }}
	c.addFlags(cmd)
	cmd.Flags().DurationVar(&to.SessionTimeout, "session-timeout", to.SessionTimeout, "")
	cmd.SetArgs(append(flags, "/l"))
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCappedSession: if the servers grant a shorter session, the grace and the
// stop margin fit into it. The lease lasts, after a wait in line and for long,
// with the longest grace as well. In virtual time.
func TestCappedSession(t *testing.T) {
	for _, test := range []struct {
		flags          []string
		granted, grace time.Duration
	}{
		{nil, 6 * time.Second, 600 * time.Millisecond},
		{[]string{"--grace", "2s"}, 6 * time.Second, 2 * time.Second},
		{[]string{"--grace", "3.3s"}, 10 * time.Second, 3300 * time.Millisecond},
	} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			w.Latency(time.Millisecond)
			holder, err := locks.NewMutex(w.Connect("holder"), "/l")
			if err != nil {
				t.Fatal(err)
			}
			held := bubble.Acquire(t, t.Context(), holder)
			command := within(w, parsed(t, test.flags...))
			c, err := command.connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if got := w.Session(c).Timeout(); got != test.granted || command.grace != test.grace || command.stopMargin() > got/3 || command.stopMargin() < test.grace {
				t.Errorf("%q: with a session of %v the grace is %v, and the stop margin %v", test.flags, got, command.grace, command.stopMargin())
			}
			if n := len(w.Sessions()); n != 2 {
				t.Errorf("%q: %d sessions", test.flags, n)
			}
			m, err := locks.NewMutex(c, "/l")
			if err != nil {
				t.Fatal(err)
			}
			granted := bubble.Acquiring(t.Context(), m)
			time.Sleep(5*time.Minute + 700*time.Millisecond)
			bubble.Release(t, held)
			lease := bubble.Granted(t, granted).Lease
			time.Sleep(5 * time.Minute)
			if !lease.Held() {
				t.Errorf("%q: %v", test.flags, lease.Err())
			}
			bubble.Release(t, lease)
		}, testutil.WithSessionTimeouts(2*time.Second, test.granted))
	}
}
