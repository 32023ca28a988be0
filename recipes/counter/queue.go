package counter

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// keeper has the local queues of a client's counters. A counter that is in use
// has a writer, whose goroutine makes one write after the other. What is asked
// for while a write is under way waits, and what can be added up goes out
// together.
type keeper struct {
	mu      sync.Mutex
	writers map[string]*writer // by absolute path
}

func keeperOf(c *managed.Client) *keeper {
	return managed.Attached[keeper](c, func() any { return &keeper{writers: make(map[string]*writer)} })
}

// request is one call.
type request struct {
	counter *Counter
	ctx     context.Context
	name    string
	// apply computes the value after the request. It reports whether that is to be
	// written.
	apply  func(l Layout, old int64) (value int64, write bool, err error)
	alone  bool   // it does not share a write
	blind  bool   // it does not matter what the value was
	id     string // of AddOnce; empty: of another
	amount int64  // of AddOnce
	done   chan struct{}
	asked  time.Time

	result result // before done is closed
	batch  *batch // guarded by keeper.mu; nil while it waits
}

type result struct {
	value    int64
	wrote    bool
	repeated bool
	err      error
}

// batch is what goes out together.
type batch struct {
	*Counter // of the first request; the others have the same layout
	requests []*request
	ctx      context.Context // ends when nobody waits for the batch
	cancel   context.CancelFunc
	begun    time.Time
	left     int  // how many callers have left, guarded by keeper.mu
	over     bool // guarded by keeper.mu
}

// idle is for how long a writer, and its receipt, stay unused.
const idle = time.Minute

func (k *keeper) add(r *request) {
	path := r.counter.client.Resolve(r.counter.path)
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.writers[path]
	if w == nil {
		w = &writer{keeper: k, client: r.counter.client, path: path, work: make(chan struct{}, 1)}
		k.writers[path] = w
		go w.run()
	}
	r.asked = time.Now()
	w.waiting = append(w.waiting, r)
	w.wake()
}

// What becomes of a request whose caller leaves.
type departure int

const (
	notBegun departure = iota // it was never begun
	goesOn                    // others wait for the batch
	ends                      // it ends at once
)

func (k *keeper) leave(r *request) departure {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.batch == nil {
		w := k.writers[r.counter.client.Resolve(r.counter.path)]
		w.waiting = slices.DeleteFunc(w.waiting, func(o *request) bool { return o == r })
		return notBegun
	}
	if r.batch.over {
		return ends
	}
	if r.batch.left++; r.batch.left < len(r.batch.requests) {
		return goesOn
	}
	r.batch.cancel()
	return ends
}

// next returns the next batch, and nil if there is nothing to do.
func (w *writer) next() *batch {
	w.keeper.mu.Lock()
	defer w.keeper.mu.Unlock()
	if len(w.waiting) == 0 {
		return nil
	}
	first, n := w.waiting[0], 1
	for !first.alone && n < len(w.waiting) && w.waiting[n].joins(first) {
		n++
	}
	b := &batch{Counter: first.counter, requests: slices.Clone(w.waiting[:n]), begun: time.Now()}
	w.waiting = slices.Delete(w.waiting, 0, n)
	b.ctx, b.cancel = context.WithCancel(first.counter.client.Values(first.ctx))
	for _, r := range b.requests {
		r.batch = b
	}
	return b
}

func (r *request) joins(first *request) bool {
	a, b := &r.counter.cfg, &first.counter.cfg
	return !r.alone && a.layout == b.layout && a.initial == b.initial
}

// finish tells the callers.
func (w *writer) finish(b *batch, results []result) {
	w.keeper.mu.Lock()
	b.over = true
	w.keeper.mu.Unlock()
	b.cancel()
	for i, r := range b.requests {
		r.result = results[i]
		if err := results[i].err; err != nil {
			r.result.err = r.counter.failed(r.name, err)
		}
	}
	b.end()
}

// end lets the callers return.
func (b *batch) end() {
	b.observe()
	for _, r := range b.requests {
		close(r.done)
	}
}

// fail tells the callers that a batch has failed, perhaps after it was
// executed.
func (w *writer) fail(b *batch, err error, maybe bool) {
	w.keeper.mu.Lock()
	b.over = true
	w.keeper.mu.Unlock()
	b.cancel()
	for _, r := range b.requests {
		r.result = result{err: r.counter.failed(r.name, err)}
		if maybe {
			r.result.err = r.counter.unsure(r.name, err)
		}
	}
	b.end()
}

// failWaiting gives up what has waited for as long as a batch that has failed
// because no server answers.
func (w *writer) failWaiting(failed *batch, err error) {
	b := &batch{cancel: func() {}, begun: failed.begun}
	w.keeper.mu.Lock()
	w.waiting = slices.DeleteFunc(w.waiting, func(r *request) bool {
		if r.asked.After(failed.begun) {
			return false
		}
		b.requests, r.batch = append(b.requests, r), b
		return true
	})
	w.keeper.mu.Unlock()
	w.fail(b, err, false)
}

// run writes until the counter was not used for a while.
func (w *writer) run() {
	for {
		for b := w.next(); b != nil; b = w.next() {
			if b.requests[0].id != "" {
				w.addOnce(b)
			} else {
				w.write(b)
			}
		}
		select {
		case <-w.work:
			continue
		case <-time.After(idle):
		case <-w.client.Done():
		}
		if w.end() {
			return
		}
	}
}

// end reports whether there is nothing to do. Then another writer begins anew.
func (w *writer) end() bool {
	w.keeper.mu.Lock()
	defer w.keeper.mu.Unlock()
	if len(w.waiting) > 0 {
		return false
	}
	delete(w.keeper.writers, w.path)
	w.receipt.discard()
	return true
}

func (w *writer) wake() {
	select {
	case w.work <- struct{}{}:
	default:
	}
}
