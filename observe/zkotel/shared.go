package zkotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
)

// The results of additions, and of rounds.
const (
	added, failed, unsure = "added", "failed", "unsure"
	entered, left         = "entered", "left" // or failed
)

func (o *observer) counters() counter.Observer {
	return counter.Observer{Added: o.added, Conflicted: o.conflicted}
}

func (o *observer) barriers() barrier.Observer {
	return barrier.Observer{
		Entered: func(e barrier.Entry) { o.round(e.Barrier, entered, e.Err) },
		Left:    func(e barrier.Exit) { o.round(e.Barrier, left, e.Err) },
	}
}

func (o *observer) counter(of counter.Info) attribute.KeyValue {
	return counterKey.String(o.znodes.counterValues.fit(valid(of.Label)))
}

func (o *observer) added(a counter.Addition) {
	ctx, label, how := context.Background(), o.counter(a.Counter), failed
	if framework.MaybeApplied(a.Err) {
		how = unsure
	}
	if n := a.Calls - a.Failed; n > 0 {
		o.additions.Add(ctx, int64(n), o.set(label, resultKey.String(added)))
	}
	if a.Failed > 0 {
		o.additions.Add(ctx, int64(a.Failed), o.set(label, resultKey.String(how)))
	}
}

func (o *observer) conflicted(c counter.Conflict) {
	o.conflicts.Add(context.Background(), 1, o.set(o.counter(c.Counter)))
}

func (o *observer) round(of barrier.Info, result string, err error) {
	if err != nil {
		result = failed
	}
	label := barrierKey.String(o.znodes.barrierValues.fit(valid(of.Label)))
	o.rounds.Add(context.Background(), 1, o.set(label, resultKey.String(result)))
}
