package zkotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// A span of an Acquire says what was asked for and what was granted, is the
// child of the caller's span, and lasts as long as the call.
func TestAcquireSpan(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.connect("a", w.observer())
		other := w.mutex(w.connect("other"))
		first, err := other.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(3*time.Second, func() { _ = first.Release(context.Background()) })

		ctx, caller := w.begin(t.Context(), "caller")
		began := time.Now()
		lease, err := w.mutex(c).Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		span := w.span("acquire mutex")
		wantChild(t, span, caller.SpanContext())
		if span.SpanKind != trace.SpanKindInternal || span.Status.Code != codes.Unset {
			t.Errorf("kind %v, status %v", span.SpanKind, span.Status)
		}
		if !span.StartTime.Equal(began) || span.EndTime.Sub(span.StartTime) != took {
			t.Errorf("from %v for %v, want from %v for %v", span.StartTime, span.EndTime.Sub(span.StartTime), began, took)
		}
		session, err := c.Session()
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range map[attribute.Key]any{
			"zkrecipes.recipe":  "mutex",
			"zkrecipes.mode":    "exclusive",
			"zkrecipes.path":    "/app/lock",
			"zkrecipes.label":   "/app/lock",
			"zkrecipes.try":     false,
			"zkrecipes.permits": int64(1),
			"zkrecipes.outcome": "ensemble",
			"zkrecipes.waited":  took.Seconds(),
			"zkrecipes.token":   lease.Token().String(),
			"zkrecipes.session": fmt.Sprintf("0x%x", uint64(session.ID())),
			"zkrecipes.znode":   lease.Path(),
		} {
			if got := value(span.Attributes, key).AsInterface(); got != want {
				t.Errorf("%s is %v, want %v", key, got, want)
			}
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		caller.End()
	})
}

// Each recipe has its name and its mode, without a caller's span too.
func TestRecipes(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.connect("a", w.observer())
		rw, err := rwlock.New(c, "/app/rw")
		if err != nil {
			t.Fatal(err)
		}
		sem, err := semaphore.New(c, "/app/sem", 5)
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			of                 recipes.Acquirer
			name, mode, recipe string
			permits            int64
		}{
			{rw.Reader(), "acquire read", "shared", "read", 1},
			{rw.Writer(), "acquire write", "exclusive", "write", 1},
			{sem.Permits(3), "acquire semaphore", "", "semaphore", 3},
		} {
			lease, err := tt.of.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			span := w.span(tt.name)
			if got := value(span.Attributes, "zkrecipes.recipe").AsString(); got != tt.recipe {
				t.Errorf("%s: recipe %q", tt.name, got)
			}
			if got := value(span.Attributes, "zkrecipes.mode").AsString(); tt.mode != "" && got != tt.mode {
				t.Errorf("%s: mode %q, want %q", tt.name, got, tt.mode)
			}
			if got := value(span.Attributes, "zkrecipes.permits").AsInt64(); got != tt.permits {
				t.Errorf("%s: %d permits", tt.name, got)
			}
			if span.Parent.IsValid() {
				t.Errorf("%s: a parent: %v", tt.name, span.Parent)
			}
		}
	})
}

// The spans of work under Do and of the Acquire before it are siblings: both
// are children of the caller's span. The work has the caller's baggage.
func TestWorkIsASibling(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		m := w.mutex(w.connect("a", w.observer()))
		ctx, caller := w.begin(withBaggage(t, t.Context()), "caller")
		err := recipes.Do(ctx, m, func(ctx context.Context, l *recipes.Lease) error {
			wantBaggage(t, ctx)
			wantBaggage(t, l.Context())
			_, work := w.begin(ctx, "work")
			work.End()
			_, more := w.begin(l.Context(), "more")
			more.End()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		caller.End()
		for _, name := range []string{"acquire mutex", "work", "more"} {
			wantChild(t, w.span(name), caller.SpanContext())
		}
	})
}

