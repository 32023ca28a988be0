package zkotel_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

// endings is a provider that counts how often each span is ended.
type endings struct {
	embedded.TracerProvider
	inner trace.TracerProvider
	mu    sync.Mutex
	ended map[trace.SpanID]int
}

func (e *endings) Tracer(name string, opts ...trace.TracerOption) trace.Tracer {
	return countingTracer{e.inner.Tracer(name, opts...), e}
}

type countingTracer struct {
	trace.Tracer
	of *endings
}

func (c countingTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	ctx, span := c.Tracer.Start(ctx, name, opts...)
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.ended[span.SpanContext().SpanID()] = 0
	counting := countingSpan{span, c.of}
	return trace.ContextWithSpan(ctx, counting), counting
}

type countingSpan struct {
	trace.Span
	of *endings
}

func (c countingSpan) End(opts ...trace.SpanEndOption) {
	c.of.mu.Lock()
	c.of.ended[c.SpanContext().SpanID()]++
	c.of.mu.Unlock()
	c.Span.End(opts...)
}

// Under random schedules, with sessions that expire, networks that break and
// callers that give up, each span is ended exactly once, each acquire is the
// child of its own caller, and what is counted up is counted down.
func TestRandomSchedules(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			run(t, func(t *testing.T, w *world) { playRandom(t, w, rand.New(rand.NewPCG(seed, 15))) })
		})
	}
}

func playRandom(t *testing.T, w *world, draw *rand.Rand) {
	spans := &endings{inner: w.traces, ended: map[trace.SpanID]int{}}
	observed := w.observer(zkotel.RequestSpans(), zkotel.TracerProvider(spans))
	var clients []*framework.Client
	for i := range 3 {
		clients = append(clients, w.connect(fmt.Sprint(i), observed, framework.WithSessionTimeout(5*time.Second)))
	}
	var all sync.WaitGroup
	for i := range 12 {
		worker := &worker{t: t, w: w, draw: rand.New(rand.NewPCG(draw.Uint64(), 1)), of: clients[i%len(clients)]}
		all.Go(worker.work)
	}
	for range 20 {
		time.Sleep(time.Duration(draw.IntN(2000)) * time.Millisecond)
		i := draw.IntN(len(clients))
		switch net := w.ens.ClientNet(fmt.Sprint(i)); draw.IntN(4) {
		case 0:
			if s, err := clients[i].Session(); err == nil {
				_ = w.ens.ExpireSession(s.ID())
			}
		case 1:
			net.Drop()
		case 2:
			net.Cut()
			time.Sleep(time.Duration(draw.IntN(8000)) * time.Millisecond)
			net.Heal()
		case 3:
			net.Latency(time.Duration(draw.IntN(50))*time.Millisecond, time.Duration(draw.IntN(50))*time.Millisecond)
		}
	}
	all.Wait()
	for _, c := range clients {
		_ = c.Close()
	}
	synctest.Wait()

	if len(spans.ended) == 0 {
		t.Fatal("no spans")
	}
	for id, n := range spans.ended {
		if n != 1 {
			t.Errorf("the span %v was ended %d times", id, n)
		}
	}
	wantOwnCallers(t, w.spans.GetSpans())
	if dropped := w.sum("zkrecipes.events.dropped"); dropped != 0 {
		t.Fatalf("%d events were dropped", dropped)
	}
	for _, name := range []string{"zkrecipes.waiting", "zkrecipes.held", "zkrecipes.connected", "zkrecipes.clients"} {
		if n := w.sum(name); n != 0 {
			t.Errorf("%s is %d at the end", name, n)
		}
	}
	for _, name := range []string{"zkrecipes.oldest_wait", "zkrecipes.oldest_hold"} {
		if seconds := w.age(name); seconds != 0 {
			t.Errorf("%s is %vs at the end", name, seconds)
		}
	}
	calls, acquires := w.count("zkrecipes.acquire.duration"), uint64(len(w.ended("acquire read"))+len(w.ended("acquire write")))
	if calls != acquires {
		t.Errorf("%d calls have a duration, %d have a span", calls, acquires)
	}
}

// wantOwnCallers checks that each call has one acquire span, and that no
// request has a caller's span or no span as its parent while its acquire span
// is there.
func wantOwnCallers(t *testing.T, all tracetest.SpanStubs) {
	t.Helper()
	children := map[trace.SpanID]int{}
	for _, s := range all {
		if s.SpanKind == trace.SpanKindInternal && s.Name != "call" {
			children[s.Parent.SpanID()]++
		}
		if s.SpanKind == trace.SpanKindClient && !s.Parent.IsValid() {
			t.Errorf("%s is a root span", s.Name)
		}
	}
	for _, s := range all {
		if s.Name == "call" && children[s.SpanContext.SpanID()] != 1 {
			t.Errorf("a call has %d acquire spans, want 1", children[s.SpanContext.SpanID()])
		}
	}
}

// worker is a goroutine that uses a read/write lock with others.
type worker struct {
	t    *testing.T
	w    *world
	draw *rand.Rand
	of   *framework.Client
}

func (k *worker) work() {
	lock, err := rwlock.New(k.of, "/app/lock")
	if err != nil {
		k.t.Error(err)
		return
	}
	for range 10 {
		acquirer := lock.Reader()
		if k.draw.IntN(2) == 0 {
			acquirer = lock.Writer()
		}
		k.call(acquirer)
		time.Sleep(k.upTo(time.Second))
	}
}

func (k *worker) upTo(d time.Duration) time.Duration {
	return time.Duration(k.draw.Int64N(int64(d)))
}

// call is one call, in a trace of its own.
func (k *worker) call(a recipes.Acquirer) {
	ctx, span := k.w.begin(context.Background(), "call")
	defer span.End()
	switch k.draw.IntN(4) {
	case 0:
		a = recipes.Try(a)
	case 1:
		a = recipes.Within(a, k.upTo(5*time.Second))
	case 2:
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		time.AfterFunc(k.upTo(5*time.Second), cancel)
	}
	err := recipes.Do(ctx, a, func(ctx context.Context, l *recipes.Lease) error {
		select {
		case <-ctx.Done():
		case <-time.After(k.upTo(2 * time.Second)):
		}
		return nil
	})
	if errors.Is(err, recipes.ErrDeadlock) || errors.Is(err, recipes.ErrLayout) {
		k.t.Error(err)
	}
}
