package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Read is one read of Client.ReadAll.
type Read struct {
	Path     string
	Children bool // the names of the children instead of the data
}

// ReadResult is what one read of Client.ReadAll has found.
type ReadResult struct {
	Data     []byte
	Stat     *zk.Stat // nil after an error, and for a list: use Client.Children if you need its stat
	Children []string // of a list, in no order
	Err      error    // of this read, such as zk.ErrNoNode or zk.ErrNoAuth
}

// ReadAll does many reads in few requests. It returns a result for each read,
// in the order of the reads, with an error of its own. If err is not nil there
// are no results: a path is not valid, ctx has ended, the client was closed, or
// no server has answered until a budget of the client's retry policy was used
// up. After a lost connection only what was not answered is read again.
//
// The reads are no snapshot: a change can come between any two of them. Each
// shows at least all writes that were answered to this client before the call.
//
// A request has up to 256 reads, and not more than about 64 kB of answers are
// expected to it, by the sizes of earlier ones: it begins with 32 reads, and
// alone. About 256 kB are asked for at a time, by all calls in a session
// together, because the heartbeats of leases share the connection. But sizes
// can only be guessed. If large data follow much small data, up to 256 reads of
// them are asked for in each of four requests. An answer of more than 64 MiB
// closes the connection, and fewer are asked for then.
//
// Servers before 3.6 have no such requests. There each read is a request, and
// 64 of them are under way at a time. To find that out costs one short
// connection for each connection of the client that ReadAll is used on: it
// asks the server for its version (srvr). If the server does not tell, it costs
// two short connections and a session, which is closed at once. Without an
// answer the server is asked again, with pauses of up to a minute, and each
// read is a request until it has answered.
func (c *Client) ReadAll(ctx context.Context, reads ...Read) ([]ReadResult, error) {
	return readAllIn(ctx, c.scope(), reads)
}

// ReadAll is Client.ReadAll in this session.
func (s *Session) ReadAll(ctx context.Context, reads ...Read) ([]ReadResult, error) {
	return readAllIn(ctx, s.scope(), reads)
}

// readAllIn is readAll for users.
func readAllIn(ctx context.Context, w scope, reads []Read) ([]ReadResult, error) {
	asked := make([]request.Read, len(reads))
	for i, r := range reads {
		asked[i] = request.Read(r)
	}
	found, err := w.readAll(ctx, asked)
	if err != nil {
		return nil, err
	}
	results := make([]ReadResult, len(found))
	for i, r := range found {
		results[i] = ReadResult{Data: r.Data, Stat: r.Stat, Children: r.Children, Err: r.Err}
	}
	return results, nil
}

// What the requests of ReadAll are limited to.
const (
	mostReads     = 256      // in a request
	answerTarget  = 64 << 10 // bytes that may be expected as the answer to a request
	answerGuess   = 2 << 10  // bytes of the answer to a read, before anything is known
	workersOfMany = mostAsked / answerTarget
	workersOfOnes = mostAsked / onePlace
)

func (w scope) readAll(ctx context.Context, reads []request.Read) ([]request.Result, error) {
	b, err := w.newBulk(reads)
	if err != nil {
		return nil, err
	}
	return w.readBulk(ctx, b)
}

// statAll is the StatAll of package privileged. A multiRead has no such reads.
func (w scope) statAll(ctx context.Context, reads []request.Read) ([]request.Result, error) {
	b, err := w.newBulk(reads)
	if err != nil {
		return nil, err
	}
	b.stats = true
	return w.readBulk(ctx, b)
}

