package sim

import (
	"fmt"
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
	Strikes int           // how many had happened before it
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
