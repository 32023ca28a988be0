package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/ratelimit"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func newDemo(to *cli.Ensemble) *cobra.Command {
	return &cobra.Command{
		Use:   "demo [SCENE...]",
		Short: "Show the recipes on an embedded ensemble, with faults, and check the result",
		Long: `Starts an ensemble of three members inside this process and shows what happens when
four clients contend for a mutex, the leader is stopped, and the holder is cut off
until its session has expired. Short scenes follow with the read/write lock, the
semaphore and the election. With arguments it shows these scenes: mutex, rwlock,
semaphore, election, caches, counters, groups, services, barriers.

At the end it checks that there were never two holders, never a writer and
another client together, never too many permits taken, and never two leaders; that fencing
tokens only increased, that no client overtook another, that no work was lost, and
that nothing is left in the ensemble. The scenes without locks check that no cache
went back, that each addition counts once, that no instance is called after it has
withdrawn, and that rounds begin and end together. If a check fails it exits with 1.`,
		Example: `  zkr demo
  zkr demo caches counters`,
		ValidArgs: demoScenes,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				if !slices.Contains(demoScenes, name) {
					return cli.Usage("%q: the scenes are %s", name, strings.Join(demoScenes, ", "))
				}
			}
			return to.CatchSignals().EndWhile(cmd.Context(), func(ctx context.Context) error {
				ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("timed out: the demo did not end within a minute"))
				defer cancel()
				ensemble, err := newDemoEnsemble()
				if err != nil {
					return cli.Failed(err)
				}
				defer ensemble.Close()
				return cli.FailedIf(runDemo(ctx, cmd.OutOrStdout(), ensemble, args...))
			})
		},
	}
}

const demoRoot, demoWork = "/demo", 120 * time.Millisecond

const demoSession = 4 * time.Second // long enough that a machine which stops for 1.5 s keeps its sessions

// demoScenes are the names of the scenes: those of locks first, which are shown
// if none is named.
var demoScenes = []string{"mutex", "rwlock", "semaphore", "election", "caches", "counters", "groups", "services", "barriers"}

var demoClients = []string{"anna", "ben", "carl", "dora"}

func newDemoEnsemble(more ...testutil.Option) (*testutil.Embedded, error) {
	return testutil.New(append(more, testutil.WithMembers(3), testutil.WithTick(100*time.Millisecond),
		testutil.WithSessionTimeouts(demoSession, demoSession), testutil.WithContainerInterval(200*time.Millisecond))...)
}

type demo struct {
	began    time.Time
	ensemble *testutil.Embedded
	clients  map[string]*framework.Client
	timeline *log.Logger
}

// runDemo plays the named scenes on the ensemble, or those of locks, one after
// the other and with the same clients, and checks that nothing is left. The
// first error ends all of it, wherever it occurs.
func runDemo(ctx context.Context, out io.Writer, ensemble *testutil.Embedded, names ...string) error {
	if err := ensemble.WaitServing(ctx); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	d := &demo{timeline: log.New(out, "", 0), began: time.Now(), ensemble: ensemble, clients: map[string]*framework.Client{}}
	d.say("ensemble", "3 members serve, member %d leads; the session timeout is %v", ensemble.Leader(), demoSession)
	for _, name := range demoClients {
		c, err := framework.New(ensemble.Servers(), framework.WithDialer(ensemble.ClientNet(name).Dial), framework.WithSessionTimeout(demoSession))
		if err != nil {
			return err
		}
		defer c.Close() // if it is not closed below
		c.Listen(func(change framework.StateChange) {
			if news := connectionNews[[2]framework.State{change.From, change.To}]; news != "" {
				d.say(name, "%s", news)
			}
		})
		d.clients[name] = c
	}
	scenes := d.lineScenes()
	if len(names) > 0 {
		scenes = slices.DeleteFunc(append(scenes, d.stateScenes()...), func(s *scene) bool { return !slices.Contains(names, s.name) })
	}
	for _, s := range scenes {
		if ctx.Err() == nil { // no error so far
			d.perform(ctx, fail, s)
		}
	}
	for name, c := range d.clients {
		if err := c.Close(); err != nil {
			fail(fmt.Errorf("%s: close: %w", name, err))
		}
	}
	// The directories are containers: the ensemble removes them once they
	// are empty.
	if err := d.until(ctx, func() bool { return len(ensemble.Sessions()) == 0 && !ensemble.Exists(demoRoot) }); err != nil {
		return fmt.Errorf("the demo FAILED: %w\nleft in the ensemble: %d sessions, and the znodes\n%s", err, len(ensemble.Sessions()), ensemble.Tree())
	}
	for _, s := range scenes {
		d.say("check", s.promise+": ok", s.grants)
	}
	d.say("check", "nothing left behind: ok")
	return nil
}

