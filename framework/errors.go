package framework

import "github.com/zkrecipes/zkrecipes/internal/managed/zkerr"

// This file has the errors of a client, and what can be asked of an error.

var (
	// ErrClosed is returned once the client is closed, also by calls that wait.
	ErrClosed = zkerr.Closed
	// ErrSessionLost is returned when the session is over, or can no longer be
	// proven alive. Its ephemeral znodes and watches are gone, or will be.
	ErrSessionLost = zkerr.SessionLost
	// ErrUnproven wraps ErrSessionLost. It is the reason when the client's clock
	// ended a session or a lease: no answer has proven in time that it is alive.
	ErrUnproven = zkerr.Unproven
	// ErrSuspended wraps ErrSessionLost. It is the reason when a lost connection
	// has ended a lease: see ErrorPolicyConnection.
	ErrSuspended = zkerr.Suspended
	// ErrNoSession is returned when there is no live session at the moment.
	ErrNoSession = zkerr.NoSession
	// ErrTooLarge is returned for a request that is larger than the ensemble
	// accepts, and for the create of an ephemeral znode with which the session
	// would be larger than the ensemble can end. It was not sent: a server would
	// close the connection, or all of them would stop. The error names both sizes.
	// See WithMaxRequest and WithMaxEphemerals.
	ErrTooLarge = zkerr.TooLarge
	// ErrAuthFailed wraps zk.ErrAuthFailed. It is the reason when a server, or
	// what the mechanism asks, has refused the client, or a server could not prove
	// its identity.
	ErrAuthFailed = zkerr.AuthFailed
	// ErrAuthRequired wraps ErrAuthFailed. It is the answer of a server to a
	// request of a client that it has let connect: it requires SASL, and the
	// client was made without WithSASL, or it requires credentials with another
	// scheme. The next connection will not mend that.
	ErrAuthRequired = zkerr.AuthRequired
)

// MaybeApplied reports whether the ensemble may have executed the operation
// that failed with err: its request was sent and no answer came, or an earlier
// try of it may have succeeded and made the last one fail. It is false for
// reads, and for operations that are known not to have been executed.
func MaybeApplied(err error) bool { return zkerr.MaybeApplied(err) }

// Absent reports whether err says that a znode does not exist. It returns false
// if the chroot does not exist and the client may not create it. Then every
// znode seems to be missing, most likely because the chroot is misspelled: do
// not conclude that a lock is free or that a list is empty. errors.Is(err,
// zk.ErrNoNode) is true in both cases.
func Absent(err error) bool { return zkerr.Absent(err) }

// ErrorCode returns a short name for an error of this package or of the wire
// client, to be used as a label of metrics. There are fewer than 50 names:
//
//   - "OK" for nil.
//   - The name in ZooKeeper's Java client, such as "NONODE" or
//     "SESSIONEXPIRED". "CONNECTIONLOSS" says that the connection was lost
//     before the answer came.
//   - "NOSERVER", "CLOSED", "UNPROVEN", "TIMEOUT" or "CANCELED" for a request
//     that was not sent or not answered.
//   - "OTHER" for everything else.
func ErrorCode(err error) string { return zkerr.Name(err) }
