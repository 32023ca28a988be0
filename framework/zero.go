package framework

import "github.com/zkrecipes/zkrecipes/internal/managed/zkerr"

// neverMade and neverOpened are behind zero values of Client and Session: a
// client that is closed, and its session.
var (
	neverMade   = newClosedCore()
	neverOpened = newEndedSession(neverMade)
)

func newClosedCore() *core {
	cfg, _ := newConfig(nil)
	c := newCore(cfg, nil, "")
	c.closeOnce.Do(func() { close(c.closing) })
	close(c.done)
	c.state = Closed
	return c
}

func newEndedSession(c *core) *session {
	s := &session{core: c, over: make(chan struct{}), severed: make(chan struct{})}
	s.writes.session, s.searches.session = s, s
	s.sever()
	s.end(zkerr.Closed)
	return s
}