func (w scope) readBulk(ctx context.Context, b *bulk) ([]request.Result, error) {
	err := w.do(ctx, request.NameReadAll, b.first(), repeatable, func(a *attempt) error {
		during, cancel := context.WithCancel(ctx) // ctx may be user code, and workers have goroutines of their own
		defer cancel()
		b.ctx, b.session, b.err = during, a.session, nil
		for len(b.left) > 0 {
			if !b.stats {
				b.on, _ = a.session.offers(ctx, wire.OpMultiRead)
			}
			many := b.on != nil
			b.run(many)
			if many && b.err != nil && zkerr.Classify(b.err) == zkerr.Ambiguous {
				a.session.answerSizes.double() // an answer may have been too large
			}
			if !many || !zkerr.IsRefusal(b.err) {
				return b.err
			}
			w.core.refuse(wire.OpMultiRead, b.err)
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

// complete names reads in their errors, and a chroot that is missing.
func (w scope) complete(ctx context.Context, b *bulk) {
	var why error // that a root is missing
	for i := range b.results {
		r := &b.results[i]
		if b.reads[i].Children && r.Err == nil {
			b.session.discardStrays(b.paths[i], r.Children)
		}
		if r.Err == nil {
			continue
		}
		name, _ := b.reads[i].Op()
		failed := &zkerr.Op{Op: name, Path: b.reads[i].Path, Root: string(w.root), Err: zkerr.WithMeaning(r.Err)}
		if errors.Is(r.Err, zk.ErrNoNode) {
			if why == nil {
				why = errors.Unwrap(w.nameMissingRoot(ctx, failed))
			}
			failed.Err = why
		}
		r.Err = failed
	}
}

// readSize is the size of a read in a request.
func readSize(path string) int {
	return request.OperationHeadSize + request.TextSize(path) + request.BoolSize
}

// bulk is a call of ReadAll. Several goroutines work on it.
type bulk struct {
	ctx     context.Context
	session *session
	on      *link // the connection to read on; nil: any
	reads   []request.Read
	paths   []string // on the wire
	results []request.Result
	// watchUnder: a watch is armed with each read, and with that of this path
	// also if it is missing. Empty: none is.
	watchUnder string
	stats      bool // each read is a request for the stat alone

	mu   sync.Mutex // guards what follows
	left []int      // reads to be done
	err  error      // ends this attempt
}

func (w scope) newBulk(reads []request.Read) (*bulk, error) {
	b := &bulk{reads: reads, paths: make([]string, len(reads)), results: make([]request.Result, len(reads)), left: make([]int, len(reads))}
	for i, r := range reads {
		err := request.ValidatePath(r.Path)
		if err == nil {
			b.paths[i], b.left[i] = w.root.Fix(r.Path), i
			err = w.core.cfg.fits(readSize(b.paths[i]) + request.OperationHeadSize)
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
	workers, n := workersOfOnes, 1
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
			if size += readSize(b.paths[at]); b.session.core.cfg.fits(size) != nil { // not at the first: see newBulk
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
	ctx, s, on, root, path, sizes := b.ctx, b.session, b.on, b.watchUnder, b.paths[chunk[0]], &b.session.answerSizes
	size := sizes.sum(chunk, b.reads)
	if many && !sizes.known(chunk, b.reads) {
		size = mostAsked
	}
	switch {
	case b.stats:
		name, op, size = request.NameExists, wire.OpExists, statSize
	case root != "" && first.Children:
		op = wire.OpGetChildren2 // with a stat
	}
	r, err := call(ctx, s, Request{Op: name, Path: path, Operations: len(chunk)}, func(*zk.Conn) (reply, error) {
		if root != "" {
			return s.askAndWatch(ctx, on, root, op, path, size)
		}
		return s.ask(ctx, on, op, body, size)
	}, nil)
	var found []wire.MultiResult
	switch {
	case err == nil && many:
		all := wire.MultiResponse{Results: make([]wire.MultiResult, 0, len(chunk))}
		err = wire.Unmarshal(r.body, &all)
		found = all.Results
	case err == nil && first.Children:
		list := wire.ChildrenResponse{HasStat: op == wire.OpGetChildren2}
		err = wire.Unmarshal(r.body, &list)
		found = []wire.MultiResult{{Op: wire.OpGetChildren, Children: list.Children, Stat: list.Stat}}
	case err == nil && b.stats:
		var stat wire.Stat
		err = wire.Unmarshal(r.body, &stat)
		found = []wire.MultiResult{{Op: wire.OpGetData, Stat: stat}}
	case err == nil:
		var data wire.DataResponse
		err = wire.Unmarshal(r.body, &data)
		found = []wire.MultiResult{{Op: op, Data: data.Data, Stat: data.Stat}}
	case !many && ctx.Err() == nil && !isDetached(err) && zkerr.Classify(err) == zkerr.Final:
		b.results[chunk[0]] = request.Result{Err: err, Zxid: r.zxid, Order: r.order}
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
		b.results[at] = request.ResultOf(&found[i], r.zxid, r.order)
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

// answerSizes estimates how large the answer to a read is: to a get and to a
// list. It believes in large ones at once, and in small ones slowly, and not
// if they are few.
type answerSizes struct {
	mu   sync.Mutex
	of   [2]int // 0: nothing is known
	seen [2]int // how many answers
}

// fewSeen is after how many answers their size is a good guess. Until then a
// request for many goes alone.
const fewSeen = 32

func (s *answerSizes) sizeLocked(r request.Read) int {
	if size := s.of[kindOf(r)]; size > 0 {
		return size
	}
	return answerGuess
}

func kindOf(r request.Read) int {
	if r.Children {
		return 1
	}
	return 0
}

// fit returns how many of the first reads a request may have.
func (s *answerSizes) fit(left []int, reads []request.Read) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 0
	most := min(len(left), mostReads)
	for n, at := range left[:most] {
		if size += s.sizeLocked(reads[at]); size > answerTarget && n > 0 {
			return n
		}
	}
	return most
}

// sum returns how large the answer to a request may be expected to be.
func (s *answerSizes) sum(chunk []int, reads []request.Read) (size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range chunk {
		size += s.sizeLocked(reads[at])
	}
	return size
}

// known reports whether enough answers of these kinds have come.
func (s *answerSizes) known(chunk []int, reads []request.Read) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(chunk, func(at int) bool { return s.seen[kindOf(reads[at])] < fewSeen })
}

// learn takes the sizes of an answer.
func (s *answerSizes) learn(chunk []int, reads []request.Read, results []request.Result) {
	var sums, counts [2]int
	for _, at := range chunk {
		r := &results[at]
		size := request.OperationHeadSize + statSize + request.BlobSize(r.Data)
		for _, name := range r.Children {
			size += request.TextSize(name)
		}
		kind := kindOf(reads[at])
		sums[kind] += size
		counts[kind]++
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, n := range counts {
		if n > 0 {
			now, before := sums[kind]/n, s.of[kind]
			if before == 0 {
				before = answerGuess
			}
			s.of[kind] = max(now, (now+before)/2)
			if s.seen[kind] += n; s.seen[kind] < fewSeen {
				s.of[kind] = max(s.of[kind], answerGuess)
			}
		}
	}
}

// double makes the next requests ask for half as much.
func (s *answerSizes) double() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, size := range s.of {
		if size == 0 {
			size = answerGuess
		}
		s.of[kind] = min(2*size, answerTarget)
	}
}
