package recipes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// An Acquirer acquires leases. Every recipe is one.
type Acquirer interface {
	// Acquire waits in line until it is granted. It fails when ctx ends, and then
	// errors.Is finds both ctx's error and its cause; with framework.ErrClosed
	// when the client closes; with zk.ErrNoAuth, ErrLayout or ErrExhausted, which
	// waiting does not fix; and when no server answers until the client's retry
	// budget is used up. Each step has its own budget. When it fails, its znode is
	// removed in the background, at the latest when the session ends. If the
	// session is lost, Acquire joins the end of the line again.
	Acquire(ctx context.Context) (*Lease, error)
	// TryAcquire is Acquire that fails with ErrBusy when it would have to wait for
	// another holder. It looks before it joins: a busy lock costs one list. A
	// znode of this client that is just being removed does not make it busy, if it
	// belongs to an Acquire that was given up, or to a release with
	// WithAsyncRelease: TryAcquire waits for that.
	//
	// A znode that lingers in another process (WithLinger) makes it busy:
	// TryAcquire does not join the line, and only a contender in line ends the
	// linger. An Acquire with a short time (Within) does.
	//
	// While no server answers it waits for one, as Acquire does, for a whole
	// budget of the client's retry policy: only ctx bounds it further.
	TryAcquire(ctx context.Context) (*Lease, error)
	// Path returns the path of the recipe, in its client's view.
	Path() string
}

// Try returns an Acquirer whose Acquire is a's TryAcquire: Do fails with
// ErrBusy then, instead of waiting.
func Try(a Acquirer) Acquirer { return try{a} }

type try struct{ Acquirer }

func (t try) Acquire(ctx context.Context) (*Lease, error) { return t.TryAcquire(ctx) }

func (t try) FullPath() string { return FullPath(t.Acquirer) }

func (t try) Parts() []Acquirer {
	parts := PartsOf(t.Acquirer)
	for i, part := range parts {
		parts[i] = try{part}
	}
	return parts
}

func (t try) base() *Line { return lineOf(t.Acquirer) }

// Within returns an Acquirer that waits at most d to acquire a; then errors.Is
// finds context.DeadlineExceeded. d bounds the wait alone: the work under the
// lease keeps its own context.
func Within(a Acquirer, d time.Duration) Acquirer { return within{a, d, nil} }

type within struct {
	Acquirer
	d     time.Duration
	spent *atomic.Int64 // of d, by the parts of one Within together; nil: it is no part
}

func (w within) Acquire(ctx context.Context) (*Lease, error) {
	return w.bounded(ctx, w.Acquirer.Acquire)
}

func (w within) TryAcquire(ctx context.Context) (*Lease, error) {
	return w.bounded(ctx, w.Acquirer.TryAcquire)
}

func (w within) bounded(ctx context.Context, acquire func(context.Context) (*Lease, error)) (*Lease, error) {
	left := w.d
	if w.spent != nil {
		left -= time.Duration(w.spent.Load())
		began := time.Now()
		defer func() { w.spent.Add(int64(time.Since(began))) }()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, left, fmt.Errorf("not acquired within %v", w.d))
	defer cancel()
	return acquire(ctx)
}

func (w within) FullPath() string { return FullPath(w.Acquirer) }

// Parts returns parts that wait at most d together.
func (w within) Parts() []Acquirer {
	parts, spent := PartsOf(w.Acquirer), w.spent
	if spent == nil {
		spent = new(atomic.Int64)
	}
	for i, part := range parts {
		parts[i] = within{part, w.d, spent}
	}
	return parts
}

func (w within) base() *Line { return lineOf(w.Acquirer) }

// FullPath returns a's path on the ensemble, if a has a method FullPath()
// string, as the recipes of this module have; otherwise its Path.
func FullPath(a Acquirer) string {
	if a, ok := a.(interface{ FullPath() string }); ok {
		return a.FullPath()
	}
	return a.Path()
}

// PartsOf returns the acquirers that a consists of, if a has a method Parts()
// []Acquirer, as an acquirer from locks.All has, and Try and Within of one;
// otherwise none. Parts from one call may share what bounds their waits: they
// are for one Acquire.
func PartsOf(a Acquirer) []Acquirer {
	if a, ok := a.(interface{ Parts() []Acquirer }); ok {
		return slices.Clone(a.Parts())
	}
	return nil
}

// lineOf returns the Line that a is, or that it wraps; nil if it is no Line.
func lineOf(a Acquirer) *Line {
	if a, ok := a.(interface{ base() *Line }); ok {
		return a.base()
	}
	return nil
}

func (l *Line) base() *Line { return l }

// CheckTogether returns an error if a caller cannot hold a and b at the same
// time, which have the same path at the ensemble: the second would wait for the
// first. Only two names of one Line that do not conflict can be held together.
// order is negative if a is to be acquired before b, and positive if after it.
func CheckTogether(a, b Acquirer) (order int, err error) {
	first, second := lineOf(a), lineOf(b)
	if !first.made() || !second.made() || first.line.Name() == second.line.Name() {
		return 0, fmt.Errorf("%s: more than once", FullPath(a))
	}
	if err := first.line.CheckTogether(second.line); err != nil {
		return 0, fmt.Errorf("%s: %w", FullPath(a), err)
	}
	return strings.Compare(first.line.Name(), second.line.Name()), nil
}
