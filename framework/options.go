package framework

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/retry"
)

// This file has the options of New.

// Dialer opens a connection to a server. address is "host:port", with a name or
// an IP address: see WithDialer. It must return within timeout.
type Dialer func(network, address string, timeout time.Duration) (net.Conn, error)

// Proof selects what the heartbeat of a client proves.
type Proof int

const (
	// ProofSync: the heartbeat is a sync, which the leader answers. A leader that
	// has lost its quorum, and has not noticed yet, still answers it and accepts
	// sessions.
	ProofSync Proof = iota
	// ProofWrite: the heartbeat is a multi of one check on the root, which needs
	// the quorum. It costs the ensemble one log write per heartbeat. Only writes,
	// and the creation of the session, count as proof.
	ProofWrite
)

// ErrorPolicy selects what a disconnect means for leases.
type ErrorPolicy int

const (
	// ErrorPolicySession: a lease survives a disconnect, until its deadline. This
	// is Curator's SessionConnectionStateErrorPolicy.
	ErrorPolicySession ErrorPolicy = iota
	// ErrorPolicyConnection: a lease is lost as soon as the state is Suspended.
	// This is Curator's StandardConnectionStateErrorPolicy, its default.
	ErrorPolicyConnection
)

// Option configures a client. New returns an error for a bad value.
type Option func(*config)

// config is what options set. Only packages of this module can name it.
type config = managed.Config

// DefaultSessionTimeout is the session timeout without WithSessionTimeout.
const DefaultSessionTimeout = 10 * time.Second

// WithSessionTimeout sets the session timeout to request. The server limits it,
// by default to between 2 and 20 of its ticks; Session.Timeout returns the
// result. If members grant different ones, the shortest counts from then on,
// and later connects ask for it. A server that shortens it to less than 100ms,
// or extends it to more than an hour, is not used. At least 1ms. Default 10s.
func WithSessionTimeout(d time.Duration) Option { return func(c *config) { c.SessionTimeout = d } }

// WithRetry sets the policy by which an operation, or a step of a recipe, is
// retried after a loss of the connection, or while no server answers. Each
// operation has one budget, however many requests it makes. A policy that
// panics counts as used up. Default retry.Exponential(50ms, 2s, 20).
func WithRetry(p retry.Policy) Option { return func(c *config) { c.Retry, c.RetryIsUsers = p, true } }

// WithLogger sets the logger. It may block: the client passes lines to it on
// another goroutine. Of this and WithSlog, the last one counts. Default: none.
func WithLogger(log *zap.Logger) Option { return func(c *config) { c.Log = log } }

// WithSlog is WithLogger for log/slog. Lines have no source file and line.
func WithSlog(log *slog.Logger) Option { return func(c *config) { c.Log = supplied.Slog(log) } }

// WithACL sets the ACL of all znodes that are created without one, parents
// included. acl is copied. Default: all permissions for everybody.
func WithACL(acl ...zk.ACL) Option {
	acl = slices.Clone(acl)
	return func(c *config) { c.ACL = acl }
}

// WithAuth adds credentials, such as ("digest", []byte("user:password")). Each
// connection presents them before it sends anything else. data is copied. The
// option may be repeated.
func WithAuth(scheme string, data []byte) Option {
	data = bytes.Clone(data)
	return func(c *config) { c.Auths = append(c.Auths, wire.AuthRequest{Scheme: scheme, Auth: data}) }
}

// WithMaxRequest sets the size of the largest request, in bytes. It must be
// what the servers have as jute.maxbuffer, if that was changed. A larger
// request fails with ErrTooLarge and is not sent, because a server would close
// the connection. The client keeps a buffer of that size, of 128 KiB at least.
// At least 16384, at most 33554432. Default 1048575, the servers' default.
func WithMaxRequest(bytes int) Option { return func(c *config) { c.MaxRequest = bytes } }

