package zkotel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

// event returns the only event of a span with this name.
func event(t *testing.T, span tracetest.SpanStub, name string) (found sdk.Event) {
	t.Helper()
	n := 0
	for _, e := range span.Events {
		if e.Name == name {
			found, n = e, n+1
		}
	}
	if n != 1 {
		t.Fatalf("the span %q has %d events %q, want 1: %v", span.Name, n, name, span.Events)
	}
	return found
}

// A lease that is lost: its caller's span has an event that says which lease
// and why, even if the work and the caller's span end as soon as the context
// does.
func TestLost(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.connect("a", w.observer())
		m := w.mutex(c)
		ctx, caller := w.begin(t.Context(), "caller")
		var token string
		err := recipes.Do(ctx, m, func(ctx context.Context, l *recipes.Lease) error {
			token = l.Token().String()
			if n := w.sum("zkrecipes.held"); n != 1 {
				t.Errorf("%d are held, want 1", n)
			}
			time.Sleep(time.Second)
			w.expire(c)
			<-ctx.Done()
			return nil
		})
		caller.End()
		if !errors.Is(err, recipes.ErrNotHeld) {
			t.Fatalf("Do: %v", err)
		}
		lost := event(t, w.span("caller"), "lease.lost")
		for key, want := range map[attribute.Key]string{
			"zkrecipes.recipe": "mutex", "zkrecipes.mode": "exclusive", "zkrecipes.path": "/app/lock",
			"zkrecipes.token": token, "zkrecipes.reason": "session",
		} {
			if got := value(lost.Attributes, key).AsString(); got != want {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
		if held := value(lost.Attributes, "zkrecipes.held").AsFloat64(); held < 1 || held > 2 {
			t.Errorf("held for %vs, want 1s to 2s", held)
		}
		if value(lost.Attributes, "zkrecipes.failure").AsString() == "" || value(lost.Attributes, "zkrecipes.session").AsString() == "" {
			t.Errorf("the event has no failure or no session: %v", lost.Attributes)
		}
		if held, lost := w.sum("zkrecipes.held"), w.sum("zkrecipes.lost", attribute.String("zkrecipes.reason", "session")); held != 0 || lost != 1 {
			t.Errorf("%d are held and %d were lost, want 0 and 1", held, lost)
		}
		if n := w.count("zkrecipes.hold.duration"); n != 1 {
			t.Errorf("%d hold durations, want 1", n)
		}
	})
}

// An election: each term has a span of its Acquire, the term's work is under
// the caller's span and has its baggage, and a lost term is an event on that
// span.
func TestElection(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.connect("a", w.observer())
		e, err := leader.New(c, "/app/leader")
		if err != nil {
			t.Fatal(err)
		}
		ctx, caller := w.begin(withBaggage(t, t.Context()), "caller")
		election := attribute.String("zkrecipes.election", "/app/leader")
		terms := 0
		err = e.Run(ctx, func(ctx context.Context, _ *recipes.Lease) error {
			terms++
			wantBaggage(t, ctx)
			_, work := w.begin(ctx, fmt.Sprint("term ", terms))
			work.End()
			if n := w.sum("zkrecipes.leader", election); n != 1 {
				t.Errorf("it leads %d times, want once", n)
			}
			if terms == 2 {
				return leader.ErrStop
			}
			w.expire(c)
			<-ctx.Done()
			return nil
		})
		caller.End()
		if err != nil {
			t.Fatal(err)
		}
		all := w.ended("acquire election")
		if len(all) != 2 {
			t.Fatalf("%d spans, want 2", len(all))
		}
		for _, span := range append(all, w.span("term 1"), w.span("term 2")) {
			wantChild(t, span, caller.SpanContext())
		}
		lost := event(t, w.span("caller"), "lease.lost")
		if recipe := value(lost.Attributes, "zkrecipes.recipe").AsString(); recipe != "election" {
			t.Errorf("lost: %q", recipe)
		}
		if n := w.sum("zkrecipes.leader", election); n != 0 {
			t.Errorf("it leads %d times after its end", n)
		}
	})
}

// Work that goes on past its lease's deadline is an event on the caller's span.
// The event of the loss has the time of the loss, not of the release.
func TestOverran(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.connect("a", w.observer())
		ctx, caller := w.begin(t.Context(), "caller")
		var lost time.Time
		err := recipes.Do(ctx, w.mutex(c), func(ctx context.Context, _ *recipes.Lease) error {
			w.expire(c)
			<-ctx.Done()
			lost = time.Now()
			time.Sleep(5 * time.Second) // it ignores its context
			return nil
		})
		caller.End()
		if !errors.Is(err, recipes.ErrNotHeld) {
			t.Fatalf("Do: %v", err)
		}
		by := value(event(t, w.span("caller"), "lease.overran").Attributes, "zkrecipes.by").AsFloat64()
		if by < 4 || by > 6 {
			t.Errorf("overran by %vs, want about 5s", by)
		}
		if at := event(t, w.span("caller"), "lease.lost").Time; !at.Equal(lost) {
			t.Errorf("lost at %v, want %v", at, lost)
		}
		if n := w.sum("zkrecipes.overruns"); n != 1 {
			t.Errorf("%d overruns, want 1", n)
		}
	})
}

// A holder that is asked to release has an event on the caller's span.
func TestRevoked(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		m := w.mutex(w.connect("a", w.observer()))
		ctx, caller := w.begin(t.Context(), "caller")
		err := recipes.Do(ctx, m, func(ctx context.Context, l *recipes.Lease) error {
			asked := l.Revoked()
			other := w.mutex(w.connect("other"))
			all, err := other.Participants(ctx)
			if err != nil {
				return err
			}
			if err := other.Revoke(ctx, all[0]); err != nil {
				return err
			}
			await(t, "the request to release", asked)
			synctest.Wait()
			return nil
		})
		caller.End()
		if err != nil {
			t.Fatal(err)
		}
		event(t, w.span("caller"), "lease.revoked")
		if n := w.sum("zkrecipes.revocations"); n != 1 {
			t.Errorf("%d revocations, want 1", n)
		}
	})
}

// A lease of several locks: each has its span and its event.
func TestSeveralLocks(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.connect("a", w.observer())
		parts := make([]recipes.Acquirer, 2)
		for i := range parts {
			m, err := locks.NewMutex(c, fmt.Sprint("/app/", i))
			if err != nil {
				t.Fatal(err)
			}
			parts[i] = m
		}
		both, err := locks.All(parts...)
		if err != nil {
			t.Fatal(err)
		}
		ctx, caller := w.begin(t.Context(), "caller")
		err = recipes.Do(ctx, both, func(ctx context.Context, _ *recipes.Lease) error {
			if n := w.sum("zkrecipes.held"); n != 2 {
				t.Errorf("%d are held, want 2", n)
			}
			w.expire(c)
			<-ctx.Done()
			return nil
		})
		caller.End()
		if !errors.Is(err, recipes.ErrNotHeld) {
			t.Fatalf("Do: %v", err)
		}
		for _, span := range w.ended("acquire mutex") {
			wantChild(t, span, caller.SpanContext())
		}
		if events := w.span("caller").Events; len(events) != 2 {
			t.Errorf("the caller's span has %d events, want one for each lock: %v", len(events), events)
		}
		if held, lost := w.sum("zkrecipes.held"), w.sum("zkrecipes.lost"); held != 0 || lost != 2 {
			t.Errorf("%d are held and %d were lost, want 0 and 2", held, lost)
		}
	})
}
