package leader

import (
	"context"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Listen calls fn with the term that this candidate leads, and with nil when it
// does not lead: first what is so now, then every change, in order, none left
// out. A term ends when it is lost or released. fn is called on a goroutine of
// its own, which ends with stop or when the client closes: a slow fn delays
// nobody else, and hears of changes late. A call that is under way when stop is
// called goes on. For work that must not go on after a term use Run, or the
// term's Context.
func (e *Election) Listen(fn func(term *recipes.Lease)) (stop func()) {
	if e.client == nil {
		return func() {} // a zero Election never leads
	}
	l := supplied.NewListener(e.client.Logger(), 0, fn)
	return e.terms.audience.Listen(&e.terms.mu, l, func() *recipes.Lease { return e.terms.term })
}

// broadcast tells listeners whether a candidate leads.
type broadcast struct {
	mu       sync.Mutex // guards what follows
	term     *recipes.Lease
	audience supplied.Audience[*recipes.Lease]
}

// begin is called when a term was granted, by the goroutine that acquired it.
func (b *broadcast) begin(term *recipes.Lease) {
	// It is not held if another goroutine has acquired, and told of, a later term.
	b.change(term, func(*recipes.Lease) bool { return term.Held() })
	context.AfterFunc(term.Context(), func() {
		b.change(nil, func(before *recipes.Lease) bool { return before == term })
	})
}

// change tells the listeners of another term, or of none, if that follows the
// one before. The end of a term can come here after the beginning of the next.
func (b *broadcast) change(term *recipes.Lease, follows func(before *recipes.Lease) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !follows(b.term) {
		return
	}
	if b.term != nil && term != nil {
		b.audience.Tell(nil)
	}
	b.audience.Tell(term)
	b.term = term
}
