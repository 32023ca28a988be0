package managed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// This file has the list of servers that changes while a client runs.

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