// WithMaxEphemerals limits the total length of the paths of a session's
// ephemeral znodes: absolute paths, plus 4 bytes each. A create above the limit
// fails with ErrTooLarge and is not sent. Before that, the client releases
// lingering locks, and asks the ensemble what there is. If the server does not
// say whether it can be asked, the create is tried again, for up to three
// session timeouts.
//
// The limit protects the ensemble. The end of a session is one transaction with
// all these paths. If it is longer than the servers' jute.maxbuffer and
// jute.maxbuffer.extrasize together, no member can read it, and none starts
// again (ZOOKEEPER-4306). A larger limit needs a larger extrasize at all
// servers. Use more clients or shorter paths instead. Servers before 3.6 have
// no such transaction, and the limit is not applied. From half of
// WithMaxRequest on a warning is logged.
//
// Bytes are reserved in advance, so that a holder is never refused: for permits
// and for the downgraded read of a write lock when the caller joins the line,
// for a presence when it is first created. At least 16384, at most 2147483647.
// Default one and a half times WithMaxRequest.
func WithMaxEphemerals(bytes int) Option { return func(c *config) { c.MaxEphemerals = &bytes } }

// WithCreateChroot lets the client create its chroot, the path behind the
// addresses of the servers. A create that finds a znode missing then creates
// the chroot, and what is missing above it, as persistent znodes with the
// client's ACL, and is made once more. If several clients do so at once, all
// succeed. Reads and watches create nothing. It costs two requests for each
// create that fails with zk.ErrNoNode. Default: a create below a missing chroot
// fails, as New says.
func WithCreateChroot() Option { return func(c *config) { c.CreateChroot = true } }

// WithDialer sets the function that opens connections. With WithResolver it
// gets addresses. Otherwise it gets the names of the server list, and looks
// them up: then a failing name service can cost leases. Nobody waits for a
// dialer for longer than its timeout. Default: TCP.
func WithDialer(dial Dialer) Option { return func(c *config) { c.Dial = dial } }

// WithResolver sets the resolver for the names of the server list. The dialer
// is then called with addresses. Each attempt to connect looks up its name, and
// at the same time all other names without a recent answer. If a name has
// several addresses, each is tried in turn, as if the list had all of them. r
// is copied. Lookups end with the client, but for those by the C library.
//
// If the name server fails, or is silent for a 48th of the session timeout, the
// client uses the addresses of the last answer, but not if it answers that
// there is no such name, or with other addresses. At an address of the last
// answer the session is resumed. From a third of the session timeout after that
// answer on, a new session there, or the answer that the session is gone,
// counts only if the chroot has the same Czxid and Ctime as before; without a
// chroot, only if the ensemble's latest transaction is not below the latest one
// that the client has seen. The chroot is the safer check, so use one. If the
// list has names, this costs one request after each connect. Default:
// net.DefaultResolver, or none if WithDialer is set.
func WithResolver(r *net.Resolver) Option {
	return func(c *config) { c.Resolver, c.ResolverSet = r, true }
}

// WithServersFunc sets a function that returns the list of servers, in the form
// that New takes, such as the content of a file. Without a chroot the one of
// New is meant; another one is an error. New still needs a list, which is used
// until the function has returned one.
//
// The client calls the function on a separate goroutine: at the start, about
// once a minute, and when each server of the list was called without success,
// then with pauses that grow up to a minute. A call gets one session timeout;
// what it returns later is dropped. While the client is connected an answer
// replaces the list when it has come twice in a row; without a connection it
// does immediately. If the function fails, panics, or returns an empty or a
// wrong list, the last list stays, and a warning is logged. A new list has the
// effects of Client.SetServers, which ends the calls. Default: none.
func WithServersFunc(list func(ctx context.Context) (string, error)) Option {
	return func(c *config) { c.Servers, c.ServersSet = list, true }
}

