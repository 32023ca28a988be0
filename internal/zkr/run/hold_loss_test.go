package run

import (
	"context"
	"errors"
	"io"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestHoldEndsBeforeTheNextGrant: if no server answers, zkr without a command
// ends by its grace before another client can be granted the lock: it does not
// wait for its session to be closed. In virtual time, so the instants are
// exact.
func TestHoldEndsBeforeTheNextGrant(t *testing.T) {
	for _, grace := range []time.Duration{0, 200 * time.Millisecond, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			hold, client, lease, e := heldInVirtualTime(t, grace)
			var deadline time.Time
			if err := e.Pause(0); err != nil {
				t.Fatal(err)
			}
			go func() { // ends with the lease
				<-lease.Lost()
				deadline = lease.Deadline()
			}()
			err := hold.until(client, lease, nil)
			err = hold.giveUp(lease, err)
			hold.close(client, lease)
			ended := time.Now()
			synctest.Wait()
			if left := deadline.Sub(ended); left < grace {
				t.Errorf("grace %v: zkr ends %v before another client can be granted the lock", grace, left)
			}
			var end *cli.Exit
			if !errors.As(err, &end) || end.Code != cli.ExitLost {
				t.Errorf("grace %v: %v", grace, err)
			}
			if err := e.Resume(0); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if now := time.Now(); now.Before(deadline) && len(e.Children("/a")) == 0 {
				t.Errorf("grace %v: the lock is free %v before the deadline", grace, deadline.Sub(now))
			}
		})
	}
}

// TestHoldLostClosesItsSession: after any other loss the session is closed, so
// that the rest of several locks does not wait for its end.
func TestHoldLostClosesItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold, client, lease, e := heldInVirtualTime(t, 0)
		if err := client.Delete(t.Context(), path.Join("/b", e.Children("/b")[0]), -1); err != nil {
			t.Fatal(err)
		}
		err := hold.until(client, lease, nil)
		hold.close(client, lease)
		if left := append(e.Children("/a"), e.Children("/b")...); !errors.Is(err, cli.ErrLost) || len(left) > 0 {
			t.Errorf("left in line: %q; %v", left, err)
		}
	})
}

// heldInVirtualTime returns what zkr lock /a /b has once it is granted them.
func heldInVirtualTime(t *testing.T, grace time.Duration) (*holding, *framework.Client, *recipes.Lease, *testutil.Embedded) {
	t.Helper()
	e := testutil.Start(t, testutil.InMemory())
	client, err := framework.New(e.Servers(), framework.WithDialer(e.Dial), framework.WithStopMargin(grace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // zkr has ended without it
	command := &lockCommand{leaseCommand: leaseCommand{jobCommand: jobCommand{to: &cli.Ensemble{}, in: &cli.Process{Stdout: io.Discard, Signals: &cli.Signals{}}, paths: []string{"/a", "/b"}}, grace: grace, lostCode: codeFlag{code: cli.ExitLost}}}
	both, err := command.acquirer(t.Context(), client, func(_ context.Context, c *framework.Client, path string) (recipes.Acquirer, error) {
		return locks.NewMutex(c, path)
	})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := both.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &holding{lockCommand: command}, client, lease, e
}
