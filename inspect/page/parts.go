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

	mu      sync.Mutex // guards running
	running map[string]bool
}

// part is one of them: when the last one ended, which the page's mutex guards,
// how long after that the next one begins, and how it is made.
type part struct {
	last  *time.Time
	every time.Duration
	run   func(ctx context.Context, client *framework.Client)
}

func newParts(p *Page, client *framework.Client) *parts {
	all := map[string]part{
		"deadlocks": {&p.cycles.at, searchEvery, p.findDeadlocks},
		"ensemble":  {&p.ensemble.at, askEvery, p.askEnsemble},
	}
	if len(p.named) > 0 {
		all[""] = part{&p.thingsAt, readEvery, p.readNamed}
	}
	return &parts{page: p, client: client, all: all, running: map[string]bool{}}
}

// start starts the looks that somebody wants, and that are due.
func (a *parts) start(ctx context.Context) {
	for name, one := range a.all {
		a.mu.Lock()
		begin := !a.running[name] && a.page.wants(name, one)
		if begin {
			a.running[name] = true
		}
		a.mu.Unlock()
		if !begin {
			continue
		}
		a.Go(func() { // ends with ctx
			one.run(ctx, a.client)
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.running, name)
		})
	}
}

// wants reports whether somebody looks at a topic, and its part is due.
func (p *Page) wants(name string, one part) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(*one.last) >= one.every && slices.ContainsFunc(p.viewers, func(v *viewer) bool { return v.view.name == name })
}
