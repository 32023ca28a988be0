package counter

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
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
	states, err := n.client.WatchData(ctx, n.path)
	if err != nil {
		cancel()
		return nil, n.failed("listen", err)
	}
	go n.deliver(ctx, states, fn)
	return cancel, nil
}

func (n *Counter) deliver(ctx context.Context, states <-chan framework.Data, fn func(int64, error)) {
	exited := true
	defer func() {
		if exited { // fn has ended the goroutine
			go n.deliver(ctx, states, fn)
		}
	}()
	for s := range states {
		if ctx.Err() == nil {
			n.tell(s, fn)
		}
	}
	exited = false
}

func (n *Counter) tell(s framework.Data, fn func(int64, error)) {
	defer func() {
		if p := recover(); p != nil {
			n.client.Logger().Error("a counter listener panicked", zap.String("path", n.client.Resolve(n.path)), zap.String("label", n.cfg.label), zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	value, err := n.cfg.initial, s.Err
	if s.Exists && err == nil {
		value, err = n.cfg.layout.decode(s.Data, n.cfg.initial)
	}
	if err != nil {
		value, err = 0, n.failed("listen", err)
	}
	fn(value, err)
}
