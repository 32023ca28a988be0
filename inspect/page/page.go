// Package page shows locks, elections and semaphores in a browser: who holds,
// who waits and since when, deadlocks, and the servers. Nothing on the page
// writes to the ensemble. It works in light and dark, on a phone, by keyboard,
// with a screen reader, and without scripts.
//
//	p := page.New("zk1:2181,zk2:2181", page.WithRoots("/app"))
//	mux.Handle("/debug/zk/", http.StripPrefix("/debug/zk", p))
//	server.RegisterOnShutdown(p.Close)
//
// "zkr web" serves the same page.
//
// # What it shows to whom
//
// A [Page] answers everybody who reaches it: who may is decided by the service
// that it is part of. See [WithHosts]. It shows paths, hosts, process ids and
// the names of commands, and other data only with [WithData]. It reads nothing
// outside of [WithRoots].
//
// # Cost
//
// A page has a client of its own, so that nothing it reads delays the
// heartbeats of a lock. The client is opened for the first viewer and closed
// half a minute after the last one. While somebody looks, the page looks once a
// second at most, for all viewers together: it lists what has changed since its
// last look, at most 500 requests a second, and reads ten contenders of each
// line that is shown, of at most 200 lines. A list of more than a megabyte is
// read every 10 seconds at most. At most 100 may look together: others get the
// status 503.
package page

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/headers"
	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/oneline"
)

// Page is an http.Handler. It serves GET and HEAD alone, and expects to be
// mounted at a path that ends with a slash, which http.StripPrefix removes but
// for that slash. It is safe for concurrent use.
type Page struct {
	settings
	servers string
	err     error // of an option

	ctx   context.Context // ends with Close
	close context.CancelFunc
	wake  chan struct{} // has an element when more is wanted

	mu       sync.Mutex // guards what follows
	running  chan struct{}
	viewers  []*viewer // in the order in which they came
	shown    *state
	changed  chan struct{} // closed when shown has changed
	cycles   deadlocks
	ensemble ensemble
	things   []thing
	thingsAt time.Time
}

// New returns a page about the ensemble at servers, as framework.New takes
// them. It makes no connection before somebody looks, except WithHistory. A bad
// option is what the page shows instead, with the status 500; and the page says
// so if framework.New refuses the servers.
func New(servers string, opts ...Option) *Page {
	p := &Page{servers: servers, wake: make(chan struct{}, 1), changed: make(chan struct{})}
	p.ctx, p.close = context.WithCancel(context.Background())
	p.shown = &state{times: newTimes()}
	p.roots = look.NewScope("/")
	for _, opt := range opts {
		if err := opt(&p.settings); err != nil {
			p.err = oneline.Join(p.err, err)
		}
	}
	for _, n := range p.named {
		if !p.roots.Has(n.path) {
			p.err = oneline.Join(p.err, fmt.Errorf("page: the %s %s is outside of WithRoots", n.kind, n.path))
		}
	}
	if p.history && p.err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.startLocked()
	}
	return p
}

// Close ends all streams and closes the client. Requests that come later get
// the status 503. Pass it to http.Server.RegisterOnShutdown: Shutdown waits for
// streams, and they would last 20 seconds.
func (p *Page) Close() {
	p.close()
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	if running != nil {
		<-running
	}
}

// ServeHTTP serves the page.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	headers.Set(w.Header())
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "nothing here can be written to", http.StatusMethodNotAllowed)
	case len(p.hosts) > 0 && !p.hosts.Has(r.Host):
		http.Error(w, "this name of the host is not allowed here", http.StatusMisdirectedRequest)
	case p.ctx.Err() != nil:
		http.Error(w, "the page was closed", http.StatusServiceUnavailable)
	case p.err != nil:
		p.fail(w, http.StatusInternalServerError, p.err.Error())
	default:
		p.serve(w, r)
	}
}

func (p *Page) serve(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case name == "style.css", name == "script.js", name == "icon.svg":
		p.asset(w, r, name)
	case name == "events":
		p.stream(w, r)
	case topics[name] == nil:
		p.fail(w, http.StatusNotFound, "there is no such page")
	default:
		p.one(w, r, name)
	}
}

// one serves a page as it is now.
func (p *Page) one(w http.ResponseWriter, r *http.Request, name string) {
	v, err := p.view(name, r.URL.Query())
	if err != nil {
		p.fail(w, http.StatusNotFound, err.Error())
		return
	}
	if err := p.await(r.Context(), v); err != nil {
		p.refuse(w, err)
		return
	}
	p.write(w, http.StatusOK, p.paper(v, time.Now()))
}

// await waits until a look has shown something of a view, and not long: without
// scripts a page is worth a look of its own.
func (p *Page) await(ctx context.Context, v view) error {
	next, leave, err := p.enter(v)
	if err != nil {
		return err
	}
	defer leave()
	patience := time.NewTimer(firstLook)
	defer patience.Stop()
	for has := false; !has; {
		select {
		case <-next:
			has, next = p.has(v.name)
		case <-patience.C:
			return nil
		case <-ctx.Done():
			return nil
		case <-p.ctx.Done():
			return nil
		}
	}
	return nil
}

// has reports whether there is something to show of a topic, and returns a
// channel that is closed at the next change.
func (p *Page) has(name string) (bool, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.shown.model.Seen() // what is named, or asked, may be there before
	asked := p.shown.err != nil || name == "process" || name == "line" && seen || name == "" && seen && (len(p.named) == 0 || !p.thingsAt.IsZero()) ||
		name == "ensemble" && !p.ensemble.at.IsZero() || name == "deadlocks" && !p.cycles.at.IsZero()
	return asked, p.changed
}

// How long a request waits for a look, and for how long the client is kept
// without viewers.
const (
	firstLook = 3 * time.Second
	linger    = 30 * time.Second
)

// open opens the client.
func (p *Page) open() (*framework.Client, error) { return framework.New(p.servers, p.client...) }