// connectionNews is what a change of a client's state means, if that is worth
// telling.
var connectionNews = map[[2]framework.State]string{
	{framework.Connected, framework.Suspended}: "is disconnected",
	{framework.Suspended, framework.Connected}: "is connected again, with the same session",
	{framework.Suspended, framework.Lost}:      "has lost its session",
	{framework.Connected, framework.Lost}:      "has lost its session",
	{framework.Lost, framework.Connected}:      "is connected, with a new session",
}

// perform plays a scene to its end.
func (d *demo) perform(ctx context.Context, fail context.CancelCauseFunc, s *scene) {
	d.say("scene", "%s", s.title)
	all, ready := context.WithCancel(ctx)
	s.all, s.fail, s.uses = all.Done(), fail, map[string]int{}
	var clients sync.WaitGroup
	for _, name := range s.clients {
		clients.Go(func() {
			if err := s.play(ctx, s, name); err != nil {
				fail(fmt.Errorf("%s: %w", name, err))
			}
		})
		if s.capacity > 0 { // one after the other, so that the order in line is certain
			_ = d.until(ctx, func() bool { return slices.Contains(d.line(s), name) })
		}
	}
	_ = d.until(ctx, func() bool { inUse, _ := s.read(); return inUse == s.capacity })
	ready()
	clients.Wait()
	if s.capacity == 0 && ctx.Err() == nil {
		if err := d.finish(ctx, s); err != nil {
			fail(err)
		}
	}
}

// finish looks at the result of a scene without locks, and deletes what it has
// written.
func (d *demo) finish(ctx context.Context, s *scene) error {
	if s.end != nil {
		if err := s.end(ctx); err != nil {
			return err
		}
	}
	c := d.clients["anna"]
	for _, dir := range []string{s.dir, s.dir + "-once"} {
		if _, err := c.DeleteTree(ctx, dir); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	if err := c.Delete(ctx, demoRoot, -1); err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNotEmpty) {
		return err
	}
	return nil
}

// line returns the clients that have znodes in a scene's directories, in order.
// It asks the ensemble, not a client.
func (d *demo) line(s *scene) (clients []string) {
	number := func(child string) string { return child[strings.LastIndexByte(child, '-')+1:] }
	for _, dir := range inspect.Directories(s.dir) {
		children := d.ensemble.Children(dir)
		slices.SortFunc(children, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
		for _, child := range children {
			data, _ := d.ensemble.Data(dir + "/" + child)
			clients = append(clients, string(data))
		}
	}
	return clients
}

// until polls for a condition. It fails if ctx has ended, whatever holds then.
func (d *demo) until(ctx context.Context, condition func() bool) error {
	for ctx.Err() == nil && !condition() {
		_ = ratelimit.Sleep(ctx, 5*time.Millisecond)
	}
	return context.Cause(ctx)
}

// say prints a line of the timeline.
func (d *demo) say(who, format string, args ...any) {
	d.timeline.Printf("%7.3fs  %-8s  %s", time.Since(d.began).Seconds(), who, fmt.Sprintf(format, args...))
}
