package page

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// named is what is no line, so that the page finds it only by its path.
type named struct {
	kind, path string
	read       func(ctx context.Context, client *framework.Client) (says string, names []string, err error)
}

// WithGroup shows who is in a group, by its path and layout.
func WithGroup(path string, l presence.Layout) Option {
	return name("group", path, func(ctx context.Context, client *framework.Client) (string, []string, error) {
		group, err := presence.NewGroup(client, path, presence.WithLayout(l))
		if err != nil {
			return "", nil, err
		}
		members, unreadable, err := group.Read(ctx)
		var names []string
		for _, m := range members {
			names = append(names, m.ID)
		}
		says := look.Count(len(members), "member")
		if len(unreadable) > 0 {
			says += fmt.Sprintf(", %d may not be read", len(unreadable))
		}
		return says, names, err
	})
}

// WithServices shows the services below a root of package discovery, and how
// many instances each has.
func WithServices(root string) Option {
	return name("services", root, func(ctx context.Context, client *framework.Client) (string, []string, error) {
		services, err := children(ctx, client, root)
		if err != nil {
			return "", nil, err
		}
		says := look.Count(len(services), "service")
		services = services[:min(len(services), mostNames)]
		reads := make([]framework.Read, len(services))
		for i, service := range services {
			reads[i] = framework.Read{Path: layout.Join(root, service), Children: true}
		}
		results, err := client.ReadAll(ctx, reads...)
		for i, r := range results {
			services[i] += ": " + look.Count(len(r.Children), "instance")
		}
		return says, services, err
	})
}

// WithCounter shows the value of a counter.
func WithCounter(path string) Option {
	return name("counter", path, func(ctx context.Context, client *framework.Client) (string, []string, error) {
		n, err := counter.New(client, path)
		if err != nil {
			return "", nil, err
		}
		value, err := n.Get(ctx)
		return strconv.FormatInt(value, 10), nil, err
	})
}

// WithBarrier shows who is at a double barrier, and whether its round is open.
func WithBarrier(path string) Option {
	return name("barrier", path, func(ctx context.Context, client *framework.Client) (string, []string, error) {
		const ready = "ready"
		names, err := children(ctx, client, path)
		open := slices.Contains(names, ready)
		names = slices.DeleteFunc(names, func(name string) bool { return name == ready })
		return fmt.Sprintf("%d there, %s", len(names), map[bool]string{true: "ready: the round is open", false: "not ready"}[open]), names, err
	})
}

func name(kind, path string, read func(context.Context, *framework.Client) (string, []string, error)) Option {
	return func(s *settings) error {
		if err := framework.ValidatePath(path); err != nil {
			return fmt.Errorf("page: %s: %w", kind, err)
		}
		s.named = append(s.named, named{kind, path, read})
		return nil
	}
}

// children lists a znode that may be missing.
func children(ctx context.Context, client *framework.Client, path string) ([]string, error) {
	names, _, err := client.Children(ctx, path)
	if framework.Absent(err) {
		return nil, nil
	}
	slices.Sort(names)
	return names, err
}

// thing is what was read of something that is named. All text is escaped.
type thing struct {
	Kind, Path, Says, Err string
	Names                 []string
	More                  int // names that are not shown
}

// How often the named ones are read, and how many names of each are shown.
const (
	readEvery  = 5 * time.Second
	readWithin = 5 * time.Second
	mostNames  = 50
)

func (p *Page) readNamed(ctx context.Context, client *framework.Client) (pause time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	var things []thing
	for _, n := range p.named {
		says, names, err := n.read(ctx, client)
		t := thing{Kind: n.kind, Path: escape.Text(n.path), Says: says, More: max(0, len(names)-mostNames)}
		if err != nil {
			t.Says, t.Err, names = "", escape.Text(err.Error()), nil
		}
		for _, name := range names[:min(len(names), mostNames)] {
			t.Names = append(t.Names, escape.Text(name))
		}
		things = append(things, t)
	}
	p.publish(func(*state) { p.things, p.thingsAt = things, time.Now() })
	return readEvery
}
