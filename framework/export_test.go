package framework

import "github.com/go-zookeeper/zk"

// Wire is the wire client that serves a session, for tests that go past ours.
func Wire(s *Session) *zk.Conn { return s.core.conn }
