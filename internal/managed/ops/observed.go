package ops

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ephemerals"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	life "github.com/zkrecipes/zkrecipes/internal/managed/session"
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

// Observed makes a call of the wire client, and reports it to the observers,
// and a delete also to what counts ephemeral znodes.
func Observed[T any](ctx context.Context, s *Session, ask Request, call func(*zk.Conn) (T, error)) (T, error) {
	end := s.StartObserved(ctx, ask)
	value, err := life.Call(s.Session, call)
	end(err)
	if ask.Op == request.NameDelete {
		s.Client.Ephemerals.OnDelete(ask.Path, err)
	}
	return value, err
}

// StartObserved reports to the observers that a request begins, and returns a
// function that must be called when it has ended. ask has Op and Path, and
// Operations and Began unless these are 1 and now.
func (s *Session) StartObserved(ctx context.Context, ask Request) (end func(error)) {
	if !s.Client.observer.Observes() {
		return func(error) {}
	}
	ask.Operations = max(ask.Operations, 1)
	if ask.Session, ask.Server = s.Chain().ID(), s.Conn().Server(); ask.Began.IsZero() {
		ask.Began = time.Now()
	}
	return s.Client.observer.Began(ctx, ask)
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
