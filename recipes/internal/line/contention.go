package line

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// contention is what a grant knows of the contenders that it keeps waiting in
// line.
type contention struct {
	known    knowledge
	assumed  bool      // contested: nobody has looked, since it was granted by an event
	at       time.Time // uncontested: when the look began that found so; contested: when that was found, or assumed
	handoffs int       // contested: grants since
	stop     context.CancelFunc
	hurry    chan struct{} // a token: somebody waits for a look
}

type knowledge int

const (
	notKnown    knowledge = iota
	uncontested           // by a look that is still true: no watch has fired since
	contested             // for the rest of this grant's life, unless it is assumed
)

func (c *contention) stopLocked() {
	if c.stop != nil {
		c.stop()
	}
}

// lookLocked makes a goroutine look at the line behind g, until somebody is
// there or g leaves. If that goroutine is backing off, it looks immediately.
func (g *grant) lookLocked() {
	switch c := &g.contention; {
	case c.known == contested && !c.assumed:
	case c.stop == nil:
		ctx, stop := context.WithCancel(context.Background())
		c.stop, c.hurry = stop, make(chan struct{}, 1)
		go g.watchContention(ctx)
	default:
		select {
		case c.hurry <- struct{}{}:
		default:
		}
	}
}

// watchContention looks at the line until somebody waits for g: it looks once
// more when the first of them comes, and no longer watches. Other children may
// come and go all the time, where contenders share, or are unrelated to the
// line: from look to look it backs off for longer then, unless somebody waits
// for the next.
func (g *grant) watchContention(ctx context.Context) {
	defer g.foundContention(ctx, time.Time{}, nil, errExited) // no effect if ctx has ended, or it was found before
	var pause time.Duration
	for {
		began := time.Now()
		names, changed, err := g.sess.WatchChildren(ctx, g.queue.dir)
		if err == nil && !slices.Contains(names, g.name) {
			// What was read with a watch can be old: since 3.7.3, 3.8.4 and 3.9.2 a
			// server sends no event while the session may not read the directory.
			names, _, err = g.sess.Children(ctx, g.queue.dir)
		}
		for quiet := true; quiet; {
			if !g.foundContention(ctx, began, names, err) {
				g.sess.Unwatch(changed)
				return
			}
			select {
			case <-changed:
				g.queue.update(func() { g.contention.known = notKnown })
				g.backOff(ctx, pause)
				pause = min(2*pause+time.Millisecond, g.sess.Timeout()/40)
				quiet = false
			case <-time.After(g.sess.Timeout() / 4): // a watch can be lost
				pause = 0
				began = time.Now()
				names, _, err = g.sess.Children(ctx, g.queue.dir)
			case <-ctx.Done(): // ends with the session as well
			}
		}
	}
}

// backOff returns after d, or when somebody waits for a look.
func (g *grant) backOff(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-g.contention.hurry: // it is made with the look, and stays
	case <-ctx.Done():
	}
}

// foundContention takes the answer to a look at the line that began at the
// given time, and serves those who wait for it. It reports whether to look
// again.
func (g *grant) foundContention(ctx context.Context, began time.Time, names []string, err error) (again bool) {
	var contends bool
	if err == nil {
		contends, err = g.queue.rule.contended(g.name, names) // user code: not under mu
	}
	q := g.queue
	q.update(func() {
		switch c := &g.contention; {
		case ctx.Err() != nil:
			return
		case errors.Is(err, zk.ErrNoNode), err == nil && !slices.Contains(names, g.name):
			g.loseDeletedLocked()
			return
		case err != nil || contends:
			if c.known != contested { // otherwise it was assumed, since the grant
				c.at = began
			}
			c.known, c.assumed = contested, false
			if err != nil {
				c.handoffs = math.MaxInt // nothing is known, so nothing is handed off
			}
			c.stop()
		default:
			c.known, c.assumed, c.at, c.handoffs = uncontested, false, began, 0
			again = true
		}
		switch {
		case g.state == idle:
			g.resumeOrLeaveLocked()
		case !q.rule.exclusive(): // those who would share may wait for this
			q.serveLocked()
		}
	})
	return again
}
