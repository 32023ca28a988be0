package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
)

// requestCount counts the requests of a client. The client's observer hears of
// them in order, but some time later: on a busy machine many have been answered
// that it has not heard of.
type requestCount struct {
	n       atomic.Int64
	marked  chan struct{} // the observer has heard of a mark
	dropped chan struct{} // there were too many events, perhaps a mark among them
}

// mark is the name of a request that no recipe makes.
const mark = "get ACL"

func newRequestCount() *requestCount {
	return &requestCount{marked: make(chan struct{}, 1), dropped: make(chan struct{}, 1)}
}

func (r *requestCount) observer() framework.Observer {
	return framework.Observer{
		RequestEnd: func(_ context.Context, request framework.Request, _ framework.RequestResult) {
			if request.Op == mark {
				notify(r.marked)
				return
			}
			r.n.Add(1)
		},
		Dropped: func(d framework.Drop) {
			r.n.Add(int64(d.Events))
			notify(r.dropped)
		},
	}
}

// answered returns how many requests were answered before the call.
func (r *requestCount) answered(ctx context.Context, c *framework.Client, path string) (int64, error) {
	for {
		// A refusal is an answer, too.
		if _, _, err := c.GetACL(ctx, path); err != nil && !errors.Is(err, zk.ErrNoAuth) {
			return 0, failed(err)
		}
		select {
		case <-r.marked:
			return r.n.Load(), nil
		case <-r.dropped:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// notify sends to a channel that has room for one, if there is none in it.
func notify(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
