package presence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

// Layout says how the znodes of a group's members are named.
type Layout int

const (
	// LayoutMember is <path>/<id>, as Curator's GroupMember has it, and its
	// PersistentNode without protection. An id is there once.
	LayoutMember Layout = iota
	// LayoutProtected is <path>/_c_<uuid>-<id>, as of Curator's PersistentNode
	// with protection.
	LayoutProtected
	// LayoutParty is <path>/<32 hex>__party__ with the id as its data, as of
	// Kazoo's Party.
	LayoutParty
	// LayoutShallowParty is <path>/<32 hex>-<id> with the id as its data, as of
	// Kazoo's ShallowParty.
	LayoutShallowParty
)

const party = "__party__"

// WithLayout sets the layout of a group. Default: LayoutMember.
// For NewGroup.
func WithLayout(l Layout) Option {
	return setting(func(c *config) {
		c.group = "layout"
		if c.layout = l; l < LayoutMember || l > LayoutShallowParty {
			c.errs = append(c.errs, fmt.Errorf("layout %d: unknown", l))
		}
	})
}

// Group is a directory with a znode for each member. It is safe for concurrent
// use. NewGroup returns one; the zero Group fails.
type Group struct {
	client *framework.Client
	path   string
	opts   []Option // of each Node
	layout Layout
	label  string
	follow []cache.Option
}

// NewGroup returns the group at path. It makes no request. opts are the options
// of its Nodes, WithLayout, and each cache.FollowOption, which applies to
// Follow: with cache.WithSnapshot follow the group once at a time.
func NewGroup(client *framework.Client, path string, opts ...Option) (*Group, error) {
	cfg, err := newConfig(opts)
	if err == nil {
		err = framework.ValidatePath(path)
	}
	switch {
	case client == nil:
		err = errors.New("client is nil")
	case err == nil && cfg.sequential:
		err = errors.New("sequential: a group has a layout instead")
	}
	if err != nil {
		return nil, fmt.Errorf("presence: group: %w", err)
	}
	label := cmp.Or(cfg.Label, client.Resolve(path))
	follow := append(cfg.cache, cache.WithDepth(1), option.Label(label))
	if _, err := cache.New(client, path, follow...); err != nil {
		return nil, fmt.Errorf("presence: group: %w", err)
	}
	return &Group{client: client, path: path, opts: slices.Clone(opts), layout: cfg.layout, label: label, follow: follow}, nil
}

// Join announces a member, as Announce does, and returns when its znode stands.
// Close of the Node leaves the group. In the layouts of Kazoo the znode's data
// are the id, and data must be nil.
//
// In LayoutMember an id that another session has is waited for. In the others
// an id may be there several times.
func (g *Group) Join(ctx context.Context, id string, data []byte) (*Node, error) {
	n, err := g.Node(id, data)
	if err != nil {
		return nil, err
	}
	return n.announce(ctx)
}

// Node returns the Node of a member, as New does: it makes no request. Join is
// Node, Start and Standing.
func (g *Group) Node(id string, data []byte) (*Node, error) {
	if g.client == nil {
		return nil, ErrClosed
	}
	name, unique := id, random.ID()
	kazoo := g.layout == LayoutParty || g.layout == LayoutShallowParty
	switch g.layout {
	case LayoutProtected:
		name = layout.Protect(unique, id)
	case LayoutParty:
		name = strings.ReplaceAll(unique, "-", "") + party
	case LayoutShallowParty:
		name = strings.ReplaceAll(unique, "-", "") + "-" + id
	}
	var err error
	switch {
	case id == "" || g.layout != LayoutParty && strings.Contains(id, "/"):
		err = errors.New("empty, or with a slash")
	case kazoo && !utf8.ValidString(id):
		err = errors.New("not UTF-8")
	case kazoo && data != nil:
		err = errors.New("data: in this layout they are the id")
	}
	if err != nil {
		return nil, fmt.Errorf("presence: join %s: id %q: %w", g.path, id, err)
	}
	opts := g.opts
	if kazoo {
		data = []byte(id)
		opts = append(slices.Clone(opts), setting(func(c *config) { c.lasting = true }))
	}
	opts = append(slices.Clone(opts), setting(func(c *config) { c.group, c.Label = "", g.label }))
	return New(g.client, layout.Join(g.path, name), data, opts...)
}