// WithEnsembleTracking makes the client follow the znode /zookeeper/config, in
// which ZooKeeper 3.5 and later show the members of the ensemble. All members
// can then be replaced without a new list, and no lease is lost. A client that
// starts needs a given server that answers. Default: off. Leave it off where
// clients reach the servers by other addresses than members do.
//
// Servers of New, SetServers and WithServersFunc stay in the list, and are
// called first; servers that were silent when they were called last are called
// last. The client moves away from a member that was removed from the config,
// even if it was given, as after SetServers. It does not move for a new one.
//
// A member needs an address for clients. If that is a wildcard, the member's
// host counts, with that port. Loopback and link-local addresses count only if
// a given server has such an address. With TLS it is the port for TLS, which
// ZooKeeper 3.10 and later show, and otherwise the other one. A warning is
// logged for members that are left out, and for a config that is not used, such
// as one of more than 255 members. At one version, such as 0 where nobody
// reconfigures, each member may show its own file: what members have shown
// within an hour counts together.
//
// At an address that only the config has, a session is resumed, and a new
// session, or the answer that the session is gone, counts as WithResolver says
// for an address of an earlier answer: so use a chroot. A Guardian is told of
// the given servers alone. Credentials and the password of the session go to
// all members: trust who may reconfigure the ensemble.
//
// It costs one request in a session timeout, and two after each connect.
func WithEnsembleTracking() Option { return func(c *config) { c.Track = managed.Track } }

// WithTLS uses TLS on each connection. If cfg has no ServerName, the name in
// the server list is used, whatever its address is. cfg is cloned. Of this and
// WithTLSFunc, the last one counts. Default: none.
func WithTLS(cfg *tls.Config) Option {
	if cfg == nil {
		return WithTLSFunc(nil)
	}
	cfg = cfg.Clone()
	return WithTLSFunc(func() (*tls.Config, error) { return cfg, nil })
}

// WithTLSFunc is WithTLS with a configuration that may change: certificates are
// replaced before they expire. The client calls current before each connection,
// the one that closes a lost session included, on a separate goroutine, so it
// may read files. It must not change what it has returned. What it returns
// after the time to connect is dropped. If it fails, or returns nil, the server
// is not called, and the next attempt asks again. Existing connections do not
// change.
func WithTLSFunc(current func() (*tls.Config, error)) Option {
	return func(c *config) { c.TLS, c.TLSSet = current, true }
}

// WithStopMargin sets how long before its deadline a lease is declared lost, so
// that work under it has time to stop. The longer the margin, the shorter the
// disconnect, and the round trip to the leader, at which leases last. 0, or at
// least 1ms, and at most a third of the session timeout: if a shorter timeout
// is granted, a third of that at most. Default a tenth of the session timeout.
func WithStopMargin(d time.Duration) Option { return func(c *config) { c.StopMargin = &d } }

// WithServerTick sets the servers' tickTime: the longest one of members that
// may lead, or be an observer master. By default the wait F between a contact
// and the round trips that prove it is a third of the session timeout T. With
// this option it is a tick and T/40, or half a tick and T/12 if that is longer;
// but at most T/3, or a tick if that is longer.
//
// A tick of up to T/5 makes heartbeats rarer, 8 syncs in T instead of 12, and
// proofs quicker. A long one is needed if T/3 is shorter than a tick, and one
// of these is true:
//
//   - The servers' minSessionTimeout was set below two ticks, and the session
//     timeout is less than that.
//   - Clients reach the leader over two hops, because a member follows an
//     observer master (observerMasterPort, ZooKeeper 3.6). Each hop delays the
//     news of a session by up to half a tick, and the servers' network adds to
//     it. So pass a tick and T/12, or more: F must exceed a tick by more than a
//     round trip between these two members takes at worst.
//   - The members have different tickTimes. The leader's determines the delay,
//     while another member's may have determined the shortest session timeout.
//
// At least 1ms, and at most half of the session timeout. If the servers grant a
// session timeout that is too short for this tick, no lease can last, since the
// client never uses a shorter tick instead: each proof fails immediately, with
// an error that names the granted timeout, the stop margin and the tick.
// Default 0: not known, and not needed.
func WithServerTick(d time.Duration) Option { return func(c *config) { c.ServerTick = d } }

// WithProof sets what the heartbeat proves. Default ProofSync.
func WithProof(p Proof) Option { return func(c *config) { c.Proof = managed.Proof(p) } }

