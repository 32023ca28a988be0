package ops

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/offers"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// This file asks the ensemble which ephemeral znodes the session has: before a
// create is refused, and before a large sum is logged.

// countAnew asks the ensemble which ephemeral znodes the session has, and
// reports whether there may be more room: the sum has become less, or a claim
// has given back what it had from a room. What has begun since the question
// counts in any case. If pauses is true it asks three times in a session
// timeout at most: an answer is large.
func (e *ephemerals) countAnew(ctx context.Context, pauses bool) (more bool, err error) {
	s, err := e.client.current()
	if err != nil {
		return false, err
	}
	on, err := s.Offers(ctx, wire.OpGetEphemerals)
	if err != nil {
		return false, s.orNoServer(err)
	}
	e.mu.Lock()
	if under := e.counting; under != nil {
		e.mu.Unlock()
		select {
		case <-under.done:
		case <-ctx.Done():
		}
		return true, nil // try again
	}
	if pauses && time.Since(e.counted) < s.Timeout()/3 {
		e.mu.Unlock()
		return false, nil
	}
	e.beginCountLocked()
	e.mu.Unlock()

	found, err := s.ephemeralPaths(ctx, on)

	e.mu.Lock()
	defer e.unlock()
	err = s.orNoServer(err) // with mu held: the next session has not begun if this one is not over
	return e.endCountLocked(found, err), err
}

// CountEphemerals asks the ensemble which ephemeral znodes the session has, and
// counts these from then on.
func (c *Client) CountEphemerals(ctx context.Context) error {
	_, err := c.ephemerals.countAnew(ctx, false)
	return err
}

// EphemeralBytes returns how many bytes of ephemeral paths are counted.
func (c *Client) EphemeralBytes() int {
	c.ephemerals.mu.Lock()
	defer c.ephemerals.mu.Unlock()
	return c.ephemerals.sum
}

// mostUnsure is how many creates of unknown outcome count before it is asked
// what they have created.
const mostUnsure = 8

// unsureLocked returns the creates of unknown outcome.
func (e *ephemerals) unsureLocked() (all []*claim) {
	for c := range e.claims {
		if c.unsure {
			all = append(all, c)
		}
	}
	return all
}

// resolve asks what creates of unknown outcome have created, so that they do
// not add up. On servers whose sessions have no limit they do not matter.
func (e *ephemerals) resolve() {
	ctx, cancel := context.WithTimeout(context.Background(), e.client.Config.SessionTimeout)
	defer cancel()
	err := Scope{Client: e.client, Budget: Endless()}.Do(ctx, request.NameEphemerals, "/", Repeatable, func(*Attempt) error {
		_, err := e.countAnew(ctx, false)
		return err
	})
	e.mu.Lock()
	defer e.unlock()
	e.resolving = false
	if errors.Is(err, offers.ErrOlder) {
		for _, c := range e.unsureLocked() {
			e.releaseLocked(c)
		}
	}
}

// count is one question for the session's ephemeral znodes.
type count struct {
	done   chan struct{} // closed: it has ended
	before map[string]ephemeral
	unsure []*claim            // before
	news   map[string]struct{} // since then: paths of which it is known whether a znode exists
}

func (e *ephemerals) beginCountLocked() {
	e.counting = &count{done: make(chan struct{}), before: maps.Clone(e.made), unsure: e.unsureLocked(), news: make(map[string]struct{})}
}

// noteLocked notes that more is known of a path than was asked for before.
func (e *ephemerals) noteLocked(path string) {
	if e.counting != nil {
		e.counting.news[path] = struct{}{}
	}
}

// endCountLocked applies the answer, unless err is not nil. It reports whether
// there may be more room.
func (e *ephemerals) endCountLocked(found []string, err error) (more bool) {
	count, sum := e.counting, e.sum
	e.counting = nil
	close(count.done)
	if err != nil {
		return false
	}
	e.counted = time.Now()
	for _, c := range count.unsure {
		more = e.releaseLocked(c) > 0 || more
	}
	for _, path := range found {
		_, late := count.news[path]
		if _, counted := e.made[path]; !counted && !late {
			e.addMadeLocked(path, nil)
		}
		delete(count.before, path)
	}
	for path := range count.before {
		if _, late := count.news[path]; !late {
			e.removeLocked(path)
		}
	}
	return more || e.sum < sum
}

// orNoServer returns zk.ErrNoServer if the session is over, and otherwise err.
func (s *Session) orNoServer(err error) error {
	if s.Err() != nil {
		return zk.ErrNoServer
	}
	return err
}

// ephemeralPaths returns the paths of the session's ephemeral znodes, as of a
// time after the call. on is the connection that there was before.
func (s *Session) ephemeralPaths(ctx context.Context, on *link.Link) ([]string, error) {
	if err := s.sync(ctx, "/"); err != nil { // the member may lag
		return nil, err
	}
	r, err := Call(ctx, s, Request{Op: request.NameEphemerals, Path: "/"}, func(*zk.Conn) (link.Reply, error) {
		return s.Chain().Ask(ctx, on, wire.OpGetEphemerals, &wire.PathRequest{Path: "/"}, link.MostAsked)
	}, nil)
	if err != nil {
		return nil, err
	}
	var found wire.ChildrenResponse
	err = wire.Unmarshal(r.Body, &found)
	return found.Children, err
}

// listsNoEphemerals reports whether the server has a version before 3.6, in
// which the end of a session lists no paths.
func (c *Client) listsNoEphemerals(ctx context.Context) bool {
	s, err := c.current()
	if err == nil {
		_, err = s.Offers(ctx, wire.OpGetEphemerals)
	}
	return errors.Is(err, offers.ErrOlder)
}

// current returns the session that there is.
func (c *Client) current() (*Session, error) {
	if s := c.above.Live(); s != nil {
		return s, nil
	}
	return nil, zk.ErrNoServer
}

// warn logs that the sum is large, unless it is not, or no harm is in that. It
// does so once in a session timeout at most.
func (e *ephemerals) warn() {
	e.mu.Lock()
	again := time.Since(e.looked) < e.client.Config.SessionTimeout
	if !again {
		e.looked = time.Now()
	}
	e.mu.Unlock()
	if again || e.client.isClosing() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.client.Config.SessionTimeout)
	defer cancel()
	_, _ = e.countAnew(ctx, false) // if that fails, the sum is what it may be at most
	off := e.client.listsNoEphemerals(ctx)
	e.mu.Lock()
	sum := e.sum
	e.warned = sum > e.much()
	large := e.warned && !off
	e.mu.Unlock()
	if large {
		e.client.Config.Log.Warn("the paths of this session's ephemeral znodes are long, or many: use several clients, or shorter paths",
			zap.Int("bytes", sum), zap.Int("limit", e.limit()))
	}
}
