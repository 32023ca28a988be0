package run

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/guard"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// guards are the guardians of a subcommand: a child, a daemon, both or none.
type guards struct {
	value  string // of --guardian, or of its variable
	byHand bool   // the flag was given
	sought bool
	child  *guard.Ward
	daemon *guard.Ward
}

// guardVariable is the variable for --guardian, which programs read as well.
var guardVariable = cli.VariableOf("guardian")

// Values of --guardian that are no sockets.
const (
	guardChild = "child"
	guardOff   = "off"
)

// addGuardian adds the flag to a subcommand, whose RunE is set.
func (h *jobCommand) addGuardian(cmd *cobra.Command) {
	cmd.Flags().StringVar(&h.guards.value, "guardian", "",
		"who closes the session, and kills CMD's process group before, if zkr dies: child, off, or a SOCKET of zkr guard in addition to the child; by default child with CMD on Linux [a SOCKET: $"+guardVariable+"]")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// A script that has started a zkr without CMD hears of its end, and stops
		// then. So only the flag lets the next in at once.
		h.guards.byHand = cmd.Flags().Changed("guardian")
		// The variable is for programs, and names a socket at most: it must not
		// take away the child, which alone kills the command's group.
		if socket := os.Getenv(guardVariable); !h.guards.byHand && len(h.command) > 0 && socket != guardOff {
			h.guards.value = socket
		}
		defer h.guards.end()
		return run(cmd, args)
	}
}

// guardians returns the options of the guardians. It finds them once: what they
// know is of the process, not of a client. Only a child that was asked for by
// the flag must be there.
func (h *jobCommand) guardians() (opts []framework.Option, err error) {
	g := &h.guards
	if !g.sought && h.in != nil && h.in.Own && g.value != guardOff {
		g.sought = true
		demanded := g.byHand && g.value == guardChild
		if demanded || len(h.command) > 0 && os.Getpid() != 1 { // process 1 of a container takes its child with it
			if g.child, err = h.startChild(demanded); err != nil && demanded {
				return nil, cli.Failed(fmt.Errorf("--guardian child: %w", err))
			} else if err != nil && h.to.Verbose() {
				h.sayGuardian(err)
			}
		}
		if g.value != "" && g.value != guardChild {
			if g.daemon, err = guard.Dial(g.value); err != nil {
				h.sayGuardian(err)
			} else {
				h.sayForeign()
				go h.sayLost(g.daemon) // ends with the guardian
			}
		}
	}
	for _, w := range g.all() {
		opts = append(opts, framework.WithGuardian(w))
	}
	return opts, nil
}

func (h *jobCommand) sayGuardian(err error) {
	cli.Say(h.in.Stderr, time.Second, fmt.Sprintf("zkr: if zkr is killed, its session ends by its timeout: %s\n", cli.Plain(err)))
}

// sayForeign says that a daemon cannot know when the command's group is gone.
// The child, if there is one, knows.
func (h *jobCommand) sayForeign() {
	if g := &h.guards; len(h.command) > 0 && g.child == nil && g.daemon.Status().Foreign {
		h.sayGuardian(fmt.Errorf("guardian %s: it is in another namespace of processes, and cannot know when the command has ended "+
			"(in a pod, set shareProcessNamespace)", g.value))
	}
}

// sayLost says that a guardian is lost, unless zkr itself has given it up.
func (h *jobCommand) sayLost(w *guard.Ward) {
	<-w.Lost()
	if err := w.Err(); !errors.Is(err, guard.ErrClosed) {
		h.sayGuardian(fmt.Errorf("guardian %s: %w", h.guards.value, err))
	}
}

// startChild starts a guardian of this process. It waits for its answer only if
// the guardian is demanded: what is told is there when it comes to read it.
func (h *jobCommand) startChild(demanded bool) (*guard.Ward, error) {
	if !guard.Supported() {
		return nil, errors.New("guardians need Linux")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args, err := h.to.GuardArgs()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{"guard", "--fd", "3"}, args...)...)
	cmd.Env, cmd.Dir = cli.GuardVariables(os.Environ()), "/"
	var log func(string)
	if h.to.Verbose() {
		log = func(text string) { go cli.Say(h.in.Stderr, time.Second, "zkr: guardian: "+text+"\n") }
	}
	w, err := guard.Start(cmd, log)
	if err == nil && demanded {
		err = w.Welcomed()
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (g *guards) all() (wards []*guard.Ward) {
	for _, w := range []*guard.Ward{g.child, g.daemon} {
		if w != nil {
			wards = append(wards, w)
		}
	}
	return wards
}

// giveUp gives the guardians up, although a session is there: it is to end by
// its timeout.
func (g *guards) giveUp() {
	for _, w := range g.all() {
		_ = w.Close()
	}
}

// end gives the guardians up, unless a session may still be there: then they
// close it when this process has ended.
func (g *guards) end() {
	for _, w := range g.all() {
		w.CloseIfIdle()
	}
}

// startGuarded starts a command, and tells the guardians of its group before
// anything can wait for it.
func (h *jobCommand) startGuarded(program string, args, env []string) (*job, error) {
	wards := h.guards.all()
	if len(wards) == 0 {
		return h.start(program, args, env)
	}
	var told []guard.Command
	for _, w := range wards {
		told = append(told, w.Starting())
	}
	j, err := startTold(program, args, env, func(pid int) {
		for _, each := range told {
			each.Started(pid)
		}
	})
	ended := func() {
		for _, each := range told {
			each.Ended()
		}
	}
	if err != nil {
		ended()
		return nil, err
	}
	go func() { // ends with the command
		<-j.ended
		ended()
	}()
	return j, nil
}

// tellDeadline tells the child until when the lease is proven: if this process
// is stopped, the child kills the command then.
func (h *leaseCommand) tellDeadline(lease *recipes.Lease) {
	if lease.Err() == nil {
		h.guards.until(lease.Deadline().Add(-h.to.Slack()))
	}
}

// until tells the child when it is to kill the command.
func (g *guards) until(deadline time.Time) {
	if g.child != nil {
		g.child.Until(deadline)
	}
}
