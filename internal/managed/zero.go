package managed

import (
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// neverMade and neverOpened are behind zero values of Client and Session: a
// client that is closed, and its session.
var (
	neverMade   = newClosedCore()
	neverOpened = newEndedSession(neverMade)
)

func newClosedCore() *core {
	cfg, _ := Configure[func(*Config)]()
	c := newCore(cfg, nil, "")
	c.closeOnce.Do(func() { close(c.closing) })
	close(c.done)
	c.state = Closed
	return c
}

func newEndedSession(c *core) *session {
	s := newSession(c)
	s.Sever()
	s.End(zkerr.Closed)
	return s
}
