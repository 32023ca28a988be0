package run

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// virtual is a subcommand that runs in virtual time, without a process.
type virtual struct {
	in        *cli.Process
	out, errs text
	ended     chan error
}

// text is what was printed.
type text struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *text) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *text) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// within makes a command use the ensemble in memory.
func within(w *bubble.World, command *lockCommand) *lockCommand {
	command.to.Servers, command.to.Dial, command.to.ConnectTimeout = w.Servers(), w.Dial, 10*time.Second
	return command
}

func startVirtual(run func(context.Context, *cli.Process) error) *virtual {
	v := &virtual{ended: make(chan error, 1)}
	v.in = &cli.Process{Stdin: strings.NewReader(""), Stdout: &v.out, Stderr: &v.errs, Signals: &cli.Signals{Arrived: make(chan os.Signal, 16)}}
	go func() { v.ended <- run(context.Background(), v.in) }() // ends with the subcommand, which a test ends
	return v
}

// lockVirtual starts zkr lock with these flags at /l, without a command.
func lockVirtual(t *testing.T, w *bubble.World, flags ...string) *virtual {
	t.Helper()
	command := within(w, parsed(t, flags...))
	return startVirtual(func(ctx context.Context, in *cli.Process) error {
		return command.run(ctx, in, func(_ context.Context, c *framework.Client, path string) (recipes.Acquirer, error) {
			return locks.NewMutex(c, path, recipes.WithData(command.data()))
		})
	})
}

// end waits until the subcommand has ended, and returns its exit code and
// error.
func (v *virtual) end(t *testing.T) (int, error) {
	t.Helper()
	err := bubble.Await(t, "zkr ends", v.ended)
	var end *cli.Exit
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &end):
		return end.Code, err
	default:
		return cli.ExitUsage, err
	}
}

// prints waits until the text matches.
func (b *text) prints(t *testing.T, pattern string) {
	t.Helper()
	bubble.AwaitTrue(t, "it prints "+pattern, func() bool { return regexp.MustCompile(pattern).MatchString(b.String()) })
}
