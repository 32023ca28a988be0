package counter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/ctxerr"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/missing"
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// This file makes a batch's write once, although ZooKeeper cannot tell whether
// a request without an answer was executed. The receipt can: an ephemeral znode
// of the session that only one writer writes to. Every try of a batch is a
// multi that first sets the receipt, at one and the same version, and then the
// counter. The ensemble executes both or none, so:
//
//  1. Of all tries of a batch at most one is executed, in whatever order they
//     arrive and however late: the first that is takes the receipt to the next
//     version, and versions do not come back.
//  2. A try that the receipt refuses (BadVersion) knows that some try was
//     executed at that version. The receipt has the number of that try. If it
//     is one of the batch's, the batch was executed, with the results that this
//     try had computed. Otherwise it was a late try of an earlier batch, which
//     was given up while it was open. Then no try of this batch was executed,
//     nor can be any more, and the batch goes on at the receipt's new version.
//  3. A try that the counter refuses says only that the counter has changed.
//     The batch computes again, and tries at the same version of the receipt.
//  4. If the receipt is missing, the session has ended or somebody has deleted
//     it. Nothing that is still under way can be executed any more, since the
//     name of a receipt is never used again. But an open try may have been.
//
// So a batch that is open when its receipt goes, or when nobody waits for it
// any longer, may have been executed. One without an open try begins again,
// with a new receipt.
//
// At version -1, which means any version to a server, a receipt would refuse
// nothing. It is replaced before its version becomes negative. Servers without
// ZOOKEEPER-4743 count the counter's version up to -1 as well: then only a Set,
// which does not compute, writes.

// writer makes the writes of a process to a counter. Only its goroutine uses
// what is not guarded.
type writer struct {
	keeper *keeper
	client *managed.Client // the one that was first
	path   string          // absolute
	work   chan struct{}   // a token: there may be something to do

	// Guarded by keeper.mu.
	waiting  []*request
	removing <-chan struct{} // closed when the removal of old markers has ended; nil: none is under way

	receipt receipt
	number  int64 // of the latest try
	known   known
	looked  time.Time     // for others in line for the mutex
	carried time.Duration // an age that the markers' root is known to carry, or a longer one
}

// receipt is that of a session. The zero receipt is none.
type receipt struct {
	in      *managed.Session
	path    string // in the view of the batch that has made it
	version int32  // the latest that is known
}

// last is the greatest version of a receipt. The next ones are negative.
const last = math.MaxInt32

func (r *receipt) discard() {
	if r.in != nil {
		r.in.Discard(r.path)
	}
	*r = receipt{}
}

// receiptPath returns the path of the receipt in the view of the batch.
func (a *attempt) receiptPath() string {
	_, name := layout.Split(a.w.receipt.path)
	return layout.Join(a.b.receipts(), name)
}

// known is what is known of the counter's znode.
type known struct {
	valid   bool
	missing bool
	synced  bool // it was read after a sync, in the present batch
	data    []byte
	version int32
	at      time.Time
}

// fresh is for how long what was written is used without a read. If somebody
// deletes the znode and makes it again, it can have the same version.
const fresh = time.Second

// wrote notes the state after a write.
func (w *writer) wrote(data []byte, r zk.MultiResponse) {
	w.known = known{valid: true, data: data, at: time.Now()}
	if r.Stat != nil { // it was not created
		w.known.version = r.Stat.Version
	}
}

// try is one try of a batch.
type try struct {
	value   int64
	writes  bool
	results []result // of the requests
}

// compute returns what a batch does to the counter as it is known.
func (w *writer) compute(b *batch) try {
	l := b.cfg.layout
	t := try{value: b.cfg.initial, results: make([]result, len(b.requests))}
	var bad error
	switch {
	case b.requests[0].blind, w.known.missing:
	case w.known.version == -1:
		bad = fmt.Errorf("%w: it is -1, which any version matches: use Set once", zk.ErrBadVersion)
	default:
		t.value, bad = l.decode(w.known.data, b.cfg.initial)
	}
	for i, r := range b.requests {
		if bad != nil {
			t.results[i].err = bad
			continue
		}
		value, write, err := r.apply(l, t.value)
		t.results[i] = result{value: value, wrote: write, err: err}
		if write {
			t.value, t.writes = value, true
		}
	}
	return t
}

// operation returns the one that writes data.
func (w *writer) operation(b *batch, data []byte) any {
	switch {
	case w.known.missing:
		return &zk.CreateRequest{Path: b.path, Data: data, Acl: b.cfg.acl}
	case b.requests[0].blind:
		return &zk.SetDataRequest{Path: b.path, Data: data, Version: -1}
	}
	return &zk.SetDataRequest{Path: b.path, Data: data, Version: w.known.version}
}

