package supplied

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

var (
	// ErrStopped is the error of Get when it was stopped.
	ErrStopped = errors.New("stopped")
	// ErrNoResult is wrapped by the error of Get when there was no time left.
	ErrNoResult = errors.New("no result")
)

// Tokens limit how many calls of Get may be under way, so that functions that
// hang do not fill the memory.
type Tokens struct {
	log   *zap.Logger // for panics
	taken chan struct{}
}

// NewTokens returns as many tokens as calls may be under way.
func NewTokens(most int, log *zap.Logger) Tokens {
	return Tokens{log: log, taken: make(chan struct{}, most)}
}

// Get returns what fn returns, or an error: ErrNoResult after limit or once ctx
// ends, ErrStopped once stop is closed. fn runs on its own goroutine, with a
// context that ends with Get. What it returns later is dropped, and a panic of
// it is an error.
func Get[T any](ctx context.Context, t Tokens, stop <-chan struct{}, limit time.Duration, fn func(context.Context) (T, error)) (none T, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var value T
	var returned <-chan error
	select {
	case t.taken <- struct{}{}:
		returned = Go(t.log, func() (err error) {
			defer func() { <-t.taken }()
			value, err = fn(ctx)
			return err
		})
	case <-stop:
		return none, ErrStopped
	case <-ctx.Done():
		return none, fmt.Errorf("%w: %d earlier calls have not returned", ErrNoResult, cap(t.taken))
	}
	select {
	case err := <-returned:
		if err != nil {
			return none, err
		}
		return value, nil
	case <-stop:
		return none, ErrStopped
	case <-ctx.Done():
		return none, fmt.Errorf("%w within %v", ErrNoResult, limit)
	}
}
