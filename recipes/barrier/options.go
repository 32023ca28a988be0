package barrier

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

// An Option configures a barrier: WithData, WithACL and WithLabel of package
// recipes. A bad value is an error of New and NewDouble.
type Option = option.ForBarrier

// newConfig checks what both kinds of barriers are made of.
func newConfig(client *framework.Client, path string, opts []Option) (cfg option.Shared, err error) {
	if client == nil {
		return cfg, errors.New("client is nil")
	}
	if err := framework.ValidatePath(path); err != nil {
		return cfg, err
	}
	if path == "/" {
		return cfg, errors.New("path /: it always exists, and has other children")
	}
	cfg.Data, cfg.Label = []byte(identity.Process()), client.Resolve(path)
	for _, opt := range opts {
		if !cfg.Set(opt) {
			return cfg, fmt.Errorf("option %T: not one of a barrier", opt)
		}
	}
	return cfg, nil
}

// failed returns the error of a verb.
func failed(ctx context.Context, verb, path string, err error) error {
	saysWhy := errors.Is(err, ctx.Err()) && errors.Is(err, context.Cause(ctx))
	if ctx.Err() != nil && !saysWhy && !framework.MaybeApplied(err) {
		err = ctxerr.Of(ctx)
	}
	return fmt.Errorf("barrier: %s %s: %w", verb, path, err)
}

// errZero is the error of a value that no constructor has made.
var errZero = fmt.Errorf("barrier: the zero value: %w", framework.ErrClosed)