// WithBatching sets whether the creates and deletes with which contenders join
// and leave lines share requests. If true, each is sent at once while few
// requests of the session are under way; otherwise those that are asked for
// meanwhile are sent together, as one multi. If false, each is a request of its
// own, and is always sent at once. Default true.
func WithBatching(on bool) Option { return func(c *config) { c.NoBatching = !on } }

// WithContainers sets whether the client creates containers, which the ensemble
// removes some time after their last child. If false, it creates persistent
// znodes instead, directories of recipes and their parents included. If true,
// it does so only while the servers have no containers: a server refused one as
// unimplemented or as bad arguments, or two connections in a row ended on the
// create of one. It asks again over a separate connection, after pauses of up
// to an hour and at each new server. Default true.
func WithContainers(on bool) Option { return func(c *config) { c.NoContainers = !on } }

// WithSweep makes the client delete the directories that it has made for
// recipes, and those of lines that it has used, once they were empty for idle.
// It is for servers without containers, where they would stay. The delete comes
// one to two times idle after the last child, in one transaction, which does
// nothing if anything was created there meanwhile. A contender that finds its
// directory missing makes it again.
//
// Kept are the chroot, and directories in Kazoo's layouts. Of those that the
// client has not made, it deletes only what it would make: one without data,
// with the client's ACL, neither of them ever set. If several clients with this
// option use a directory, the first of them deletes it, and nobody does if none
// of them is left. On ClickHouse Keeper one stays in which data of a child was
// set.
//
// It costs one request for each directory in every idle, one after the other,
// and one for the delete. At least 1s; minutes are usual. Default: nothing is
// deleted.
func WithSweep(idle time.Duration) Option { return func(c *config) { c.Sweep = &idle } }

// WithErrorPolicy sets what a disconnect does to leases. Default
// ErrorPolicySession.
func WithErrorPolicy(p ErrorPolicy) Option {
	return func(c *config) { c.ErrorPolicy = managed.ErrorPolicy(p) }
}

// WithGuardian tells g of each session of the client before anything is sent in
// it, and of its end. g closes the sessions if this process dies, so that
// others get what it has held in milliseconds instead of a session timeout:
// package guardian has one. The option may be repeated: each g is told. It
// costs a write to a socket at each connect, and no request. Default: none.
func WithGuardian(g Guardian) Option {
	return func(c *config) { c.Guardians = append(c.Guardians, guardianOf(g)) }
}

// Guardian is told of the sessions of a client. The client calls its methods on
// separate goroutines, one at a time. A connection waits for Guard. A method
// that panics, or takes longer than 100ms and a 20th of the session timeout, is
// the last one that is called. The guardian is then lost: the client logs that,
// and calls Observer.GuardianLost.
type Guardian interface {
	// Guard is called with each answer to a connect of a session.
	Guard(s DeadSession)
	// Over is called when the client sends nothing in a session any more, of which
	// s has the ID and the Servers. closed says that the ensemble is known not to
	// have it. Otherwise it ends by its timeout.
	Over(s DeadSession, closed bool)
	// Lost returns a channel that is closed when the guardian has ended, and Err
	// why it has.
	Lost() <-chan struct{}
	Err() error
	// Close is called when the guardian is lost. It must not close any session
	// then: it may not know all of this process.
	Close() error
}

// DeadSession is a session as another process can close it, once its own is
// dead.
type DeadSession struct {
	ID       int64
	Password []byte
	Timeout  time.Duration // that was granted
	Servers  string        // of its ensemble, as given: "h1:2181,h2:2181", sorted and without a chroot
	Server   string        // where it was last; an address, if the name has several
}

// guardianOf returns g as the client calls it; of none it has no functions.
func guardianOf(g Guardian) servers.Guardian {
	if g == nil {
		return servers.Guardian{}
	}
	return servers.Guardian{
		Guard: func(s servers.Guarded) { g.Guard(DeadSession(s)) },
		Over:  func(s servers.Guarded, closed bool) { g.Over(DeadSession(s), closed) },
		Ended: g.Lost, Err: g.Err, Close: g.Close,
	}
}
