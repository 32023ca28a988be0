package recipes_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// overruns is what a client reports about work that ends too late.
type overruns struct {
	by   []time.Duration
	logs *observer.ObservedLogs
}

func (o *overruns) connect(w *bubble.World) *framework.Client {
	core, logs := observer.New(zap.ErrorLevel)
	o.logs = logs
	return w.Connect("a", framework.WithLogger(zap.New(core)), recipes.WithObserver(recipes.Observer{
		Overran: func(_ context.Context, over recipes.Overrun) { o.by = append(o.by, over.By) },
	}))
}

// want checks that there was one overrun by so much; 0: none.
func (o *overruns) want(t *testing.T, by time.Duration) {
	t.Helper()
	synctest.Wait()
	logged := o.logs.FilterMessage("work has ended past its lease's deadline").Len()
	switch {
	case by == 0 && (len(o.by) > 0 || logged > 0):
		t.Errorf("overran by %v, with %d lines, want no overrun", o.by, logged)
	case by > 0 && (len(o.by) != 1 || o.by[0] != by || logged != 1):
		t.Errorf("overran by %v, with %d lines, want %v and a line", o.by, logged, by)
	}
}

// Work overruns if it ends after a deadline that it was told of in time. If the
// loss itself is the deadline, as when the ensemble ends the session, no work
// can end before it. Such work was always counted, by some microseconds.
func TestOverrun(t *testing.T) {
	ends := map[string]func(t *testing.T, w *bubble.World, c *framework.Client, l *recipes.Lease){
		"unproven": func(_ *testing.T, w *bubble.World, _ *framework.Client, _ *recipes.Lease) { w.ClientNet("a").Cut() },
		"expired":  func(_ *testing.T, w *bubble.World, c *framework.Client, _ *recipes.Lease) { w.Expire(c) },
		"closed": func(_ *testing.T, _ *bubble.World, c *framework.Client, _ *recipes.Lease) {
			go func() { _ = c.Close() }()
		},
		"deleted": func(t *testing.T, w *bubble.World, _ *framework.Client, l *recipes.Lease) {
			if err := w.Connect("b").Delete(t.Context(), l.Path(), -1); err != nil {
				t.Fatal(err)
			}
		},
	}
	for _, test := range []struct {
		loss  string
		after time.Duration // for how long the work goes on after it was told
		by    time.Duration
	}{
		{"unproven", bubble.Margin, 0},
		{"unproven", bubble.Margin + 1, 1},
		{"expired", bubble.Margin - 1, 0},
		{"expired", bubble.Margin, bubble.Margin},
		{"closed", time.Millisecond, 0},
		{"deleted", time.Millisecond, 0},
		{"deleted", time.Minute, time.Minute},
	} {
		t.Run(test.loss+" "+test.after.String(), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				var o overruns
				c := o.connect(w)
				err := recipes.Do(t.Context(), lineOf(t, c, "a"), func(ctx context.Context, l *recipes.Lease) error {
					ends[test.loss](t, w, c, l)
					<-ctx.Done()
					time.Sleep(test.after)
					return nil
				})
				bubble.WantErr(t, err, recipes.ErrNotHeld)
				o.want(t, test.by)
			})
		})
	}
}

// Work that begins after the loss is told at once. If it ends at once it was
// counted with the whole time since the deadline.
func TestWorkThatBeginsAfterTheLossOverrunsIfItGoesOn(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var o overruns
		c := o.connect(w)
		l := bubble.Acquire(t, t.Context(), lineOf(t, c, "a"))
		w.Expire(c)
		bubble.Lost(t, l)
		time.Sleep(time.Minute)
		work := func(d time.Duration) {
			err := l.Do(t.Context(), func(context.Context, *recipes.Lease) error { time.Sleep(d); return nil })
			bubble.WantErr(t, err, recipes.ErrNotHeld)
		}
		work(bubble.Margin - 1)
		o.want(t, 0)
		deadline := l.Deadline()
		work(bubble.Margin)
		o.want(t, time.Since(deadline))
		_ = l.Release(t.Context())
	})
}

// Work that ended as soon as a stopped process went on, before the loss was
// told, was not counted.
func TestWorkOfAStoppedProcessOverruns(t *testing.T) {
	defer clock.Reset()
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var o overruns
		c := o.connect(w)
		err := recipes.Do(t.Context(), lineOf(t, c, "a"), func(_ context.Context, l *recipes.Lease) error {
			clock.Jump(time.Until(l.Deadline()) + time.Second)
			return nil
		})
		bubble.WantErr(t, err, recipes.ErrNotHeld, framework.ErrUnproven)
		o.want(t, time.Second)
	})
}

// Work is not late before the deadline, however long before it the lease was
// lost.
func TestWorkIsLateAtTheDeadline(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var o overruns
		c := o.connect(w)
		err := recipes.Do(t.Context(), lineOf(t, c, "a", recipes.WithMaxHold(time.Minute)), func(ctx context.Context, l *recipes.Lease) error {
			<-ctx.Done()
			left := time.Until(l.Deadline())
			time.Sleep(left - 1)
			synctest.Wait()
			if n := o.logs.Len(); left < 2*bubble.Margin || n != 0 {
				t.Errorf("%d lines in the last %v", n, left)
			}
			time.Sleep(2 * time.Nanosecond)
			synctest.Wait()
			if n := o.logs.FilterMessage("work goes on past its lease's deadline").Len(); n != 1 {
				t.Errorf("%d lines at the deadline", n)
			}
			return nil
		})
		bubble.WantErr(t, err, recipes.ErrMaxHold)
	})
}
