package framework

import "github.com/go-zookeeper/zk"

// Wire is the wire client that serves a session, for tests that go past ours.
func Wire(s *Session) *zk.Conn { return s.core.conn }

// Listeners is how many listeners the client still has.
func Listeners(c *Client) int {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	return len(c.core.listeners)
}