// attempt is a batch that is being written.
type attempt struct {
	w         *writer
	b         *batch
	sess      *managed.Session
	open      map[int64][]result // the tries that may have been executed, or may be some time
	budget    backoff.BackOff    // for what should not happen often
	conflicts int
	lease     *recipes.Lease    // on the mutex of those who had many; nil: none
	look      bool              // whether others are in line for it
	missing   missing.Directory // of the receipt, or of the marker
	above     missing.Directory // that the counter is in
	opened    time.Time         // when an AddOnce has made its first try that is open
}

func (w *writer) begin(b *batch) *attempt {
	if w.known.synced = false; time.Since(w.known.at) > fresh {
		w.known = known{}
	}
	a := &attempt{w: w, b: b, open: make(map[int64][]result), budget: b.client.Budget()}
	if a.look = w.known.valid && time.Since(w.looked) > looking; a.look || !w.known.valid {
		w.looked = time.Now()
	}
	return a
}

// write has a batch executed, or gives it up.
func (w *writer) write(b *batch) {
	a := w.begin(b)
	defer a.unlock()
	for {
		results, err := a.try()
		if len(a.open) == 0 && errors.Is(err, framework.ErrSessionLost) {
			err = a.again(err)
		}
		switch {
		case results != nil:
			w.finish(b, results)
			return
		case err != nil:
			w.fail(b, err, len(a.open) > 0)
			return
		}
	}
}

// try makes a step. It returns results once the batch is done, an error if it
// is to be given up, and neither if another step is needed.
func (a *attempt) try() ([]result, error) {
	w, b := a.w, a.b
	if err := a.connect(); err != nil {
		return nil, err
	}
	if w.receipt.in == nil {
		return nil, a.makeReceipt()
	}
	if !b.requests[0].blind && !a.knows() {
		return nil, a.read(false)
	}
	t := w.compute(b)
	if !t.writes && !w.known.synced {
		return nil, a.read(true)
	}
	if !t.writes && len(a.open) == 0 {
		return t.results, nil
	}
	w.number++
	ops := []any{&zk.SetDataRequest{Path: a.receiptPath(), Version: w.receipt.version, Data: fmt.Appendf(nil, "%d %d", w.number, t.value)}}
	var data []byte
	if t.writes { // otherwise it only ends what is open
		data = b.cfg.layout.encode(t.value)
		ops = append(ops, w.operation(b, data))
	}
	began := time.Now()
	responses, err := a.sess.Multi(b.ctx, ops...)
	if err == nil {
		w.receipt.version = responses[0].Stat.Version
		if t.writes {
			w.wrote(data, responses[1])
		}
		return t.results, nil
	}
	if framework.MaybeApplied(err) {
		a.open[w.number] = t.results
		return nil, a.again(err)
	}
	refused := slices.IndexFunc(responses, func(r zk.MultiResponse) bool { return r.Error != nil })
	switch {
	case refused == 0 && errors.Is(err, zk.ErrBadVersion):
		return a.settle()
	case refused == 0 && errors.Is(err, zk.ErrNoNode):
		return nil, a.lose(err)
	case refused == 1:
		return nil, a.conflict(err, time.Since(began))
	}
	return nil, err
}

// connect sees to it that there is a session, and that the receipt is of it.
func (a *attempt) connect() (err error) {
	if a.sess == nil || a.sess.Err() != nil {
		if a.sess, err = a.b.client.AwaitSession(a.b.ctx); err != nil {
			a.sess = nil
			if a.b.ctx.Err() == nil {
				a.w.failWaiting(a.b, err)
			}
			return err
		}
	}
	r := &a.w.receipt
	if r.in != nil && (r.in.ID() != a.sess.ID() || r.version == last) {
		r.discard()
		if len(a.open) > 0 {
			return framework.ErrSessionLost
		}
	}
	if a.look {
		a.look = false
		found, stat, err := a.sess.Exists(a.b.ctx, a.b.mutex())
		if err == nil && found && stat.NumChildren > 0 {
			a.lock()
		}
	}
	return nil
}

func (a *attempt) makeReceipt() error {
	dir := a.b.receipts()
	made, err := a.sess.CreateProtected(a.b.ctx, dir, "receipt", nil, zk.FlagEphemeral)
	if errors.Is(err, zk.ErrNoNode) {
		return a.makeDir(&a.missing, dir, err, func(ctx context.Context, dir string) error {
			return a.sess.MakeDirectory(ctx, dir)
		})
	}
	if err == nil {
		a.b.client.Filled(dir)
		a.w.receipt = receipt{in: a.sess, path: made.Path}
	}
	return err
}

// lose begins again with another receipt, if nothing is open.
func (a *attempt) lose(err error) error {
	a.w.receipt.discard()
	if len(a.open) > 0 {
		return err
	}
	return a.again(err)
}

