package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "man DIR",
		Short:                 "Write the manual pages into a directory",
		Long: `Writes the manual into DIR: zkr.1, and a page for each command, such as zkr-lock.1.
They have the same text as the help.`,
		Example: `  zkr man . && man -l zkr-lock.1
  zkr man /usr/local/share/man/man1`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return Usage("want one directory, got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, each := range append([]*cobra.Command{cmd.Root()}, available(cmd.Root())...) {
				if err := writeManual(filepath.Join(args[0], manualName(each)+".1"), each); err != nil {
					return Failed(err)
				}
			}
			return nil
		},
	}
}

// available returns the subcommands that the help lists.
func available(cmd *cobra.Command) (all []*cobra.Command) {
	for _, each := range cmd.Commands() {
		if each.IsAvailableCommand() {
			all = append(all, each)
		}
	}
	return all
}

func manualName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func writeManual(name string, cmd *cobra.Command) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = io.WriteString(file, manual(cmd))
	return err
}

// manual returns the page of a command, in the macros of man(7).
func manual(cmd *cobra.Command) string {
	p := page{}
	name := manualName(cmd)
	p.macro("TH", strings.ToUpper(name), "1", "", "zkr", "Manual of zkr")
	p.section("NAME")
	p.text(name + " - " + lowerFirst(cmd.Short))
	p.section("SYNOPSIS")
	p.text(cmd.UseLine())
	p.section("DESCRIPTION")
	p.help(description(cmd))
	if subcommands := available(cmd); len(subcommands) > 0 {
		p.section("COMMANDS")
		for _, each := range subcommands {
			p.item(each.Name(), each.Short)
		}
	}
	p.flags("OPTIONS", cmd.LocalNonPersistentFlags())
	if !cmd.HasParent() {
		p.flags("GLOBAL OPTIONS", cmd.PersistentFlags())
		p.section("ENVIRONMENT")
		cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) {
			p.item(VariableOf(f.Name), "sets --"+f.Name+", unless that is given")
		})
	}
	if !cmd.HasParent() || needsEnsemble(cmd) {
		p.section("EXIT STATUS")
		for _, each := range ExitCodes {
			p.item(each.Code, each.Meaning)
		}
	}
	if cmd.HasExample() {
		p.section("EXAMPLES")
		p.verbatim(strings.Split(cmd.Example, "\n"))
	}
	p.section("SEE ALSO")
	if cmd.HasParent() {
		p.text("zkr(1), which has the global options and their variables")
		return p.String()
	}
	var others []string
	for _, each := range available(cmd) {
		others = append(others, manualName(each)+"(1)")
	}
	p.text(strings.Join(others, ", "))
	return p.String()
}

// description is the long help, without the exit codes, which have a section of
// their own.
func description(cmd *cobra.Command) string { return strings.Replace(cmd.Long, exitHelp()+"\n", "", 1) }

func lowerFirst(text string) string { return strings.ToLower(text[:1]) + text[1:] }

// page is a page of the manual that is being written.
type page struct{ strings.Builder }

// macro writes a control line.
func (p *page) macro(name string, args ...string) {
	p.WriteString("." + name)
	for _, arg := range args {
		p.WriteString(` "` + strings.ReplaceAll(roff(arg), `"`, `\(dq`) + `"`)
	}
	p.WriteByte('\n')
}

func (p *page) section(name string) { p.macro("SH", name) }

// Text writes one line of text.
func (p *page) text(line string) {
	line = roff(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	p.WriteString(line + "\n")
}

// item writes a term and what it means.
func (p *page) item(term, meaning string) {
	p.macro("TP")
	p.text(term)
	p.text(meaning)
}

// help writes paragraphs. Indented lines stay as they are.
func (p *page) help(text string) {
	var literal []string
	flush := func() {
		if len(literal) > 0 {
			p.verbatim(literal)
			literal = nil
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		switch {
		case strings.HasPrefix(line, " "):
			literal = append(literal, line)
			continue
		case line == "":
			flush()
			p.macro("PP")
		default:
			flush()
			p.text(line)
		}
	}
	flush()
}

// verbatim writes lines as they are.
func (p *page) verbatim(lines []string) {
	p.macro("PP")
	p.macro("nf")
	for _, line := range lines {
		p.text(line)
	}
	p.macro("fi")
}

// flags writes a section for flags, if there are any.
func (p *page) flags(section string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	p.section(section)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		kind, meaning := pflag.UnquoteUsage(f)
		term := "--" + f.Name
		if f.Shorthand != "" {
			term = "-" + f.Shorthand + ", " + term
		}
		if kind != "" {
			term += " " + kind
		}
		switch f.DefValue {
		case "", "0", "0s", "[]", "false":
		default:
			meaning += " (default " + f.DefValue + ")"
		}
		p.item(term, meaning)
	})
}

// roff escapes text for the formatter.
func roff(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r == '\\':
			out.WriteString(`\e`)
		case r == '-':
			out.WriteString(`\-`)
		case r > 0x7e:
			fmt.Fprintf(&out, `\[u%04X]`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}
