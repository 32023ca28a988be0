package sim

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Moment names a step of a run, so that another run of the same plan has it,
// too, even if other faults happen before it: by the client, by what happened,
// and by how often that client had it happen.
type Moment struct {
	Client int
	Point  Point
	Op     string // the request, or what the caller or the watch says
	N      int    // 1 for the first of them
	After  bool   // when everything that follows at the same instant is done
}

// Point is where a step can be seen.
type Point string

// The points.
const (
	Sent     Point = "sent"     // the request leaves the client
	Executed Point = "executed" // the request has arrived at the member, which executes it now
	Answered Point = "answered" // the answer has arrived at the client, which gets it now
	Notified Point = "notified" // the event of a watch, likewise
	Caller   Point = "caller"   // a goroutine that uses the recipe begins something, or gets its result
)

// String returns the moment as ParseMoment reads it.
func (m Moment) String() string {
	text := fmt.Sprintf("client %d %s %s %d", m.Client, m.Point, m.Op, m.N)
	if m.After {
		text = "after " + text
	}
	return text
}

// ParseMoment reads what String returns.
func ParseMoment(text string) (m Moment, err error) {
	rest, after := strings.CutPrefix(text, "after ")
	m.After = after
	if _, err := fmt.Sscanf(rest, "client %d %s %s %d", &m.Client, &m.Point, &m.Op, &m.N); err != nil || m.String() != text {
		return Moment{}, fmt.Errorf("not a moment: %q", text)
	}
	return m, nil
}

// Seen is a moment of a run.
type Seen struct {
	Moment
	At      time.Duration // since the beginning
	Session bool          // the message opens a connection of a session that exists already
	Struck  int           // how many faults had happened before it
	Batch   []string      // the operations of a multi that has only creates and deletes, when it is sent
}

// moments records the moments of a run.
type moments struct {
	counts map[Moment]int // by moment without its number
	seen   []Seen
}

// next returns the moment that happens now.
func (s *moments) next(client int, point Point, op string) Moment {
	m := Moment{Client: client, Point: point, Op: op}
	s.counts[m]++
	m.N = s.counts[m]
	return m
}

// message is what a tap has seen at a moment.
type message struct {
	frame []byte
	xid   int32
	again bool // it opens a connection of a session that exists already
	batch []string
}

// happens records a moment, and does what strikes at it. It reports whether
// that has broken the client's connection.
func (w *world) happens(client int, point Point, op string, msg message) (broken bool) {
	w.mu.Lock()
	if !w.playing {
		w.mu.Unlock()
		return false
	}
	m := w.moments.next(client, point, op)
	w.moments.seen = append(w.moments.seen, Seen{Moment: m, At: time.Since(w.ledger.begin), Session: msg.again, Struck: len(w.hit), Batch: msg.batch})
	now, after := w.dueLocked(m)
	w.stepLocked(client)
	yields := 0
	if w.vary != nil {
		yields = w.vary.IntN(1 << w.vary.IntN(6))
	}
	w.mu.Unlock()
	for range yields {
		runtime.Gosched()
	}
	for _, f := range now {
		broken = w.strike(f, msg) || broken
	}
	for _, f := range after { // time passes only when everybody waits
		time.AfterFunc(1, func() { w.strike(f, message{}) })
	}
	return broken
}

// dueLocked takes the faults whose moment has come.
func (w *world) dueLocked(m Moment) (now, after []Fault) {
	later := m
	later.After = true
	w.pending = slices.DeleteFunc(w.pending, func(f Fault) bool {
		switch f.At.Moment {
		case m:
			now = append(now, f)
		case later:
			after = append(after, f)
		default:
			return false
		}
		return true
	})
	return now, after
}

// stepLocked counts a step for the faults that end after some of other clients.
func (w *world) stepLocked(client int) {
	for _, d := range w.delays {
		if d.client == client || d.left == 0 {
			continue
		}
		if d.left--; d.left == 0 {
			time.AfterFunc(1, d.end)
		}
	}
}
