package sim

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// nest is a lease under another lease, of the same holding or of another.
type nest struct {
	t *holding
	l *recipes.Lease
}

func (k *worker) nest(s Step, t *holding, l *recipes.Lease) (all []nest) {
	// The context ends with the lease, but still carries it.
	ctx, leave := context.WithTimeout(context.WithoutCancel(l.Context()), patience)
	defer leave()
	for _, n := range s.Nest {
		c := k.ledger.call(k.who, "%s under #%d", n, t.id)
		over := l.Err() // nil if it is held, or if its end is not known yet
		switch n {
		case Again:
			inner, err := k.inner.side(s).Acquire(ctx)
			if k.nested(l, over, err) {
				k.ledger.again(t, inner)
				all = append(all, nest{t, inner})
			}
		case Down:
			inner, err := k.inner.rw.Reader().Acquire(ctx)
			if k.nested(l, over, err) {
				all = append(all, nest{k.inner.grant(c, inner, t.of, Step{Side: 0}, t), inner})
			}
		case Up:
			inner, err := k.inner.rw.Writer().Acquire(ctx)
			if err == nil {
				k.ledger.fault("%v: a read lease was upgraded", k.who)
				_ = inner.Release(ctx)
			} else if !errors.Is(err, rwlock.ErrUpgrade) {
				k.nested(l, over, err)
			}
		}
	}
	return all
}

// nested reports whether an acquisition under l was granted, and checks the
// error if it was not. over is the reason why l had ended before.
func (k *worker) nested(l *recipes.Lease, over, err error) bool {
	lost := l.Err() != nil
	switch {
	case err == nil:
		if over != nil {
			k.ledger.fault("%v: entered under a lease that was lost: %v", k.who, over)
		}
		return true
	case errors.Is(err, recipes.ErrNotHeld) && (lost || !l.Held()), errors.Is(err, framework.ErrClosed), k.expected(err) && !errors.Is(err, recipes.ErrNotHeld):
	case k.plan.disagreed(k.who.client, err):
	case lost && k.plan.Room > 0 && errors.Is(err, framework.ErrTooLarge): // its room went with the outer lease, whose znode may still be there
	case errors.Is(err, framework.ErrUnproven) && k.plan.far(): // an inner lease must be proven to last, the outer one may last by luck
	default:
		k.ledger.fault("%v: nested: %v (lost %v)", k.who, err, lost)
	}
	return false
}
