// Package latest makes loops over the latest state of something that changes,
// such as cache.Cache.Views. A loop runs on its caller's goroutine alone: a
// slow body delays nobody, nothing is queued for it, and a break leaves nothing
// behind.
package latest

import (
	"context"
	"iter"

	"github.com/zkrecipes/zkrecipes/internal/closed"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
)

// Look is what a source shows at one time.
type Look[V, S any] struct {
	Value  V
	Status S
	Whole  bool // there is a value
	Same   bool // the loop has had this value with this status
	Over   bool // nothing can follow, as Status says
	// One of Changed and Also is closed when another look may find something else.
	// They are taken before the value is read, so that no change is missed between
	// the two. A nil one tells nothing.
	Changed, Also <-chan struct{}
}

// Source is asked by one loop, on its goroutine.
type Source[V, S any] struct {
	// Look may wait for what a user has supplied, but returns once the context of
	// the loop has ended.
	Look func() Look[V, S]
	// Ended returns the status of a loop whose context has ended.
	Ended func(status S, why error) S
	// Leave is called when the loop has ended, however it did; it may be nil.
	Leave func()
}

// Seq returns a sequence of what a source shows: first when it is Whole, and
// then whenever it is not the Same, until ctx ends or it is Over. Then comes
// the last value once more, with a status that says why, unless there was none.
// Each loop begins with a source of its own.
func Seq[V, S any](ctx context.Context, begin func() Source[V, S]) iter.Seq2[V, S] {
	return func(yield func(V, S) bool) {
		source := begin()
		if source.Leave != nil {
			defer source.Leave()
		}
		for {
			now := source.Look()
			isLast := now.Over
			if !isLast && closed.Is(ctx.Done()) {
				isLast, now.Status = true, source.Ended(now.Status, ctxerr.Of(ctx))
			}
			if now.Whole && (isLast || !now.Same) && !yield(now.Value, now.Status) || isLast {
				return
			}
			select {
			case <-now.Changed:
			case <-now.Also:
			case <-ctx.Done():
			}
		}
	}
}
