package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func newDemo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "A tour on an embedded ensemble, faults included, that checks itself",
		Long: `Starts an ensemble of three members inside this process, lets four clients contend for one mutex with
work to do inside, stops the leader, cuts the holder off from the ensemble until its session has expired, and tells
what happens. In the end it checks that there were never two holders, that fencing tokens only grew, that no work was
lost, and that nothing is left in the ensemble. It exits with 1 if any of that does not hold.`,
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
	demoPath    = "/demo/ledger"
	demoRounds  = 3 // of each client
	demoSession = 2 * time.Second
	demoWork    = 120 * time.Millisecond

	// The grants in which something goes wrong.
	leaderStops = 3
	holderIsCut = 7
)

var demoClients = []string{"anna", "ben", "carl", "dora"}

type demo struct {
	out      io.Writer
	began    time.Time
	ensemble *testutil.Embedded
	ledger   ledger
	chores   sync.WaitGroup // what goes on beside the clients

	mu      sync.Mutex // guards what follows, and the output
	tenures []tenure
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

	var clients sync.WaitGroup
	for _, name := range demoClients {
		clients.Go(func() {
			if err := d.client(ctx, name); err != nil {
				d.fault(fmt.Errorf("%s: %w", name, err))
			}
		})
		// One after the other, so that the order in line is told by who came first, and not by luck.
		if err := d.until(ctx, func() bool { return d.inLine(name) }); err != nil {
			break // the clients say why
		}
	}
	clients.Wait()
	d.chores.Wait()
	return d.check(ctx)
}

// client works in rounds until all of its work is done, whatever happens meanwhile.
func (d *demo) client(ctx context.Context, name string) error {
	network := d.ensemble.Client(name)
	c, err := framework.New(d.ensemble.Servers(), framework.WithDialer(network.Dial), framework.WithSessionTimeout(demoSession))
	if err != nil {
		return err
	}
	defer func() {
		if err := c.Close(); err != nil {
			d.fault(fmt.Errorf("%s: close: %w", name, err))
		}
	}()
	defer c.Listen(func(change framework.StateChange) { d.tell(name, change) })()
	mutex, err := locks.NewMutex(c, demoPath, locks.WithData([]byte(name)))
	if err != nil {
		return err
	}
	for round := 1; round <= demoRounds; {
		d.say(name, "waits in line")
		lease, err := mutex.Acquire(ctx)
		if err != nil {
			return err
		}
		n := d.grant(ctx, name, lease, mutex)
		lost := d.work(ctx, n, c, network, lease)
		if lost == nil {
			d.say(name, "gives it up")
		}
		d.end(n, lost == nil)
		switch err := lease.Release(ctx); {
		case lost != nil && !errors.Is(err, recipes.ErrNotHeld):
			return fmt.Errorf("a lost lease was released as if it were held: %v", err) //nolint:errorlint // it is none
		case lost == nil && err != nil && !errors.Is(err, recipes.ErrNotHeld): // what was posted was posted while it was held
			return err
		case lost != nil && n == holderIsCut:
			if err := d.aftermath(ctx, name, n, network, lease); err != nil {
				return err
			}
		case lost == nil:
			round++
		}
	}
	d.say(name, "has done its work and goes")
	return nil
}

// work posts to the ledger. It returns why it stopped where the lease was lost; nothing was posted then.
func (d *demo) work(ctx context.Context, n int, c *framework.Client, network *testutil.ClientNet, lease *recipes.Lease) error {
	balance := d.ledger.read()
	switch n {
	case leaderStops:
		another := make(chan struct{})
		d.chores.Go(func() { d.replaceLeader(ctx, another) })
		select {
		case <-another:
		case <-lease.Context().Done():
		}
		// The session lives through it, and with it the lease; the work waits only so that the timeline shows it.
		_ = c.WaitConnected(lease.Context())
	case holderIsCut:
		d.say("network", "the holder is cut off from every member")
		network.Cut()
		<-lease.Lost() // nothing else would end it; work that is done in steps would look at lease.Context()
	}
	select {
	case <-time.After(demoWork):
	case <-lease.Context().Done():
		d.say(d.tenure(n).client, "LOST it and stops working: %v", lease.Err())
		return lease.Err()
	}
	if err := d.ledger.write(balance+1, lease.Token()); err != nil {
		d.fault(fmt.Errorf("the holder's write was refused: %w", err))
	}
	return nil
}

