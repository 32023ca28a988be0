package framework

import (
	"context"
	"time"
)

// WithObserver adds an observer, for metrics and traces. It may be passed
// several times: every observer gets every event. Default: none, which costs
// nothing.
func WithObserver(o Observer) Option { return func(c *config) { c.observers = append(c.observers, o) } }

// An Observer has functions that the client calls when something happens: an
// Acquire, the end of a lease, a request, a change of the state of the client,
// a presence or a cache. Each may be nil. If one panics, the panic is logged,
// and the function is called again at the next event. All paths are absolute:
// they include chroot and namespace.
//
// # Where they are called
//
// AcquireStart, AcquireEnd, Released, LostReleased and Overran are called in
// place: on the goroutine that acquires, releases or runs the work, which waits
// for them. No lock of the library is held then, and no deadline depends on
// them. But a lease that was granted stays held while AcquireEnd blocks. If
// several leases are released together, the functions may be called on several
// goroutines at once.
//
// For all others the client has one goroutine for each observer. It calls them
// one at a time, in the order of the events. While one of them blocks, later
// events of this observer wait in memory, and nothing else waits. When too
// many events wait, further ones are dropped, and Dropped reports how many. The
// limit is 4096 for requests, Batched, Retried and CacheRead, and 65536 for the
// rest. Of a request either both RequestStart and RequestEnd are dropped, or
// neither is.
//
// # Contexts
//
// A context that is passed to a function has the values of the caller's
// context. AcquireStart and RequestStart return a context, which AcquireEnd and
// RequestEnd get. The requests of an Acquire also get the context of
// AcquireStart: so a span that AcquireStart begins is the parent of their
// spans. Only the values of a returned context are used. The caller's deadline
// and cancellation do not change. The context of the lease has the values of
// the caller's context, not those that AcquireStart has added.
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
	// of these calls. The context has the values of the lease's context.
	Released func(ctx context.Context, r Release)
	Lost     func(ctx context.Context, l Loss)
	// LostReleased is called when the holder releases a lost lease, with the same
	// Loss as Lost. Lost may be called before or after it. Use LostReleased to add
	// an event to the span of Do's caller: when Lost is called, that span may have
	// ended. It is not called for a lost lease that is never released.
	LostReleased func(ctx context.Context, l Loss)
	// Overran is called when work under Do returns after its lease's deadline.
	// Another client may hold the lock by that time. With LostSession,
	// LostDeleted and LostClosed the loss itself is the deadline, and no work can
	// return before it: then Overran is called only if the work goes on for at
	// least a tenth of the session timeout after the loss.
	Overran func(ctx context.Context, o Overrun)
	// Revoked is called when another client asks the holder to release. It needs
	// a holder that has called recipes.Lease.Revoked.
	Revoked func(ctx context.Context, r Revocation)

	// RequestStart is called for each request to the ensemble, and RequestEnd for
	// its answer. They run on the observer's goroutine, so both may be called
	// after the answer: use Request.Began and RequestResult.Took for times. They
	// are not called for the heartbeats of the session.
	RequestStart func(ctx context.Context, r Request) context.Context
	RequestEnd   func(ctx context.Context, r Request, result RequestResult)
	// Retried is called when an operation is tried again after an error.
	Retried func(ctx context.Context, r Retry)
	// Batched is called for each request in which the writes of several contenders
	// were sent together. For RequestStart and RequestEnd that is one "multi".
	Batched func(b Batch)

	// PresenceChanged is called when a presence.Node is started, and at every
	// change of its state.
	PresenceChanged func(PresenceChange)
	// CacheChanged is called when a cache.Cache is started, and at every change of
	// its state. CacheRead is called when it has read znodes, for any reason.
	CacheChanged func(CacheChange)
	CacheRead    func(CacheRead)

	// EphemeralsChanged is called when the used percentage of the limit of
	// ephemeral paths changes: see WithMaxEphemerals.
	EphemeralsChanged func(EphemeralsChange)

	// Opened is called once for each client that New returns, before StateChanged.
	// The client ends with a change of its state to Closed.
	Opened func()
	// StateChanged is called at every change of the client's state.
	StateChanged func(StateChange)
	// Abandoned is called when the client itself gives up a connection.
	Abandoned func(a Abandonment)
	// Dropped is called after events were dropped.
	Dropped func(d Drop)
}

// Acquire is a call of Acquire or TryAcquire.
type Acquire struct {
	// Recipe is "mutex", "read", "write", "semaphore" or "election", or the kind
	// that recipes.NewLine was given.
	Recipe string
	// Mode is "exclusive" or "shared".
	Mode string
	// Path is the path of the lock at the ensemble.
	Path string
	// Label names a group of locks to count together. It is the label that
	// recipes.WithLabel has set, otherwise the root for the locks of a
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
	GrantedByEnsemble How = "ensemble"
	// GrantedByHandoff: another caller of the same process has released the lock,
	// and this caller, who was waiting, has taken over the znode.
	GrantedByHandoff How = "handoff"
	// GrantedByLinger: the process had kept an unused znode for the next caller.
	GrantedByLinger How = "linger"
	// GrantedByShare: another caller of the same process holds the same shared
	// lock.
	GrantedByShare How = "share"
	// GrantedByReentry: the caller's context carries a lease of the same lock.
	GrantedByReentry How = "reentry"
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
	// LostConnection: the connection was lost, under ErrorPolicyConnection.
	LostConnection LossReason = "connection"
	// LostDeleted: somebody else has deleted the lease's znode.
	LostDeleted LossReason = "deleted"
	// LostMaxHold: it was held for as long as recipes.WithMaxHold allows.
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

// Request is a request to the ensemble.
type Request struct {
	Op         string // "create", "list", "multi", ...
	Path       string // of a multi: the path of its first operation
	Operations int    // of a multi; otherwise 1
	Session    int64
	Server     string // the address of the server, as it was dialed
	Began      time.Time
}

// RequestResult is how a request has ended.
type RequestResult struct {
	Took time.Duration
	Code string // see ErrorCode
	Err  error  // as the wire client has returned it
}

// Retry is another attempt of an operation.
type Retry struct {
	Op   string
	Path string
	Err  error // of the previous attempt
}

// Batch is a request in which writes of several contenders were sent together.
type Batch struct {
	Operations int
}

// Abandonment is the end of a connection that the client has given up.
type Abandonment struct {
	Session int64
	Reason  AbandonReason
	Err     error
}

// AbandonReason says why the client has given a connection up.
type AbandonReason string

// Why the client has given a connection up.
const (
	// AbandonedSilent: the server has not answered the connect request.
	AbandonedSilent AbandonReason = "silent"
	// AbandonedUnproven: no answer has proven in time that the server is in touch
	// with its leader.
	AbandonedUnproven AbandonReason = "unproven"
	// AbandonedStuck: the wire client has not ended after its connection was
	// closed. It is left behind.
	AbandonedStuck AbandonReason = "stuck"
)

// text is the reason in words.
func (r AbandonReason) text() string {
	switch r {
	case AbandonedSilent:
		return "no answer to the connect request"
	case AbandonedUnproven:
		return "no proof of the leader in time"
	case AbandonedStuck:
		return "the wire client does not end"
	}
	return string(r)
}

// Drop reports how many events were dropped since the last Drop.
type Drop struct {
	Events int
}
