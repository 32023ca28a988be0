package framework

import (
	"context"
	"time"
)

// SetServers replaces the list of servers, in the form that New takes. The
// chroot must be the same. The session and its leases stay. A list of more than
// 1000 servers is refused. After an error nothing has changed.
//
// SetServers first looks the names up, for as long as ctx allows, but for no
// more than a third of the session timeout. A name that cannot be looked up
// then is looked up again later. Every later attempt to connect uses the new
// list. SetServers does not wait for a move.
//
// # Moves
//
// The client moves to another server, in the background, if the list does not
// have its present one: if no name in the list has its address, and each has
// some. If the list has grown, a client moves with the probability that leaves
// the clients evenly spread.
//
// A move begins at a random moment within a session timeout, so that the
// clients of a server that was removed do not move together. The next server
// must first answer the word srvr: it serves, and knows of all that the session
// has seen. Otherwise the client stays, logs why, and tries again, at the
// latest after a minute or a session timeout. The client waits until its leases
// have half of their time ahead, or as much as they ever have where round trips
// are slow. With ErrorPolicyConnection it waits until it holds nothing.
//
// A move takes one round trip without a connection, in which the state is
// Suspended. Requests that are under way are answered before it, unless that
// takes more than a twelfth of the session timeout. It costs what a reconnect
// costs: the watches are armed again, caches walk their trees. There is at most
// one move in a session timeout. If the new server does not know the session,
// and is not known to be of the same ensemble, that does not end the session:
// the client continues with the others.
func (c *Client) SetServers(ctx context.Context, list string) error {
	return c.in().SetServers(ctx, list)
}

// ServerSource says where a server of the list comes from.
type ServerSource string

// Where a server of the list comes from.
const (
	// ServerGiven: New or SetServers was given it.
	ServerGiven ServerSource = "given"
	// ServerFromFunction: the function of WithServersFunc has returned it.
	ServerFromFunction ServerSource = "function"
	// ServerFromConfig: the ensemble has named it, and nobody else: see
	// WithEnsembleTracking.
	ServerFromConfig ServerSource = "config"
	// ServerRemoved: the list does not have it any more, and the client is still
	// connected to it.
	ServerRemoved ServerSource = "removed"
)

// ServerStatus is what the client knows of a server.
type ServerStatus struct {
	Name string // "host:port", as in the list
	// Addresses are those that the name was last found to have, sorted. It is the
	// name itself if it is an address, or if the dialer gets the names.
	Addresses []string
	From      ServerSource
	// Connected is the address that the client is connected to, or "".
	Connected string
	// Failure is why the server was not connected to, or its name not looked up,
	// the last time that this has failed: nil if it never has. It stays after the
	// client has connected.
	Failure   error
	FailureAt time.Time
}

// Servers returns what the client knows of each server of its list, by name. It
// makes no request.
func (c *Client) Servers() []ServerStatus {
	var all []ServerStatus
	for _, s := range c.in().Servers() {
		all = append(all, ServerStatus{s.Name, s.Addresses, ServerSource(s.From), s.Connected, s.Failure, s.FailureAt})
	}
	return all
}
