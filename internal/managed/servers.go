package managed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file has what a client says of its servers, and what it is told of them.

// SetServers is framework.Client.SetServers.
func (c *Client) SetServers(ctx context.Context, list string) error {
	names, chroot, err := serverlist.Parse(list)
	k := c.core()
	switch {
	case k.isClosing():
		err = zkerr.Closed
	case err != nil:
	case request.Prefix(chroot) != k.chroot:
		err = fmt.Errorf("servers %q: chroot %q: must stay %q", list, chroot, string(k.chroot))
	default:
		s := k.live()
		err = k.servers.Replace(ctx, names, k.presentServer(s))
	}
	if err != nil {
		return fmt.Errorf("framework: set servers: %w", err)
	}
	k.onListReplaced()
	return nil
}

// ServerSource says where a server of the list comes from, as
// framework.ServerSource does.
type ServerSource string

// The values of a ServerSource.
const (
	ServerGiven        ServerSource = "given"
	ServerFromFunction ServerSource = "function"
	ServerFromConfig   ServerSource = "config"
	ServerRemoved      ServerSource = "removed"
)

// ServerStatus is what the client knows of a server, as framework.ServerStatus
// says.
type ServerStatus struct {
	Name      string
	Addresses []string
	From      ServerSource
	Connected string
	Failure   error
	FailureAt time.Time
}

// Servers is framework.Client.Servers.
func (c *Client) Servers() []ServerStatus {
	k := c.core()
	at := k.presentServer(k.live())
	var all []ServerStatus
	there := at.Address == ""
	list, origin := k.servers.Status()
	from := ServerGiven
	if origin == servers.FromFunction {
		from = ServerFromFunction
	}
	for _, s := range list {
		from := from
		if s.Tracked {
			from = ServerFromConfig
		}
		status := ServerStatus{Name: s.Name, Addresses: s.Addresses, From: from, Failure: s.Failure, FailureAt: s.Failed}
		if !there && s.Is(at) {
			status.Connected, there = at.Address, true
		}
		all = append(all, status)
	}
	if !there {
		all = append(all, ServerStatus{Name: at.Name, Addresses: []string{at.Address}, From: ServerRemoved, Connected: at.Address})
	}
	slices.SortStableFunc(all, func(a, b ServerStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// listSource is where the list comes from, with WithServersFunc and
// WithEnsembleTracking.
func (c *core) listSource() servers.Source {
	s := servers.Source{
		Present: func() servers.Server { return c.presentServer(c.live()) },
		Changed: c.onListReplaced,
	}
	if c.cfg.Servers != nil {
		s.List = func(ctx context.Context) ([]string, error) {
			list, err := c.cfg.Servers(ctx)
			if err != nil {
				return nil, err
			}
			names, chroot, err := serverlist.Parse(list)
			if err == nil && chroot != "" && request.Prefix(chroot) != c.chroot {
				err = fmt.Errorf("servers %q: chroot %q: must stay %q", list, chroot, string(c.chroot))
			}
			return names, err
		}
	}
	if c.cfg.Track != nil {
		s.Tracking = c.cfg.Track(&Client{shared: c})
	}
	return s
}

// presentServer returns the server that the client is connected to, the zero
// Server if it is not. s may be nil.
func (c *core) presentServer(s *session) (at servers.Server) {
	if s != nil && s.IsReady() {
		at = s.Chain().Latest().To()
	}
	return at
}

// rootPath returns the path of the chroot.
func (c *core) rootPath() string { return cmp.Or(string(c.chroot), "/") }

// learnEnsemble reads what the ensemble is known by in the background, after a
// connect, when the chroot was created, or when the list was replaced. If that
// fails it is read after the next connect.
func (c *core) learnEnsemble() {
	if s := c.live(); s != nil && c.servers.AsksRoot() {
		go s.learnEnsemble()
	}
}

func (s *session) learnEnsemble() {
	found, stat, err := s.Conn().Exists(s.core.rootPath())
	if err != nil {
		return
	}
	var chroot zk.Stat
	if found {
		chroot = *stat
	}
	s.core.servers.NoteRoot(chroot.Czxid, chroot.Ctime, s.Chain().Seen())
}

// onListReplaced lets the session move to another server, if it should.
func (c *core) onListReplaced() {
	c.learnEnsemble()
	if s := c.live(); s != nil {
		s.OnListReplaced()
	}
}

// guardians returns the guardians of the configuration, whose losses are
// observed.
func (c *core) guardians() []servers.Guardian {
	all := slices.Clone(c.cfg.Guardians)
	for i := range all {
		all[i].Lost = c.observers.client.guardianLost
	}
	return all
}

// configPath is the znode that shows the config of the ensemble. It is outside
// of each chroot.
const configPath = "/zookeeper/config"

// Track returns functions that follow and read the config of the ensemble of a
// client, a *Client, for WithEnsembleTracking. Config does not know of clients.
func Track(client any) servers.Tracking {
	whole := &Client{shared: client.(*Client).core()}
	return servers.Tracking{
		Follow: func(ctx context.Context) (<-chan servers.Shown, error) {
			return WatchData(ctx, whole, configPath, func(_ bool, data []byte, _ *zk.Stat, err error) servers.Shown {
				return servers.Shown{Config: data, Err: err}
			})
		},
		Again: func(ctx context.Context) (servers.Shown, error) {
			if err := whole.Sync(ctx, configPath); err != nil {
				return servers.Shown{}, err
			}
			data, _, err := whole.Get(ctx, configPath)
			if errors.Is(err, zk.ErrNoNode) {
				return servers.Shown{}, nil
			}
			return servers.Shown{Config: data}, err
		},
	}
}
