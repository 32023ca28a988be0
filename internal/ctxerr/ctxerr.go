// Package ctxerr says why a context has ended.
package ctxerr

import (
	"context"
	"errors"
	"fmt"
)

// Of returns the error of a context that has ended, wrapped together with its
// cause where that is another error. It returns nil for a context that has not.
func Of(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
