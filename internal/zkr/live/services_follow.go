// The changes of services, and of the instances of one, for zkr services
// --follow.

package live

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	treecache "github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

// Events of a service or an instance. The first look has the first two.
const (
	eventService  = "service"
	eventInstance = "instance"
	eventAdded    = "added"
	eventRemoved  = "removed"
)

// serviceEvent is what --follow --json prints. The names are for programs and
// stay as they are.
type serviceEvent struct {
	Time     time.Time       `json:"time"`
	Event    string          `json:"event"`
	Name     string          `json:"name"`               // of the service
	Znode    string          `json:"znode,omitempty"`    // of the instance
	Instance json.RawMessage `json:"instance,omitempty"` // what the znode has, as it is
}

// follow prints the services, or the instances of one, and then each change,
// until ctx ends.
func (s *services) follow(ctx context.Context, c *framework.Client, name string) error {
	dir, opts := s.root, []treecache.Option{treecache.WithDepth(1)}
	if name != "" {
		var err error
		if dir, err = s.dir(name); err != nil {
			return err
		}
	} else {
		opts = append(opts, treecache.WithoutData())
	}
	if err := cli.CheckTree(ctx, c, dir); err != nil {
		return err
	}
	all, err := treecache.New(c, dir, opts...)
	if err != nil {
		return cli.Usage("%w", err)
	}
	defer all.Close()
	all.Start()
	stderr := cli.StartPrinter(s.errs)
	defer stderr.Finish(100 * time.Millisecond)
	var before map[string]treecache.Node
	var unreadable []string
	for view, status := range all.Views(ctx) {
		if status.State != treecache.Synced {
			continue
		}
		if before, err = s.show(stderr, name, before, view.Children(dir)); err != nil {
			return cli.Failed(err)
		}
		unreadable = stderr.OfferUnreadable(unreadable, status.Unreadable)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return all.Status().Err
}

// show prints what has changed since the look before, or all of the first one.
// An instance that was deleted and registered again is removed and added.
func (s *services) show(stderr *cli.Printer, name string, before map[string]treecache.Node, look iter.Seq[treecache.Node]) (map[string]treecache.Node, error) {
	now := make(map[string]treecache.Node)
	for n := range look {
		now[n.Path] = n
	}
	for _, old := range inOrder(before) {
		if n, ok := now[old.Path]; !ok || n.Stat.Czxid != old.Stat.Czxid {
			if err := s.tell(nil, eventRemoved, name, old); err != nil {
				return nil, err
			}
		}
	}
	for _, n := range inOrder(now) {
		event := eventAdded
		switch old, ok := before[n.Path]; {
		case before == nil && name == "":
			event = eventService
		case before == nil:
			event = eventInstance
		case ok && old.Stat.Czxid == n.Stat.Czxid && (name == "" || old.Stat.Mzxid == n.Stat.Mzxid):
			continue
		case ok && old.Stat.Czxid == n.Stat.Czxid:
			event = eventChanged
		}
		if err := s.tell(stderr, event, name, n); err != nil {
			return nil, err
		}
	}
	return now, nil
}

// tell prints an event. With stderr it says there if the znode is no instance.
func (s *services) tell(stderr *cli.Printer, event, name string, n treecache.Node) error {
	text := path.Base(n.Path)
	line := serviceEvent{Time: time.Now().UTC(), Event: event, Name: cmp.Or(name, text)}
	if name != "" {
		i, err := discovery.JSON[json.RawMessage]("").Decode(n.Data)
		if err != nil && stderr != nil {
			stderr.Offer(fmt.Sprintf("zkr: %s: not an instance: %s\n", escape.Text(n.Path), cli.Plain(err)))
		}
		if err != nil {
			return nil
		}
		text = strings.Join(describe(i), "  ")
		line.Znode, line.Instance = n.Path, n.Data
	}
	if s.json {
		return cli.JSONLine(s.out, line)
	}
	_, err := fmt.Fprintf(s.out, "%s  %-8s  %s\n", line.Time.Format(time.RFC3339), event, escape.Text(text))
	return err
}

func inOrder(all map[string]treecache.Node) []treecache.Node {
	return slices.SortedFunc(maps.Values(all), func(a, b treecache.Node) int { return cmp.Compare(a.Path, b.Path) })
}
