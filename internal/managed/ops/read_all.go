package ops

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/offers"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file does many reads in few requests. answer_sizes.go says how many a
// request may have.

// How many requests of ReadAll are under way at most.
const (
	workersOfMany = link.MostAsked / answerTarget
	WorkersOfOnes = link.MostAsked / link.OnePlace
)

// ReadAll is framework.Session.ReadAll, with the place of each answer. Order is
// never 0, counts over all connections of the session, and is the same for the
// reads of one request.
func (w Scope) ReadAll(ctx context.Context, reads []request.Read) ([]request.Result, error) {
	b, err := w.newBulk(reads)
	if err != nil {
		return nil, err
	}
	return w.readBulk(ctx, b)
}

// StatAll is StatAll. A multiRead has no such reads.
func (w Scope) StatAll(ctx context.Context, reads []request.Read) ([]request.Result, error) {
	b, err := w.newBulk(reads)
	if err != nil {
		return nil, err
	}
	b.stats = true
	return w.readBulk(ctx, b)
}

func (w Scope) readBulk(ctx context.Context, b *bulk) ([]request.Result, error) {
	err := w.Do(ctx, request.NameReadAll, b.first(), Repeatable, func(a *Attempt) error {
		during, cancel := context.WithCancel(ctx) // ctx may be user code, and workers have goroutines of their own
		defer cancel()
		b.ctx, b.session, b.err = during, a.Session, nil
		for len(b.left) > 0 {
			if !b.stats {
				b.on, _ = a.Session.Offers(ctx, wire.OpMultiRead)
			}
			many := b.on != nil
			b.run(many)
			if many && b.err != nil && zkerr.Classify(b.err) == zkerr.Ambiguous {
				a.Session.answerSizes.double() // an answer may have been too large
			}
			if !many || !zkerr.IsRefusal(b.err) {
				return b.err
			}
			w.Client.Refuse(wire.OpMultiRead, b.err)
			b.err = nil
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	w.complete(ctx, b)
	return b.results, nil
}

// ReadAllOn reads by a request each, on the connection on, which may be nil.
// ask makes a request: it may arm a watch with it. The call fails when the
// connection ends. w is in a session.
func (w Scope) ReadAllOn(ctx context.Context, on *link.Link, reads []request.Read, ask func(ctx context.Context, op wire.Op, path string, size int) (link.Reply, error)) ([]request.Result, error) {
	b, err := w.newBulk(reads)
	if err != nil {
		return nil, err
	}
	during, cancel := context.WithCancel(ctx)
	defer cancel()
	b.ctx, b.session, b.on, b.askUnder = during, w.In, on, ask
	fail := func(err error) ([]request.Result, error) {
		return nil, &zkerr.Op{Op: request.NameReadAll, Path: b.first(), Err: zkerr.WithMeaning(err)}
	}
	if err := w.In.Err(); err != nil {
		return fail(err)
	}
	if on == nil {
		return fail(zk.ErrNoServer)
	}
	for budget := w.Client.Config.Retry(); len(b.left) > 0; {
		b.err = nil
		if b.run(false); b.err == nil {
			break
		}
		pause := budget.NextBackOff()
		if pause == backoff.Stop || w.In.HasEnded(on) || zkerr.Classify(b.err) == zkerr.Final {
			return fail(b.err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fail(ctxerr.Of(ctx))
		case <-on.Ended():
			return fail(b.err)
		case <-w.In.Over():
			return fail(w.In.Err())
		}
	}
	w.complete(ctx, b)
	return b.results, nil
}

// complete names reads in their errors, and a chroot that is missing.
func (w Scope) complete(ctx context.Context, b *bulk) {
	var why error // that a root is missing
	for i := range b.results {
		r := &b.results[i]
		if b.reads[i].Children && r.Err == nil {
			b.session.Listed(b.paths[i], r.Children)
		}
		if r.Err == nil {
			continue
		}
		name, _ := b.reads[i].Op()
		failed := &zkerr.Op{Op: name, Path: b.reads[i].Path, Root: string(w.Root), Err: zkerr.WithMeaning(r.Err)}
		if errors.Is(r.Err, zk.ErrNoNode) {
			if why == nil {
				why = errors.Unwrap(w.NameMissingRoot(ctx, failed))
			}
			failed.Err = why
		}
		r.Err = failed
	}
}

// bulk is a call of ReadAll. Several goroutines work on it.
type bulk struct {
	ctx      context.Context
	session  *Session
	on       *link.Link // the connection to read on; nil: any
	reads    []request.Read
	paths    []string // on the wire
	results  []request.Result
	askUnder func(ctx context.Context, op wire.Op, path string, size int) (link.Reply, error) // makes one read, under a watch; nil: none is armed
	stats    bool                                                                             // each read is a request for the stat alone

	mu   sync.Mutex // guards what follows
	left []int      // reads to be done
	err  error      // ends this attempt
}

func (w Scope) newBulk(reads []request.Read) (*bulk, error) {
	b := &bulk{reads: reads, paths: make([]string, len(reads)), results: make([]request.Result, len(reads)), left: make([]int, len(reads))}
	for i, r := range reads {
		err := request.ValidatePath(r.Path)
		if err == nil {
			b.paths[i], b.left[i] = w.Root.Fix(r.Path), i
			err = w.Client.Fits(request.ReadSize(b.paths[i]) + request.OperationHeadSize)
		}
		if err != nil {
			name, _ := r.Op()
			return nil, &zkerr.Op{Op: name, Path: r.Path, Err: err}
		}
	}
	return b, nil
}

// first returns the path that stands for all in an error.
func (b *bulk) first() string {
	if len(b.reads) == 0 {
		return "/"
	}
	return b.reads[0].Path
}

// run does what is left, until an error.
func (b *bulk) run(many bool) {
	workers, n := WorkersOfOnes, 1
	if many {
		workers, n = workersOfMany, b.session.answerSizes.fit(b.left, b.reads)
	}
	var others sync.WaitGroup
	for range min(workers, (len(b.left)+n-1)/n) - 1 {
		others.Go(func() { b.work(many) })
	}
	b.work(many)
	others.Wait()
}

func (b *bulk) work(many bool) {
	for chunk := b.take(many); chunk != nil; chunk = b.take(many) {
		if err := b.ask(chunk, many); err != nil {
			b.mu.Lock()
			b.left = append(b.left, chunk...)
			if b.err == nil || zkerr.IsRefusal(err) { // a server that refuses it hangs up on the others
				b.err = err
			}
			b.mu.Unlock()
		}
	}
}

// take returns the reads of the next request, nil if there is none.
func (b *bulk) take(many bool) []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil || len(b.left) == 0 {
		return nil
	}
	n := 1
	if many {
		n = b.session.answerSizes.fit(b.left, b.reads)
		size := request.OperationHeadSize
		for i, at := range b.left[:n] {
			if size += request.ReadSize(b.paths[at]); b.session.Client.Fits(size) != nil { // not at the first: see newBulk
				n = i
				break
			}
		}
	}
	chunk := b.left[:n:n]
	b.left = b.left[n:]
	return chunk
}

// ask makes one request.
func (b *bulk) ask(chunk []int, many bool) error {
	first := b.reads[chunk[0]]
	name, op := first.Op()
	var body wire.Appender = &wire.WatchRequest{Path: b.paths[chunk[0]]}
	if many {
		multi, requests := &wire.MultiRequest{Ops: make([]wire.MultiOp, len(chunk))}, make([]wire.WatchRequest, len(chunk))
		for i, at := range chunk {
			_, op := b.reads[at].Op()
			requests[i].Path = b.paths[at]
			multi.Ops[i] = wire.MultiOp{Op: op, Request: &requests[i]}
		}
		name, op, body = request.NameReadAll, wire.OpMultiRead, multi
	}
	// What the request needs is taken before: it may go on when the call is over.
	ctx, s, on, under, path, sizes := b.ctx, b.session, b.on, b.askUnder, b.paths[chunk[0]], &b.session.answerSizes
	size := sizes.sum(chunk, b.reads)
	if many && !sizes.known(chunk, b.reads) {
		size = link.MostAsked
	}
	switch {
	case b.stats:
		name, op, size = request.NameExists, wire.OpExists, wire.StatSize
	case under != nil && first.Children:
		op = wire.OpGetChildren2 // with a stat
	}
	r, err := Call(ctx, s, Request{Op: name, Path: path, Operations: len(chunk)}, func(*zk.Conn) (link.Reply, error) {
		if under != nil {
			return under(ctx, op, path, size)
		}
		return s.Chain().Ask(ctx, on, op, body, size)
	}, nil)
	var found []wire.MultiResult
	switch {
	case err == nil && many:
		all := wire.MultiResponse{Results: make([]wire.MultiResult, 0, len(chunk))}
		err = wire.Unmarshal(r.Body, &all)
		found = all.Results
	case err == nil && first.Children:
		list := wire.ChildrenResponse{HasStat: op == wire.OpGetChildren2}
		err = wire.Unmarshal(r.Body, &list)
		found = []wire.MultiResult{{Op: wire.OpGetChildren, Children: list.Children, Stat: list.Stat}}
	case err == nil && b.stats:
		var stat wire.Stat
		err = wire.Unmarshal(r.Body, &stat)
		found = []wire.MultiResult{{Op: wire.OpGetData, Stat: stat}}
	case err == nil:
		var data wire.DataResponse
		err = wire.Unmarshal(r.Body, &data)
		found = []wire.MultiResult{{Op: op, Data: data.Data, Stat: data.Stat}}
	case !many && ctx.Err() == nil && !IsDetached(err) && zkerr.Classify(err) == zkerr.Final:
		b.results[chunk[0]] = request.Result{Err: err, Zxid: r.Zxid, Order: r.Order}
		return nil
	default:
		return err
	}
	if err == nil {
		err = b.fits(chunk, found)
	}
	if err != nil { // the link has seen to it that the body can be decoded
		return fmt.Errorf("%w: %w: %w", zk.ErrConnectionClosed, zkerr.Malformed, err)
	}
	for i, at := range chunk {
		b.results[at] = request.ResultOf(&found[i], r.Zxid, r.Order)
	}
	if !b.stats {
		sizes.learn(chunk, b.reads, b.results)
	}
	return nil
}

// fits returns an error unless the results are those to the reads.
func (b *bulk) fits(chunk []int, found []wire.MultiResult) error {
	if len(found) != len(chunk) {
		return fmt.Errorf("%d results of %d", len(found), len(chunk))
	}
	for i, at := range chunk {
		_, op := b.reads[at].Op()
		if got := found[i].Op; got != op && (got != wire.OpError || found[i].Err == wire.OK) {
			return fmt.Errorf("the result of %v to %v", got, op)
		}
	}
	return nil
}

// Many is from how many reads on a client asks whether its server has requests
// for many.
const Many = 16

// ReadMany reads the data of znodes on one connection, which it returns. It
// fails if they are few, and where a request can read only one: the connection
// is nil then.
func (s *Session) ReadMany(paths []string) (on *link.Link, found []request.Result, err error) {
	if len(paths) < Many {
		return nil, nil, offers.ErrNotOffered
	}
	reads := make([]request.Read, len(paths))
	for i, path := range paths {
		reads[i].Path = path
	}
	b, err := Scope{Client: s.Client}.newBulk(reads)
	if err != nil {
		return nil, nil, err
	}
	if on, err = s.Offers(context.Background(), wire.OpMultiRead); err != nil {
		return nil, nil, err
	}
	b.ctx, b.session, b.on = context.Background(), s, on
	if b.run(true); zkerr.IsRefusal(b.err) {
		s.Client.Refuse(wire.OpMultiRead, b.err)
	}
	return on, b.results, b.err
}
