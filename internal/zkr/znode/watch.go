package znode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/version"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

func newWatch(to *cli.Ensemble) *cobra.Command {
	w := watcher{kind: cli.EnumFlag[[2]bool]{
		Names:  []string{"both", "data", "children"},
		Values: [][2]bool{{true, true}, {true, false}, {false, true}},
	}}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "watch [flags] PATH",
		Short:                 "Print the changes of a znode and of its children, or of a whole tree",
		Long: `Prints one line for the present state of the znode at PATH, which need not exist.
Then it prints one line for each change: the znode is created, its data changes, it is
deleted, or a child is added or removed. zkr goes on after a lost connection and a lost
session, and says on stderr when it is not connected. When it gets a signal it exits
with 0. Changes that follow each other quickly may be printed as one. The state of the
data is printed before the number of children. --json prints one object a line.

It costs one request for each change, and two when the znode is created. With
--of both, which is the default, the data and the children are watched separately.
A server can fail to tell of a change, as while zkr may not read the znode. So zkr
also looks about once per session timeout, which costs one small request.

--tree prints a line for each znode at and below PATH, and then for each one that is
created, changed or deleted, at any depth. zkr holds all of them in memory (package
cache), so after a lost connection it prints only what is different then. It says on
stderr when it does not know of changes for a second, and why. It costs one watch, one
request for 256 znodes at first and after each reconnect, and one for each change.
Servers before 3.6 need two watches and two requests for a znode. Within an hour it
finds changes that no server tells of.`,
		Example: `  zkr watch /app/config
  zkr watch --of children /app/hosts
  zkr watch --tree --json /app
  zkr watch --once /app/config && ./reload     # waits for a change`,
		Args: func(cmd *cobra.Command, args []string) error {
			if w.tree && cmd.Flags().Changed("of") {
				return cli.Usage("--of and --tree cannot be combined")
			}
			return cli.Paths(1, 1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			w.path, w.out = args[0], cmd.OutOrStdout()
			return to.UntilInterrupted(func(ctx context.Context, c *framework.Client) error {
				if w.tree {
					return w.runTree(ctx, c, cmd.ErrOrStderr())
				}
				defer cli.SayDisconnects(c, cmd.ErrOrStderr(), "changes are printed later")()
				return w.run(ctx, c)
			})
		},
	}
	cmd.Flags().Var(&w.kind, "of", "what to watch")
	cmd.Flags().BoolVar(&w.tree, "tree", false, "watch all that is below PATH as well")
	cmd.Flags().BoolVar(&w.once, "once", false, "exit with 0 after the first change")
	cmd.Flags().BoolVar(&w.json, "json", false, "print one JSON object a line")
	return cmd
}

// watcher prints the changes of a znode.
type watcher struct {
	path string
	out  io.Writer
	kind cli.EnumFlag[[2]bool] // whether the data and the children are watched
	tree bool
	once bool
	json bool

	began    bool // the first state of the data was printed
	stat     *zk.Stat
	listed   bool // the first list of the children was printed
	children []string
}

// change is what is printed of a change. The JSON names are for programs and
// stay as they are.
type change struct {
	Time     time.Time `json:"time"`
	Path     string    `json:"path"`
	Event    string    `json:"event"`
	Version  *int32    `json:"version,omitempty"`
	Data     *string   `json:"data,omitempty"`
	Binary   []byte    `json:"data_base64,omitempty"` // data that is not text
	Child    string    `json:"child,omitempty"`
	Children *int      `json:"children,omitempty"`
}

// Events of a change.
const (
	eventExists  = "exists"
	eventMissing = "missing"
	eventCreated = "created"
	eventChanged = "changed"
	eventDeleted = "deleted"
	eventList    = "children"
	eventAdded   = "child added"
	eventRemoved = "child removed"
)

// errSeen ends the watch after the first change.
var errSeen = errors.New("a change was seen")

