package ops

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
)

// Request is a request to the ensemble, as framework.Request says.
type Request struct {
	Op         string
	Path       string
	Operations int
	Session    int64
	Server     string
	Began      time.Time
}

// Retry is another attempt of an operation, as framework.Retry says.
type Retry struct {
	Op   string
	Path string
	Err  error
}

// Observer hears of requests. No method waits for an observer of the user's.
type Observer interface {
	// Observes reports whether Began must be called.
	Observes() bool
	// Began says that a request begins. end must be called with its error.
	Began(ctx context.Context, r Request) (end func(error))
	Retried(ctx context.Context, r Retry)
	// EphemeralsChanged may be called with a mutex held, so that changes are told
	// in their order.
	EphemeralsChanged(change ephemerals.Change)
}
