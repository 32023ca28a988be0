package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// Watch sees what a process does, by the observers of its clients and by its
// log: see [WithWatch]. It remembers what is, and the last of what was.
// NewWatch returns one. It is safe for concurrent use.
type Watch struct {
	mu        sync.Mutex // guards what follows
	clients   []*watched
	waiting   map[*waiting]struct{}
	leases    map[recipes.Grant]*leased
	caches    map[uint64]cache.StateChange
	presences map[uint64]presence.StateChange
	counters  recent
	barriers  recent
	counts    map[string]int
	pasts     map[string]*past // by path
	log       []entry
}

// watched is a client: its latest change, and its inside.
type watched struct {
	framework.StateChange
	client *managed.Client
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

// entry is a line of the log.
type entry struct {
	At          time.Time
	Level, Text string
}

// How many log lines are remembered, and how many counters and how many
// barriers.
const (
	mostLog    = 100
	mostRecent = 100
)

// NewWatch returns a watch that has seen nothing yet.
func NewWatch() *Watch {
	return &Watch{
		waiting: map[*waiting]struct{}{}, leases: map[recipes.Grant]*leased{}, caches: map[uint64]cache.StateChange{},
		presences: map[uint64]presence.StateChange{}, counters: recent{}, barriers: recent{}, counts: map[string]int{},
		pasts: map[string]*past{},
	}
}

// waitingKey is the key of the context's value that knows a call of Acquire.
type waitingKey struct{ *Watch }

// Option lets the watch see one client: pass it to framework.New. It costs a
// mutex for each event. Each client needs an option of its own.
func (w *Watch) Option() framework.Option {
	one := &watched{}
	does := func(do func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		do()
	}
	over := func(what string, a recipes.Acquire, e event) {
		does(func() {
			w.counts[what]++
			if l := w.leases[e.grant]; l != nil {
				if l.users--; l.users == 0 {
					delete(w.leases, e.grant)
				}
			}
			w.noteLocked(a, e)
		})
	}
	return framework.Together(
		func(c *managed.Config) {
			before := c.Made // another watch's
			c.Made = func(client any) {
				if one.client = client.(*managed.Client); before != nil {
					before(client)
				}
			}
		},
		framework.WithObserver(framework.Observer{
			Opened: func() { does(func() { w.clients = append(w.clients, one) }) },
			StateChanged: func(c framework.StateChange) {
				does(func() {
					if one.StateChange = c; c.To == framework.Closed {
						w.clients = slices.DeleteFunc(w.clients, func(other *watched) bool { return other == one })
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
		counter.WithObserver(counter.Observer{
			Added: func(a counter.Addition) {
				does(func() { w.counters.put(a.Counter.Path, additionFact(a)) })
			},
			Conflicted: func(counter.Conflict) { does(func() { w.counts["conflicts at a counter"]++ }) },
		}),
		barrier.WithObserver(barrier.Observer{
			Entered: func(e barrier.Entry) {
				does(func() { w.barriers.put(e.Barrier.Path, entryFact(e)) })
			},
			Left: func(e barrier.Exit) {
				does(func() { w.barriers.put(e.Barrier.Path, exitFact(e)) })
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
					text := fmt.Sprintf("granted (%s), waited %s", r.Grant.How, rounded(r.Waited))
					w.noteLocked(a, event{r.Grant.At, text, granted, r.Grant.At.Add(-r.Waited), false, r.Grant})
				})
			},
			Released: func(_ context.Context, r recipes.Release) {
				over("released", r.Acquire, event{At: r.Grant.At.Add(r.Held), Text: "released, held for " + rounded(r.Held), kind: released, grant: r.Grant})
			},
			Lost: func(_ context.Context, l recipes.Loss) {
				over("lost", l.Acquire, event{At: l.At, Text: fmt.Sprintf("lost (%s), held for %s", l.Reason, rounded(l.Held)), kind: lost, grant: l.Grant})
			},
			Revoked: func(_ context.Context, r recipes.Revocation) {
				does(func() {
					w.noteLocked(r.Acquire, event{At: time.Now(), Text: "asked to release", kind: asked, grant: r.Grant})
				})
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

// recent has the last that has happened at each of the paths that were used
// last.
type recent map[string]fact

func (r recent) put(path string, f fact) {
	f.Name, f.Since = escape.Text(path), time.Now()
	if r[path] = f; len(r) <= mostRecent {
		return
	}
	oldest := path
	for other, at := range r {
		if at.Since.Before(r[oldest].Since) {
			oldest = other
		}
	}
	delete(r, oldest)
}

func additionFact(a counter.Addition) fact {
	f := fact{State: "written", Note: fmt.Sprintf("%s in %v", look.Count(a.Calls, "call"), a.Took.Round(time.Millisecond))}
	switch {
	case a.Err != nil:
		f.State, f.Note, f.Bad = fmt.Sprintf("%d of %d calls failed", a.Failed, a.Calls), reason(a.Err), true
	case a.Repeated:
		f.State = "was counted before"
	}
	return f
}

func entryFact(e barrier.Entry) fact {
	f := fact{State: "entered", Note: together(e.Barrier, e.Waited)}
	switch {
	case e.Err != nil:
		f.State, f.Note, f.Bad = "not entered", reason(e.Err), true
	case e.Late:
		f.State = "entered late"
	}
	return f
}

func exitFact(e barrier.Exit) fact {
	if e.Err != nil {
		return fact{State: "left early", Note: reason(e.Err), Bad: true}
	}
	return fact{State: "left", Note: together(e.Barrier, e.Waited)}
}

// together says of how many members a round is, and how long one has waited for
// the others.
func together(b barrier.Info, waited time.Duration) string {
	return fmt.Sprintf("%s, waited %v", look.Count(b.Members, "member"), waited.Round(time.Millisecond))
}

// processBody is what the page of this process shows. All text is escaped.
type processBody struct {
	Clients, Leases, Waiting, Caches, Presences, Counters, Barriers []fact
	Counts                                                          []count
	Log                                                             []entry
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

// proven says until when the session of a client is proven alive, and with it
// its leases: "" if nothing needs that, or without a session. heard says when
// the session was answered last.
func (c *watched) proven() (session int64, ahead, heard string) {
	s, err := c.client.Session()
	if err != nil {
		return 0, "", ""
	}
	text := func(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
	if s.Proven() {
		ahead = "deadline in " + text(time.Until(s.Deadline()))
	}
	return s.ID(), ahead, "last answer " + text(time.Since(s.LastAnswer())) + " ago"
}

func (w *Watch) body() processBody {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b processBody
	deadlines := map[int64]string{} // by session
	for _, c := range w.clients {
		session, ahead, heard := c.proven()
		deadlines[session] = ahead
		note := cmp.Or(reason(c.Err), strings.TrimPrefix(ahead+", "+heard, ", "))
		b.Clients = append(b.Clients, fact{fmt.Sprintf("session %#x", uint64(c.Session)), c.To.String(), note, c.At, c.To != framework.Connected})
	}
	for _, l := range w.leases {
		note := strings.TrimPrefix(deadlines[l.grant.Session]+", token "+l.grant.Token, ", ")
		b.Leases = append(b.Leases, fact{escape.Text(l.Path), l.Recipe + ", " + l.Mode, note, l.grant.At, false})
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
	b.Counters, b.Barriers = slices.Collect(maps.Values(w.counters)), slices.Collect(maps.Values(w.barriers))
	for _, facts := range [][]fact{b.Leases, b.Waiting, b.Caches, b.Presences, b.Counters, b.Barriers} {
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
