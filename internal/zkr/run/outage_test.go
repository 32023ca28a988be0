package run

import (
	"context"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/internal/zkr/live"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestSignalsWhileNoServerAnswers: what no server answers does not keep zkr
// from ending after its command: with elect neither the release of the last
// term, nor that of a term which had ended before the signal. That took a
// session timeout.
func TestSignalsWhileNoServerAnswers(t *testing.T) {
	const timeout = time.Minute
	for name, test := range map[string]struct {
		start func(*lockCommand) *virtual
		ended bool // the command has ended before the signal
		code  int
	}{
		"elect":                {start: electVirtual, code: 3},
		"elect, between terms": {start: electVirtual, ended: true},
		"lock": {code: 3, start: func(command *lockCommand) *virtual {
			return startVirtual(func(ctx context.Context, in *cli.Process) error {
				return command.run(ctx, in, func(_ context.Context, c *framework.Client, path string) (recipes.Acquirer, error) {
					return locks.NewMutex(c, path)
				})
			})
		}},
		"join": {code: 3, start: func(command *lockCommand) *virtual {
			j := &joinCommand{jobCommand: command.jobCommand, layout: cli.GroupLayout(), group: "/l", id: "a"}
			return startVirtual(j.run)
		}},
		"barrier": {code: 3, start: func(command *lockCommand) *virtual {
			b := &barrierCommand{jobCommand: command.jobCommand, members: 1}
			return startVirtual(b.run)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				var c commands
				jobs := make(chan *job, 1)
				command := within(w, parsed(t, "--session-timeout", timeout.String()))
				command.command = []string{"cmd"}
				command.start = func(program string, args, env []string) (*job, error) {
					j, err := c.of("a")(program, args, env)
					jobs <- j
					return j, err
				}
				v := test.start(command)
				j := bubble.Await(t, "the command runs", jobs)
				time.Sleep(timeout)
				if err := w.Pause(0); err != nil {
					t.Fatal(err)
				}
				if test.ended {
					c.end(j, 0)
					time.Sleep(time.Second)
				}
				began := time.Now()
				v.in.Signals.Arrived <- syscall.SIGTERM
				if code, err := v.end(t); code != test.code {
					t.Errorf("exit code %d: %v", code, err)
				}
				if took, limit := time.Since(began), afterSignal(t, name); took > limit {
					t.Errorf("it has ended %v after the signal, and not within %v", took, limit)
				}
				if err := w.Resume(0); err != nil {
					t.Fatal(err)
				}
			}, testutil.WithSessionTimeouts(time.Second, timeout))
		})
	}
}

// afterSignal returns how long a command takes after a signal, as the table in
// docs/command-line.md says.
func afterSignal(t *testing.T, name string) time.Duration {
	t.Helper()
	verb, _, _ := strings.Cut(name, ",")
	row := regexp.MustCompile("(?m)^(?:`[^|]*, )?`" + verb + "`[^|\n]*\\|.*\\| (\\S+)$").FindStringSubmatch(zkrtest.Page(t, "command-line.md"))
	if row == nil {
		t.Fatalf("the page has no row for %s", verb)
	}
	limit, err := time.ParseDuration(row[1])
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

func electVirtual(command *lockCommand) *virtual {
	elect := &electCommand{leaseCommand: command.leaseCommand, id: "a", layout: live.ElectionLayout()}
	return startVirtual(elect.run)
}
