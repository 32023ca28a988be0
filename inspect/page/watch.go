package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// Watch sees what a process does, by the observers of its clients and by its
// log: see [WithWatch]. It remembers what is, and the last of what was.
// NewWatch returns one. It is safe for concurrent use.
type Watch struct {
	mu        sync.Mutex // guards what follows
	clients   []*framework.StateChange
	waiting   map[*waiting]struct{}
	leases    map[recipes.Grant]*leased
	caches    map[uint64]cache.StateChange
	presences map[uint64]presence.StateChange
	counts    map[string]int
	latest    []event // the last ones
	log       []entry
}

type waiting struct {
	recipes.Acquire
	since time.Time
}

type leased struct {
	recipes.Acquire
	grant recipes.Grant
	users int // calls of Acquire that share it
}

// event is something that has happened to a lock in this process.
type event struct {
	At   time.Time
	path string // at the ensemble
	Text string
}

// entry is a line of the log.
type entry struct {
	At          time.Time
	Level, Text string
}

// How many events and log lines are remembered.
const (
	mostEvents = 500
	mostLog    = 100
)

// NewWatch returns a watch that has seen nothing yet.
func NewWatch() *Watch {
	return &Watch{
		waiting: map[*waiting]struct{}{}, leases: map[recipes.Grant]*leased{}, caches: map[uint64]cache.StateChange{},
		presences: map[uint64]presence.StateChange{}, counts: map[string]int{},
	}
}

// waitingKey is the key of the context's value that knows a call of Acquire.
type waitingKey struct{ *Watch }

// Option lets the watch see one client: pass it to framework.New. It costs a
// mutex for each event. Each client needs an option of its own.
func (w *Watch) Option() framework.Option {
	state := &framework.StateChange{}
	does := func(do func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		do()
	}
	over := func(g recipes.Grant, what string, a recipes.Acquire, text string) {
		does(func() {
			w.counts[what]++
			if l := w.leases[g]; l != nil {
				if l.users--; l.users == 0 {
					delete(w.leases, g)
				}
			}
			if text != "" {
				w.noteLocked(a.Path, text)
			}
		})
	}
	return framework.Together(
		framework.WithObserver(framework.Observer{
			Opened: func() { does(func() { w.clients = append(w.clients, state) }) },
			StateChanged: func(c framework.StateChange) {
				does(func() {
					if *state = c; c.To == framework.Closed {
						w.clients = slices.DeleteFunc(w.clients, func(one *framework.StateChange) bool { return one == state })
					}
					w.counts["changes of a connection"]++
				})
			},
			RequestEnd: func(_ context.Context, _ framework.Request, _ framework.RequestResult) {
				does(func() { w.counts["requests"]++ })
			},
			Retried: func(context.Context, framework.Retry) { does(func() { w.counts["retries"]++ }) },
			Dropped: func(d framework.Drop) { does(func() { w.counts["events dropped"] += d.Events }) },
		}),
		presence.WithObserver(presence.Observer{
			StateChanged: func(c presence.StateChange) {
				does(func() { remember(w.presences, c.ID, c, c.To) })
			},
		}),
		cache.WithObserver(cache.Observer{
			StateChanged: func(c cache.StateChange) {
				does(func() { remember(w.caches, c.Cache.ID, c, c.To) })
			},
		}),
		recipes.WithObserver(recipes.Observer{
			AcquireStart: func(ctx context.Context, a recipes.Acquire) context.Context {
				one := &waiting{a, time.Now()}
				does(func() { w.waiting[one] = struct{}{} })
				return context.WithValue(ctx, waitingKey{w}, one)
			},
			AcquireEnd: func(ctx context.Context, a recipes.Acquire, r recipes.AcquireResult) {
				one, _ := ctx.Value(waitingKey{w}).(*waiting)
				does(func() {
					delete(w.waiting, one)
					if r.Err != nil {
						w.counts["not granted"]++
						return
					}
					w.counts["granted"]++
					l := w.leases[r.Grant]
					if l == nil {
						l = &leased{Acquire: a, grant: r.Grant}
						w.leases[r.Grant] = l
					}
					l.users++
					w.noteLocked(a.Path, fmt.Sprintf("granted (%s) after %v", r.Grant.How, r.Waited.Round(time.Millisecond)))
				})
			},
			Released: func(_ context.Context, r recipes.Release) { over(r.Grant, "released", r.Acquire, "") },
			Lost: func(_ context.Context, l recipes.Loss) {
				over(l.Grant, "lost", l.Acquire, fmt.Sprintf("lost (%s) after %v", l.Reason, l.Held.Round(time.Millisecond)))
			},
			Revoked: func(_ context.Context, r recipes.Revocation) {
				does(func() { w.noteLocked(r.Acquire.Path, "asked to release") })
			},
		}),
	)
}

// remember keeps the latest change of something that has not ended.
func remember[V any](all map[uint64]V, id uint64, now V, to string) {
	if to == "closed" {
		delete(all, id)
	} else {
		all[id] = now
	}
}

func (w *Watch) noteLocked(path, text string) {
	w.latest = append(w.latest, event{time.Now(), path, text})
	if len(w.latest) > 2*mostEvents {
		w.latest = slices.Clone(w.latest[len(w.latest)-mostEvents:])
	}
}

// events returns what has happened to a line lately, the latest first.
func (w *Watch) events(path string) []event {
	const enough = 20
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []event
	for i := len(w.latest) - 1; i >= 0 && len(all) < enough; i-- {
		if w.latest[i].path == path {
			all = append(all, w.latest[i])
		}
	}
	return all
}

// processBody is what the page of this process shows. All text is escaped.
type processBody struct {
	Clients, Leases, Waiting, Caches, Presences []fact
	Counts                                      []count
	Log                                         []entry
}

// fact is a row: what, and since when.
type fact struct {
	Name, State, Note string
	Since             time.Time
	Bad               bool
}

type count struct {
	Name string
	N    int
}

func (p *Page) processLocked(view, time.Time) any { return p.watch.body() }

func (w *Watch) body() processBody {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b processBody
	for _, c := range w.clients {
		b.Clients = append(b.Clients, fact{fmt.Sprintf("session %#x", uint64(c.Session)), c.To.String(), reason(c.Err), c.At, c.To != framework.Connected})
	}
	for _, l := range w.leases {
		b.Leases = append(b.Leases, fact{escape.Text(l.Path), l.Recipe + ", " + l.Mode, "token " + l.grant.Token, l.grant.At, false})
	}
	for one := range w.waiting {
		b.Waiting = append(b.Waiting, fact{escape.Text(one.Path), one.Recipe + ", " + one.Mode, "", one.since, false})
	}
	for _, c := range w.caches {
		b.Caches = append(b.Caches, fact{escape.Text(c.Cache.Path), c.To, reason(c.Err), c.At, c.To != "synced"})
	}
	for _, c := range w.presences {
		b.Presences = append(b.Presences, fact{escape.Text(c.Path), c.To, reason(c.Err), c.At, c.To != "standing"})
	}
	for _, facts := range [][]fact{b.Leases, b.Waiting, b.Caches, b.Presences} {
		slices.SortFunc(facts, func(a, b fact) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Since.Compare(b.Since)) })
	}
	for _, name := range slices.Sorted(maps.Keys(w.counts)) {
		b.Counts = append(b.Counts, count{name, w.counts[name]})
	}
	b.Log = slices.Clone(w.log)
	slices.Reverse(b.Log)
	return b
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return escape.Text(err.Error())
}
