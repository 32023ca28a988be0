package framework

import (
	"reflect"

	"github.com/go-zookeeper/zk"
)

// Wire is the wire client that serves a session, for tests that go past ours.
func Wire(s *Session) *zk.Conn { return s.live.conn }

// Listeners is how many listeners the client still has.
func Listeners(c *Client) int {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	return len(c.shared.listeners)
}

// Condemned is how many ids of creates that were given up a session remembers, and
// in how many directories.
func Condemned(s *Session) (ids, directories int) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	for _, h := range s.live.straySearches {
		ids += len(h.ids)
	}
	return ids, len(s.live.straySearches)
}

// Channels is how many channels for watches the wire client of a session has.
func Channels(s *Session) int {
	n := 0
	for all := reflect.ValueOf(s.live.conn).Elem().FieldByName("watchers").MapRange(); all.Next(); {
		n += all.Value().Len()
	}
	return n
}
