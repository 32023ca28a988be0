// Package cli has what all subcommands of zkr share: the root command and the
// global flags, the connection to the ensemble, exit codes and the explanations
// of errors, completion, and the manual.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/internal/child"
)

// Run executes one of the subcommands, and returns the exit code. kerberos may
// be nil.
func Run(args []string, stdout, stderr io.Writer, kerberos Kerberos, commands ...Commands) int {
	child.ReapOrphans()
	return (&Ensemble{kerberos: kerberos}).Run(args, stdout, stderr, commands...)
}

// Run is the function of that name. Tests have set Dial and Signals.
func (e *Ensemble) Run(args []string, stdout, stderr io.Writer, commands ...Commands) int {
	out, errs := &output{Writer: stdout}, &output{Writer: stderr}
	e.printed = []*output{out, errs}
	root := NewRoot(e, commands...)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	verb, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	var end *Exit
	if !errors.As(err, &end) {
		end = &Exit{ExitUsage, err}
	}
	if end.Err == nil { // it is the command's own exit code
		return end.Code
	}
	text := fmt.Sprintf("zkr: %s\n", e.explain(end.Err))
	if end.Code == ExitUsage {
		text += fmt.Sprintf("usage: %s\n(see %s --help)\n", verb.UseLine(), verb.CommandPath())
	}
	switch {
	case errors.As(end.Err, new(Urgent)):
		Say(stderr, e.Slack(), text)
	case end.Code > ExitSignal: // a signal has come
		Say(stderr, lastWords, text)
	default: // one may come
		_ = e.CatchSignals().EndWhile(context.Background(), func(context.Context) error {
			_, err := io.WriteString(errs, text)
			return err
		})
	}
	return end.Code
}

// groups are the groups of commands in the help, in order.
var groups = []struct{ id, title string }{
	{GroupLocks, "Locks and elections:"},
	{GroupZnodes, "Znodes:"},
	{GroupEnsembles, "Ensembles:"},
	{GroupOther, "Other:"},
}

// Values of a command's GroupID.
const (
	GroupLocks     = "locks"
	GroupZnodes    = "znodes"
	GroupEnsembles = "ensembles"
	GroupOther     = "other"
)

// Commands returns the subcommands of one theme, each with a GroupID. They use
// the ensemble of the global flags.
type Commands func(to *Ensemble) []*cobra.Command

// NewRoot returns the command line with the given subcommands, and those for
// help. The global flags are stored in to.
func NewRoot(to *Ensemble, commands ...Commands) *cobra.Command {
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
				return Usage("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))
			}
			return Usage("unknown command %q", args[0])
		},
	}
	to.addFlags(root.PersistentFlags())
	for _, group := range groups {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
	}
	own := []*cobra.Command{WithoutEnsemble(newVersion()), WithoutEnsemble(newMan())}
	for _, cmd := range own {
		cmd.GroupID = GroupOther
	}
	for _, of := range commands {
		own = append(own, of(to)...)
	}
	for _, cmd := range own {
		to.prepare(cmd)
		root.AddCommand(cmd)
	}
	root.SetHelpCommandGroupID(GroupOther)
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		to.prepare(WithoutEnsemble(help))
		help.Args = func(_ *cobra.Command, args []string) error {
			if cmd, rest, err := root.Find(args); err != nil || cmd == root && len(rest) > 0 {
				return Usage("no help for %q: zkr help lists the commands", strings.Join(args, " "))
			}
			return nil
		}
	}
	root.SetCompletionCommandGroupID(GroupOther)
	to.addCompletion(root)
	return root
}

// exitHelp lists the exit codes.
func exitHelp() string {
	var out strings.Builder
	out.WriteString("Exit codes:\n")
	for _, each := range ExitCodes {
		fmt.Fprintf(&out, "  %-5s  %s\n", each.Code, each.Meaning)
	}
	return out.String()
}