// settle finds out which try has taken the receipt to its next version.
func (a *attempt) settle() ([]result, error) {
	r, path := &a.w.receipt, a.receiptPath()
	err := a.sess.Sync(a.b.ctx, path)
	if err != nil {
		return nil, err
	}
	data, stat, err := a.sess.Get(a.b.ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, a.lose(err)
	}
	if err != nil {
		return nil, err
	}
	var number, value int64
	if _, err := fmt.Sscanf(string(data), "%d %d", &number, &value); err != nil || stat.Version != r.version+1 {
		return nil, a.lose(fmt.Errorf("receipt %s: somebody else has written to it", path))
	}
	r.version, a.w.known = stat.Version, known{}
	results := a.open[number]
	clear(a.open)
	return results, nil
}

// knows reports whether the state of the counter is known, and will still be
// fresh when a request is sent: without a connection that takes a while.
func (a *attempt) knows() bool {
	k := &a.w.known
	return k.valid && time.Since(k.at) <= fresh && a.sess.Connected()
}

// read reads the counter.
func (a *attempt) read(sync bool) error {
	if sync {
		if err := a.sess.Sync(a.b.ctx, a.b.path); err != nil {
			return err
		}
	}
	data, stat, err := a.sess.Get(a.b.ctx, a.b.path)
	switch {
	case framework.Absent(err):
		a.w.known = known{missing: true}
	case err != nil:
		return err
	default:
		a.w.known = known{data: data, version: stat.Version}
	}
	a.w.known.valid, a.w.known.synced, a.w.known.at = true, sync, time.Now()
	return nil
}

// conflict is called after the counter, and not the receipt or the marker, has
// refused a try, which took some time.
func (a *attempt) conflict(err error, took time.Duration) error {
	w, b := a.w, a.b
	switch {
	case errors.Is(err, zk.ErrNoNode) && w.known.missing:
		dir, _ := layout.Split(b.path)
		return a.makeDir(&a.above, dir, err, a.sess.MakePersistentPath)
	case errors.Is(err, zk.ErrNoNode):
		w.known = known{valid: b.requests[0].blind, missing: b.requests[0].blind}
		return a.again(err)
	case !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNodeExists):
		return err
	}
	w.known = known{}
	a.conflicts++
	a.observeConflict()
	if a.conflicts == patience {
		a.lock()
	}
	if a.conflicts%(5*patience) == 0 {
		return a.again(err)
	}
	return a.rest(random.N(max(took, time.Millisecond) * time.Duration(min(a.conflicts, patience))))
}

// patience is how many conflicts a batch has until it takes the mutex.
const patience = 4

// lock takes the mutex of those who had many conflicts, so that they do not
// disturb each other. A process that writes without a pause, and has none,
// looks whether others are in line, and joins them: otherwise one that is
// nearer to the ensemble would always be quicker. The mutex is no more than a
// help: without it, or when it is lost meanwhile, there are more conflicts.
func (a *attempt) lock() {
	if a.lease != nil {
		return
	}
	ctx, cancel := context.WithTimeout(a.b.ctx, a.sess.Timeout())
	defer cancel()
	mutex, err := locks.NewMutex((*framework.Client)(a.b.client), a.b.mutex(), recipes.WithAsyncRelease())
	if err == nil {
		a.lease, err = mutex.Acquire(ctx)
	}
	if err != nil && a.b.ctx.Err() == nil {
		a.b.client.Logger().Info("a counter with many conflicts goes on without its mutex", zap.String("path", a.w.path), zap.String("label", a.b.cfg.label), zap.Error(err))
	}
}

func (a *attempt) unlock() {
	if a.lease == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.b.ctx), releasing)
	defer cancel()
	_ = a.lease.Release(ctx) // after an error it is released in the background
}

func (n *Counter) mutex() string { return n.path + "-lock" }

func (n *Counter) receipts() string { return n.path + "-receipts" }

// looking is how often a process that writes without a pause looks for others.
const looking = 100 * time.Millisecond

// releasing is how long a writer waits for the release of the mutex.
const releasing = time.Second

// again pauses before a step that should not be needed often. If there were too
// many, it returns why there is another one.
func (a *attempt) again(err error) error {
	pause := a.budget.NextBackOff()
	if pause == backoff.Stop {
		return err
	}
	return a.rest(pause)
}

// makeDir makes a directory that was missing, for the next step. If that is not
// the first time it pauses, as again does.
func (a *attempt) makeDir(d *missing.Directory, dir string, err error, make func(ctx context.Context, path string) error) error {
	first := *d == missing.Directory{}
	if err := d.Make(dir, err, func() error { return make(a.b.ctx, dir) }); err != nil || first {
		return err
	}
	return a.again(err)
}

// rest waits for d. It fails when nobody waits for the batch any longer.
func (a *attempt) rest(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-a.b.ctx.Done():
		return ctxerr.Of(a.b.ctx)
	}
}
