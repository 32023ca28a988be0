package managed

import (
	"context"
	"reflect"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/writes"
)

// UnderWay is how many requests with creates may be under way in a session.
const UnderWay = writes.UnderWay

// Many is from how many watches on they are armed together.
const Many = ops.Many

// Wire returns the wire client of a session, for tests that bypass the
// framework.
func (s *Session) Wire() *zk.Conn { return s.live.Conn() }

// ReadUnready reads without a look at the connection, as a call does whose
// connection ends right behind that look.
func (s *Session) ReadUnready(ctx context.Context) error {
	_, err := ops.Call(ctx, s.live.Session, ops.Request{Op: request.NameSync, Path: "/"}, func(conn *zk.Conn) (string, error) { return conn.Sync("/") }, nil)
	return err
}

// Listeners returns how many listeners the client still has.
func (c *Client) Listeners() int {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	return len(c.shared.listeners)
}

// Strays returns how many ids of given-up creates a session looks for, and in
// how many directories.
func (s *Session) Strays() (ids, directories int) {
	return s.live.writes.Lost()
}

// Channels returns how many channels for watches the wire client of a session
// has.
func (s *Session) Channels() int {
	n := 0
	for all := reflect.ValueOf(s.live.Conn()).Elem().FieldByName("watchers").MapRange(); all.Next(); {
		n += all.Value().Len()
	}
	return n
}

// Unanswered returns how many requests of a session wait for an answer.
func (s *Session) Unanswered() int { return s.live.Chain().Latest().Unanswered() }

// Sweeps reports whether a session is going to remove watches that nobody
// wants.
func (s *Session) Sweeps() bool {
	return s.live.watches.Sweeps()
}

// Followers returns how many are told of events in a session.
func (s *Session) Followers() int {
	return s.live.watches.Followers()
}

// Earlier returns how many sessions that are over the client remembers.
func (c *Client) Earlier() int { return c.shared.servers.Earlier() }

// CloseOrphan closes a session as it does after its loss.
func (s *Session) CloseOrphan() bool {
	return s.live.core.servers.CloseLost(s.live.Chain().Orphan(), false)
}

// EphemeralBytes returns how many bytes of ephemeral paths a client counts.
func (c *Client) EphemeralBytes() int {
	return c.core().ops.Ephemerals.Sum()
}

// CountEphemeralsAnew makes a client ask for them.
func (c *Client) CountEphemeralsAnew() error {
	return c.core().ops.CountEphemerals(context.Background())
}
