package framework

import (
	"reflect"

	"github.com/go-zookeeper/zk"
)

// Wire is the wire client that serves a session, for tests that go past ours.
func Wire(s *Session) *zk.Conn { return s.core.conn }

// Listeners is how many listeners the client still has.
func Listeners(c *Client) int {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	return len(c.core.listeners)
}

// Channels is how many channels for watches the wire client of a session has.
func Channels(s *Session) int {
	n := 0
	for all := reflect.ValueOf(s.core.conn).Elem().FieldByName("watchers").MapRange(); all.Next(); {
		n += all.Value().Len()
	}
	return n
}
