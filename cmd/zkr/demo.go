package main

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
	"github.com/zkrecipes/zkrecipes/testutil"
)

func newDemo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "A tour on an embedded ensemble, faults included, that checks itself",
		Long: `Starts an ensemble of three members inside this process, lets four clients contend for one mutex with
work to do inside, stops the leader, cuts the holder off from the ensemble until its session has expired, and tells
what happens. Short scenes follow with the read/write lock, the semaphore and the election. In the end it checks that
there were never two holders, no writer beside anybody, never more permits out than there are, and never two leaders; that
fencing tokens only grew, that nobody was passed, that no work was lost, and that nothing is left in the ensemble. It exits
with 1 if any of that does not hold.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return catchSignals().endWhile(func(ctx context.Context) error {
				ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the demo did not end within a minute"))
				defer cancel()
				d := &demo{out: cmd.OutOrStdout(), began: time.Now()}
				return failedIf(d.run(ctx))
			})
		},
	}
}

const (
	demoRoot    = "/demo"
	demoSession = 4 * time.Second // a machine that stands still for a second and a half loses none
	demoWork    = 120 * time.Millisecond
)

var demoClients = []string{"anna", "ben", "carl", "dora"}

type demo struct {
	out      io.Writer
	began    time.Time
	ensemble *testutil.Embedded
	ledger   ledger
	chores   sync.WaitGroup // what goes on beside the clients

	mu      sync.Mutex // guards what follows, and the output
	tenures []tenure   // of the mutex
	stays   []stay     // under the read/write lock
	shares  []stay     // of the semaphore
	terms   []tenure   // of the election
	faults  []error
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
	d.say("ensemble", "3 members serve, member %d leads; sessions last %v", d.ensemble.Leader(), demoSession)

	for _, scene := range []func(context.Context) error{d.mutex, d.readersAndWriters, d.semaphore, d.election} {
		if err := scene(ctx); err != nil {
			d.fault(err)
		}
		if d.wrong() {
			break
		}
	}
	d.chores.Wait()
	return d.check(ctx)
}

// join connects a client for a scene.
func (d *demo) join(name string) (*framework.Client, error) {
	c, err := framework.New(d.ensemble.Servers(), framework.WithDialer(d.ensemble.ClientNet(name).Dial), framework.WithSessionTimeout(demoSession))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c.Listen(func(change framework.StateChange) { d.tell(name, change) })
	return c, nil
}

// leave disconnects it.
func (d *demo) leave(name string, c *framework.Client) {
	if err := c.Close(); err != nil {
		d.fault(fmt.Errorf("%s: close: %w", name, err))
	}
}

// check is the end of the tour: what must be true of all that happened, and of what is left.
func (d *demo) check(ctx context.Context) error {
	d.mu.Lock()
	faults := slices.Clone(d.faults)
	if len(faults) == 0 { // otherwise not all has happened that should
		faults = slices.Concat(audit(d.tenures, d.ledger.read()), auditSides(d.stays), auditShares(d.shares, demoPermits), auditTerms(d.terms, demoTerms))
	}
	grants, stays, shares, terms := len(d.tenures), len(d.stays), len(d.shares), len(d.terms)
	d.mu.Unlock()
	if len(faults) == 0 {
		// The directories are containers: the ensemble removes them once they are empty.
		_ = d.until(ctx, func() bool { return len(d.ensemble.Sessions()) == 0 && !d.ensemble.Exists(demoRoot) })
		if sessions := d.ensemble.Sessions(); len(sessions) > 0 {
			faults = append(faults, fmt.Errorf("%d sessions are left", len(sessions)))
		}
		if d.ensemble.Exists(demoRoot) {
			faults = append(faults, fmt.Errorf("the tree is not empty:\n%s", d.ensemble.Tree()))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("the demo FAILED:\n%w", errors.Join(faults...))
	}
	d.say("check", "mutex: %d grants, never two holders, tokens strictly increasing, no posting lost: ok", grants)
	d.say("check", "read/write lock: %d grants, readers together, no writer beside anybody, nobody passed: ok", stays)
	d.say("check", "semaphore: %d grants, all %d permits out at times and never more: ok", shares, demoPermits)
	d.say("check", "election: %d terms, never two leaders, in the order of the line, tokens strictly increasing: ok", terms)
	d.say("check", "nothing left behind: ok")
	return nil
}

// tell tells of a client's connection, as far as it is news.
func (d *demo) tell(name string, change framework.StateChange) {
	switch {
	case change.From == change.To: // the state at the beginning
	case change.Reconnected():
		d.say(name, "is connected again, in the same session")
	case change.To == framework.Connected && change.From == framework.Lost:
		d.say(name, "is connected, in a new session")
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

func (d *demo) wrong() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.faults) > 0
}

// stands reports whether a client stands in a directory, by the ensemble's own knowledge.
func (d *demo) stands(name, dir string) bool {
	return slices.ContainsFunc(d.ensemble.Children(dir), func(child string) bool {
		data, ok := d.ensemble.Data(dir + "/" + child)
		return ok && string(data) == name
	})
}

// until waits for something that the ensemble shows and nobody announces, as long as nothing is wrong.
func (d *demo) until(ctx context.Context, condition func() bool) error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !condition() {
		if d.wrong() {
			return errors.New("what should have come next did not")
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
