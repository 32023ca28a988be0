package recipes

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// WithObserver is an option of framework.New. It adds an observer of calls of
// Acquire and of leases, for metrics and traces. It may be passed several
// times: every observer gets every event. Default: none, which costs nothing.
func WithObserver(o Observer) framework.Option {
	return func(c *managed.Config) { managed.Observe(c, o) }
}

// An Observer has functions that are called for each Acquire and for the end of
// each lease. Each may be nil. If one panics, the panic is logged, and the
// function is called again at the next event. All paths are absolute: they
// include chroot and namespace.
//
// # Where they are called
//
// AcquireStart, AcquireEnd, Released, LostReleased and Overran are called in
// place: on the goroutine that acquires, releases or runs the work, which waits
// for them. No lock of the library is held then, and no deadline depends on
// them. But a lease that was granted stays held while AcquireEnd blocks. If
// several leases are released together, the functions may be called on several
// goroutines at once. For Lost and Revoked see framework.Observer.
//
// # Contexts
//
// A context that is passed to a function has the values of the caller's
// context. AcquireStart returns a context, which AcquireEnd gets. The requests
// of an Acquire also get it: so a span that AcquireStart begins is the parent
// of their spans. Only the values of a returned context are used. The caller's
// deadline and cancellation do not change. The context of the lease has the
// values of the caller's context, not those that AcquireStart has added.
type Observer struct {
	// AcquireStart is called when a call of Acquire or TryAcquire begins, and
	// AcquireEnd when it ends. A recipe of several locks, such as locks.All, calls
	// both for each of its locks. The number of starts minus the number of ends is
	// the number of waiters. AcquireEnd is called before the lease is returned,
	// and before any other event of the lease.
	AcquireStart func(ctx context.Context, a Acquire) context.Context
	AcquireEnd   func(ctx context.Context, a Acquire, r AcquireResult)
	// Either Released or Lost is called for each granted lease, once, when it
	// ends. So the number of held leases is the number of grants minus the number
	// of these calls, unless 65536 events wait: then Lost may be dropped. The
	// context has the values of the lease's context.
	Released func(ctx context.Context, r Release)
	Lost     func(ctx context.Context, l Loss)
	// LostReleased is called when the holder releases a lost lease, with the same
	// Loss as Lost. Lost may be called before or after it. Use LostReleased to add
	// an event to the span of Do's caller: when Lost is called, that span may have
	// ended. It is not called for a lost lease that is never released.
	LostReleased func(ctx context.Context, l Loss)
	// Overran is called when work under Do returns after its lease's deadline.
	// Another client may hold the lock by that time. With LostSession,
	// LostDeleted and LostClosed the loss itself is the deadline, so all work
	// would overrun: then Overran is called only if the work goes on for at least
	// a tenth of the session timeout longer.
	Overran func(ctx context.Context, o Overrun)
	// Revoked is called when another client asks the holder to release. It needs
	// a holder that has called Lease.Revoked.
	Revoked func(ctx context.Context, r Revocation)
}

// Acquire is a call of Acquire or TryAcquire.
type Acquire struct {
	// Recipe is "mutex", "read", "write", "semaphore" or "election", or the kind
	// that NewLine was given.
	Recipe string
	// Mode is "exclusive" or "shared".
	Mode string
	// Path is the path of the lock at the ensemble.
	Path string
	// Label names a group of locks to count together. It is the label that
	// WithLabel has set, otherwise the root for the locks of a
	// locks.Keyed, otherwise the path.
	Label string
	// Try is true for TryAcquire.
	Try bool
	// Permits is how many are acquired: 1, except of a semaphore.
	Permits int
}

// AcquireResult is how a call of Acquire or TryAcquire has ended.
type AcquireResult struct {
	Grant  Grant         // zero after an error
	Waited time.Duration // how long the call took
	Err    error         // nil: granted
}

// Grant is what a call of Acquire was granted.
type Grant struct {
	How     How
	At      time.Time // when it was granted
	Token   string    // the fencing token, as text
	Session int64     // the id of the session that it belongs to
	Znode   string    // the path of the lease's znode at the ensemble; of several permits, the first one's
}

// How says how a call of Acquire was granted.
type How string

// How a call of Acquire was granted.
const (
	// GrantedByEnsemble: a znode came to the front of the line.
	GrantedByEnsemble = How(line.ByEnsemble)
	// GrantedByHandoff: another caller of the same process has released the lock,
	// and this caller, who was waiting, has taken over the znode.
	GrantedByHandoff = How(line.ByHandoff)
	// GrantedByLinger: the process had kept an unused znode for the next caller.
	GrantedByLinger = How(line.ByLinger)
	// GrantedByShare: another caller of the same process holds the same shared
	// lock.
	GrantedByShare = How(line.ByShare)
	// GrantedByReentry: the caller's context carries a lease of the same lock.
	GrantedByReentry = How(line.ByReentry)
)

// Release is the end of a lease that was held until its release.
type Release struct {
	Acquire Acquire
	Grant   Grant
	Held    time.Duration
}

// Loss is the end of a lease before its release.
type Loss struct {
	Acquire Acquire
	Grant   Grant
	At      time.Time
	Held    time.Duration
	Reason  LossReason
	Err     error // what Lease.Err returns
}

// LossReason says why a lease was lost.
type LossReason string

// Why a lease was lost.
const (
	// LostUnproven: the session was not proven alive in time, by the client's
	// clock.
	LostUnproven LossReason = "unproven"
	// LostSession: the ensemble has ended the session.
	LostSession LossReason = "session"
	// LostConnection: the connection was lost, under
	// framework.ErrorPolicyConnection.
	LostConnection LossReason = "connection"
	// LostDeleted: somebody else has deleted the lease's znode.
	LostDeleted LossReason = "deleted"
	// LostMaxHold: it was held for as long as WithMaxHold allows.
	LostMaxHold LossReason = "max_hold"
	// LostClosed: the client was closed.
	LostClosed LossReason = "closed"
	// LostOtherwise: any other reason, as Err says.
	LostOtherwise LossReason = "other"
)

// Overrun reports work under Do that returned after its lease's deadline.
type Overrun struct {
	Acquire Acquire
	Grant   Grant
	By      time.Duration // how long after the deadline
}

// Revocation is a request to the holder of a lease to release it.
type Revocation struct {
	Acquire Acquire
	Grant   Grant
}
