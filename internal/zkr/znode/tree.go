package znode

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func newTree(to *cli.Ensemble) *cobra.Command {
	var (
		asJSON bool
		depth  int
	)
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "tree [flags] [PATH]",
		Short:                 "Draw a znode and all znodes below it",
		Long: `Draws the znode at PATH, by default the root, and all znodes below it, with the size
of their data, and the sessions of ephemeral ones. --depth limits how many levels
below PATH are read.

` + cli.SafeHelp + `
--json prints one object.

It costs a sync and one request for each znode that it draws, up to 32 at the same
time.`,
		Example: `  zkr tree /app
  zkr tree --depth 2 /
  zkr tree --json /app | jq`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("depth") && depth < 0 {
				return cli.Usage("--depth %d: must not be less than 0", depth)
			}
			return cli.Paths(0, 1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			at := "/"
			if len(args) > 0 {
				at = args[0]
			}
			return to.OnZnodes(func(ctx context.Context, c *framework.Client) error {
				root, err := readBranch(ctx, c, at, depth, readStats)
				if err != nil {
					return err
				}
				out := bufio.NewWriter(cmd.OutOrStdout())
				if asJSON {
					err = cli.JSONLine(out, newTwig(root))
				} else {
					err = draw(out, root)
				}
				return errors.Join(err, out.Flush(), unreadable(root, cmd.ErrOrStderr()))
			})
		},
	}
	cmd.Flags().IntVar(&depth, "depth", allLevels, "how many levels below PATH to draw; -1 means all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// twig is what --json prints of a tree.
type twig struct {
	Path  string `json:"path"`
	Stat  *znode `json:"stat,omitempty"`
	Error string `json:"error,omitempty"` // why it could not be read
	Below []twig `json:"below,omitempty"`
	Cut   bool   `json:"cut,omitempty"` // there are, or may be, more znodes below
}

func newTwig(b *branch) twig {
	t := twig{Path: b.path, Cut: b.cut}
	if b.err != nil {
		t.Error = b.err.Error()
	} else {
		stat := newZnode(b.path, b.stat)
		t.Stat = &stat
	}
	for _, child := range b.below {
		t.Below = append(t.Below, newTwig(child))
	}
	return t
}

// draw prints a tree, and how much is in it.
func draw(w io.Writer, root *branch) error {
	if err := drawBelow(w, root, escape.Text(root.path), "", ""); err != nil {
		return err
	}
	var znodes, ephemerals int
	var bytes int64
	_ = root.walk(func(b *branch) error { // it returns the errors of this function: none
		znodes++
		if b.stat != nil {
			bytes += int64(b.stat.DataLength)
			if ownerOf(b.stat) != "" {
				ephemerals++
			}
		}
		return nil
	})
	_, err := fmt.Fprintf(w, "\nznodes: %d, ephemeral: %d, data: %d B\n", znodes, ephemerals, bytes)
	return err
}

// drawBelow prints the line of a znode, which begins with first, and the lines
// of those below it, which begin with rest.
func drawBelow(w io.Writer, b *branch, name, first, rest string) error {
	if _, err := fmt.Fprintf(w, "%s%s%s\n", first, name, b.remarks()); err != nil {
		return err
	}
	for i, child := range b.below {
		edge, indent := "├── ", "│   "
		if i == len(b.below)-1 {
			edge, indent = "└── ", "    "
		}
		if err := drawBelow(w, child, escape.Text(child.name()), rest+edge, rest+indent); err != nil {
			return err
		}
	}
	return nil
}

// remarks returns what stands behind the name in the picture.
func (b *branch) remarks() string {
	var all []string
	if b.err != nil {
		all = append(all, "cannot be read")
	} else {
		z := newZnode(b.path, b.stat)
		if z.Size > 0 {
			all = append(all, fmt.Sprintf("%d B", z.Size))
		}
		if z.Session != "" {
			all = append(all, "ephemeral "+z.Session)
		}
		if b.cut {
			all = append(all, fmt.Sprintf("%d below", z.Children))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "  (" + strings.Join(all, ", ") + ")"
}
