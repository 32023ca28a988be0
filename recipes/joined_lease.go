package recipes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/oneline"
	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// Join makes one lease of several, its parts, for a recipe of yours that takes
// several locks as one, as locks.All does. ctx is that of its Acquire. The
// lease is held while each of the parts is; it is lost with the first part that
// is lost, or is released by itself; and its Release releases them, the last
// one first.
//
// Join grants nothing: of parts that are not held, or nil, it makes a lease
// that is lost from the beginning, and of no parts one that is not held.
func Join(ctx context.Context, parts ...*Lease) *Lease {
	l := &Lease{parts: slices.Clone(parts)}
	for i, part := range parts {
		if part == nil { // what an Acquire that failed returns
			part = &Lease{}
			l.parts[i] = part
		}
		l.shares = append(l.shares, part.shares...)
	}
	l.start(ctx)
	l.own()
	for _, part := range l.parts {
		part.join(l)
	}
	return l
}

// join makes l a part of whole.
func (l *Lease) join(whole *Lease) {
	l.mu.Lock()
	l.wholes = append(l.wholes, whole)
	loss := l.loss
	if loss == nil && (l.released || len(l.shares) == 0) {
		loss = &line.Loss{Err: ErrReleased, Deadline: l.deadlineOfShares()}
	}
	l.mu.Unlock()
	// From here on a loss tells the whole, which takes the first.
	if loss != nil {
		whole.lose(l.lossOfPart(loss))
	}
}

// partOf returns the wholes that l is a part of.
func (l *Lease) partOf() []*Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.wholes)
}

// lossOfPart returns how a joined lease is lost when its part l is lost so.
func (l *Lease) lossOfPart(loss *line.Loss) *line.Loss {
	return &line.Loss{Err: fmt.Errorf("part %s: %w", l.LockPath(), loss.Err), Deadline: loss.Deadline}
}

// leaveParts has each part leave, the last one first, even if others fail.
// Where ctx ends they all begin to, and none is waited for.
func (l *Lease) leaveParts(ctx context.Context) error {
	var errs []error
	for _, part := range slices.Backward(l.parts) {
		err := part.leave(ctx)
		if loss := part.lossNow(); loss != nil {
			l.lose(part.lossOfPart(loss)) // unless it has heard of it before
		} else if err != nil {
			errs = append(errs, err)
		}
	}
	if l.lossNow() != nil {
		errs = append(errs, l.notHeld())
	}
	return oneline.Join(errs...)
}

// ofParts returns what path returns for each part, for messages.
func (l *Lease) ofParts(path func(*Lease) string) string {
	paths := make([]string, len(l.parts))
	for i, part := range l.parts {
		paths[i] = path(part)
	}
	return strings.Join(paths, ", ")
}

// anyRevoked is closed when any part is asked to be released. What waits for
// that ends with the lease.
func (l *Lease) anyRevoked() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.revoked != nil {
		return l.revoked
	}
	l.revoked = make(chan struct{})
	revoke := sync.OnceFunc(func() { close(l.revoked) })
	for _, part := range l.parts {
		go func() {
			select {
			case <-part.Revoked():
				revoke()
			case <-l.ctx.Done():
			}
		}()
	}
	return l.revoked
}

// oneView reports whether all shares belong to one client and namespace, so
// that one multi can name their znodes.
func (l *Lease) oneView() bool {
	for _, s := range l.shares {
		if !s.Line().SameView(l.shares[0].Line()) {
			return false
		}
	}
	return len(l.shares) > 0
}

// noCommonMulti stands in for a guard that cannot be made. It is no operation,
// so any multi refuses it, and names it.
type noCommonMulti struct{}