func (w *watcher) run(ctx context.Context, c *framework.Client) error {
	var data <-chan framework.Data
	var lists <-chan framework.Children
	if err := cli.CheckChroot(ctx, c); err != nil {
		return err // nobody may ever create it
	}
	var err error
	watched := w.kind.Value()
	if watched[0] {
		if data, err = c.WatchData(ctx, w.path); err != nil {
			return err
		}
	}
	if watched[1] {
		if lists, err = c.WatchChildren(ctx, w.path); err != nil {
			return err
		}
	}
	return w.show(ctx, data, lists)
}

// Show prints what the watches report. The first state of the data comes before
// the first list of the children. Either channel may be nil.
func (w *watcher) show(ctx context.Context, data <-chan framework.Data, lists <-chan framework.Children) (err error) {
	for err == nil {
		lists := lists
		if data != nil && !w.began { // the data is printed first
			lists = nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case state, ok := <-data:
			if ok {
				err = w.onData(state)
			}
		case list, ok := <-lists:
			if ok {
				err = w.onChildren(list)
			}
		}
		if ctx.Err() != nil { // the channels are closed when it ends
			return context.Cause(ctx)
		}
	}
	if errors.Is(err, errSeen) {
		return nil
	}
	return err
}

// onData prints what has happened to the znode since the last state.
func (w *watcher) onData(now framework.Data) error {
	if now.Err != nil {
		return now.Err
	}
	before, first := w.stat, !w.began
	w.stat, w.began = now.Stat, true
	state := func(event string) error {
		return w.print(changeTo(event, w.path, now.Stat.Version, now.Data), !first)
	}
	switch {
	case first && now.Exists:
		return state(eventExists)
	case first:
		return w.print(change{Event: eventMissing}, false)
	case before == nil && now.Exists:
		return state(eventCreated)
	case before == nil:
		return nil // created and deleted meanwhile
	case !now.Exists:
		return w.print(change{Event: eventDeleted}, true)
	case version.CreatedOf(now.Stat) != version.CreatedOf(before):
		if err := w.print(change{Event: eventDeleted}, true); err != nil {
			return err
		}
		return state(eventCreated)
	}
	return state(eventChanged) // WatchData tells of nothing else
}

// onChildren prints how the children differ from the last list.
func (w *watcher) onChildren(now framework.Children) error {
	if now.Err != nil {
		return now.Err
	}
	before, first := w.children, !w.listed
	w.children, w.listed = slices.Sorted(slices.Values(now.Names)), true
	switch {
	case first && !now.Exists && !w.kind.Value()[0]: // onData does not say it
		return w.print(change{Event: eventMissing}, false)
	case first:
		count := len(w.children)
		return w.print(change{Event: eventList, Children: &count}, false)
	}
	for _, each := range []struct {
		event      string
		names, not []string
	}{{eventRemoved, before, w.children}, {eventAdded, w.children, before}} {
		for _, name := range each.names {
			if _, found := slices.BinarySearch(each.not, name); found {
				continue
			}
			if err := w.print(change{Event: each.event, Child: name}, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// changeTo is a change to a znode that exists.
func changeTo(event, path string, version int32, data []byte) change {
	var n znode
	n.setData(data)
	return change{Event: event, Path: path, Version: &version, Data: n.Data, Binary: n.Binary}
}

// print prints a change, or the first state, which does not count for --once.
func (w *watcher) print(z change, counts bool) error {
	z.Time, z.Path = time.Now().UTC(), cmp.Or(z.Path, w.path)
	var err error
	if w.json {
		err = cli.JSONLine(w.out, z)
	} else {
		_, err = fmt.Fprintf(w.out, "%s  %s  %s%s\n", z.Time.Format("2006-01-02T15:04:05.000Z"), escape.Text(z.Path), z.Event, z.details())
	}
	if err == nil && counts && w.once {
		return errSeen
	}
	return err
}

func (z change) details() string {
	switch {
	case z.Child != "":
		return " " + escape.Text(z.Child)
	case z.Children != nil:
		return fmt.Sprintf(": %d", *z.Children)
	case z.Data != nil:
		return fmt.Sprintf(", version %d: %s", *z.Version, escape.Data(*z.Data))
	case z.Version != nil:
		return fmt.Sprintf(", version %d: %s", *z.Version, escape.Data(string(z.Binary)))
	}
	return ""
}
