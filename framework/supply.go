package framework

import (
	"context"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// supply gets from a function of the user what a connection needs, within
// limit, unless stop is closed. fn runs on a goroutine of its own: what it
// returns after that is dropped, and a panic of it is an error.
func supply[T any](ctx context.Context, c *core, stop <-chan struct{}, limit time.Duration, fn func(context.Context) (T, error)) (none T, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var value T
	returned := supplied.Go(c.cfg.log, func() (err error) {
		value, err = fn(ctx)
		return err
	})
	select {
	case err := <-returned:
		if err != nil {
			return none, err
		}
		return value, nil
	case <-stop:
		return none, errSevered
	case <-ctx.Done():
		return none, fmt.Errorf("no result within %v", limit)
	}
}
