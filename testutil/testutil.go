// Package testutil is a ZooKeeper ensemble for tests: it runs inside the test's process, in memory, and speaks the real wire
// protocol, so that real clients use it and there is nothing to mock.
//
//	func TestMine(t *testing.T) {
//		ens := testutil.Start(t, testutil.WithMembers(3))
//		client, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial))
//		...
//
// It listens on loopback, or with InMemory nowhere at all: then it works within a testing/synctest bubble, where an hour of
// sessions, pings and expiries takes milliseconds and the times are exact.
//
// It is a test double: one process, memory only, nothing survives the test. It is meant to be faithful in what clients can
// observe: the order of events and replies, when sessions expire, what a follower goes on answering after it was cut off
// from its leader, which writes consume a transaction number, versions, counters, permissions and error codes.
//
// # The model
//
// There is one log of what was committed, in one order. Every member has its own replica of the state, a position up to which
// it has applied the log, and its own watches and connections. A write is validated by the leader, committed when a majority
// of members acknowledges it, and answered by the member it came to when that has applied it. Reads and pings are answered by
// any member alone. A sync makes the round trip to the leader.
//
// Sessions live at the leader. Members tell it every half tick which sessions they have heard of; it expires a session at the
// first whole tick after its time-out. Connections, with new sessions or old ones, are validated by the leader. Whole ticks are
// counted from the start of the ensemble.
//
// A member that was cut off from its leader goes on answering pings and reads until the sync limit has passed, then drops its
// clients and refuses new ones: it accepts the connection and closes it without an answer. So does a leader that was cut off
// from too many. Those that are left and are a majority choose a new leader, with the next epoch and full time-outs for all
// sessions.
//
// The same script of frames is run against it and against Apache ZooKeeper 3.8, and the answers are compared frame by frame:
// testdata/conformance.txt is what the real one said. Some of that surprises: a follower keeps its transaction number when a
// new epoch begins, until the first write in it, and so refuses a client that has seen the new leader's; the old connection of a
// session that has moved to another member goes on reading and syncing, and is closed by its first write; a multi that fails
// has no error in its header; a container shows no owner. Random programs of several clients are compared in the same way.
//
// What it does not have: quotas, SASL, read-only mode, reconfiguration, observers. An operation that it does not know is answered
// with the code for that, and the connection is closed. docs/embedded.md lists every difference that we know of.
//
// # Faults
//
// Members are stopped, restarted, paused, partitioned, made to lag, mute or wedged. Clients are cut off by session, and Control
// decides about single requests where they arrive. All faults work over TCP and in memory alike.
//
// The faults on the network between a client and the members are those of a ClientNet, and need nothing of the servers: they are
// the same before the embedded ensemble, before Apache ZooKeeper (package apache), and before any other server by NewClientNet. A
// ClientNet is a dialer, or by Listen some addresses for processes that have dialers of their own. It is cut, both ways or one way,
// slowed down or broken; its Control loses, holds back or refuses a certain request or the answer to it, which Upon picks out by
// operation, path and count.
package testutil

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Ensemble is what tests need of an ensemble that may be embedded or made of real processes. Members are counted from 0.
type Ensemble interface {
	// Servers returns the addresses of all members, separated by commas.
	Servers() string
	// Dial connects to a member. It fits the dialer of the wire client and of the framework.
	Dial(network, address string, timeout time.Duration) (net.Conn, error)
	// Members returns the number of members, running or not.
	Members() int
	// Stop ends a member's process. Its data stays.
	Stop(member int) error
	// Restart starts a stopped member, with its address and data of before.
	Restart(member int) error
	// Pause freezes a member: its connections stay and nothing moves.
	Pause(member int) error
	// Resume lets a paused member go on.
	Resume(member int) error
	// Leader returns the member that leads, a standalone one too, and -1 if none does.
	Leader() int
	// ExpireSession ends a session as if its client had not been heard of for too long.
	ExpireSession(id int64) error
	// DropConnections closes the connections of one session, or with 0 all connections.
	DropConnections(id int64) error
	// Client returns the network of the client with this name, for faults between that one and the members.
	ClientNet(name string) *ClientNet
	// WaitServing returns once the members that run serve clients, or with an error when ctx ends.
	WaitServing(ctx context.Context) error
}

var _ Ensemble = (*Embedded)(nil)

// Isolate cuts a member off from all the others until heal is called; clients still reach it. It works for ensembles that have this
// fault, as the embedded one does, and is errors.ErrUnsupported for others.
func Isolate(ens Ensemble, member int) (heal func(), err error) {
	if member < 0 || member >= ens.Members() {
		return nil, fmt.Errorf("testutil: no member %d in an ensemble of %d", member, ens.Members())
	}
	e, ok := ens.(interface {
		Isolate(member int)
		Heal()
	})
	if !ok {
		return nil, fmt.Errorf("testutil: isolate a member of %T: %w", ens, errors.ErrUnsupported)
	}
	e.Isolate(member)
	return e.Heal, nil
}
