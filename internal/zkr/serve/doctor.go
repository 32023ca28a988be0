package serve

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/internal/doctor"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/guard"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func newDoctor(to *cli.Ensemble) *cobra.Command {
	e := examination{to: to}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "doctor [flags]",
		Short:                 "Ask each server whether it keeps the promises that locks need",
		Long: `Asks each address of --servers, as the other commands would use it: with the same
credentials, --tls and --sasl flags, and for sessions of --session-timeout. For each
answer that is not ok, a line says note or FAILS, and what was seen. The lines below it
say what was promised, and what to do. The last line has the counts. With --all the
answers that are ok have a line, too; --json prints all. The questions, and what a good
answer promises:

` + promises(false) + `
With --slow, which takes up to three session timeouts and two minutes more:

` + promises(true) + `
If ZKR_GUARDIAN is a socket, zkr guard is asked there what it guards.

The other questions take at most 30 seconds. It works below a new directory,
/zkr-doctor-..., which it deletes at the end, and closes its sessions, even if it is
interrupted. It exits with 115 if a promise does not hold, and with 113 if no server
gives a session. Notes do not change the exit code.`,
		Example: `  zkr doctor
  zkr doctor --all
  zkr doctor --servers zk1,zk2,zk3/app --session-timeout 5s --slow
  zkr doctor --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usage("%q: doctor takes no arguments", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			e.guardian = os.Getenv(cli.VariableOf("guardian"))
			return e.to.CatchSignals().EndWhile(context.Background(), func(ctx context.Context) error {
				return e.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	cmd.Flags().BoolVar(&e.slow, "slow", false, "also ask what needs a session timeout or more")
	cmd.Flags().BoolVar(&e.all, "all", false, "also print the answers that are ok")
	cmd.Flags().BoolVar(&e.json, "json", false, "print all answers, one JSON object a line")
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
	to              *cli.Ensemble
	guardian        string // $ZKR_GUARDIAN
	slow, all, json bool
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
	answers, printed := map[doctor.Verdict]int{}, 0
	var unwritten error
	tell := func(a doctor.Answer) {
		answers[a.Verdict]++
		switch {
		case unwritten != nil:
			return
		case e.json:
			unwritten = cli.JSONLine(out, a)
		case e.all || a.Verdict != doctor.OK:
			unwritten = printAnswer(out, a)
			printed++
		}
	}
	if e.guardian != "" && e.guardian != "off" && e.guardian != "child" {
		tell(askGuardian(e.guardian, e.to.Hosts()))
	}
	r := d.Examine(ctx, tell)
	if !e.json && ctx.Err() == nil && unwritten == nil {
		unwritten = printCounts(out, r.Addresses, answers, printed > 0)
	}
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
	}
	return nil
}

// askGuardian asks the daemon at a socket what it guards. It is worth a note if
// a process of this ensemble would have no guardian.
func askGuardian(socket, servers string) doctor.Answer {
	a := doctor.Answer{
		Verdict: doctor.Note, Address: socket, Question: "guardian",
		Promise: "zkr guard closes the sessions of a process that dies; without it they end by their timeouts",
	}
	s, err := guard.Ask(socket)
	if err != nil {
		a.Seen, a.Do = cli.Plain(err), "start zkr guard --listen "+socket
		return a
	}
	a.Seen = fmt.Sprintf("processes: %d, sessions: %d; it serves %s", s.Processes, s.Sessions, strings.Join(s.Ensembles, " and "))
	if s.After > 0 {
		a.Seen += fmt.Sprintf(", and waits for %v behind a death", s.After)
	}
	a.Verdict = doctor.OK
	if s.Foreign {
		a.Seen += "; it is in another namespace of processes, and leaves the session of a zkr that runs a command to its timeout"
		a.Verdict, a.Do = doctor.Note, "if a zkr runs commands here, share the namespace (in a pod, set shareProcessNamespace)"
	}
	if !s.Serves(servers) {
		a.Verdict, a.Do = doctor.Note, "start zkr guard also with --servers "+servers
	}
	return a
}

// printCounts prints the last line, apart from others before it.
func printCounts(out io.Writer, addresses int, answers map[doctor.Verdict]int, others bool) error {
	text := "all promises hold"
	if n := answers[doctor.Fails]; n > 0 {
		text = fmt.Sprintf("promises that fail: %d", n)
	}
	if others {
		text = "\n" + text
	}
	_, err := fmt.Fprintf(out, "%s; addresses: %d, ok: %d, notes: %d\n", text, addresses, answers[doctor.OK], answers[doctor.Note])
	return err
}

func printAnswer(out io.Writer, a doctor.Answer) error {
	text := fmt.Sprintf("%-5s  %s  %s: %s\n", a.Verdict, escape.Text(a.Address), a.Question, escape.Text(a.Seen))
	if a.Verdict != doctor.OK {
		text += fmt.Sprintf("       promise: %s\n       do: %s\n", a.Promise, a.Do)
	}
	_, err := io.WriteString(out, text)
	return err
}
