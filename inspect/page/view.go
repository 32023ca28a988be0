package page

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/look"
)

// view is what a viewer looks at: the address says it.
type view struct {
	name   string // of the topic
	path   string // of a line
	filter string // a part of the paths
	sort   string // "waiting" or "age"
}

// view reads an address.
func (p *Page) view(name string, query url.Values) (view, error) {
	v := view{name: name, filter: printable(query.Get("filter")), sort: cmp.Or(query.Get("sort"), "waiting"), path: query.Get("path")}
	switch {
	case name == "process" && p.watch == nil:
		return v, errors.New("this service shows nothing of its process")
	case name != "line":
		return v, nil
	}
	if err := framework.ValidatePath(v.path); err != nil {
		return v, fmt.Errorf("no such line: %w", err)
	}
	if !p.roots.Has(v.path) {
		return v, errors.New("no such line: its path is outside of what this page shows")
	}
	return v, nil
}

// printable leaves out what would have to be shown as an escape, and is what it
// is in an input.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}

// rows returns the lines of a view in its order, at most as many as are read,
// and those behind them.
func (v *view) rows(m *look.Model) (rows, more []look.Row) {
	order := look.ByWaitingAndAge
	if v.sort == "age" {
		order = look.ByAge
	}
	all := m.Rows(order, v.filter)
	most := min(len(all), mostLines)
	return all[:most], all[most:]
}

// paper is what a template gets: all text in it is escaped for the reader's
// eye, and the template escapes it for HTML.
type paper struct {
	Topic  string
	Title  string
	Topics []topic
	Now    time.Time // of the server; ages are of this instant
	State  status
	Body   any
}

// topic is a page, and a link to it.
type topic struct {
	Link, Name string
	Here       bool
}

// status says what is known of the connection.
type status struct {
	OK       bool
	Text     string
	Requests int
}

// topics are the pages: each makes what its template shows. The caller holds
// the page's mutex.
var topics = map[string]func(p *Page, v view, now time.Time) any{
	"":          (*Page).nowLocked,
	"line":      (*Page).lineLocked,
	"deadlocks": (*Page).deadlocksLocked,
	"ensemble":  (*Page).ensembleLocked,
	"process":   (*Page).processLocked,
}

// paper returns what is shown of a view.
func (p *Page) paper(v view, now time.Time) paper {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []topic{{"./", "Now", v.name == ""}, {"deadlocks", "Deadlocks", v.name == "deadlocks"}, {"ensemble", "Ensemble", v.name == "ensemble"}}
	if p.watch != nil {
		all = append(all, topic{"process", "This process", v.name == "process"})
	}
	title := escape.Text(v.path)
	for _, t := range all {
		if t.Here {
			title = t.Name
		}
	}
	return paper{Topic: cmp.Or(v.name, "now"), Title: title, Topics: all, Now: now, State: p.shown.status(time.Now()), Body: topics[v.name](p, v, now)}
}

// stale is the age from which a look is not called current.
const stale = 10 * time.Second

func (s *state) status(now time.Time) status {
	switch {
	case s.err != nil:
		return status{Text: "Not shown: " + escape.Text(s.err.Error()), Requests: s.requests}
	case !s.model.Seen():
		return status{Text: "The first look has begun."}
	case !s.connected:
		return status{Text: "Not connected: this is how it was at " + s.heard.Format(time.TimeOnly) + ".", Requests: s.requests}
	case now.Sub(s.looked) > stale:
		return status{Text: "The next look takes its time: this is how it was at " + s.looked.Format(time.TimeOnly) + ".", Requests: s.requests}
	default:
		return status{OK: true, Text: fmt.Sprintf("%s, %d waiting", look.Count(len(s.model.Lines), "line"), s.model.Waiting()), Requests: s.requests}
	}
}
