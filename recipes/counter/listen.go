package counter

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// Listen calls fn with the present value, and then with every later one, until
// ctx ends, stop is called or the client is closed. Values that follow each
// other quickly may be left out, but never the last one. err is set if the
// znode has data that are no counter's (ErrData), and in a last call if the
// watch cannot go on: see framework.Client.WatchData, which also says what it
// costs.
//
// The calls are made on a goroutine of this listener: a slow fn delays only
// itself. If fn panics, the panic is logged and the next value is delivered.
// stop does not wait for a call that is under way.
func (n *Counter) Listen(ctx context.Context, fn func(value int64, err error)) (stop func(), err error) {
	switch {
	case n.client == nil:
		return nil, n.failed("listen", framework.ErrClosed)
	case fn == nil:
		return nil, n.failed("listen", errors.New("the function is nil"))
	}
	ctx, cancel := context.WithCancel(ctx)
	states, err := (*framework.Client)(n.client).WatchData(ctx, n.path)
	if err != nil {
		cancel()
		return nil, n.failed("listen", err)
	}
	l := supplied.NewListener(n.client.Logger(), 1, func(s framework.Data) {
		value, err := n.cfg.initial, s.Err
		if s.Exists && err == nil {
			value, err = n.cfg.layout.decode(s.Data, n.cfg.initial)
		}
		if err != nil {
			value, err = 0, n.failed("listen", err)
		}
		fn(value, err)
	})
	go func() {
		for s := range states {
			l.Put(s)
		}
		cancel()
	}()
	return func() {
		l.Stop()
		cancel()
	}, nil
}
