package framework

import (
	"context"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
)

// WithObserver adds an observer, for metrics and traces. It may be passed
// several times: every observer gets every event. Default: none, which costs
// nothing. Packages recipes, presence, cache, counter and barrier have a
// WithObserver for their events.
func WithObserver(o Observer) Option { return func(c *config) { managed.Observe(c, o.in()) } }

// Together returns an option that does what all opts do. The observers among
// them, of whatever packages, share one goroutine: see Observer.
func Together(opts ...Option) Option {
	opts = slices.Clone(opts)
	return func(c *config) { managed.Together(c, opts...) }
}

// An Observer has functions that the client calls when something happens: a
// request, or a change of its state. Each may be nil. If one panics, the panic
// is logged, and the function is called again at the next event. All paths are
// absolute: they include chroot and namespace. A context has the values of the
// caller's context.
//
// The client has at most one goroutine for each option that observes. It calls
// the functions of the option's observers one at a time, in the order of the
// events. Observers of several packages share one if they are given in one
// option: see Together. While a function blocks, later events of its goroutine
// wait in memory, and nothing else waits. When too many events wait, further
// ones are dropped. Dropped reports how many, of all packages in the same
// option; an option without a Dropped is told nothing. The limit is 4096 for
// requests, Batched, Retried, and reads of caches and counters; 65536 for the
// rest.
type Observer struct {
	// RequestStart is called for each request to the ensemble, but for heartbeats,
	// and RequestEnd for its answer, with the values of the context that
	// RequestStart has returned. Both may be called after the answer: use
	// Request.Began and RequestResult.Took for times. They are dropped together.
	RequestStart func(ctx context.Context, r Request) context.Context
	RequestEnd   func(ctx context.Context, r Request, result RequestResult)
	// Retried is called when an operation is tried again after an error.
	Retried func(ctx context.Context, r Retry)
	// Batched is called for each request in which the writes of several
	// contenders, or the creates of several presences, were sent together. For
	// RequestStart and RequestEnd that is one "multi".
	Batched func(b Batch)
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
	// Moved is called when the client moves to another server of its list, and
	// when a try to move has failed: see Client.SetServers.
	Moved func(m Move)
	// GuardianLost is called once for each guardian of WithGuardian that has ended
	// or hangs, while the client is not closed.
	GuardianLost func(err error)
	// Dropped is called after events were dropped.
	Dropped func(d Drop)
}

// in returns what the client calls, in its own words.
func (o *Observer) in() managed.Observer {
	in := managed.Observer{Opened: o.Opened, GuardianLost: o.GuardianLost}
	if fn := o.RequestStart; fn != nil {
		in.RequestStart = func(ctx context.Context, r ops.Request) context.Context { return fn(ctx, Request(r)) }
	}
	if fn := o.RequestEnd; fn != nil {
		in.RequestEnd = func(ctx context.Context, r ops.Request, result managed.RequestResult) {
			fn(ctx, Request(r), RequestResult(result))
		}
	}
	if fn := o.Retried; fn != nil {
		in.Retried = func(ctx context.Context, r ops.Retry) { fn(ctx, Retry(r)) }
	}
	in.Batched = told(o.Batched, func(operations int) Batch { return Batch{operations} })
	in.EphemeralsChanged = told(o.EphemeralsChanged, func(e ephemerals.Change) EphemeralsChange { return EphemeralsChange(e) })
	in.StateChanged = told(o.StateChanged, changeOf)
	in.Abandoned = told(o.Abandoned, func(a managed.Abandonment) Abandonment {
		return Abandonment{Session: a.Session, Reason: AbandonReason(a.Reason), Err: a.Err}
	})
	in.Moved = told(o.Moved, func(m managed.Move) Move { return Move(m) })
	in.Dropped = told(o.Dropped, func(events int) Drop { return Drop{events} })
	return in
}

// told returns what tells fn of an event in the words of this package, nil
// without fn.
func told[In, Out any](fn func(Out), as func(In) Out) func(In) {
	if fn == nil {
		return nil
	}
	return func(event In) { fn(as(event)) }
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

// Batch is a request with several writes: see Observer.Batched.
type Batch struct{ Operations int }

// Abandonment is the end of a connection that the client has given up.
type Abandonment struct {
	Session int64
	Reason  AbandonReason
	Err     error
}

// AbandonReason says why the client has given a connection up.
type AbandonReason string

// The values of an AbandonReason.
const (
	AbandonedSilent   AbandonReason = "silent"   // the server has not answered the connect request
	AbandonedUnproven AbandonReason = "unproven" // no answer has proven in time that the server is in touch with its leader
	AbandonedStuck    AbandonReason = "stuck"    // the wire client has not ended after its connection was closed: it is left behind
)

// Move is a move of the client to another server, or a try that has failed.
type Move struct {
	Session int64
	From    string // the server that is left, as Client.Server returns it
	To      string // the server that is called next, "" after an error
	Err     error  // why no server can be moved to
}

// Drop reports how many events were dropped since the last Drop.
type Drop struct{ Events int }

// EphemeralsChange says how much of its limit a session uses: see
// WithMaxEphemerals.
type EphemeralsChange struct {
	Client  uint64 // tells the clients of a process apart
	Bytes   int    // in use, or reserved
	Limit   int    // what WithMaxEphemerals has set, or its default
	Percent int    // of the limit, rounded down
}
