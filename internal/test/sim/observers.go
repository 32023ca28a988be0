package sim

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Observing is what another observer of each client does, besides the one that
// tells the simulator what happens.
type Observing string

// What it does.
const (
	NoMore   Observing = ""           // there is none
	Panic    Observing = "panics"     // every third time
	Block    Observing = "blocks"     // for a moment in place, and otherwise for two session timeouts
	CallBack Observing = "calls back" // into the library
)

// inPlace is for how long an observer may keep a caller waiting.
const inPlace = 10 * time.Millisecond

// delayed returns for how long observers may keep a caller waiting, before or
// after its wait.
func (p *Plan) delayed() time.Duration {
	if p.Observers == NoMore {
		return 0
	}
	return 3 * inPlace // two locks of an All, and the release
}

// fromObserver is the key of a context of calls that an observer makes.
type fromObserver struct{}

// observer returns the other observer of a client, which is not known before it
// is made.
func (w *world) observer(client *atomic.Pointer[framework.Client]) framework.Option {
	var calls atomic.Int64
	disturb := func(ctx context.Context, bound time.Duration) {
		c := client.Load()
		if c == nil || ctx.Value(fromObserver{}) != nil {
			return
		}
		switch w.plan.Observers {
		case Panic:
			if calls.Add(1)%3 == 0 {
				panic("an observer's")
			}
		case Block:
			select {
			case <-time.After(bound):
			case <-w.ending:
			}
		case CallBack:
			ctx, cancel := context.WithTimeout(context.WithValue(ctx, fromObserver{}, true), bound)
			defer cancel()
			_ = recipes.EndLinger(ctx, c, "/")
			_, _, _ = c.Get(ctx, "/")
			_, _ = c.Session()
		}
	}
	long := 2 * w.plan.Timeout
	return framework.Together(
		framework.WithObserver(framework.Observer{
			RequestEnd:   func(ctx context.Context, _ framework.Request, _ framework.RequestResult) { disturb(ctx, long) },
			Retried:      func(ctx context.Context, _ framework.Retry) { disturb(ctx, long) },
			StateChanged: func(framework.StateChange) { disturb(context.Background(), long) },
		}),
		recipes.WithObserver(recipes.Observer{
			AcquireStart: func(ctx context.Context, _ recipes.Acquire) context.Context {
				disturb(ctx, inPlace)
				return ctx
			},
			AcquireEnd:   func(ctx context.Context, _ recipes.Acquire, _ recipes.AcquireResult) { disturb(ctx, inPlace) },
			Released:     func(ctx context.Context, _ recipes.Release) { disturb(ctx, inPlace) },
			LostReleased: func(ctx context.Context, _ recipes.Loss) { disturb(ctx, inPlace) },
			Lost:         func(ctx context.Context, _ recipes.Loss) { disturb(ctx, long) },
		}),
	)
}
