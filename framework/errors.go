package framework

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

var (
	// ErrClosed is returned once the client is closed, also by calls that wait.
	ErrClosed = errors.New("client closed")
	// ErrSessionLost is returned when the session is over, or can no longer be
	// proven alive. Its ephemeral znodes and watches are gone, or will be.
	ErrSessionLost = errors.New("session lost")
	// ErrUnproven wraps ErrSessionLost. It is the reason when the client's own
	// clock ended a session or a lease: no answer has proven in time that the
	// session is still alive.
	ErrUnproven = fmt.Errorf("%w: not proven alive in time", ErrSessionLost)
	// ErrSuspended wraps ErrSessionLost. It is the reason when a lost connection
	// has ended a lease: see ErrorPolicyConnection.
	ErrSuspended = fmt.Errorf("%w: suspended", ErrSessionLost)
	// ErrNoSession is returned when there is no live session at the moment.
	ErrNoSession = errors.New("no session")
)

// opError is the error of every operation. It names the operation and the path.
type opError struct {
	op, path string
	root     prefix // of the view that path belongs to
	err      error
	maybe    bool // the ensemble may have executed it
}

func (e *opError) Error() string { return e.op + " " + e.path + ": " + e.err.Error() }
func (e *opError) Unwrap() error { return e.err }

// MaybeApplied reports whether the ensemble may have executed the operation
// that failed with err: its request was sent and no answer came, or an earlier
// try of it may have succeeded and made the last one fail. It is false for
// reads, and for operations that are known not to have been executed.
func MaybeApplied(err error) bool {
	var e *opError
	return errors.As(err, &e) && e.maybe
}

// Absent reports whether err says that a znode does not exist. It returns false
// if the chroot does not exist and the client may not create it. Then every
// znode seems to be missing, most likely because the chroot is misspelled: do
// not conclude that a lock is free or that a list is empty. errors.Is(err,
// zk.ErrNoNode) is true in both cases.
func Absent(err error) bool {
	return errors.Is(err, zk.ErrNoNode) && !errors.As(err, new(*missingChroot))
}

// More codes of the protocol, which the package wire does not name.
const (
	codeUnknownSession     wire.Code = -12
	codeNewConfigNoQuorum  wire.Code = -13
	codeReconfigInProgress wire.Code = -14
)

// meanings are the texts of codes that the wire client calls unknown errors.
var meanings = map[wire.Code]string{
	wire.SystemError:          "system error",
	wire.RuntimeInconsistency: "runtime inconsistency",
	wire.DataInconsistency:    "data inconsistency",
	wire.ConnectionLoss:       "connection loss",
	wire.MarshallingError:     "marshalling error",
	wire.Unimplemented:        "unimplemented",
	wire.OperationTimeout:     "operation timeout",
	codeUnknownSession:        "session not known to the server",
	codeNewConfigNoQuorum:     "no quorum of the new configuration",
	codeReconfigInProgress:    "another reconfiguration is in progress",
	wire.InvalidCallback:      "invalid callback",
	wire.NotReadOnly:          "the server is read-only",
	wire.EphemeralOnLocal: "ephemeral znode on a local session: the servers have localSessionsEnabled=true; " +
		"set localSessionsUpgradingEnabled=true on them as well",
	wire.NoWatcher:      "no such watch",
	wire.RequestTimeout: "request timeout",
	wire.SessionClosedRequire: "the server requires SASL authentication, which this client does not have, " +
		"or credentials with another scheme (its enforce.auth.schemes)",
	wire.QuotaExceeded: "quota exceeded",
	wire.Throttled:     "throttled",
}

// unknownError is an error with such a code, and its meaning.
type unknownError struct {
	error
	code    wire.Code
	meaning string
}

func (e *unknownError) Error() string { return fmt.Sprintf("%s (code %d)", e.meaning, e.code) }
func (e *unknownError) Unwrap() error { return e.error }

func (e *unknownError) Is(target error) bool {
	return e.code == wire.SessionClosedRequire && errors.Is(ErrAuthRequired, target)
}

// naming adds the server to an answer that says that it requires more of the
// client: the others may not.
func (s *session) naming(err error) error {
	if !errors.Is(err, ErrAuthRequired) || s == nil || s.latest() == nil {
		return err
	}
	return fmt.Errorf("%s: %w", s.latest().to, err)
}

// withMeaning adds the meaning to an error that the wire client calls unknown.
func withMeaning(err error) error {
	if errors.As(err, new(*unknownError)) { // it has the meaning
		return err
	}
	if code, ok := codeOf(err); ok && meanings[code] != "" {
		return &unknownError{err, code, meanings[code]}
	}
	return err
}

// codeOf returns the code in an error that the wire client calls unknown. Only
// its text has the code.
func codeOf(err error) (wire.Code, bool) {
	var known *unknownError
	if errors.As(err, &known) {
		err = known.error
	}
	text, ok := strings.CutPrefix(err.Error(), "unknown error: ")
	if !ok {
		return 0, false
	}
	code, convErr := strconv.Atoi(text)
	return wire.Code(code), convErr == nil
}

// outcome is what an error of the wire client means for the operation.
type outcome int

const (
	final     outcome = iota // the ensemble's answer: a retry would not change it
	unsent                   // not executed, can be retried
	ambiguous                // may have been executed, can be retried if that does no harm
	expired                  // the session is over
)

// classify returns what an error of the wire client means for the operation.
func classify(err error) outcome {
	switch {
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrClosing):
		return ambiguous
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrSessionMoved):
		return unsent
	case errors.Is(err, zk.ErrSessionExpired):
		return expired
	}
	switch code, _ := codeOf(err); code {
	case wire.ConnectionLoss, wire.OperationTimeout, wire.RequestTimeout:
		return ambiguous
	case wire.Throttled, wire.NotReadOnly:
		return unsent
	}
	return final
}

// isAnswer reports whether an error of the wire client is a server's answer.
func isAnswer(err error) bool {
	return err != nil && !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, zk.ErrNoServer)
}
