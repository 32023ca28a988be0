package page

import (
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/identity"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// nowBody is what the page Now shows: the lines.
type nowBody struct {
	Filter, Sort string
	Lines        []line
	More         int  // lines that are not shown
	Older        bool // some of these may be held for a longer time than what is shown
	Exists       bool
	Seen         bool
	Unreadable   int
	Things       []thing // that are named
}

func (p *Page) nowLocked(v view, now time.Time) any {
	s := p.shown
	b := nowBody{Filter: v.filter, Sort: v.sort, Exists: s.exists, Seen: s.model.Seen(), Unreadable: s.unreadable, Things: p.things}
	rows, more := v.rows(&s.model)
	b.More, b.Older = len(more), slices.ContainsFunc(more, func(r look.Row) bool { return !r.AgeKnown() })
	for _, r := range rows {
		l := s.model.Line(r.Path)
		if l == nil { // it is free, and was granted lately
			l = &inspect.Line{Path: r.Path, Recipe: r.Recipe}
		}
		b.Lines = append(b.Lines, p.lineOf(l, fewShown, max(1, look.Details-len(l.Holders))))
	}
	return b
}

// On Now: how many holders of a line are listed, and of its waiters how many
// are not folded. On its own page: how many of each.
const (
	fewShown = 3
	allShown = 200
)

// line is what is shown of a line.
type line struct {
	Path, Name, Recipe string // Path is for a link; the others are escaped
	Conflict           string
	Election           bool
	Semaphore          bool
	Limit              int
	Permits            []bool // filled or not, as far as there is room
	Holders            []contender
	MoreHolders        int
	Waiters            []contender
	Waiting            int
	MoreWaiters        int
}

// Next and Later are those that wait: the first few, and the others.
func (l *line) Next() []contender  { return l.Waiters[:min(len(l.Waiters), fewShown)] }
func (l *line) Later() []contender { return l.Waiters[min(len(l.Waiters), fewShown):] }

// contender is what is shown of a holder or a waiter.
type contender struct {
	Name    string // of the znode
	Who     string // the process, or the session
	Data    string
	Session string
	Mode    string
	Place   int  // among those that wait, from 1
	Unsure  bool // it may hold
	Asked   bool // to release
	Since   time.Time
	Exact   bool // else it may include a wait
	Token   string
	path    string
}

func (p *Page) lineOf(l *inspect.Line, mostHolders, mostWaiters int) line {
	shown := line{
		Path: l.Path, Name: escape.Text(l.Path), Recipe: escape.Text(l.Recipe), Conflict: escape.Text(l.Conflict),
		Election: l.Election, Semaphore: l.Semaphore, Limit: l.Limit, Waiting: len(l.Waiting),
	}
	const room = 40
	for i := range min(max(l.Limit, len(l.Holders)), room) {
		shown.Permits = append(shown.Permits, i < len(l.Holders))
	}
	for i := range l.Holders[:min(mostHolders, len(l.Holders))] {
		one := p.contenderOf(&l.Holders[i])
		one.Since, one.Exact = p.shown.model.Since(l, &l.Holders[i])
		if dir := p.shown.model.Directory(l); dir != 0 && !l.Semaphore {
			if node, ok := layout.Parse(path.Base(l.Holders[i].Path)); ok {
				one.Token = fmt.Sprintf("%#x.%d.*", dir, uint32(node.Seq))
			}
		}
		shown.Holders = append(shown.Holders, one)
	}
	for i := range l.Waiting[:min(mostWaiters, len(l.Waiting))] {
		one := p.contenderOf(&l.Waiting[i])
		one.Place, one.Exact = i+1, true
		shown.Waiters = append(shown.Waiters, one)
	}
	shown.MoreHolders, shown.MoreWaiters = len(l.Holders)-len(shown.Holders), len(l.Waiting)-len(shown.Waiters)
	return shown
}

// mostData is how many bytes of data are shown: see WithData.
const mostData = 1024

func (p *Page) contenderOf(c *inspect.Contender) contender {
	id := identity.Parse(c.Data)
	shown := contender{
		Name: escape.Text(path.Base(c.Path)), Mode: "exclusive", Unsure: c.Unsure, Asked: id.Asked, Since: c.Since, path: c.Path,
	}
	if c.Shared {
		shown.Mode = "shared"
	}
	if c.Created == 0 { // not read
		return shown
	}
	shown.Session, shown.Who = wire.SessionText(c.Session), whoOf(c)
	if p.data && len(c.Data) > 0 {
		shown.Data = escape.Text(string(c.Data[:min(len(c.Data), mostData)]))
	}
	return shown
}

// whoOf names the process of a contender that was read, as far as its znode
// says it in a form that is known: other data may be secret.
func whoOf(c *inspect.Contender) string {
	session := "session " + wire.SessionText(c.Session)
	if id := identity.Parse(c.Data); id.Host != "" {
		return escape.Data(string(id.Own))
	}
	if host := look.HostOf(c); host != "" {
		return escape.Text(host) + ", " + session
	}
	return session
}
