package link

import (
	"bufio"
	"io"
	"net"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Link is one connection of a session. It is the wire client's net.Conn, and
// the only place that sees all bytes. It
//
//   - enforces the identity of the session: each later connection must name it,
//     and nothing is sent once it is severed. The wire client would otherwise
//     open another session by itself, and execute in it what was queued in this
//     one;
//   - reads the negotiated timeout, the id and the password out of the connect
//     answer: the wire client does not reveal them;
//   - notes when requests were sent and answered, for the proof of contact;
//   - sends requests of its own, which the wire client does not know, and takes
//     their answers out: see own_requests.go;
//   - names in the connect request the latest transaction that any answer of
//     the session has had, so that no read goes back: the wire client knows
//     only its own answers;
//   - closes the connection when it brings an answer that makes no sense;
//   - never reports a failed write. The wire client would then answer the
//     request twice, and hang for good. The connection is closed instead, which
//     the wire client's reading side notices.
//
// The wire client writes one frame per Write, from one goroutine at a time, and
// reads from one goroutine. Requests of ours may leave behind a frame in the
// same write: see SendBehind.
type Link struct {
	net.Conn
	chain        *Chain
	to           servers.Server
	sending      chan struct{} // holds a token while a frame is noted and sent: both have the same order
	behind       []ownRequest  // that leave with the frame that is being sent
	whole        []byte        // memory for that
	asked        asked
	presented    chan struct{} // closed: all credentials were sent
	unpresented  []wire.AuthRequest
	read         *bufio.Reader
	authenticate Authenticate // nil: it is not needed, or the server has accepted it
	limit        time.Duration
	connectTimer *time.Timer // closes the connection unless the connect is answered in time
	connectSent  bool
	sentAt       time.Time // when the connect request was sent; set before any answer can be read
	answeredAt   time.Time // when the answer to it was read; zero: it is read now
	named        bool      // the connect request named a session
	seen         int64     // the latest transaction that the session has seen, as the connect request says
	begun        bool      // the first request was sent; see catchUp
	closeSent    bool      // the request that closes the session was sent
	in           inbound
	zxid         int64 // of the answer that is arriving
	grows        bool  // the wire client's buffer for answers may grow: see wireBuffers
	receiving    bool  // an answer has arrived in part
	unanswered   unanswered
	fault        error // what arrived that makes no sense; nothing is read after it
}

// Authenticate runs an exchange on a connection, by its own requests, until the
// server has accepted the client. r reads what arrives. It must end within
// limit.
type Authenticate func(conn net.Conn, r io.Reader, limit time.Duration) error

// Close closes the connection.
func (l *Link) Close() error {
	l.connectTimer.Stop()
	return l.Conn.Close()
}

// SetReadDeadline does nothing. The wire client would allow two thirds of the
// session timeout for an answer, a large one included. checkClock decides when
// a connection is silent for too long.
func (l *Link) SetReadDeadline(time.Time) error { return nil }

// To returns the server that l leads to, the zero Server if l is nil.
func (l *Link) To() (to servers.Server) {
	if l != nil {
		to = l.to
	}
	return to
}

// Seen returns the transaction that the connect request has named: the latest
// that the session had seen. It may be called once the connection has ended.
func (l *Link) Seen() int64 { return l.seen }

// Waits reports whether a request for an operation waits for its answer, and
// whether no request before it does.
func (l *Link) Waits(op wire.Op) (pending, oldest bool) { return l.unanswered.has(op) }

// Unanswered returns how many requests wait for their answers, without pings.
func (l *Link) Unanswered() int {
	l.unanswered.mu.Lock()
	defer l.unanswered.mu.Unlock()
	return len(l.unanswered.requests)
}

// Ended returns a channel that is closed by End.
func (l *Link) Ended() <-chan struct{} { return l.asked.ended }

// End fails the requests of ours that wait for an answer. It is called when the
// wire client has reported the end of the connection: then all answers were
// delivered.
func (l *Link) End() { l.asked.end() }
