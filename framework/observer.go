package framework

import (
	"context"
	"time"
)

// WithObserver adds an observer, for metrics and traces. It may be given several
// times: each observer is told of every event. Default: none, which costs
// nothing.
func WithObserver(o Observer) Option { return func(c *config) { c.observers = append(c.observers, o) } }

// An Observer has functions that are called at events. Each may be nil. If one
// panics, the panic is logged, and the function is called again at the next
// event. All paths are those at the ensemble, with chroot and namespace.
//
// # Where they are called
//
// AcquireStart, AcquireEnd, Released, LostReleased and Overran are called in
// place: on the goroutine that acquires, releases or works, which waits for them.
// No lock of the library is held then, and no deadline depends on them. But a
// lease that was granted stays held while AcquireEnd blocks. If several leases are
// released together, the functions may be called on several goroutines at once.
//
// All others are called one at a time, in the order of the events, on a
// goroutine that the client has for each observer. While one of them blocks,
// later events of this observer wait in memory, and nothing else waits. When too
// many wait, further ones are dropped, and Dropped tells how many: 4096 for
// requests, Batched and Retried; 65536 for the rest. Of a request either both
// RequestStart and RequestEnd are dropped, or neither is.
//
// # Contexts
//
// A function with a context gets one with the values of the caller's context.
// Where a call begins and ends, the context that the first function returns is
// passed on to the second one, and to the requests that the call makes. So a
// span that is begun in AcquireStart is the parent of the spans of these
// requests. Only its values are used: the caller's deadline and cancellation
// stay as they are. The lease's own context has the values of the caller's
// context, not those that AcquireStart has added.
type Observer struct {
	// AcquireStart is called when a call of Acquire or TryAcquire begins, and
	// AcquireEnd when it ends, with the context that AcquireStart has returned.
	// For a recipe of several locks, as locks.All, there is one such pair for each
	// lock. While a call waits, it has started and not ended, so their difference
	// is the number of waiters. AcquireEnd is called before the lease is returned,
	// and before any other event of the lease.
	AcquireStart func(ctx context.Context, a Acquire) context.Context
	AcquireEnd   func(ctx context.Context, a Acquire, r AcquireResult)
	// Released or Lost is called once for each lease that was granted, when it
	// ends. So the leases that are held are the grants less these two. The context
	// has the values of the lease's.
	Released func(ctx context.Context, r Release)
	Lost     func(ctx context.Context, l Loss)
	// LostReleased is called when the holder releases a lease that was lost, with
	// the same Loss as Lost, which may be called before or after it. It is the
	// moment to add an event to the span of Do's caller: when Lost is called, that
	// span may have ended. It is not called for a lost lease that is never released.
	LostReleased func(ctx context.Context, l Loss)
	// Overran is called when work under Do returns after its lease's deadline, so
	// at a time when others may hold the lock.
	Overran func(ctx context.Context, o Overrun)
	// Revoked is called when somebody asks the holder to release: see
	// recipes.Lease.Revoked, which must have been called.
	Revoked func(ctx context.Context, r Revocation)

	// RequestStart is called for each request that is sent to the ensemble, and
	// RequestEnd for its answer, with the context that RequestStart has returned.
	// Both may be called after the answer. The requests by which the client keeps
	// its session alive are not told.
	RequestStart func(ctx context.Context, r Request) context.Context
	RequestEnd   func(ctx context.Context, r Request, result RequestResult)
	// Retried is called when an operation is tried again after an error.
	Retried func(ctx context.Context, r Retry)
	// Batched is called for each multi in which writes of contenders have shared
	// a request. For RequestStart and RequestEnd that is one request, a "multi".
	Batched func(b Batch)

	// StateChanged is called at every change of the client's state.
	StateChanged func(StateChange)
	// Abandoned is called when the client itself gives a connection up.
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
	// Label is what is counted together: see recipes.WithLabel. It is the path
	// unless an option says otherwise, and the root of a locks.Keyed.
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
	// and the znode was passed on while this caller was waiting.
	GrantedByHandoff How = "handoff"
	// GrantedByLinger: the znode had no user, and was kept for the next caller.
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

// Loss is the end of a lease that its holder has not released.
type Loss struct {
	Acquire Acquire
	Grant   Grant
	At      time.Time
	Held    time.Duration
	Reason  LossReason
	Err     error // as Err of the lease
}

// LossReason says why a lease was lost.
type LossReason string

// Why a lease was lost.
const (
	// LostUnproven: the session was not proven alive in time, by the client's clock.
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

// Overrun is work under a lease that has ended after the lease's deadline.
type Overrun struct {
	Acquire Acquire
	Grant   Grant
	By      time.Duration // how long after
}

// Revocation is a request to the holder of a lease to release it.
type Revocation struct {
	Acquire Acquire
	Grant   Grant
}

// Request is a request to the ensemble.
type Request struct {
	Op         string // "create", "list", "multi", ...
	Path       string // of a multi, its first operation's
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

// Retry is a further try of an operation.
type Retry struct {
	Op   string
	Path string
	Err  error // of the try before
}

// Batch is a multi in which writes of contenders have shared a request.
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

// Drop is how many events an observer was too slow for since the last Drop.
type Drop struct {
	Events int
}
