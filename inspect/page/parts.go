package page

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
)

// parts are the looks that take longer than the look at the lines. Each is made
// only while somebody looks at its page.
type parts struct {
	sync.WaitGroup
	page   *Page
	client *framework.Client
	all    map[string]part // by topic

	mu   sync.Mutex // guards next
	next map[string]time.Time
}

// part makes one of them, and returns how long after it the next one begins.
type part func(ctx context.Context, client *framework.Client) (pause time.Duration)

func newParts(p *Page, client *framework.Client) *parts {
	all := map[string]part{"deadlocks": p.findDeadlocks, "ensemble": p.askEnsemble}
	if len(p.named) > 0 {
		all[""] = p.readNamed
	}
	return &parts{page: p, client: client, all: all, next: map[string]time.Time{}}
}

// start starts the looks that somebody wants, and that are due.
func (a *parts) start(ctx context.Context) {
	for name, one := range a.all {
		a.mu.Lock()
		begin := !time.Now().Before(a.next[name]) && a.page.isSeen(name)
		if begin {
			a.next[name] = time.Now().AddDate(1, 0, 0) // it runs
		}
		a.mu.Unlock()
		if !begin {
			continue
		}
		a.Go(func() { // ends with ctx
			pause := one(ctx, a.client)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.next[name] = time.Now().Add(pause)
		})
	}
}

// isSeen reports whether somebody looks at a topic.
func (p *Page) isSeen(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.viewers, func(v *viewer) bool { return v.view.name == name })
}
