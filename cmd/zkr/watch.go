package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
)

func newWatch(to *ensemble) *cobra.Command {
	w := watcher{kind: enumFlag[[2]bool]{
		names:  []string{"both", "data", "children"},
		values: [][2]bool{{true, true}, {true, false}, {false, true}},
	}}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "watch [flags] PATH",
		Short:                 "Print the changes of a znode and of its children",
		Long: `Prints one line for the present state of the znode at PATH, which need not exist.
Then it prints one line for each change: the znode is created, its data changes, it is
deleted, or a child is added or removed. zkr goes on after a lost connection and a lost
session. When it gets a signal it exits with 0. Changes that follow each other quickly
may be printed as one. --json prints one object a line.

It costs one request for each change, and two when the znode is created. With
--of both, which is the default, the data and the children are watched separately.`,
		Example: `  zkr watch /app/config
  zkr watch --of children /app/hosts
  zkr watch --once /app/config && ./reload     # waits for a change`,
		Args: paths(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w.path, w.out = args[0], cmd.OutOrStdout()
			return catchSignals().untilSignal(func(ctx context.Context, began func()) error {
				return to.withClient(ctx, func(ctx context.Context, c *framework.Client) error {
					began()
					return w.run(ctx, c)
				})
			})
		},
	}
	cmd.Flags().Var(&w.kind, "of", "what to watch")
	cmd.Flags().BoolVar(&w.once, "once", false, "exit with 0 after the first change")
	cmd.Flags().BoolVar(&w.json, "json", false, "print one JSON object a line")
	return cmd
}

// watcher prints the changes of a znode.
type watcher struct {
	path string
	out  io.Writer
	kind enumFlag[[2]bool] // whether the data and the children are watched
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
	var err error
	watched := w.kind.value()
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
	for err == nil {
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
		z := change{Event: event, Version: &now.Stat.Version}
		z.setData(now.Data)
		return w.print(z, !first)
	}
	switch {
	case first && now.Exists:
		return state(eventExists)
	case first:
		return w.print(change{Event: eventMissing}, false)
	case before == nil && now.Exists:
		return state(eventCreated)
	case before == nil:
		return nil // created and deleted meanwhile, or a reconnect
	case !now.Exists:
		return w.print(change{Event: eventDeleted}, true)
	case now.Stat.Czxid != before.Czxid:
		if err := w.print(change{Event: eventDeleted}, true); err != nil {
			return err
		}
		return state(eventCreated)
	case now.Stat.Mzxid != before.Mzxid:
		return state(eventChanged)
	}
	return nil
}

// onChildren prints how the children differ from the last list.
func (w *watcher) onChildren(now framework.Children) error {
	if now.Err != nil {
		return now.Err
	}
	before, first := w.children, !w.listed
	w.children, w.listed = slices.Sorted(slices.Values(now.Names)), true
	switch {
	case first && !now.Exists && !w.kind.value()[0]: // onData does not say it
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

func (z *change) setData(data []byte) {
	var n znode
	n.setData(data)
	z.Data, z.Binary = n.Data, n.Binary
}

// print prints a change, or the first state, which does not count for --once.
func (w *watcher) print(z change, counts bool) error {
	z.Time, z.Path = time.Now().UTC(), w.path
	var err error
	if w.json {
		err = jsonLine(w.out, z)
	} else {
		_, err = fmt.Fprintf(w.out, "%s  %s  %s%s\n", z.Time.Format("2006-01-02T15:04:05.000Z"), printable(z.Path), z.Event, z.details())
	}
	if err == nil && counts && w.once {
		return errSeen
	}
	return err
}

func (z change) details() string {
	switch {
	case z.Child != "":
		return " " + printable(z.Child)
	case z.Children != nil:
		return fmt.Sprintf(": %d", *z.Children)
	case z.Data != nil:
		return fmt.Sprintf(", version %d: %s", *z.Version, readable(*z.Data))
	case z.Version != nil:
		return fmt.Sprintf(", version %d: %s", *z.Version, readable(string(z.Binary)))
	}
	return ""
}
