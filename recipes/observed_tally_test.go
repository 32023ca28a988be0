package recipes_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// A tally is an observer that counts, and that notes whatever an observer must
// not be told.
type tally struct {
	mu       sync.Mutex // guards what follows
	wrong    []string
	begun    int
	open     map[int]begun // calls of Acquire that have not ended
	requests map[int]framework.Request
	waiting  map[string]int // by path
	held     map[string]int
	grants   map[granted]time.Time           // leases that have not ended
	results  map[*call]recipes.AcquireResult // of calls that were not looked up
	events   map[string]int

	lostAndReleased map[granted]bool
}

// begun is a call of Acquire as AcquireStart was told of it.
type begun struct {
	acquire recipes.Acquire
	call    *call
	at      time.Time
}

// granted is what tells one lease from all others: no two calls are alike, and
// what one Run leads one after the other has different grants.
type granted struct {
	call    *call
	acquire recipes.Acquire
	grant   recipes.Grant
}

// callKey is the key of the *call in the context that a caller passes.
type callKey struct{}

// spanKey is the key of what a tally itself adds to a context.
type spanKey struct{ *tally }

func newTally() *tally {
	return &tally{
		open: map[int]begun{}, requests: map[int]framework.Request{},
		lostAndReleased: map[granted]bool{},
		waiting:         map[string]int{}, held: map[string]int{}, events: map[string]int{},
		grants: map[granted]time.Time{}, results: map[*call]recipes.AcquireResult{},
	}
}

// observers are what a tally hears, and how it is heard.
type observers struct {
	client framework.Observer
	leases recipes.Observer
}

func (o observers) option() framework.Option {
	return framework.Together(framework.WithObserver(o.client), recipes.WithObserver(o.leases))
}

func (t *tally) observer() framework.Option { return t.observers().option() }

func (t *tally) observers() observers {
	return observers{
		client: framework.Observer{
			RequestStart: t.requestStart,
			RequestEnd:   t.requestEnd,
			Retried:      func(ctx context.Context, r framework.Retry) { t.note("retried", r.Err != nil && r.Op != "", "%+v", r) },
			Batched:      func(b framework.Batch) { t.note("batched", b.Operations > 1, "%+v", b) },
			Dropped:      func(d framework.Drop) { t.note("dropped", false, "%+v", d) },
		},
		leases: recipes.Observer{
			AcquireStart: t.acquireStart,
			AcquireEnd:   t.acquireEnd,
			Released:     t.released,
			Lost:         t.lost,
			LostReleased: t.lostReleased,
			Overran: func(ctx context.Context, o recipes.Overrun) {
				t.note("overran", o.By > 0 && o.Grant.How != "", "%+v", o)
			},
			Revoked: func(ctx context.Context, r recipes.Revocation) { t.note("revoked", callOf(ctx) != nil, "%+v", r) },
		},
	}
}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// note counts an event, and notes it as wrong unless ok.
func (t *tally) note(event string, ok bool, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noteLocked(event, ok, format, args...)
}

func (t *tally) noteLocked(event string, ok bool, format string, args ...any) {
	t.events[event]++
	if !ok {
		t.wrong = append(t.wrong, event+": "+fmt.Sprintf(format, args...))
	}
}

func (t *tally) acquireStart(ctx context.Context, a recipes.Acquire) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	span := ctx.Value(spanKey{t}) // a lease's context must not have one
	t.noteLocked("acquire start", span == nil && callOf(ctx) != nil && a.Path != "" && a.Permits > 0, "%+v, in span %v", a, span)
	t.begun++
	t.open[t.begun] = begun{a, callOf(ctx), time.Now()}
	t.waiting[a.Path]++
	return context.WithValue(ctx, spanKey{t}, t.begun)
}

func (t *tally) acquireEnd(ctx context.Context, a recipes.Acquire, r recipes.AcquireResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, _ := ctx.Value(spanKey{t}).(int)
	began, ok := t.open[id]
	ok = ok && began.acquire == a && began.call == callOf(ctx) && r.Waited == time.Since(began.at)
	ok = ok && (r.Err == nil) == (r.Grant.How != "") && (r.Err == nil || r.Grant == recipes.Grant{})
	t.noteLocked("acquire end", ok, "%+v, %+v, begun as %d: %+v", a, r, id, began)
	delete(t.open, id)
	t.waiting[a.Path]--
	if began.call != nil {
		t.results[began.call] = r
	}
	if r.Err == nil {
		t.held[a.Path]++
		t.grants[granted{began.call, a, r.Grant}] = time.Now()
	}
}

func (t *tally) released(ctx context.Context, r recipes.Release) {
	t.ended(ctx, "released", granted{callOf(ctx), r.Acquire, r.Grant}, r.Held, true)
}

func (t *tally) lost(ctx context.Context, l recipes.Loss) {
	ok := l.Err != nil && l.Reason != "" && l.Reason != recipes.LostOtherwise
	t.ended(ctx, "lost", granted{callOf(ctx), l.Acquire, l.Grant}, l.Held, ok)
}

// lostReleased may be called before lost is, which is called on another
// goroutine.
func (t *tally) lostReleased(ctx context.Context, l recipes.Loss) {
	g := granted{callOf(ctx), l.Acquire, l.Grant}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noteLocked("lost released", l.Err != nil && l.Reason != "" && !t.lostAndReleased[g], "%+v", l)
	t.lostAndReleased[g] = true
}

func (t *tally) ended(ctx context.Context, event string, g granted, held time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	since, known := t.grants[g]
	ok = ok && known && ctx.Value(spanKey{t}) == nil && held == time.Since(since)
	t.noteLocked(event, ok, "%+v, held %v, known %v since %v", g, held, known, time.Since(since))
	delete(t.grants, g)
	t.held[g.acquire.Path]--
}

func (t *tally) requestStart(ctx context.Context, r framework.Request) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noteLocked("request start", r.Op != "" && r.Operations > 0, "%+v", r)
	t.begun++
	t.requests[t.begun] = r
	return context.WithValue(ctx, spanKey{t}, t.begun)
}

func (t *tally) requestEnd(ctx context.Context, r framework.Request, result framework.RequestResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, _ := ctx.Value(spanKey{t}).(int)
	began, ok := t.requests[id]
	t.noteLocked("request end", ok && began == r && result.Code != "", "%+v, %+v, begun as %+v", r, result, began)
	delete(t.requests, id)
}

// result returns how AcquireEnd has told that a call has ended.
func (t *tally) result(c *call) (r recipes.AcquireResult, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok = t.results[c]
	delete(t.results, c)
	return r, ok
}

// counts returns how many wait and are held at a path, and what was wrong.
func (t *tally) counts(path string) (waiting, held int, wrong []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting[path], t.held[path], t.wrong
}

// left returns what has begun and not ended.
func (t *tally) left() (all []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.open {
		all = append(all, fmt.Sprintf("acquire %+v", b))
	}
	for g := range t.grants {
		all = append(all, fmt.Sprintf("lease %+v", g))
	}
	for _, r := range t.requests {
		all = append(all, fmt.Sprintf("request %+v", r))
	}
	for path := range t.waiting {
		if w, h := t.waiting[path], t.held[path]; w != 0 || h != 0 {
			all = append(all, fmt.Sprintf("%s: %d waiting, %d held", path, w, h))
		}
	}
	return all
}
