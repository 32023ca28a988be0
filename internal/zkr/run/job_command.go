package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// jobCommand is what the subcommands that run a command share, whether it needs
// a lease or not.
type jobCommand struct {
	to     *cli.Ensemble
	start  func(program string, args, env []string) (*job, error)
	acl    cli.ACLFlag
	guards guards
	nests  bool // several zkrs that run each other can hold the same path

	in      *cli.Process
	paths   []string
	command []string // none: zkr holds what it has until it is told to end
	program string   // the path of the executable
}

// addFlags adds the flags of all subcommands that run a command.
func (h *jobCommand) addFlags(cmd *cobra.Command) {
	h.addGuardian(cmd)
	cmd.Flags().Var(&h.acl, "acl", "who may use the znodes that zkr creates, scheme:id:permissions; may be repeated (default: everybody)")
}

// check checks the paths, and the command if there is one.
func (h *jobCommand) check(paths, command []string) error {
	h.paths, h.command = paths, command
	for _, path := range paths {
		if err := framework.ValidatePath(path); err != nil {
			return cli.Usage("%w", err)
		}
		if cli.IsServers(h.to.Chroot(), path) {
			return cli.Usage("%s: /zookeeper is for the servers' own znodes", path)
		}
	}
	if h.to.SessionTimeout <= 0 {
		return cli.Usage("--session-timeout %v: must be more than 0", h.to.SessionTimeout)
	}
	if len(command) == 0 {
		return nil
	}
	program, err := exec.LookPath(command[0])
	if err != nil {
		return cannotRun(err)
	}
	h.program = program
	return nil
}

// cannotRun returns the exit code that a shell uses.
func cannotRun(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return &cli.Exit{Code: cli.ExitNotFound, Err: err}
	}
	return &cli.Exit{Code: cli.ExitCannotRun, Err: err}
}

// connect returns a connected client, unless this zkr would wait for one that
// runs it. It says on stderr if it takes a while to connect.
func (h *jobCommand) connect(ctx context.Context, more ...framework.Option) (*framework.Client, error) {
	slow := time.AfterFunc(cli.AWhile, func() {
		cli.Say(h.in.Stderr, time.Second, fmt.Sprintf("zkr: %s: no server of %s answers yet\n", escape.Text(h.path()), escape.Text(h.to.Servers)))
	})
	defer slow.Stop()
	if len(h.acl) > 0 {
		more = append(more, framework.WithACL(h.acl...))
	}
	guardians, err := h.guardians()
	if err != nil {
		return nil, err
	}
	client, err := h.to.Connect(ctx, append(more, guardians...)...)
	if err != nil {
		return nil, err
	}
	if err := h.checkNested(ctx, client); err != nil {
		client.Close() // nothing was done yet, so its error does not matter
		return nil, err
	}
	return client, nil
}

// connectOrEnd is connect, which a signal may end. It may return a client with
// an error: then a signal has come just after it had connected.
func (h *jobCommand) connectOrEnd(ctx context.Context) (client *framework.Client, err error) {
	err = h.in.Signals.EndWhile(ctx, func(ctx context.Context) (err error) {
		client, err = h.connect(ctx)
		return err
	})
	return client, err
}

// name returns the command's name, for messages.
func (h *jobCommand) name() string {
	if len(h.command) == 0 {
		return "zkr"
	}
	return filepath.Base(h.command[0])
}

// path returns the path, or the paths with commas, for messages.
func (h *jobCommand) path() string { return strings.Join(h.paths, ", ") }

// cannotEnd is what zkr says about a command that runs as another user.
func (h *jobCommand) cannotEnd(err error) string {
	return fmt.Sprintf("zkr: %s: cannot signal %s: %v\n", h.path(), h.name(), err)
}

// endedBy says whether a signal ends a zkr that runs no command. The error is
// nil if what p prints first has told a script that zkr holds something.
func (h *jobCommand) endedBy(sig os.Signal, p *cli.Printer) (ends bool, err error) {
	n, ok := sig.(syscall.Signal)
	switch {
	case cli.AsksToEnd(sig) && p.HasPrinted():
		return true, nil
	case ok && !cli.Harmless(n):
		return true, &cli.Exit{Code: cli.ExitSignal + int(n), Err: fmt.Errorf("%s: ended by signal: %v", h.path(), sig)}
	}
	return false, nil
}
