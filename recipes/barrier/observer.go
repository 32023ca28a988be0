package barrier

import (
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// WithObserver is an option of framework.New. It adds an observer of the rounds
// of the client's Doubles. It may be passed several times: every observer gets
// every event. Default: none, which costs nothing.
func WithObserver(o Observer) framework.Option {
	return func(c *managed.Config) { managed.Observe(c, o) }
}

// An Observer has functions for the rounds of Doubles. Each may be nil.
// framework.Observer says where they are called.
type Observer struct {
	// Entered is called when a call of Enter has ended.
	Entered func(Entry)
	// Left is called when the first call of Leave of a member has ended.
	Left func(Exit)
}

// Info says which double barrier an event is about.
type Info struct {
	Path    string // at the ensemble
	Label   string // that recipes.WithLabel has set, otherwise the path
	Members int    // that begin a round together
}

// Entry is the end of a call of Enter.
type Entry struct {
	Barrier Info
	Waited  time.Duration // how long the call took
	Late    bool          // it has entered a round that was open
	Session int64         // that the member belongs to, 0 after an error
	Err     error         // nil: it has entered
}

// Exit is the end of a call of Leave.
type Exit struct {
	Barrier Info
	Session int64
	Inside  time.Duration // from the end of Enter to the call of Leave
	Waited  time.Duration // how long the call took
	Err     error         // nil: all have left
}

func (d *Double) info() Info {
	return Info{Path: d.client.Resolve(d.path), Label: d.cfg.Label, Members: d.n}
}

func (d *Double) observeEntry(began time.Time, in *Inside, err error) {
	for _, each := range managed.ObserversOf[Observer](d.client) {
		fn := each.By.Entered
		if fn == nil {
			continue
		}
		told := Entry{Barrier: d.info(), Waited: time.Since(began), Err: err}
		if in != nil {
			told.Late, told.Session = isLate(in.name), in.sess.ID()
		}
		each.Events.Post(func() { fn(told) })
	}
}

func (in *Inside) observeExit(began time.Time) {
	for _, each := range managed.ObserversOf[Observer](in.double.client) {
		if fn := each.By.Left; fn != nil {
			told := Exit{
				Barrier: in.double.info(), Session: in.sess.ID(), Inside: began.Sub(in.entered), Waited: time.Since(began), Err: in.err,
			}
			each.Events.Post(func() { fn(told) })
		}
	}
}
