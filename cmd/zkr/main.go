// Command zkr uses the recipes of this module from the command line. It runs a
// command while it holds a lock or leads, shows who holds and who waits, reads
// and writes znodes, measures a recipe, and runs an embedded ensemble for
// development. `zkr help` lists the subcommands.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes of zkr. It passes on the exit code of the command that it runs;
// 126, 127 and 128+n mean what they mean in a shell.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotAcquired = 111 // not in time, or with --try not at once
	exitLost        = 112 // the lease was lost before its release, whatever the command returned
	exitNoEnsemble  = 113 // no ensemble could be reached
	exitDeadlock    = 114 // zkr deadlocks has found one
	exitCannotRun   = 126
	exitNotFound    = 127
	exitSignal      = 128 // plus the signal's number
)

// exitCodes is what the help and the manual say about them, in order.
var exitCodes = []struct{ code, meaning string }{
	{"0", "success"},
	{"1", "any error that is not listed here"},
	{"2", "wrong usage"},
	{"111", "the lock was not acquired in time; of revoke --wait: not released in time"},
	{"112", "the lock was lost before its release; of create --ephemeral: the session"},
	{"113", "no ensemble was reached"},
	{"114", "there is a deadlock"},
	{"126", "the command cannot be run"},
	{"127", "the command was not found"},
	{"128+n", "signal n ended the command, or zkr"},
}

// exit is the error of a subcommand that determines the exit code. Any other
// error is a usage error: those come from cobra.
type exit struct {
	code int
	err  error // nil: nothing is left to report
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// urgent is an error of which a script may learn by the end of zkr alone, so it
// does not wait for readers of stderr.
type urgent struct{ error }

func (u urgent) Unwrap() error { return u.error }

func failed(err error) error { return &exit{exitFailed, err} }

func usage(format string, args ...any) error { return &exit{exitUsage, fmt.Errorf(format, args...)} }

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	var to ensemble
	root := newRoot(&to)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	verb, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	var end *exit
	if !errors.As(err, &end) {
		end = &exit{exitUsage, err}
	}
	if end.err != nil {
		text := fmt.Sprintf("zkr: %s\n", to.explain(end.err))
		if errors.As(end.err, new(urgent)) {
			say(stderr, to.slack(), text)
		} else {
			fmt.Fprint(stderr, text)
		}
	}
	if end.code == exitUsage {
		fmt.Fprintf(stderr, "usage: %s\n(see %s --help)\n", verb.UseLine(), verb.CommandPath())
	}
	return end.code
}

// complaint is the text of an error, which may have names of znodes in it, in a
// form that is safe to print on a terminal.
func complaint(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// newRoot returns the command line. Its global flags are stored in to.
func newRoot(to *ensemble) *cobra.Command {
	root := &cobra.Command{
		Use:   "zkr",
		Short: "Locks and znodes of ZooKeeper for the command line",
		Long: `zkr runs commands under locks that many machines share through a ZooKeeper
ensemble. It also shows and changes znodes.

` + exitHelp() + `
Where zkr runs a command, it otherwise exits with that command's exit code.`,
		Example: `  zkr lock /app/backup -- ./backup.sh     # run a command while holding a lock
  zkr inspect /app/backup                 # who holds it, and who waits
  zkr tree /app                           # the znodes below a path
  zkr server                              # an ensemble in memory, to try it out`,
		SuggestionsMinimumDistance: 2,
		SilenceErrors:              true,
		SilenceUsage:               true,
		Args:                       cobra.ArbitraryArgs, // RunE says what is wrong with them
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return usage("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))
			}
			return usage("unknown command %q", args[0])
		},
	}
	to.addFlags(root.PersistentFlags())
	const locks, znodes, ensembles, other = "locks", "znodes", "ensembles", "other"
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{locks, "Locks and elections:", []*cobra.Command{
			newLock(to), newRead(to), newWrite(to), newSemaphore(to), newElect(to), newInspect(to),
			newObserve(to), newRevoke(to),
			newDeadlocks(to), newTop(to),
		}},
		{znodes, "Znodes:", []*cobra.Command{
			newLs(to), newTree(to), newGet(to), newStat(to), newSet(to), newCreate(to), newRm(to), newWatch(to),
		}},
		{ensembles, "Ensembles:", []*cobra.Command{
			newBench(to), withoutEnsemble(newServer()), withoutEnsemble(newDemo()),
		}},
		{other, "Other:", []*cobra.Command{
			withoutEnsemble(newVersion()), withoutEnsemble(newMan()),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, cmd := range group.commands {
			cmd.GroupID = group.id
			to.prepare(cmd)
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommandGroupID(other)
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		to.prepare(withoutEnsemble(help))
		help.Args = func(_ *cobra.Command, args []string) error {
			if cmd, rest, err := root.Find(args); err != nil || cmd == root && len(rest) > 0 {
				return usage("no help for %q: zkr help lists the commands", strings.Join(args, " "))
			}
			return nil
		}
	}
	root.SetCompletionCommandGroupID(other)
	to.addCompletion(root)
	return root
}

// exitHelp lists the exit codes.
func exitHelp() string {
	var out strings.Builder
	out.WriteString("Exit codes:\n")
	for _, each := range exitCodes {
		fmt.Fprintf(&out, "  %-5s  %s\n", each.code, each.meaning)
	}
	return out.String()
}
