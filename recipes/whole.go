package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// NewWhole makes one lease of several, parts, that were granted to an Acquire with
// ctx. It is held while each of them is, lost with the first that is lost, or is
// released by itself, and its Release releases them, the last one first. It is for
// the recipes: locks.All is what acquires several.
//
// It gives its caller nothing that was not granted: a whole of parts that are not
// held is lost from the beginning, and one of nothing is not held.
func NewWhole(ctx context.Context, parts ...*Lease) *Lease {
	l := &Lease{parts: slices.Clone(parts)}
	for _, part := range parts {
		l.places = append(l.places, part.places...)
	}
	l.start(ctx)
	for _, part := range parts {
		part.join(l)
	}
	return l
}

// join makes l a part of whole.
func (l *Lease) join(whole *Lease) {
	l.mu.Lock()
	l.wholes = append(l.wholes, whole)
	l.mu.Unlock()
	// From here on a loss tells the whole, which heeds the first.
	if err := l.Err(); err != nil {
		whole.lose(l.partly(err))
	}
}

// partOf is the wholes that l is a part of.
func (l *Lease) partOf() []*Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.wholes)
}

// partly is why a whole is lost: for why, l was.
func (l *Lease) partly(why error) error { return fmt.Errorf("part %s: %w", l.path(), why) }

// leaveParts has each part leave, the last one first, whatever becomes of the
// others. Where ctx ends they all begin to, and none is waited for.
func (l *Lease) leaveParts(ctx context.Context) error {
	var errs []error
	for _, part := range slices.Backward(l.parts) {
		if err := part.leave(ctx); err != nil && !errors.Is(err, ErrNotHeld) {
			errs = append(errs, err)
		} else if err != nil {
			l.lose(part.partly(err)) // unless it has heard of it before
		}
	}
	l.mu.Lock()
	lost := l.err != nil
	l.mu.Unlock()
	if lost {
		errs = append(errs, l.notHeld())
	}
	return errors.Join(errs...)
}

// pathOfParts is for messages.
func (l *Lease) pathOfParts() string {
	paths := make([]string, len(l.parts))
	for i, part := range l.parts {
		paths[i] = part.path()
	}
	return strings.Join(paths, ", ")
}

// anyRevoked is closed when any part is asked to be released. What waits for that
// ends with the lease.
func (l *Lease) anyRevoked() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.revoked != nil {
		return l.revoked
	}
	l.revoked = make(chan struct{})
	asked := make(chan struct{}, 1) // a token: the first to ask closes
	asked <- struct{}{}
	for _, part := range l.parts {
		go func() {
			select {
			case <-part.Revoked():
			case <-l.ctx.Done():
				return
			}
			select {
			case <-asked:
				close(l.revoked)
			default:
			}
		}()
	}
	return l.revoked
}

// oneView reports whether all places belong to one client and namespace, so that
// one multi can name their znodes.
func (l *Lease) oneView() bool {
	for _, p := range l.places {
		if !p.Line().SameView(l.places[0].Line()) {
			return false
		}
	}
	return len(l.places) > 0
}

// partsOfDifferentClients stands in for the guard that cannot be made. It is no
// operation, so any multi refuses it, and names it.
type partsOfDifferentClients struct{}
