package page

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// deadlocks is the result of the last search.
type deadlocks struct {
	found inspect.Deadlocks
	at    time.Time // when it ended; zero: there was none
	err   error
}

// searchEvery is how long after a search the next one begins, unless it has
// read a large list.
const searchEvery = 5 * time.Second

// findDeadlocks searches once, and looks a second time at what it has found.
func (p *Page) findDeadlocks(ctx context.Context, client *framework.Client) (pause time.Duration) {
	var large atomic.Bool
	found, err := inspect.FindDeadlocks(ctx, look.Reader{Client: client, Scope: p.roots, Large: &large}, "/", inspect.WithRate(perSecond))
	if ctx.Err() != nil {
		return 0
	}
	p.publish(func(*state) {
		if p.cycles.at, p.cycles.err = time.Now(), err; err == nil {
			p.cycles.found = found
		}
	})
	if large.Load() {
		return largeEvery
	}
	return searchEvery
}

// deadlocksBody is what the page Deadlocks shows.
type deadlocksBody struct {
	At         time.Time
	Err        string
	Lines      int
	Unreadable int
	Cycles     []cycle
	Pause      time.Duration
}

// cycle is a circle of sessions and lines.
type cycle struct {
	Title     string
	Condition string // of a possible deadlock
	Width     int    // of the drawing, in pixels
	Height    int
	Nodes     []node
	Edges     []edge
	Commands  []string // each asks one of the sessions to release
}

// node is a session or a line.
type node struct {
	X, Y, Width        float64
	Label, Note, Title string
	Line               bool
	Path               string // of a line, for a link
}

// edge leads from who waits to what it waits for, and from there to who has it.
type edge struct {
	X1, Y1, X2, Y2 float64
	Label          string
	MidX, MidY     float64 // where the label stands
}

func (p *Page) deadlocksLocked(view, time.Time) any {
	found := &p.cycles.found
	b := deadlocksBody{At: p.cycles.at, Lines: found.Lines, Unreadable: len(found.Unreadable), Pause: inspect.DefaultPause}
	if p.cycles.err != nil {
		b.Err = escape.Text(p.cycles.err.Error())
	}
	for _, c := range slices.Concat(found.Cycles, found.Possible) {
		b.Cycles = append(b.Cycles, p.cycleOf(&c))
	}
	return b
}

// The measures of a drawing, in pixels.
const (
	nodeWidth  = 190
	nodeHeight = 44
)

func (p *Page) cycleOf(c *inspect.Cycle) cycle {
	n := 2 * len(c.Steps)
	radius := max(130, float64(n)*38)
	shown := cycle{Condition: escape.Text(c.Condition), Width: int(2*radius) + nodeWidth + 4, Height: int(2*radius) + nodeHeight + 4}
	midX, midY := float64(shown.Width)/2, float64(shown.Height)/2
	place := func(i int) (x, y float64) {
		angle := 2*math.Pi*float64(i)/float64(n) - math.Pi/2
		return midX + radius*math.Cos(angle), midY + radius*math.Sin(angle)
	}
	shown.Title = "Deadlock"
	if c.Condition != "" {
		shown.Title = "Possible deadlock"
	}
	asked := map[string]bool{}
	for i := range c.Steps {
		s := &c.Steps[i]
		who := whoOf(&s.Has)
		x, y := place(2 * i)
		shown.Nodes = append(shown.Nodes, node{x, y, nodeWidth, short(who, 26), "session " + wire.SessionText(s.Session), who, false, ""})
		lx, ly := place(2*i + 1)
		at := escape.Text(s.WaitsAt)
		shown.Nodes = append(shown.Nodes, node{lx, ly, nodeWidth, tail(at, 24), "lock", at, true, s.WaitsAt})
		nx, ny := place(2*i + 2)
		waits, held := between(x, y, lx, ly, "waits for"), between(lx, ly, nx, ny, "held by")
		for _, e := range []*edge{&waits, &held} { // the label stands outside of the circle
			e.MidX, e.MidY = midX+1.3*((e.X1+e.X2)/2-midX), midY+1.3*((e.Y1+e.Y2)/2-midY)
		}
		shown.Edges = append(shown.Edges, waits, held)
		if s.Has.Holds {
			command := p.command("revoke", "--session", wire.SessionText(s.Session), s.HasAt)
			if identity.IsRequest(s.Has.Data) {
				command += "   # was asked already"
			}
			if !asked[command] {
				asked[command] = true
				shown.Commands = append(shown.Commands, command)
			}
		}
	}
	return shown
}

// command returns a command line of zkr that can be pasted into a shell.
func (p *Page) command(verb string, args ...string) string {
	return escape.Command(append([]string{"zkr", verb, "--servers", p.servers}, args...)...)
}

// between returns an edge between the borders of two nodes.
func between(x1, y1, x2, y2 float64, label string) edge {
	cut := func(x, y, tx, ty, more float64) (float64, float64) {
		dx, dy := tx-x, ty-y
		by := math.Min((nodeWidth/2+more)/math.Max(math.Abs(dx), 1e-9), (nodeHeight/2+more)/math.Max(math.Abs(dy), 1e-9))
		return x + dx*by, y + dy*by
	}
	ax, ay := cut(x1, y1, x2, y2, 0)
	bx, by := cut(x2, y2, x1, y1, 6)
	return edge{X1: ax, Y1: ay, X2: bx, Y2: by, Label: label}
}

// tail shows the end of a path that is too long, which tells it from others.
func tail(path string, room int) string {
	all := []rune(path)
	if len(all) <= room {
		return path
	}
	return "…" + string(all[len(all)-room+1:])
}

// Left is the left border of a node, and Top the upper one.
func (n node) Left() float64 { return n.X - n.Width/2 }

// Top is the upper border of a node.
func (n node) Top() float64 { return n.Y - nodeHeight/2 }

// Names returns the text of the whole circle, for those who do not see it.
func (c cycle) Names() string {
	var parts []string
	for i := 0; i+1 < len(c.Nodes); i += 2 {
		parts = append(parts, fmt.Sprintf("%s waits for %s, held by %s", c.Nodes[i].Title, c.Nodes[i+1].Title, c.Nodes[(i+2)%len(c.Nodes)].Title))
	}
	return strings.Join(parts, "; ")
}
