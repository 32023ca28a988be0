package presence_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// observed collects what an observer gets about Nodes, one event a line.
type observed struct {
	t    *testing.T
	view bubble.View // of the labels

	mu     sync.Mutex // guards what follows
	events []string
	last   presence.StateChange
	ids    map[uint64]string
}

func newObserved(t *testing.T, view bubble.View) *observed {
	return &observed{t: t, view: view, ids: map[uint64]string{}}
}

func (o *observed) observer() framework.Option {
	return framework.Together(
		presence.WithObserver(presence.Observer{
			StateChanged: func(c presence.StateChange) {
				o.mu.Lock()
				defer o.mu.Unlock()
				if c.From == "" {
					o.ids[c.ID] = c.Path
				}
				if o.ids[c.ID] != c.Path || c.Timeout <= 0 || c.At.Before(c.Away) {
					o.t.Errorf("%+v", c)
				}
				o.last = c
				o.events = append(o.events, fmt.Sprintf("%s: %s>%s", o.view.Path(c.Label), c.From, c.To))
			},
		}),
		cache.WithObserver(cache.Observer{
			StateChanged: func(c cache.StateChange) {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.events = append(o.events, fmt.Sprintf("%s: cache %s>%s", o.view.Path(c.Cache.Label), c.From, c.To))
			},
		}),
	)
}

// want compares what has come since it was called before.
func (o *observed) want(want ...string) {
	o.t.Helper()
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.events, want) {
		o.t.Errorf("events %q, want %q", o.events, want)
	}
	o.events = nil
}

// Observers get each state of a Node once, and since when it has not stood.
func TestObserversOfANode(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		o := newObserved(t, w.View)
		c := w.Connect("ours", o.observer())
		never, err := presence.New(c, path, nil)
		must(t, err)
		closed(t, w, never)
		o.want()

		theirs := w.ConnectNext()
		in := announce(t, theirs, path, "theirs")
		began := time.Now()
		n, err := presence.New(c, path, []byte("ours"), recipes.WithLabel("api"))
		must(t, err)
		must(t, n.Start())
		awaitState(t, n, presence.Taken)
		time.Sleep(time.Hour)
		o.want("api: >pending", "api: pending>taken")
		closed(t, w, in)
		standing(t, w, c, n, "ours")
		o.want("api: taken>standing")
		session := w.SessionID(c)
		if got := o.last; got.Away != began || got.Session != session || got.Err != nil || got.Timeout != w.Session(c).Timeout() {
			t.Errorf("%+v, began at %v", got, began)
		}

		w.ClientNet("ours").Cut()
		awaitState(t, n, presence.Suspended)
		o.want("api: standing>suspended")
		lost := o.last
		if lost.Away != lost.At || lost.Session != session {
			t.Errorf("%+v", lost)
		}
		w.Expire(c)
		time.Sleep(time.Minute)
		w.ClientNet("ours").Heal()
		standing(t, w, c, n, "ours")
		o.want("api: suspended>pending", "api: pending>standing")
		if got := o.last; got.Away != lost.At || got.Session == session {
			t.Errorf("%+v, lost at %v", got, lost.At)
		}
		closed(t, w, n)
		closed(t, w, n)
		o.want("api: standing>closed")
	})
}

// Without a label, the members of a group are counted together, and others by
// their paths. The cache of a roster has the group's label.
func TestLabels(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		o := newObserved(t, w.View)
		core, logged := observer.New(zap.DebugLevel)
		c := w.Connect("ours", o.observer(), framework.WithLogger(zap.New(core)))
		n := announce(t, c, path, "a")
		o.want(path+": >pending", path+": pending>standing")
		if line := logged.FilterMessage("presence changed").TakeAll()[0].ContextMap(); line["label"] != w.View.Full(path) {
			t.Errorf("logged: %v", line)
		}
		closed(t, w, n)
		o.want(path + ": standing>closed")
		for label, opts := range map[string][]presence.Option{"/services/web": nil, "web": {recipes.WithLabel("web")}} {
			g, err := presence.NewGroup(c, "/services/web", opts...)
			must(t, err)
			m, err := g.Join(t.Context(), "a", nil)
			must(t, err)
			o.want(label+": >pending", label+": pending>standing")
			must(t, m.Close(t.Context()))
			o.want(label + ": standing>closed")
			r := g.Follow()
			_, err = r.Members(t.Context())
			must(t, err)
			r.Close()
			o.want(label+": cache >syncing", label+": cache syncing>synced", label+": cache synced>closed")
		}
	})
}

// A Node whose client is closed ends for the observers as well.
func TestObserversWhenTheClientCloses(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		o := newObserved(t, w.View)
		c := w.ConnectNext(o.observer())
		n := announce(t, c, path, "a")
		must(t, c.Close())
		awaitState(t, n, presence.Closed)
		synctest.Wait()
		if o.last.To != "closed" {
			t.Errorf("events %q", o.events)
		}
	})
}

// A function of an observer may block, panic or end its goroutine. The Node,
// and the other observers, do not wait for it.
func TestObserversThatMisbehave(t *testing.T) {
	never := make(chan struct{})
	for name, misbehave := range map[string]func(){
		"panics":             func() { panic("observer") },
		"ends its goroutine": runtime.Goexit,
		"blocks":             func() { <-never },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				never = make(chan struct{})
				defer close(never)
				o := newObserved(t, w.View)
				c := w.Connect("ours", presence.WithObserver(presence.Observer{
					StateChanged: func(presence.StateChange) { misbehave() },
				}), o.observer())
				n := announce(t, c, path, "a", recipes.WithLabel("api"))
				w.ClientNet("ours").Cut()
				awaitState(t, n, presence.Suspended)
				w.ClientNet("ours").Heal()
				standing(t, w, c, n, "a")
				closed(t, w, n)
				o.want("api: >pending", "api: pending>standing", "api: standing>suspended", "api: suspended>standing", "api: standing>closed")
			})
		})
	}
}