// A lock that is handed off within the process: the span of the call that gets
// it is the child of its own caller, and not of the one that has released.
func TestHandoff(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		m := w.mutex(w.connect("a", w.observer()))
		firstCtx, first := w.begin(t.Context(), "first")
		lease, err := m.Acquire(firstCtx)
		if err != nil {
			t.Fatal(err)
		}
		secondCtx, second := w.begin(withBaggage(t, t.Context()), "second")
		done := make(chan error)
		go func() {
			done <- recipes.Do(secondCtx, m, func(ctx context.Context, _ *recipes.Lease) error {
				wantBaggage(t, ctx)
				_, work := w.begin(ctx, "work")
				work.End()
				return nil
			})
		}()
		synctest.Wait()
		if n := w.sum("zkrecipes.waiting"); n != 1 {
			t.Errorf("%d wait, want 1", n)
		}
		time.Sleep(time.Second)
		if err := lease.Release(firstCtx); err != nil {
			t.Fatal(err)
		}
		if err := await(t, "the second call", done); err != nil {
			t.Fatal(err)
		}
		all := w.ended("acquire mutex")
		if len(all) != 2 {
			t.Fatalf("%d spans, want 2", len(all))
		}
		wantChild(t, all[0], first.SpanContext())
		wantChild(t, all[1], second.SpanContext())
		wantChild(t, w.span("work"), second.SpanContext())
		if how := value(all[1].Attributes, "zkrecipes.outcome").AsString(); how != "handoff" {
			t.Errorf("granted: %q", how)
		}
		if waited := value(all[1].Attributes, "zkrecipes.waited").AsFloat64(); waited != 1 {
			t.Errorf("waited %vs, want 1s", waited)
		}
	})
}

// Calls that are not granted: each span says why. Only what the caller did not
// ask for is an error: not a try that finds the lock busy, nor a caller that
// cancels.
func TestNotGranted(t *testing.T) {
	errNightIsOver := errors.New("the night is over")
	for _, tt := range []struct {
		name      string
		acquire   func(ctx context.Context, w *world, m *locks.Mutex) error
		outcome   string
		status    codes.Code
		errorType string
		says      string
	}{
		{"try", func(ctx context.Context, _ *world, m *locks.Mutex) error {
			_, err := m.TryAcquire(ctx)
			return err
		}, "busy", codes.Unset, "", "busy"},
		{"canceled while waiting", func(ctx context.Context, _ *world, m *locks.Mutex) error {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(errNightIsOver) })
			_, err := m.Acquire(ctx)
			return err
		}, "canceled", codes.Unset, "", errNightIsOver.Error()},
		{"deadline", func(ctx context.Context, _ *world, m *locks.Mutex) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := m.Acquire(ctx)
			return err
		}, "timeout", codes.Error, "timeout", "deadline exceeded"},
		{"within", func(ctx context.Context, _ *world, m *locks.Mutex) error {
			_, err := recipes.Within(m, time.Second).Acquire(ctx)
			return err
		}, "timeout", codes.Error, "timeout", "not acquired within 1s"},
		{"layout", func(ctx context.Context, w *world, _ *locks.Mutex) error {
			c := w.connect("layout", w.observer())
			if _, err := c.Create(ctx, "/app/lock/__READ__0000000000", nil, 0); err != nil {
				return err
			}
			_, err := w.mutex(c).Acquire(ctx)
			return err
		}, "layout", codes.Error, "layout", "layout"},
		{"closed", func(ctx context.Context, w *world, _ *locks.Mutex) error {
			c := w.connect("closed", w.observer())
			m := w.mutex(c)
			_ = c.Close()
			_, err := m.Acquire(ctx)
			return err
		}, "closed", codes.Error, "closed", framework.ErrClosed.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				if _, err := w.mutex(w.connect("holder")).Acquire(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, caller := w.begin(t.Context(), "caller")
				err := tt.acquire(ctx, w, w.mutex(w.connect("a", w.observer())))
				if err == nil {
					t.Fatal("granted")
				}
				span := w.span("acquire mutex")
				wantChild(t, span, caller.SpanContext())
				if span.Status.Code != tt.status {
					t.Errorf("status %v, want %v", span.Status, tt.status)
				}
				if tt.status == codes.Error && span.Status.Description != err.Error() {
					t.Errorf("status %q, want %q", span.Status.Description, err)
				}
				for key, want := range map[attribute.Key]string{
					"zkrecipes.outcome": tt.outcome, "zkrecipes.failure": err.Error(), "error.type": tt.errorType, "zkrecipes.token": "",
				} {
					if got := value(span.Attributes, key).AsString(); got != want {
						t.Errorf("%s is %q, want %q", key, got, want)
					}
				}
				if !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%q does not say %q", err, tt.says)
				}
				if n := w.count("zkrecipes.acquire.duration", attribute.String("zkrecipes.outcome", tt.outcome)); n != 1 {
					t.Errorf("%d durations with this outcome, want 1", n)
				}
				if waiting, held := w.sum("zkrecipes.waiting"), w.sum("zkrecipes.held"); waiting != 0 || held != 0 {
					t.Errorf("%d wait and %d are held, want none", waiting, held)
				}
			})
		})
	}
}
