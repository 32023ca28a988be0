package zkerr

import (
	"errors"
	"io"
	"syscall"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Outcome is what an error of the wire client means for the operation.
type Outcome int

// The outcomes.
const (
	Final     Outcome = iota // the ensemble's answer: a retry would not change it
	Unsent                   // not executed, can be retried
	Ambiguous                // may have been executed, can be retried if that does no harm
	Expired                  // the session is over
)

// Classify returns what an error of the wire client means for the operation.
func Classify(err error) Outcome {
	switch {
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrClosing):
		return Ambiguous
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrSessionMoved):
		return Unsent
	case errors.Is(err, zk.ErrSessionExpired):
		return Expired
	}
	switch code, _ := Code(err); code {
	case wire.ConnectionLoss, wire.OperationTimeout, wire.RequestTimeout:
		return Ambiguous
	case wire.Throttled, wire.NotReadOnly:
		return Unsent
	}
	return Final
}

// IsAnswer reports whether an error of the wire client is a server's answer.
func IsAnswer(err error) bool {
	return err != nil && !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, zk.ErrNoServer)
}

// IsRefusal reports whether a server does not have the operation that has
// failed with err.
func IsRefusal(err error) bool {
	if err == nil {
		return false
	}
	code, _ := Code(err)
	return code == wire.Unimplemented || code == wire.MarshallingError
}

// IsHangUp reports whether the server has ended the connection, not we.
func IsHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
