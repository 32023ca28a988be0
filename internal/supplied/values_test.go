package supplied_test

import (
	"context"
	"testing"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// The context of an observer adds values to that of the caller, and takes none
// away.
func TestObservedContext(t *testing.T) {
	type key int
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key(1), "caller"))
	defer cancel()
	q := supplied.NewQueue(1, 1, zap.NewNop(), nil)
	for name, fn := range map[string]func(context.Context) context.Context{
		"nothing":  func(context.Context) context.Context { return nil },
		"the same": func(ctx context.Context) context.Context { return ctx },
		"a panic":  func(context.Context) context.Context { panic("odd") },
		"a nil pointer": func(context.Context) context.Context {
			var none *struct{ context.Context }
			return none
		},
	} {
		if got := q.Values(ctx, fn); got != ctx {
			t.Errorf("%s: another context", name)
		}
	}
	got := q.Values(ctx, func(context.Context) context.Context {
		ended, cancel := context.WithCancel(context.WithValue(context.Background(), key(2), 7))
		cancel()
		return ended
	})
	if got.Value(key(1)) != "caller" || got.Value(key(2)) != 7 || got.Value(key(3)) != nil || got.Err() != nil || got.Done() != ctx.Done() {
		t.Errorf("%v, %v, %v", got.Value(key(1)), got.Value(key(2)), got.Err())
	}
}
