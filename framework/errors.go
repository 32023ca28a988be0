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
	// ErrClosed ends everything that waits once the client is closed.
	ErrClosed = errors.New("client closed")
	// ErrSessionLost says that the session is over, or can no longer be proven
	// alive: its ephemeral znodes and watches are gone or will be.
	ErrSessionLost = errors.New("session lost")
	// ErrUnproven is the ErrSessionLost of what was given up by the clock: no
	// answer has proven in time that the ensemble still counts on the session.
	ErrUnproven = fmt.Errorf("%w: not proven alive in time", ErrSessionLost)
	// ErrNoSession says that there is no live session at the moment.
	ErrNoSession = errors.New("no session")
)

// opError is the error of every operation: what was being done, and to what.
type opError struct {
	op, path string
	err      error
	maybe    bool // the ensemble may have executed it all the same
}

func (e *opError) Error() string { return e.op + " " + e.path + ": " + e.err.Error() }
func (e *opError) Unwrap() error { return e.err }

// MaybeApplied reports whether the operation that failed with err may have been
// executed by the ensemble all the same: its request was sent and no answer
// came, or an earlier try of it may be what the last one ran into. It is false
// for reads, and for what is known not to have been executed.
func MaybeApplied(err error) bool {
	var e *opError
	return errors.As(err, &e) && e.maybe
}

// Codes of the protocol that ZooKeeper's own clients name, too.
const (
	codeUnknownSession     wire.Code = -12
	codeNewConfigNoQuorum  wire.Code = -13
	codeReconfigInProgress wire.Code = -14
)

// meanings are the texts of codes that the wire client only calls unknown errors.
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
		"set localSessionsUpgradingEnabled=true on them, too",
	wire.NoWatcher:            "no such watch",
	wire.RequestTimeout:       "request timeout",
	wire.SessionClosedRequire: "the servers require SASL authentication, which this client does not have",
	wire.QuotaExceeded:        "quota exceeded",
	wire.Throttled:            "throttled",
}

// unknownError is one of them, with its meaning.
type unknownError struct {
	error
	code    wire.Code
	meaning string
}

func (e *unknownError) Error() string { return fmt.Sprintf("%s (code %d)", e.meaning, e.code) }
func (e *unknownError) Unwrap() error { return e.error }

// named gives an error that the wire client does not know its meaning.
func named(err error) error {
	if code, ok := wireCode(err); ok && meanings[code] != "" {
		return &unknownError{err, code, meanings[code]}
	}
	return err
}

// wireCode gives the code in an error that the wire client does not know: the
// text is all that it leaves.
func wireCode(err error) (wire.Code, bool) {
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

// verdict is what an error of the wire client means for the operation.
type verdict int

const (
	final     verdict = iota // the ensemble's answer: no retry changes it
	unsent                   // not executed, may be tried again
	ambiguous                // may have been executed, may be tried again if that does no harm
	expired                  // the session is over
)

func judge(err error) verdict {
	switch {
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrClosing):
		return ambiguous
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrSessionMoved):
		return unsent
	case errors.Is(err, zk.ErrSessionExpired):
		return expired
	}
	switch code, _ := wireCode(err); code {
	case wire.ConnectionLoss, wire.OperationTimeout, wire.RequestTimeout:
		return ambiguous
	case wire.Throttled, wire.NotReadOnly:
		return unsent
	}
	return final
}

// isThrottled reports whether the server refused a request for now.
func isThrottled(err error) bool {
	if err == nil {
		return false
	}
	code, _ := wireCode(err)
	return code == wire.Throttled
}
