package live

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	treecache "github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

func newMembers(to *cli.Ensemble) *cobra.Command {
	m := members{layout: cli.GroupLayout()}
	cmd := &cobra.Command{
		DisableFlagsInUseLine: true,
		Use:                   "members [flags] GROUP",
		Short:                 "Print who is in a group",
		Long: `Prints the ids of the members of the group at GROUP, one a line, in order: of those
that have an ephemeral znode there. They may be Go programs (package presence),
Curator's GroupMember, with --layout protected its PersistentNode, or Kazoo's Party and
ShallowParty. A group that nobody has joined has no members. Znodes that may not be read
are named on stderr: without --follow zkr prints the others and exits with 1.

--follow goes on until it is interrupted; then it exits with 0. It prints a line for
each member, and for each one that joins, leaves, or has other data: the time, what has
happened, and the id. While zkr is not connected, which it says on stderr, members may
come and go unseen; who is there at last is always printed.

--json prints one object a line, with the data. It costs a sync, a list and one request
for 256 members; with --follow also one watch, and one request for each change.`,
		Example: `  zkr members /services/billing
  zkr members --follow --json /services/billing | while read -r change; do ./reconfigure "$change"; done`,
		Args: cli.Paths(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m.out, m.errs = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if !m.follow {
				return to.OnZnodes(func(ctx context.Context, c *framework.Client) error { return m.list(ctx, c, args[0]) })
			}
			return to.UntilInterrupted(func(ctx context.Context, c *framework.Client) error {
				defer cli.SayDisconnects(c, cmd.ErrOrStderr(), "members may come and go")()
				return m.run(ctx, c, args[0])
			})
		},
	}
	cmd.Flags().BoolVar(&m.follow, "follow", false, "print changes until interrupted")
	cmd.Flags().BoolVar(&m.json, "json", false, "print one JSON object a line")
	cmd.Flags().Var(&m.layout, "layout", "layout of the znodes: <id>, Curator's with protection, or those of Kazoo")
	return cmd
}

// members prints the members of a group.
type members struct {
	layout       cli.EnumFlag[presence.Layout]
	follow, json bool
	out, errs    io.Writer
}

// member is what --json prints. The names are for programs and stay as they
// are.
type member struct {
	Time    *time.Time `json:"time,omitempty"`
	Event   string     `json:"event,omitempty"`
	ID      string     `json:"id"`
	Session string     `json:"session"`
	Znode   string     `json:"znode"`
	Data    *string    `json:"data,omitempty"`        // text
	Binary  []byte     `json:"data_base64,omitempty"` // data that is not text
}

// Events of a member.
const (
	eventMember  = "member"
	eventJoined  = "joined"
	eventChanged = "changed"
	eventLeft    = "left"
)

func (m *members) group(c *framework.Client, path string) (*presence.Group, error) {
	g, err := presence.NewGroup(c, path, presence.WithLayout(m.layout.Value()))
	if err != nil {
		return nil, cli.Usage("%w", err)
	}
	return g, nil
}

// list prints the members as they are.
func (m *members) list(ctx context.Context, c *framework.Client, path string) error {
	g, err := m.group(c, path)
	if err != nil {
		return err
	}
	if err := c.Sync(ctx, path); err != nil { // otherwise a member that lags could show old znodes
		return err
	}
	all, unreadable, err := g.Read(ctx)
	if err != nil {
		return err
	}
	for _, one := range all {
		if err := m.print("", one); err != nil {
			return err
		}
	}
	return cli.FailedIf(cli.MayNotRead(unreadable))
}

// run prints the members, and then each change.
func (m *members) run(ctx context.Context, c *framework.Client, path string) error {
	if err := cli.CheckTree(ctx, c, path); err != nil {
		return err
	}
	g, err := m.group(c, path)
	if err != nil {
		return err
	}
	roster := g.Follow()
	defer roster.Close()
	type look struct {
		all        []presence.Member
		unreadable []string
	}
	looks, done := make(chan look), make(chan struct{})
	defer close(done)
	defer roster.Listen(func(all []presence.Member, s treecache.Status) {
		if s.State != treecache.Synced {
			return
		}
		select {
		case looks <- look{all, s.Unreadable}:
		case <-done:
		}
	})()
	stderr := cli.StartPrinter(m.errs)
	defer stderr.Finish(100 * time.Millisecond)
	var before map[string]presence.Member
	var unreadable []string
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case now := <-looks:
			if before, err = m.show(before, now.all); err != nil {
				return cli.Failed(err)
			}
			unreadable = stderr.OfferUnreadable(unreadable, now.unreadable)
		}
	}
}

// show prints what has changed since the look before, or all of the first one.
func (m *members) show(before map[string]presence.Member, all []presence.Member) (now map[string]presence.Member, err error) {
	now = make(map[string]presence.Member, len(all))
	for _, one := range all {
		now[one.Path] = one
	}
	for _, old := range sorted(before) {
		if one, ok := now[old.Path]; !ok || one.Session != old.Session {
			if err := m.print(eventLeft, old); err != nil {
				return nil, err
			}
		}
	}
	for _, one := range all {
		event := eventJoined
		switch old, ok := before[one.Path]; {
		case before == nil:
			event = eventMember
		case ok && old.Session == one.Session && string(old.Data) == string(one.Data):
			continue
		case ok && old.Session == one.Session:
			event = eventChanged
		}
		if err := m.print(event, one); err != nil {
			return nil, err
		}
	}
	return now, nil
}

func (m *members) print(event string, one presence.Member) error {
	at := time.Now().UTC()
	if m.json {
		line := member{Event: event, ID: one.ID, Session: wire.SessionText(one.Session), Znode: one.Path}
		if event != "" {
			line.Time = &at
		}
		if utf8.Valid(one.Data) {
			text := string(one.Data)
			line.Data = &text
		} else {
			line.Binary = one.Data
		}
		return cli.JSONLine(m.out, line)
	}
	text := escape.Text(one.ID)
	if event != "" {
		text = fmt.Sprintf("%s  %-7s  %s", at.Format(time.RFC3339), event, text)
	}
	_, err := fmt.Fprintln(m.out, text)
	return err
}

// sorted returns the members of a look in the order in which they are printed.
func sorted(all map[string]presence.Member) []presence.Member {
	return slices.SortedFunc(maps.Values(all), func(a, b presence.Member) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Path, b.Path))
	})
}
