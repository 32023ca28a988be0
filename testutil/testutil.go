// Package testutil runs a ZooKeeper ensemble inside a test. It needs neither
// Java nor a network: the members are goroutines, their data is in memory, and
// they speak the real wire protocol, so the test uses a real client and mocks
// nothing. Three lines to begin:
//
//	ens := testutil.Start(t)
//	dial := framework.WithDialer(ens.Dial)
//	client, err := framework.New(ens.Servers(), dial)
//
// [Start] stops the ensemble when the test ends. [New] is for programs, and
// returns an ensemble to close. What the members hold can be read without a
// client: Tree, Data, Children, Sessions, Watches, Requests.
//
// # Virtual time
//
// By default the members listen on loopback. With [InMemory] they listen
// nowhere, and Dial returns connections in memory. Such an ensemble works
// inside a bubble of the package testing/synctest, where time passes only while
// every goroutine waits: an hour of sessions, pings and expiries takes
// milliseconds, and all times are exact.
//
//	synctest.Test(t, func(t *testing.T) {
//		ens := testutil.Start(t, testutil.InMemory())
//		dial := framework.WithDialer(ens.Dial)
//		client, err := framework.New(ens.Servers(), dial)
//		...
//		session, _ := client.Session()
//		ens.ExpireSession(session.ID())
//		time.Sleep(time.Minute) // takes no time
//	})
//
// Make everything inside the bubble: ensemble, client, goroutines, channels.
//
// Do not use sockets in a bubble: virtual time stands still while a goroutine
// waits for a socket. Use [InMemory] for the ensemble and [net.Pipe] for your
// own connections: examples/httpleader has a net.Listener of pipes, for an
// http.Server and its clients. Call an http.Handler with httptest.NewRecorder.
// A test that needs a real socket, for example for another process or
// httptest.NewServer, must run in real time. Virtual time also stands still
// while a goroutine waits for a mutex whose owner sleeps.
//
// A test that hangs in virtual time panics, and the panic says what each
// goroutine waits for. A test hangs if it has not ended after a week of virtual
// time ([WithTimeLimit]), or if nothing computes and virtual time has stood
// still for two to four minutes of real time.
//
// # Faults
//
// Faults of members, by index from 0:
//
//   - Stop ends a member and keeps its data; Restart starts it again.
//   - Pause freezes a member like SIGSTOP; Resume lets it go on.
//   - Isolate and Partition cut members off from each other; Heal ends that.
//   - Lag stops a follower from applying what was committed, so that it serves
//     old data; Unlag ends that.
//   - Mute stops a member from hearing and sending anything on its client
//     connections; Unmute ends that.
//   - Wedge stops a member from answering anything but pings; Unwedge ends
//     that.
//
// An ensemble also changes its members: AddMember and RemoveMember, see
// [WithReconfig].
//
// Faults of sessions, by id:
//
//   - ExpireSession ends a session as its timeout would.
//   - DropConnections closes the connections of a session, or of all sessions.
//   - CutClient stops the traffic of a session; RestoreClient ends that.
//
// Faults of the network between one client and the members. They are methods of
// a [ClientNet], which ens.ClientNet("worker") returns. Connect the client
// through its Dial, or, for a process in any language, through the addresses of
// its Listen. No server takes part in these faults, so they also work in front
// of Apache ZooKeeper (package apache) and, by [NewClientNet], in front of any
// other server.
//
//   - Cut and CutOneWay stop the traffic; Heal delivers what was sent since.
//   - Drop breaks all connections.
//   - Latency delays messages.
//   - LoseEvents loses the events of watches.
//
// Faults of single requests: Control, of an ensemble or of a ClientNet, takes a
// function that decides about each request. [NewFault] makes one that picks
// requests by operation, path and count, and does one of the actions to them:
// [DropBefore], [DropAfter], [Fail], [Delay], [DelayReply], [Hold] or
// [HoldReply].
//
//	net := ens.ClientNet("worker")
//	creates := testutil.Match{Op: testutil.OpCreate}
//	lost := testutil.NewFault(creates, testutil.DropAfter())
//	stop := net.Control(lost.Control) // loses the answer to the first create
//	defer stop()
//
// # Race detector
//
// go test -race needs no further flag for code that uses this module. The wire
// client, github.com/go-zookeeper/zk, has a data race between the goroutine
// that reads a connection and the one that sets its watches again after a
// reconnect, but this module does not use those watches. If your own code calls
// GetW, ExistsW or ChildrenW of a zk.Conn, and a test breaks its connections,
// the race detector may report that race. Then do not instrument that package:
//
//	go test -race -gcflags=github.com/go-zookeeper/zk=-race=false ./...
//
// # How faithful it is
//
// It imitates what clients can observe of Apache ZooKeeper 3.8. README.md says
// how it is compared with it, and lists every known difference. An unknown
// operation is answered with CodeUnimplemented, and the connection is closed.
//
// The model in short:
//
//   - There is one log of committed writes. Each member has its own copy of the
//     data, the position up to which it has applied the log, and its own
//     watches and connections.
//   - The leader validates a write. It is committed when a majority of members
//     has acknowledged it, and answered by the member that received it, once
//     that member has applied it. Any member answers reads and pings by itself.
//     A sync makes a round trip to the leader.
//   - The leader keeps the sessions. Each half tick members report to it which
//     sessions they have heard from. A session expires at the first whole tick
//     after its timeout. Ticks count from the start of the ensemble. The leader
//     also validates every new connection.
//   - A member that was cut off from its leader answers pings and reads until
//     the sync limit has passed. Then it drops its clients and refuses new
//     ones: it accepts a connection and closes it without an answer. A leader
//     without a majority does the same. A remaining majority elects a new
//     leader, with the next epoch and a full timeout for every session.
//
// Some of what is imitated is surprising. A follower keeps its transaction
// number when a new epoch begins, until the first write in it, and so refuses a
// client that has seen the new leader's number. The old connection of a session
// that has moved to another member still reads and syncs, and is closed by its
// first write. A multi that fails has no error in its header. A container shows
// no owner.
package testutil

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Ensemble is what a test can do with an ensemble, whether it is embedded
// ([Embedded]) or made of real processes (package apache). Members are counted
// from 0.
type Ensemble interface {
	// Servers returns the addresses of all members, separated by commas. Those
	// that were removed are among them.
	Servers() string
	// Dial connects to a member by one of the addresses of Servers. It fits
	// framework.WithDialer and zk.WithDialer.
	Dial(network, address string, timeout time.Duration) (net.Conn, error)
	// Members returns the number of members, running or not, and removed or
	// not.
	Members() int
	// AddMember starts another member, and returns its index once it serves
	// and, with WithReconfig of either package, votes.
	AddMember(ctx context.Context) (member int, err error)
	// RemoveMember removes a member from the configuration. It goes on as a
	// follower without a vote until it is stopped.
	RemoveMember(ctx context.Context, member int) error
	// Stop ends a member's process. Its data stays.
	Stop(member int) error
	// Restart starts a stopped member again, with the same address and
	// data. It does not wait until the member serves: see WaitServing.
	Restart(member int) error
	// Pause freezes a member: its connections stay open and it answers
	// nothing.
	Pause(member int) error
	// Resume lets a paused member go on.
	Resume(member int) error
	// Leader returns the index of the member that leads, or -1 if none
	// does. A standalone server leads.
	Leader() int
	// ExpireSession ends a session as its timeout would: its ephemeral
	// znodes are deleted, and its client is told that the session has
	// expired.
	ExpireSession(id int64) error
	// DropConnections closes the connections of one session, or with 0 of
	// all sessions. The sessions live on.
	DropConnections(id int64) error
	// ClientNet returns the network between the members and the client with
	// this name, for its faults. The same name returns the same network.
	ClientNet(name string) *ClientNet
	// WaitServing returns once all running members serve clients, or an
	// error when ctx ends.
	WaitServing(ctx context.Context) error
}

var _ Ensemble = (*Embedded)(nil)

// Isolate cuts a member off from all other members until heal is called.
// Clients still reach it. An ensemble without this fault, such as one of
// package apache, returns an error that wraps errors.ErrUnsupported.
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
