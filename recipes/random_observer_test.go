package recipes_test

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// disturbing returns an observer of a player's client that disturbs: it panics
// wherever it is called, or it blocks for long, or calls back into the library,
// where that must keep nobody waiting.
func (g *game) disturbing(how string, p *player) framework.Option {
	panics := func() {
		if how == "panics" {
			panic("an observer's")
		}
	}
	disturb := func() {
		panics()
		switch how {
		case "blocks":
			select {
			case <-time.After(2 * g.timeout):
			case <-g.ending:
			}
		case "calls back":
			if c := p.self.Load(); c != nil {
				ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
				defer cancel()
				_ = recipes.EndLinger(ctx, c, "/")
			}
		}
	}
	return framework.Together(
		framework.WithObserver(framework.Observer{
			RequestEnd:   func(context.Context, framework.Request, framework.RequestResult) { disturb() },
			StateChanged: func(framework.StateChange) { disturb() },
		}),
		recipes.WithObserver(recipes.Observer{
			AcquireStart: func(ctx context.Context, _ recipes.Acquire) context.Context {
				panics()
				return ctx
			},
			AcquireEnd:   func(context.Context, recipes.Acquire, recipes.AcquireResult) { panics() },
			Released:     func(context.Context, recipes.Release) { panics() },
			LostReleased: func(context.Context, recipes.Loss) { panics() },
			Lost:         func(context.Context, recipes.Loss) { disturb() },
			Revoked:      func(context.Context, recipes.Revocation) { disturb() },
		}),
	)
}
