package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func newDemo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show the recipes on an embedded ensemble, with faults, and check the result",
		Long: `Starts an ensemble of three members inside this process and shows what happens when
four clients contend for a mutex, the leader is stopped, and the holder is cut off
until its session has expired. Short scenes follow with the read/write lock, the
semaphore and the election.

At the end it checks that there were never two holders, never a writer beside
another client, never too many permits taken, and never two leaders; that fencing
tokens only increased, that no client overtook another, that no work was lost, and
that nothing is left in the ensemble. If a check fails it exits with 1.`,
		Example: `  zkr demo`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.CatchSignals().EndWhile(func(ctx context.Context) error {
				ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("timed out: the demo did not end within a minute"))
				defer cancel()
				d := &demo{out: cmd.OutOrStdout(), began: time.Now()}
				return cli.FailedIf(d.run(ctx))
			})
		},
	}
}

const (
	demoRoot    = "/demo"
	demoSession = 4 * time.Second // long enough that a machine which stops for 1.5 s keeps its sessions
	demoWork    = 120 * time.Millisecond
)

var demoClients = []string{"anna", "ben", "carl", "dora"}

type demo struct {
	out        io.Writer
	began      time.Time
	ensemble   *testutil.Embedded
	account    account
	background sync.WaitGroup // goroutines beside the clients

	mu          sync.Mutex    // guards what follows, and the output
	mutexGrants []grantRecord // of the mutex
	stays       []stay        // under the read/write lock
	shares      []stay        // of the semaphore
	terms       []grantRecord // of the election
	faults      []error
}

func (d *demo) run(ctx context.Context) error {
	var err error
	d.ensemble, err = testutil.New(testutil.WithMembers(3), testutil.WithTick(100*time.Millisecond),
		testutil.WithSessionTimeouts(demoSession, demoSession), testutil.WithContainerInterval(200*time.Millisecond))
	if err != nil {
		return err
	}
	defer d.ensemble.Close()
	if err := d.ensemble.WaitServing(ctx); err != nil {
		return err
	}
	d.say("ensemble", "3 members serve, member %d leads; the session timeout is %v", d.ensemble.Leader(), demoSession)

	for _, scene := range []func(context.Context) error{d.mutex, d.readersAndWriters, d.semaphore, d.election} {
		if err := scene(ctx); err != nil {
			d.fault(err)
		}
		if d.hasFaults() {
			break
		}
	}
	d.background.Wait()
	return d.check(ctx)
}

// join connects a client for a scene.
func (d *demo) join(name string) (*framework.Client, error) {
	c, err := framework.New(d.ensemble.Servers(), framework.WithDialer(d.ensemble.ClientNet(name).Dial), framework.WithSessionTimeout(demoSession))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c.Listen(func(change framework.StateChange) { d.reportState(name, change) })
	return c, nil
}

// leave closes the client.
func (d *demo) leave(name string, c *framework.Client) {
	if err := c.Close(); err != nil {
		d.fault(fmt.Errorf("%s: close: %w", name, err))
	}
}

// check checks everything that has happened, and that nothing is left behind.
func (d *demo) check(ctx context.Context) error {
	d.mu.Lock()
	faults := slices.Clone(d.faults)
	if len(faults) == 0 { // otherwise the tour is incomplete
		faults = slices.Concat(checkMutex(d.mutexGrants, d.account.read()), checkReadersAndWriters(d.stays), checkPermits(d.shares, demoPermits), checkTerms(d.terms, demoTerms))
	}
	grants, stays, shares, terms := len(d.mutexGrants), len(d.stays), len(d.shares), len(d.terms)
	d.mu.Unlock()
	if len(faults) == 0 {
		// The directories are containers: the ensemble removes them
		// once they are empty.
		_ = d.until(ctx, func() bool { return len(d.ensemble.Sessions()) == 0 && !d.ensemble.Exists(demoRoot) })
		if sessions := d.ensemble.Sessions(); len(sessions) > 0 {
			faults = append(faults, fmt.Errorf("%d sessions are left", len(sessions)))
		}
		if d.ensemble.Exists(demoRoot) {
			faults = append(faults, fmt.Errorf("znodes are left:\n%s", d.ensemble.Tree()))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("the demo FAILED:\n%w", errors.Join(faults...))
	}
	d.say("check", "mutex: %d grants, never two holders, tokens strictly increasing, no posting lost: ok", grants)
	d.say("check", "read/write lock: %d grants, readers together, writers alone, first come first served: ok", stays)
	d.say("check", "semaphore: %d grants, at most %d permits taken at once: ok", shares, demoPermits)
	d.say("check", "election: %d terms, never two leaders, first come first served, tokens strictly increasing: ok", terms)
	d.say("check", "nothing left behind: ok")
	return nil
}

// reportState prints a change of a client's connection.
func (d *demo) reportState(name string, change framework.StateChange) {
	switch {
	case change.From == change.To: // the initial state
	case change.Reconnected():
		d.say(name, "is connected again, with the same session")
	case change.To == framework.Connected && change.From == framework.Lost:
		d.say(name, "is connected, with a new session")
	case change.To == framework.Suspended:
		d.say(name, "is disconnected")
	case change.To == framework.Lost:
		d.say(name, "has lost its session")
	}
}

func (d *demo) fault(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append(d.faults, err)
}

func (d *demo) hasFaults() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.faults) > 0
}

// inLine reports whether a client has a znode in a directory. It asks the
// ensemble, not a client.
func (d *demo) inLine(name, dir string) bool {
	return slices.ContainsFunc(d.ensemble.Children(dir), func(child string) bool {
		data, ok := d.ensemble.Data(dir + "/" + child)
		return ok && string(data) == name
	})
}

// until polls for a condition and fails when something else has gone wrong.
func (d *demo) until(ctx context.Context, condition func() bool) error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !condition() {
		if d.hasFaults() {
			return errors.New("the next step did not happen")
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-poll.C:
		}
	}
	return nil
}

// say prints a line of the timeline.
func (d *demo) say(who, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, "%7.3fs  %-8s  %s\n", time.Since(d.began).Seconds(), who, fmt.Sprintf(format, args...))
}
