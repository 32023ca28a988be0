package counter

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

// Counter is a number that the clients of an ensemble share. The package
// comment says what is promised. It is safe for concurrent use, and all values
// of one client and path add together. The zero Counter fails as one of a
// closed client. What it costs:
//
//   - read: 2 requests
//   - added to, within a second of the last addition: 1 request, 1 transaction
type Counter struct {
	client *managed.Client
	path   string
	cfg    config
	keeper *keeper
}

// New returns the counter at path. It makes no request. The first write creates
// the znode and the directories that are missing above it. These are
// containers, or persistent znodes if the first write is an AddOnce. When
// needed, the counter also creates <path>-receipts and <path>-lock, which are
// containers, and <path>-once, which is persistent.
func New(client *framework.Client, path string, opts ...Option) (*Counter, error) {
	cfg, err := newConfig(opts)
	err = oneline.Join(framework.ValidatePath(path), err)
	if path == "/" {
		err = oneline.Join(errors.New("path /: is the root"), err)
	}
	if client == nil {
		err = oneline.Join(errors.New("client is nil"), err)
	}
	if err != nil {
		return nil, fmt.Errorf("counter: %w", err)
	}
	in := (*managed.Client)(client)
	return &Counter{client: in, path: path, cfg: cfg, keeper: keeperOf(in)}, nil
}

// Path returns the path of the counter, in its client's view.
func (n *Counter) Path() string { return n.path }

// Get returns a value that the counter had during the call, as far as a sync
// can tell. Without a znode it returns the initial value. It fails if the
// client's chroot is missing. It costs a sync and a read.
func (n *Counter) Get(ctx context.Context) (int64, error) {
	if n.client == nil {
		return 0, n.failed("get", framework.ErrClosed)
	}
	for {
		sess, err := n.client.AwaitSession(ctx)
		if err != nil {
			return 0, n.failed("get", err)
		}
		err = sess.Sync(ctx, n.path)
		var data []byte
		if err == nil {
			data, _, err = sess.Get(ctx, n.path)
		}
		switch {
		case err == nil:
			value, err := n.cfg.layout.decode(data, n.cfg.initial)
			if err != nil {
				err = n.failed("get", err)
			}
			return value, err
		case framework.Absent(err):
			return n.cfg.initial, nil
		case sess.Err() == nil || ctx.Err() != nil:
			return 0, n.failed("get", err)
		}
	}
}

// Add adds delta, which may be negative, and returns the value after it. If err
// is nil, it was added once. If framework.MaybeApplied(err) is true, it is not
// known whether it was added, or will be: ctx has ended, or the session was
// lost, or no server has answered for the time of the client's retry policy,
// while the request was open. After any other error it was not added. Add is
// never repeated by itself in another session: see AddOnce.
//
// It costs a write if the last value is known, which it is for a second after
// each write, and a read before that otherwise. Concurrent calls share both.
// The first one in a session costs another write and a list.
func (n *Counter) Add(ctx context.Context, delta int64) (after int64, err error) {
	r := n.do(ctx, &request{name: "add", apply: func(l Layout, old int64) (int64, bool, error) {
		sum, err := l.add(old, delta)
		return sum, err == nil, err
	}})
	return r.value, r.err
}

// Reserve adds count and returns the first of the numbers that are the caller's
// alone: first to first+count-1. The last of them is the value after it. A
// number is never given out twice, unless somebody sets the counter back. Those
// that a caller does not use, or whose Reserve has failed with
// framework.MaybeApplied, are missing in the sequence. It costs as much as Add.
func (n *Counter) Reserve(ctx context.Context, count int64) (first int64, err error) {
	if count < 1 {
		return 0, n.failed("reserve", fmt.Errorf("count %d: must be positive", count))
	}
	r := n.do(ctx, &request{name: "reserve", apply: func(l Layout, old int64) (int64, bool, error) {
		sum, err := l.add(old, count)
		return sum, err == nil, err
	}})
	if r.err != nil {
		return 0, r.err
	}
	return r.value - count + 1, nil
}

// CompareAndSet sets the counter to value if it is old, and reports whether it
// was. It is done once, as Add is, and costs as much, with a sync and a read if
// it reports false.
func (n *Counter) CompareAndSet(ctx context.Context, old, value int64) (bool, error) {
	r := n.do(ctx, &request{name: "compare and set", alone: true, apply: func(l Layout, now int64) (int64, bool, error) {
		if !l.fits(value) {
			return 0, false, fmt.Errorf("%w: %d", ErrOverflow, value)
		}
		return value, now == old, nil
	}})
	return r.wrote, r.err
}

// Set sets the counter to value, whatever it is, and whatever data it has. It
// is done once, as Add is, and costs a write.
func (n *Counter) Set(ctx context.Context, value int64) error {
	if !n.cfg.layout.fits(value) {
		return n.failed("set", fmt.Errorf("%w: %d", ErrOverflow, value))
	}
	return n.do(ctx, &request{name: "set", alone: true, blind: true, apply: func(Layout, int64) (int64, bool, error) {
		return value, true, nil
	}}).err
}

// do has a request done, and waits for its result.
func (n *Counter) do(ctx context.Context, r *request) result {
	if n.client == nil {
		return result{err: n.failed(r.name, framework.ErrClosed)}
	}
	if ctx.Err() != nil {
		return result{err: n.failed(r.name, ctxerr.Of(ctx))}
	}
	ended := ctx.Done()
	r.counter, r.ctx, r.done = n, ctx, make(chan struct{})
	n.keeper.add(r)
	select {
	case <-r.done:
	case <-ended:
		switch n.keeper.leave(r) {
		case notBegun:
			return result{err: n.failed(r.name, ctxerr.Of(ctx))}
		case goesOn:
			return result{err: n.unsure(r.name, ctxerr.Of(ctx))}
		}
		<-r.done
		switch err := r.result.err; {
		case !errors.Is(err, context.Canceled): // that of the batch
		case framework.MaybeApplied(err):
			r.result.err = n.unsure(r.name, ctxerr.Of(ctx))
		default:
			r.result.err = n.failed(r.name, ctxerr.Of(ctx))
		}
	}
	return r.result
}

// failed adds what failed. err may be that of a write which another view's
// value has made.
func (n *Counter) failed(what string, err error) error {
	return fmt.Errorf("counter: %s %s: %w", what, n.path, n.client.Shown(err))
}

// unsure is failed with an error of which framework.MaybeApplied is true.
func (n *Counter) unsure(what string, err error) error {
	return fmt.Errorf("counter: %w", managed.Unsure(what, n.path, n.client.Shown(err)))
}
