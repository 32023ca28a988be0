package supplied

import (
	"context"
	"reflect"
)

// Values calls fn in place, and returns ctx with the values that the context
// has that fn returns: ctx itself if that has none, fn has returned nil, or has
// panicked.
func (c *Queue) Values(ctx context.Context, fn func(context.Context) context.Context) context.Context {
	values := ctx
	c.Call(func() {
		if returned := fn(ctx); returned != nil {
			returned.Value(probe{}) // a nil pointer panics here, and not in the caller
			values = returned
		}
	})
	if same(values, ctx) {
		return ctx
	}
	return observedContext{ctx, context.WithoutCancel(values)} // its cause of ending is not the caller's
}

// probe is a key that no context has.
type probe struct{}

// same reports whether a and b are one context. Contexts of the caller's own
// types may not be comparable.
func same(a, b context.Context) bool { return reflect.ValueOf(a).Comparable() && a == b }

// observedContext is a context with more values: an observer must not take the
// caller's cancellation away, nor the leases that the context carries.
type observedContext struct {
	context.Context
	values context.Context
}

func (c observedContext) Value(key any) any {
	if value := c.values.Value(key); value != nil {
		return value
	}
	return c.Context.Value(key)
}
