package cli

import (
	"context"
	"errors"
	"path"
	"strings"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
)

// CheckChroot returns an error if the chroot does not exist, or no server
// answers. Without a chroot nothing below it exists either, which looks like
// unused locks.
func CheckChroot(ctx context.Context, r inspect.Reader) error {
	_, _, err := r.Get(ctx, "/")
	if errors.Is(err, zk.ErrNoNode) || err != nil && !IsAnswered(err) {
		return err
	}
	return nil // any other answer is not about the chroot
}

// CheckTree returns an error if nobody may ever see what is at path: the chroot
// does not exist, or path may not be read. A cache waits for both.
func CheckTree(ctx context.Context, c *framework.Client, path string) error {
	if err := CheckChroot(ctx, c); err != nil {
		return err
	}
	if _, _, err := c.Get(ctx, path); !framework.Absent(err) {
		return err
	}
	return nil
}

// SafeHelp is a part of the help of commands that print names of znodes.
const SafeHelp = `Control characters in a name are printed as escapes.`

// Paths returns a check of a command's arguments: from least to most valid
// paths.
func Paths(least, most int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case least == 1 && most == 1 && len(args) != 1:
			return Usage("want one PATH, got %d", len(args))
		case len(args) < least:
			return Usage("no PATH")
		case len(args) > most:
			return Usage("want at most one PATH, got %d", len(args))
		}
		for _, path := range args {
			if err := framework.ValidatePath(path); err != nil {
				return Usage("%w", err)
			}
		}
		return nil
	}
}

// IsServers reports whether a path below a chroot is one of the servers' own
// znodes, which are no place for anything else.
func IsServers(chroot, at string) bool {
	full := path.Join("/", chroot, at)
	return full == "/zookeeper" || strings.HasPrefix(full, "/zookeeper/")
}

// OnZnodes runs the work of a subcommand for znodes with a connected client,
// until the work or a signal ends it.
func (e *Ensemble) OnZnodes(work func(context.Context, *framework.Client) error) error {
	return e.CatchSignals().EndWhile(context.Background(), func(ctx context.Context) error { return e.WithClient(ctx, work) })
}

// UntilInterrupted is OnZnodes for work that goes on until zkr is asked to end.
func (e *Ensemble) UntilInterrupted(work func(context.Context, *framework.Client) error) error {
	return e.CatchSignals().UntilSignal(context.Background(), func(ctx context.Context, began func()) error {
		return e.WithClient(ctx, func(ctx context.Context, c *framework.Client) error {
			began()
			return work(ctx, c)
		})
	})
}

func (e *Ensemble) WithClient(ctx context.Context, work func(context.Context, *framework.Client) error) error {
	client, err := e.Connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close() // all requests have been answered, or their errors are reported
	err = work(ctx, client)
	if framework.MaybeApplied(err) { // whatever the reason, a script must not take it for nothing done
		return Failed(err)
	}
	return requestFailed(err)
}

// requestFailed gives the error of a request its exit code.
func requestFailed(err error) error {
	var end *Exit
	switch {
	case err == nil:
		return nil
	case errors.As(err, &end):
		return end
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrConnectionClosed):
		return &Exit{ExitNoEnsemble, err}
	default:
		return Failed(err)
	}
}
