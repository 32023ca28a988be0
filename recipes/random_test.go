package recipes_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// compared is how often the counts of a site were compared with the truth, and
// how often the truth was exact.
var compared, comparedExactly atomic.Int64

// Whatever recipes do under random faults:
//   - No lock is held by two that exclude each other, no more permits are held
//     than the limit, and tokens increase.
//   - The events of each observer tell how many callers wait and how many
//     leases are held, at each path and at each moment at which nothing is
//     under way inside of the process. Each call has one start and one end, and
//     each lease one end.
//   - A call fails only for a reason. After the faults every waiter is granted,
//     and nothing is left.
func TestRandomGames(t *testing.T) {
	bubble.Usual(t, bubble.NoBatching, bubble.FewRetries) // counts shared requests; outlasts an outage
	events := map[string]int{}
	for _, scope := range []string{"mutex", "rwlock", "semaphore", "all", "all"}[:bubble.Draw(4, 5)] {
		t.Run(scope, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				rapid.SyncTest(rt, func(rt *rapid.T) {
					g := newGame(rt, scope, nil)
					g.play()
					for _, p := range g.players {
						for _, tally := range p.tallies {
							for event, n := range tally.events {
								events[event] += n
							}
						}
					}
				})
			})
		})
	}
	for _, event := range []string{
		"acquire start", "acquire end", "released", "lost", "lost released", "overran", "revoked", "retried", "batched", "request end",
	} {
		if events[event] == 0 && !testing.Short() { // a fifth of the games need not have all
			t.Errorf("no %s", event)
		}
	}
	if all, exact := compared.Load(), comparedExactly.Load(); exact*100 < all*99 {
		t.Errorf("of %d comparisons %d were exact", all, exact)
	}
	t.Logf("%d comparisons, %d of them exact; events %v", compared.Load(), comparedExactly.Load(), events)
}

// wrongEvents are faults of what an observer is told.
var wrongEvents = map[string]func(o observers) observers{
	"a release is not told": func(o observers) observers {
		var n atomic.Int32
		released := o.leases.Released
		o.leases.Released = func(ctx context.Context, r recipes.Release) {
			if n.Add(1)%4 != 0 {
				released(ctx, r)
			}
		}
		return o
	},
	"losses by Close are not told": func(o observers) observers {
		lost := o.leases.Lost
		o.leases.Lost = func(ctx context.Context, l recipes.Loss) {
			if l.Reason != recipes.LostClosed {
				lost(ctx, l)
			}
		}
		return o
	},
	"a loss is told twice": func(o observers) observers {
		lost := o.leases.Lost
		o.leases.Lost = func(ctx context.Context, l recipes.Loss) {
			lost(ctx, l)
			lost(ctx, l)
		}
		return o
	},
	"the end of a failed call is not told": altersEnd(func(end endOf, ctx context.Context, a recipes.Acquire, r recipes.AcquireResult) {
		if r.Err == nil {
			end(ctx, a, r)
		}
	}),
	"re-entered leases are not told": altersEnd(func(end endOf, ctx context.Context, a recipes.Acquire, r recipes.AcquireResult) {
		if r.Grant.How != recipes.GrantedByReentry {
			end(ctx, a, r)
		}
	}),
	"the end has another context": altersEnd(func(end endOf, _ context.Context, a recipes.Acquire, r recipes.AcquireResult) {
		end(context.Background(), a, r)
	}),
	"the end is told later": altersEnd(func(end endOf, ctx context.Context, a recipes.Acquire, r recipes.AcquireResult) {
		time.AfterFunc(time.Millisecond, func() { end(ctx, a, r) })
	}),
	"a busy lock is a grant": altersEnd(func(end endOf, ctx context.Context, a recipes.Acquire, r recipes.AcquireResult) {
		if a.Try {
			r.Err = nil
		}
		end(ctx, a, r)
	}),
	"a path of the client's view": func(o observers) observers {
		start, end := o.leases.AcquireStart, o.leases.AcquireEnd
		view := func(a recipes.Acquire) recipes.Acquire {
			a.Path = strings.TrimPrefix(a.Path, "/team/blue")
			return a
		}
		o.leases.AcquireStart = func(ctx context.Context, a recipes.Acquire) context.Context { return start(ctx, view(a)) }
		o.leases.AcquireEnd = func(ctx context.Context, a recipes.Acquire, r recipes.AcquireResult) { end(ctx, view(a), r) }
		return o
	},
	"a request's end has another context": func(o observers) observers {
		end := o.client.RequestEnd
		o.client.RequestEnd = func(_ context.Context, r framework.Request, result framework.RequestResult) {
			end(context.Background(), r, result)
		}
		return o
	},
}

type endOf = func(ctx context.Context, a recipes.Acquire, r recipes.AcquireResult)

// altersEnd returns a fault of AcquireEnd.
func altersEnd(alter func(end endOf, ctx context.Context, a recipes.Acquire, r recipes.AcquireResult)) func(observers) observers {
	return func(o observers) observers {
		end := o.leases.AcquireEnd
		o.leases.AcquireEnd = func(ctx context.Context, a recipes.Acquire, r recipes.AcquireResult) { alter(end, ctx, a, r) }
		return o
	}
}

// brokenLocks are locks that do not exclude what they should: in each scope,
// one at a path of its own.
var brokenLocks = map[string]func(p *player) recipes.Acquirer{
	"mutex": func(p *player) recipes.Acquirer {
		m, _ := locks.NewMutex(p.client, "/"+p.name)
		return m
	},
	"rwlock": func(p *player) recipes.Acquirer {
		rw, _ := rwlock.New(p.client, "/"+p.name)
		return rw.Reader()
	},
	"semaphore": func(p *player) recipes.Acquirer {
		s, _ := semaphore.New(p.client, "/"+p.name, 1)
		return s
	},
}

// The same games notice each of these faults.
func TestRandomGamesNoticeFaults(t *testing.T) {
	for name, events := range wrongEvents {
		t.Run(name, func(t *testing.T) { notice(t, "all", &broken{events: events}) })
	}
	for scope, lock := range brokenLocks {
		t.Run("another "+scope, func(t *testing.T) { notice(t, scope, &broken{lock: lock}) })
	}
}

func notice(t *testing.T, scope string, b *broken) {
	for range 20 { // most are noticed in the first one
		rapid.Check(t, func(rt *rapid.T) {
			if b.caught == "" {
				rapid.SyncTest(rt, func(rt *rapid.T) { newGame(rt, scope, b).play() })
			}
		})
	}
	if b.caught == "" {
		t.Error("not noticed")
	}
	t.Log(b.caught)
}