// Member is one that a group has.
type Member struct {
	ID      string
	Data    []byte
	Path    string
	Session int64 // whose znode it is
}

// Members returns the members that have a znode in the group, sorted by id.
// This client's own member is in the list only if it has a znode. A group that
// was never joined has none. Children that no member of the layout can have are
// ignored. Znodes that may not be read are left out and logged: see Read. It
// costs a list, and one request of many reads: see Client.ReadAll.
//
// It shows at least what this client has done and seen before the call. Its
// server may not know yet what others have done shortly before: call
// Client.Sync first if that matters, or use Roster.Fresh.
func (g *Group) Members(ctx context.Context) ([]Member, error) {
	if g.client == nil {
		return nil, ErrClosed
	}
	members, unreadable, err := g.Read(ctx)
	for _, path := range unreadable {
		g.client.Logger().Warn("a znode of a group may not be read", zap.String("path", g.client.Resolve(path)), zap.String("label", g.label))
	}
	return members, err
}

// Read returns what Members returns, and the paths of the znodes that may not
// be read. Each of these may be a member's. Read does not log them.
func (g *Group) Read(ctx context.Context) (members []Member, unreadable []string, err error) {
	if g.client == nil {
		return nil, nil, ErrClosed
	}
	members, unreadable, err = g.read(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("presence: members of %s: %w", g.path, err)
	}
	return members, unreadable, nil
}

func (g *Group) read(ctx context.Context) (members []Member, unreadable []string, err error) {
	names, _, err := g.client.Children(ctx, g.path)
	if framework.Absent(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var reads []framework.Read
	for _, name := range names {
		if g.layout.has(name) {
			reads = append(reads, framework.Read{Path: layout.Join(g.path, name)})
		}
	}
	results, err := g.client.ReadAll(ctx, reads...)
	if err != nil {
		return nil, nil, err
	}
	for i, r := range results {
		switch {
		case framework.Absent(r.Err):
		case errors.Is(r.Err, zk.ErrNoAuth):
			unreadable = append(unreadable, reads[i].Path)
		case r.Err != nil:
			return nil, nil, r.Err
		default:
			if m, ok := g.member(reads[i].Path, r.Data, r.Stat.EphemeralOwner); ok {
				members = append(members, m)
			}
		}
	}
	sortMembers(members)
	slices.Sort(unreadable)
	return members, unreadable, nil
}

// member returns the member whose znode is at path, if it is one's.
func (g *Group) member(path string, data []byte, owner int64) (m Member, ok bool) {
	_, name := layout.Split(path)
	id, ok := g.layout.idOf(name)
	if owner == 0 { // persistent; servers show that of containers as well
		return m, false
	}
	if g.layout == LayoutParty {
		id = string(data)
	}
	return Member{ID: id, Data: data, Path: path, Session: owner}, ok
}

func sortMembers(all []Member) {
	slices.SortFunc(all, func(a, b Member) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Path, b.Path)) })
}

// has reports whether a child of this name can be a member's.
func (l Layout) has(name string) bool {
	_, ok := l.idOf(name)
	return ok
}

// idOf returns the id in a member's name. In LayoutParty it is in the data.
func (l Layout) idOf(name string) (id string, ok bool) {
	switch l {
	case LayoutProtected:
		_, id, ok = layout.CutProtection(name)
		return id, ok
	case LayoutParty:
		return "", strings.Contains(name, party)
	case LayoutShallowParty:
		_, id, ok = strings.Cut(name, "-")
		return id, ok
	}
	return name, true
}
