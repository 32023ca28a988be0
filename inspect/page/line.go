package page

import (
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect"
)

// lineBody is what the page of one line shows.
type lineBody struct {
	line
	Seen     bool
	Exists   bool
	Timeline *timeline
	Queue    *queue
	Past     *pastBody // in this process
}

func (p *Page) lineLocked(v view, now time.Time) any {
	s := p.shown
	l := s.model.Line(v.path)
	b := lineBody{Seen: s.model.Seen(), Exists: l != nil, Timeline: s.times.of(v.path, now)}
	if l == nil {
		l = &inspect.Line{Path: v.path}
	}
	b.line = p.lineOf(l, allShown, allShown)
	b.Queue = queueOf(&b.line)
	if p.watch != nil {
		b.Past = p.watch.past(p.full(v.path))
	}
	return b
}

// full returns the path of a line at the ensemble.
func (p *Page) full(path string) string {
	if _, chroot, ok := strings.Cut(p.servers, "/"); ok && chroot != "" {
		return "/" + strings.Trim(chroot, "/") + strings.TrimSuffix(path, "/")
	}
	return path
}
