package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// ChildPath returns the path of a child. Unlike path.Join it leaves a strange
// name as it is, so that no other znode is meant.
func ChildPath(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// completionShare is the part of the connect timeout that a person who has
// pressed the tab key waits for the ensemble at most: 2s by default.
const completionShare = 5

// addCompletion adds the command that cobra makes, in our words.
func (e *Ensemble) addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil { // a root with subcommands always gets it
		return
	}
	e.prepare(WithoutEnsemble(cmd))
	cmd.DisableFlagsInUseLine = true
	cmd.Use = "completion bash|zsh|fish|powershell"
	cmd.Short = "Print a script that makes a shell complete commands, flags and paths"
	cmd.Long = `Prints a script for a shell. With it the tab key completes commands, flags, and the
paths of znodes. For a path zkr asks the ensemble, and waits for at most a fifth of
--connect-timeout. Names with characters that are special in a shell are left out. The
help of each shell says where to install its script.`
	cmd.Example = `  source <(zkr completion bash)
  zkr completion zsh > "${fpath[1]}/_zkr"
  zkr help completion fish`
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Usage("no script for %q: want bash, zsh, fish or powershell", args[0])
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() } // cobra checks only the arguments of what runs
	for _, each := range cmd.Commands() {
		each.Short = "Print the script for " + each.Name()
	}
}

// VerbsKey is the annotation of a command whose first argument is one of some
// words.
const VerbsKey = "verbs"

// completePaths makes the shell complete the paths of znodes, for a command
// whose usage names PATH or GROUP. In front of it stands one of
// the VerbsKey annotation.
func (e *Ensemble) completePaths(cmd *cobra.Command) {
	if !strings.Contains(cmd.Use, "PATH") && !strings.Contains(cmd.Use, "GROUP") || cmd.ValidArgsFunction != nil {
		return
	}
	several := strings.HasSuffix(cmd.Use, "PATH...") // cobra does not tell whether -- was typed, so a command may follow the first path
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if verbs := strings.Fields(cmd.Annotations[VerbsKey]); len(verbs) > 0 {
			if len(args) == 0 {
				return verbs, cobra.ShellCompDirectiveNoFileComp
			}
			args = args[1:]
		}
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveDefault // a command, or data
		}
		return e.childrenOf(cmd, typed), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
}

// childrenOf returns the paths of znodes that begin with what was typed: one
// level, for one request. It returns none if the ensemble does not answer soon.
func (e *Ensemble) childrenOf(cmd *cobra.Command, typed string) []cobra.Completion {
	if !strings.HasPrefix(typed, "/") {
		return []cobra.Completion{"/"}
	}
	if err := fromEnvironment(cmd); err != nil {
		return nil
	}
	dir := typed[:strings.LastIndexByte(typed, '/')]
	if dir == "" {
		dir = "/"
	}
	e.ConnectTimeout, e.verbose = e.ConnectTimeout/completionShare, false
	ctx, cancel := context.WithTimeout(context.Background(), e.ConnectTimeout)
	defer cancel()
	client, err := e.Connect(ctx)
	if err != nil {
		return nil
	}
	defer client.Close() // nothing was changed
	names, _, err := client.Children(ctx, dir)
	if err != nil {
		return nil
	}
	var found []cobra.Completion
	for _, name := range names {
		if at := ChildPath(dir, name); strings.HasPrefix(at, typed) && harmlessInShell(name) {
			found = append(found, at)
		}
	}
	slices.Sort(found)
	return found
}

// harmlessInShell reports whether a shell takes a name as it is. Other names
// are not completed: a znode that anybody may have created must not become a
// part of a command line that means something else.
func harmlessInShell(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.+=@%,", r)
	})
}
