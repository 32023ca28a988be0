package framework

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
)

const (
	// closePatience bounds what Close waits for, beyond the request itself.
	closePatience = 5 * time.Second
	// flushPatience bounds the wait for the user's observer and logger.
	flushPatience = time.Second
	// goodbye bounds the wait for the answer to the request that closes a session.
	goodbye = 2 * time.Second
	// burial bounds the search for a server that takes that request.
	burial = 2 * goodbye
)

// shutDown closes a session whose client closes. It is over already, so nobody
// uses it any more; now the ensemble is told.
func (s *session) shutDown() error {
	s.mu.Lock()
	up, id, alive := s.up, s.id, !s.expired && !s.severedYet
	s.mu.Unlock()
	if !up || !alive {
		s.sever()
	}
	s.core.tasks.Go(s.conn.Close) // asks the server to close the session, if it can; takes 3s at most
	patience := time.NewTimer(goodbye)
	defer patience.Stop()
	select {
	case <-s.gone:
	case <-patience.C:
	}
	s.sever()
	s.mu.Lock()
	confirmed := s.closedOK || s.expired || id == 0
	s.mu.Unlock()
	s.core.tasks.Go(s.awaitGone)
	if confirmed || s.buryAtOnce() {
		return nil
	}
	return fmt.Errorf("framework: close: no server took the request to close session %s: its ephemeral znodes go when it expires",
		sessionText(id))
}

// tearDown ends what is left of a session that was lost.
func (s *session) tearDown() {
	s.core.tasks.Go(s.conn.Close)
	s.mu.Lock()
	expired := s.expired
	s.mu.Unlock()
	if !expired {
		s.bury()
	}
	s.awaitGone()
}

// awaitGone waits for the wire client's goroutines. They have no way to be
// stopped for sure: one that stays is counted and left behind.
func (s *session) awaitGone() {
	patience := time.NewTimer(closePatience)
	defer patience.Stop()
	select {
	case <-s.gone:
	case <-patience.C:
		s.core.abandoned(s, "the wire client does not end")
	}
}

// bury closes a session at the ensemble by a small connection of its own, so
// that its ephemeral znodes do not stand in anybody's way until it expires.
//
// Each connection carries nothing but the connect and the close, in one write:
// attaching touches the session, which would keep alive what was to be closed.
// For the same reason it asks for the smallest time-out and does not try often;
// what fails is left to expire.
func (s *session) bury() {
	var servers []server
	for try := range 3 {
		if try > 0 && !s.pause(s.goodbye()/2+rand.N(s.goodbye()/2)) {
			return
		}
		if len(servers) == 0 {
			servers = s.core.roster.all(context.Background(), s.goodbye())
		}
		if len(servers) > 0 && s.closeAt(context.Background(), servers[try%len(servers)]) {
			return
		}
	}
}

// buryAtOnce is bury when the client closes, which has no time to ask one server
// after the other. It reports whether the session is known to be gone. The dialer
// is the user's: that it keeps its time-out is only hoped for.
func (s *session) buryAtOnce() bool {
	ctx, cancel := context.WithTimeout(context.Background(), burial)
	defer cancel()
	servers := s.core.roster.all(ctx, s.goodbye())
	servers = servers[:min(len(servers), 3)]
	results := make(chan bool, len(servers))
	for _, to := range servers {
		s.core.tasks.Go(func() { results <- s.closeAt(ctx, to) })
	}
	for range servers {
		select {
		case gone := <-results:
			if gone {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// goodbye bounds each step of closing a session by a connection of its own.
func (s *session) goodbye() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(s.timeout/3, goodbye)
}

// closeAt closes the session through one server, until ctx ends, and reports
// whether it is known to be gone.
func (s *session) closeAt(ctx context.Context, to server) bool {
	s.mu.Lock()
	id, password := s.id, s.password
	s.mu.Unlock()
	if id == 0 {
		return true
	}
	err := s.core.closeRemotely(ctx, to, id, password, s.goodbye())
	if err != nil {
		s.core.cfg.log.Debug("cannot close a session", zap.String("session", sessionText(id)),
			zap.Stringer("server", to), zap.Error(err))
	}
	return err == nil
}

// pause waits for d, and reports false when the client closes first.
func (s *session) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.core.closing:
		return false
	case <-timer.C:
		return true
	}
}

var errBadAnswer = errors.New("unexpected answer")

// closeRemotely attaches to the session at a server and closes it, all in one
// write. It returns nil once the session is known to be gone.
func (c *core) closeRemotely(ctx context.Context, to server, id int64, password []byte, limit time.Duration) error {
	conn, err := c.open("tcp", to, limit)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if _, err := conn.Write(attachAndClose(id, password)); err != nil {
		return err
	}
	head, err := readFrame(conn, connectAnswerHead)
	if err != nil {
		return err
	}
	answer, ok := parseConnectAnswer(head)
	switch {
	case !ok:
		return errBadAnswer
	case answer.id == 0:
		return nil // gone already
	case answer.id != id:
		return errBadAnswer
	}
	if head, err = readFrame(conn, frameAnswerHead); err != nil {
		return err
	}
	if len(head) < frameAnswerHead || binary.BigEndian.Uint32(head[frameErr:]) != 0 {
		return errBadAnswer
	}
	return nil
}

// attachAndClose is a connect request for a session, and the request that
// closes it, as they stand on the wire.
func attachAndClose(id int64, password []byte) []byte {
	const shortest = 1 // ms: the server makes it the least that it allows
	b := make([]byte, 0, 4+28+16+4+8)
	b = binary.BigEndian.AppendUint32(b, uint32(28+len(password)))
	b = binary.BigEndian.AppendUint32(b, 0) // protocol version
	b = binary.BigEndian.AppendUint64(b, 0) // last zxid seen
	b = binary.BigEndian.AppendUint32(b, shortest)
	b = binary.BigEndian.AppendUint64(b, uint64(id))
	b = binary.BigEndian.AppendUint32(b, uint32(len(password)))
	b = append(b, password...)
	op := int32(opCloseSession)
	b = binary.BigEndian.AppendUint32(b, 8)
	b = binary.BigEndian.AppendUint32(b, 1) // xid
	return binary.BigEndian.AppendUint32(b, uint32(op))
}

// readFrame reads one frame, and gives at most the first most bytes of it, the
// length field included.
func readFrame(r io.Reader, most int) ([]byte, error) {
	head := make([]byte, 4, most)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(head)))
	if size < 0 || size > 4096 {
		return nil, errBadAnswer
	}
	n := min(4+size, most)
	if _, err := io.ReadFull(r, head[4:n]); err != nil {
		return nil, err
	}
	_, err := io.CopyN(io.Discard, r, int64(4+size-n))
	return head[:n], err
}
