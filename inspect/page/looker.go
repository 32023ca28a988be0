package page

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/look"
)

// The most requests a second, and how often the page looks: for viewers,
// without them (see WithHistory), and at a list of more than a megabyte.
const (
	perSecond   = 500
	lookEvery   = time.Second
	alsoWithout = 5 * time.Second
	largeEvery  = 10 * time.Second
)

// The most lines of which contenders are read, for all viewers together.
const mostLines = 200

// state is what the page has seen.
type state struct {
	model      look.Model
	times      *times
	exists     bool
	unreadable int
	connected  bool
	server     string    // that the client is connected to
	heard      time.Time // when a server has answered last
	requests   int
	looked     time.Time // when the last look ended
	err        error     // of the last look
}

// viewer is somebody who looks at a view: a request or a stream.
type viewer struct{ view view }

// mostViewers is how many may look together.
const mostViewers = 100

// enter counts a viewer, until leave is called, unless there are too many. next
// is closed after the next look.
func (p *Page) enter(v view) (next <-chan struct{}, leave func(), err error) {
	one := &viewer{v}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.viewers) >= mostViewers {
		return nil, nil, fmt.Errorf("%d others are looking", mostViewers)
	}
	p.viewers = append(p.viewers, one)
	p.startLocked()
	select {
	case p.wake <- struct{}{}:
	default: // it is awake already
	}
	return p.changed, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.viewers = slices.DeleteFunc(p.viewers, func(v *viewer) bool { return v == one })
	}, nil
}

// startLocked starts the goroutine that looks, unless it runs.
func (p *Page) startLocked() {
	if p.running == nil && p.ctx.Err() == nil {
		p.running = make(chan struct{})
		go p.run(p.running) // ends without viewers, or with Close
	}
}

// run looks while there are viewers.
func (p *Page) run(ended chan struct{}) {
	defer close(ended)
	client, err := p.open()
	if err == nil {
		defer client.Close()
	}
	from := look.NewScopedCollector(client, p.roots, perSecond, largeEvery) // not used after an error
	ctx, cancel := context.WithCancel(p.ctx)
	parts := newParts(p, client)
	defer parts.Wait()
	defer cancel()
	idle := time.Now()
	soonest := idle // when the next look may begin
	for {
		pause := alsoWithout
		switch viewers := p.count(); {
		case viewers == 0 && !p.history:
			if time.Since(idle) >= linger && p.rest(ended) {
				return
			}
			pause = linger
		case err != nil:
			p.publish(func(s *state) { s.err = err })
			idle = time.Now()
		default:
			began := time.Now()
			if viewers > 0 {
				pause = lookEvery
				parts.start(ctx)
			}
			p.look(ctx, client, from)
			idle = time.Now()
			rest := 4 * idle.Sub(began) // a fifth of a processor at most
			pause, soonest = max(pause, rest), idle.Add(max(shortest, rest))
		}
		if !p.pause(pause, soonest) {
			return
		}
	}
}

// shortest is the least pause between two looks.
const shortest = 100 * time.Millisecond

// pause waits until the next look is due. A new viewer ends it early, but not
// before the soonest time.
func (p *Page) pause(d time.Duration, soonest time.Time) bool {
	due := time.NewTimer(d)
	defer due.Stop()
	select {
	case <-due.C:
		return true
	case <-p.wake:
	case <-p.ctx.Done():
		return false
	}
	select {
	case <-time.After(time.Until(soonest)):
		return true
	case <-p.ctx.Done():
		return false
	}
}

func (p *Page) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.viewers)
}

// rest reports whether run may end: nobody has come.
func (p *Page) rest(running chan struct{}) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.viewers) > 0 {
		return false
	}
	if p.running == running {
		p.running = nil
	}
	return true
}

// publish changes what is shown, and tells the viewers.
func (p *Page) publish(change func(s *state)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p.shown)
	close(p.changed)
	p.changed = make(chan struct{})
}

// look looks once, with the details of what is shown.
func (p *Page) look(ctx context.Context, client *framework.Client, from *look.Collector) {
	waiting, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	err := client.WaitConnected(waiting)
	var found look.Look
	for wanted, tries := p.wanted(), 0; err == nil; tries++ {
		if found, err = from.Collect(ctx, wanted); err != nil || !found.Current {
			break
		}
		p.mu.Lock()
		p.shown.model.Update(found)
		p.mu.Unlock()
		before := len(wanted)
		for path, most := range p.wanted() {
			wanted[path] = most
		}
		if len(wanted) == before || tries == 2 { // what is new is shown at the next look
			break
		}
	}
	if ctx.Err() != nil {
		return
	}
	p.publish(func(s *state) {
		s.err, s.connected, s.server, s.heard = err, from.Connected(), client.Server(), from.Heard()
		s.requests, s.looked = from.Sent(), time.Now()
		if err == nil && found.Current {
			s.exists, s.unreadable = found.Exists, len(found.Unreadable)
			s.times.see(&s.model)
		}
	})
}

// wanted says of how many contenders of each line the details are needed.
func (p *Page) wanted() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, seen := map[string]int{}, map[view]bool{}
	for _, one := range p.viewers { // fewer than mostLines
		if one.view.name == "line" {
			all[one.view.path] = look.Details
		}
	}
	for _, one := range p.viewers {
		if one.view.name != "" || seen[one.view] {
			continue
		}
		seen[one.view] = true
		rows, _ := one.view.rows(&p.shown.model)
		for _, r := range rows {
			if len(all) >= mostLines {
				return all
			}
			all[r.Path] = look.Details
		}
	}
	if p.history { // the timeline names the holders
		rows, _ := new(view).rows(&p.shown.model)
		for _, r := range rows {
			if len(all) < mostLines {
				all[r.Path] = max(1, all[r.Path])
			}
		}
	}
	return all
}
