// Package zkerr says what an error means: one of a server, of the wire client
// or of the managed client itself. It has no state.
//
// Callers can rely on this: nothing here blocks, and errors.Is and errors.As
// find in each error what it wraps.
//
// zkerr.go has the errors that the managed client makes, codes.go what the
// codes of the servers mean, and outcome.go what an error says about the
// request that has failed with it.
package zkerr

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// The errors of package framework: its variables have their comments.
var (
	Closed       = errors.New("client closed")
	SessionLost  = errors.New("session lost")
	Unproven     = fmt.Errorf("%w: not proven alive in time", SessionLost)
	Suspended    = fmt.Errorf("%w: suspended", SessionLost)
	NoSession    = errors.New("no session")
	TooLarge     = errors.New("request too large")
	AuthFailed   = fmt.Errorf("%w: %w", zk.ErrAuthFailed, SASL)
	AuthRequired = fmt.Errorf("%w: more credentials are required", AuthFailed)
)

var (
	// SASL is wrapped by each error of an exchange that has failed, or could not
	// begin.
	SASL = errors.New("SASL")
	// Malformed is wrapped by the error of an answer that makes no sense.
	Malformed = errors.New("malformed answer")
	// AnotherSession is wrapped by the end of a session that a server has not
	// resumed.
	AnotherSession = errors.New("the server has opened another session instead")
	// NotVouched is wrapped by the end of a connection to a server that may be of
	// another ensemble.
	NotVouched = errors.New("the address is not confirmed, and the ensemble there is not known to be the same")
)

// Op is the error of every operation. It names the operation and the path.
type Op struct {
	Op, Path string
	Root     string // of the view that Path belongs to
	Err      error
	Maybe    bool // the ensemble may have executed it
}

func (e *Op) Error() string { return e.Op + " " + e.Path + ": " + e.Err.Error() }
func (e *Op) Unwrap() error { return e.Err }

// MaybeApplied reports whether err is an Op that may have been executed.
func MaybeApplied(err error) bool {
	var e *Op
	return errors.As(err, &e) && e.Maybe
}

// ChrootMissing is the error of an operation that has failed because the chroot
// does not exist, and the client may not create it. It wraps zk.ErrNoNode.
type ChrootMissing struct {
	Chroot string
	Err    error
}

func (e *ChrootMissing) Error() string {
	return fmt.Sprintf("chroot %s does not exist, and the client was made without WithCreateChroot: %v", e.Chroot, e.Err)
}

func (e *ChrootMissing) Unwrap() error { return e.Err }

// MissingChroot returns the chroot. Packages that may not import this one find
// the error by this method.
func (e *ChrootMissing) MissingChroot() string { return e.Chroot }

// Absent reports whether err says that a znode does not exist. It is false if
// the chroot is missing: every znode seems to be missing then.
func Absent(err error) bool {
	return errors.Is(err, zk.ErrNoNode) && !errors.As(err, new(*ChrootMissing))
}

// Explanation returns an error that explains another one. errors.Is and
// errors.As look into it, but never take it for the end of the caller's
// context: a dial that timed out is also a context.DeadlineExceeded.
func Explanation(err error) error { return explanation{err} }

type explanation struct{ error }

func (e explanation) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.error, target)
}

func (e explanation) As(target any) bool { return errors.As(e.error, target) }

// Because adds to err the reason why, if there is one.
func Because(err, why error) error {
	if why == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", err, why)
}
