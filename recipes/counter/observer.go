package counter

import (
	"cmp"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// WithObserver is an option of framework.New. It adds an observer of the
// counters of the client. It may be passed several times: every observer gets
// every event. Default: none, which costs nothing.
func WithObserver(o Observer) framework.Option {
	return func(c *managed.Config) { managed.Observe(c, o) }
}

// An Observer has functions for events of counters. Each may be nil.
// framework.Observer says where they are called, and how many events may wait:
// as many as requests.
type Observer struct {
	// Added is called once for each write, when the calls of Add, Reserve,
	// CompareAndSet, Set or AddOnce that have shared it end. It is not called for
	// one whose context has ended before its write began.
	Added func(Addition)
	// Conflicted is called when the ensemble has refused a write, because another
	// process has written before. The write is tried again.
	Conflicted func(Conflict)
	// MarkersRemoved is called when a search for old markers of AddOnce has ended.
	MarkersRemoved func(Removal)
}

// Info says which counter an event is about.
type Info struct {
	Path  string // at the ensemble
	Label string // that recipes.WithLabel has set, otherwise the path
}

// Addition is the end of calls that have shared a write.
type Addition struct {
	Counter  Info
	Calls    int
	Failed   int  // of these calls
	Repeated bool // by AddOnce: its id was counted before
	Began    time.Time
	Took     time.Duration
	Err      error // of the first call that has failed
}

// Conflict is a write that was refused.
type Conflict struct {
	Counter Info
	InARow  int // conflicts of this write
}

// Removal is the end of a search for old markers of AddOnce.
type Removal struct {
	Counter Info
	Removed int
	Err     error // why it has ended early
}

func (n *Counter) info() Info {
	path := n.client.Resolve(n.path)
	return Info{Path: path, Label: cmp.Or(n.cfg.label, path)}
}

// observe tells the observers of the results of a batch.
func (b *batch) observe() {
	if len(b.requests) == 0 {
		return
	}
	n := b.requests[0].counter
	observers := managed.ObserversOf[Observer](n.client)
	if len(observers) == 0 {
		return
	}
	told := Addition{Counter: n.info(), Calls: len(b.requests), Began: b.begun, Took: time.Since(b.begun)}
	for _, r := range b.requests {
		if told.Repeated = told.Repeated || r.result.repeated; r.result.err == nil {
			continue
		}
		if told.Failed++; told.Err == nil {
			told.Err = r.result.err
		}
	}
	for _, each := range observers {
		if fn := each.By.Added; fn != nil {
			each.Events.Offer(func() { fn(told) })
		}
	}
}

func (a *attempt) observeConflict() {
	for _, each := range managed.ObserversOf[Observer](a.b.client) {
		if fn := each.By.Conflicted; fn != nil {
			told := Conflict{Counter: a.b.info(), InARow: a.conflicts}
			each.Events.Offer(func() { fn(told) })
		}
	}
}

func (n *Counter) observeRemoval(removed int, err error) {
	for _, each := range managed.ObserversOf[Observer](n.client) {
		if fn := each.By.MarkersRemoved; fn != nil {
			told := Removal{Counter: n.info(), Removed: removed, Err: err}
			each.Events.Offer(func() { fn(told) })
		}
	}
}
