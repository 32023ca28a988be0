package serve

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/internal/doctor"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func newDoctor(to *cli.Ensemble) *cobra.Command {
	e := examination{to: to}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "doctor [flags]",
		Short:                 "Ask each server whether it keeps the promises that locks need",
		Long: `Asks each address of --servers, as the other commands would use it: with the same
credentials, --tls and --sasl flags, and for sessions of --session-timeout. A line for
each question says ok, note or FAILS, and what was seen. The lines below it say what
was promised, and what to do. The questions, and what a good answer promises:

` + promises(false) + `
With --slow, which takes up to three session timeouts and two minutes more:

` + promises(true) + `
The other questions take at most 30 seconds. It works below a new directory,
/zkr-doctor-..., which it deletes at the end, and closes its sessions, even if it is
interrupted. It exits with 115 if a promise does not hold, and with 113 if no server
gives a session. Notes do not change the exit code.`,
		Example: `  zkr doctor
  zkr doctor --servers zk1,zk2,zk3/app --session-timeout 5s --slow
  zkr doctor --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usage("%q: doctor takes no arguments", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.to.CatchSignals().EndWhile(context.Background(), func(ctx context.Context) error {
				return e.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	cmd.Flags().BoolVar(&e.slow, "slow", false, "also ask what needs a session timeout or more")
	cmd.Flags().BoolVar(&e.json, "json", false, "print one JSON object a line")
	return cmd
}

// promises lists questions for the help.
func promises(slow bool) string {
	var out strings.Builder
	for _, each := range doctor.Describe(slow) {
		fmt.Fprintf(&out, "  %-11s  %s\n", each[0], each[1])
	}
	return out.String()
}

// examination is a run of zkr doctor.
type examination struct {
	to         *cli.Ensemble
	slow, json bool
}

func (e *examination) run(ctx context.Context, out, errs io.Writer) error {
	opts, err := e.to.Options()
	if err != nil {
		return err
	}
	d, err := doctor.New(e.to.Servers, e.slow, opts...)
	if err != nil {
		return cli.Usage("%w", err)
	}
	print, answers := printAnswer, 0
	if e.json {
		print = func(w io.Writer, a doctor.Answer) error { return cli.JSONLine(w, a) }
	}
	var unwritten error
	r := d.Examine(ctx, func(a doctor.Answer) {
		answers++
		if unwritten == nil {
			unwritten = print(out, a)
		}
	})
	if r.Left != nil {
		fmt.Fprintf(errs, "zkr: something may be left: %s\n", cli.Plain(r.Left))
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case unwritten != nil:
		return cli.Failed(unwritten)
	case r.Reached == 0:
		return &cli.Exit{Code: cli.ExitNoEnsemble, Err: fmt.Errorf("no server at %s gives a session", e.to.Servers)}
	case len(r.Fails) > 0:
		return &cli.Exit{Code: cli.ExitBroken, Err: fmt.Errorf("a promise does not hold: %s", strings.Join(r.Fails, ", "))}
	case !e.json:
		_, err = fmt.Fprintf(out, "\nall promises hold; addresses: %d, answers: %d, notes: %d\n", r.Addresses, answers, r.Notes)
	}
	return cli.FailedIf(err)
}

func printAnswer(out io.Writer, a doctor.Answer) error {
	text := fmt.Sprintf("%-5s  %s  %s: %s\n", a.Verdict, cli.Printable(a.Address), a.Question, cli.Printable(a.Seen))
	if a.Verdict != doctor.OK {
		text += fmt.Sprintf("       promise: %s\n       do: %s\n", a.Promise, a.Do)
	}
	_, err := io.WriteString(out, text)
	return err
}