// replaceLeader stops the leading member, and starts it again once another leads.
func (d *demo) replaceLeader(ctx context.Context, another chan<- struct{}) {
	old := d.ensemble.Leader()
	d.say("ensemble", "the leader, member %d, is stopped", old)
	err := d.ensemble.Stop(old)
	if err == nil {
		err = d.until(ctx, func() bool { l := d.ensemble.Leader(); return l >= 0 && l != old })
	}
	if err == nil {
		d.say("ensemble", "member %d leads", d.ensemble.Leader())
	}
	close(another)
	if err == nil {
		err = d.ensemble.Restart(old)
	}
	if err == nil {
		err = d.ensemble.WaitServing(ctx)
	}
	if err != nil {
		d.fault(fmt.Errorf("the leader's replacement: %w", err))
		return
	}
	d.say("ensemble", "member %d is back", old)
}

// aftermath follows a lost tenure: once another holds, the one who lost it tries to write all the same, as a program does that
// was asleep and has not heard of its loss.
func (d *demo) aftermath(ctx context.Context, name string, n int, network *testutil.ClientNet, lease *recipes.Lease) error {
	if err := d.until(ctx, func() bool { return d.grants() > n+1 }); err != nil { // one of them has posted since
		return err
	}
	err := d.ledger.write(0, lease.Token())
	if !errors.Is(err, errFenced) {
		return fmt.Errorf("a write with the token of a lost lease got through (%v)", err) //nolint:errorlint // it is none
	}
	d.say(name, "writes with its old token: %v", err)
	network.Heal()
	d.say("network", "%s can reach the ensemble again", name)
	return nil
}

// check is the end of the tour: what must be true of all that happened, and of what is left.
func (d *demo) check(ctx context.Context) error {
	d.mu.Lock()
	faults := append(slices.Clone(d.faults), audit(d.tenures, d.ledger.read())...)
	grants := len(d.tenures)
	d.mu.Unlock()
	if len(faults) == 0 {
		// The directories are containers: the ensemble removes them once they are empty.
		_ = d.until(ctx, func() bool { return len(d.ensemble.Sessions()) == 0 && !d.ensemble.Exists("/demo") })
		if sessions := d.ensemble.Sessions(); len(sessions) > 0 {
			faults = append(faults, fmt.Errorf("%d sessions are left", len(sessions)))
		}
		if d.ensemble.Exists("/demo") {
			faults = append(faults, fmt.Errorf("the tree is not empty:\n%s", d.ensemble.Tree()))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("the demo FAILED:\n%w", errors.Join(faults...))
	}
	d.say("check", "%d grants, never two holders, tokens strictly increasing, no posting lost, nothing left behind: ok", grants)
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

// grant records a grant and returns its number, from 1.
func (d *demo) grant(ctx context.Context, name string, lease *recipes.Lease, mutex *locks.Mutex) int {
	d.mu.Lock()
	d.tenures = append(d.tenures, tenure{client: name, token: lease.Token(), from: time.Now()})
	n := len(d.tenures)
	d.mu.Unlock()
	behind := "nobody waits"
	if others, err := mutex.Participants(ctx); err == nil {
		var names []string
		for _, p := range others {
			if !p.Holder {
				names = append(names, string(p.Data))
			}
		}
		if len(names) > 0 {
			behind = "behind it: " + strings.Join(names, ", ")
		}
	}
	d.say(name, "HOLDS it, token %v; %s", lease.Token(), behind)
	return n
}

func (d *demo) end(n int, posted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tenures[n-1].to, d.tenures[n-1].posted = time.Now(), posted
}

func (d *demo) tenure(n int) tenure {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tenures[n-1]
}

func (d *demo) grants() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.tenures)
}

func (d *demo) fault(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append(d.faults, err)
}

// inLine reports whether a client has come so far, by the ensemble's own knowledge, or whether something is wrong anyway.
func (d *demo) inLine(name string) bool {
	d.mu.Lock()
	had := slices.ContainsFunc(d.tenures, func(t tenure) bool { return t.client == name })
	wrong := len(d.faults) > 0
	d.mu.Unlock()
	if had || wrong {
		return true
	}
	for _, child := range d.ensemble.Children(demoPath) {
		if data, ok := d.ensemble.Data(demoPath + "/" + child); ok && string(data) == name {
			return true
		}
	}
	return false
}

// until waits for something that the ensemble shows and nobody announces.
func (d *demo) until(ctx context.Context, condition func() bool) error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !condition() {
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
