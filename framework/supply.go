package framework

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// mostSupplied is how many calls of a user's functions may be under way, so
// that functions that hang do not fill the memory.
const mostSupplied = 16

var errNoResult = errors.New("no result")

// contextUntil returns a context that ends when stop is closed.
func contextUntil(stop <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-stop:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, cancel
}

// supply gets from a function of the user what a connection needs, within
// limit, unless stop is closed. fn runs on a goroutine of its own: what it
// returns after that is dropped, and a panic of it is an error.
func supply[T any](ctx context.Context, c *core, stop <-chan struct{}, limit time.Duration, fn func(context.Context) (T, error)) (none T, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var value T
	var returned <-chan error
	select {
	case c.supplying <- struct{}{}:
		returned = supplied.Go(c.cfg.log, func() (err error) {
			defer func() { <-c.supplying }()
			value, err = fn(ctx)
			return err
		})
	case <-stop:
		return none, errSevered
	case <-ctx.Done():
		return none, fmt.Errorf("%w: %d earlier calls have not returned", errNoResult, mostSupplied)
	}
	select {
	case err := <-returned:
		if err != nil {
			return none, err
		}
		return value, nil
	case <-stop:
		return none, errSevered
	case <-ctx.Done():
		return none, fmt.Errorf("%w within %v", errNoResult, limit)
	}
}
