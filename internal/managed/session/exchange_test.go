package session

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Whatever a server sends, the session is not confirmed before the exchange has
// ended, neither on the first connection of a session nor on a later one.
func FuzzNoSessionWithoutAnExchange(f *testing.F) {
	const mine = 0x1234
	for _, timeout := range []int32{1, 6000, 2 * 3600 * 1000} { // ms
		answer := wire.AppendFrame(nil, &wire.ConnectResponse{Timeout: timeout, SessionID: mine, Password: make([]byte, wire.PasswordSize)})
		for _, id := range []int64{0, 1, mine} {
			for _, known := range []bool{false, true} {
				f.Add(answer, id, known)
				f.Add(append(answer, wire.AppendFrame(nil, &wire.ReplyHeader{Xid: 1}, &wire.Token{})...), id, known)
				f.Add(answer[:len(answer)-2], id, known)
			}
		}
	}
	f.Fuzz(func(t *testing.T, answers []byte, id int64, known bool) {
		s := opening(6 * time.Second)
		s.chain.Begin(&zk.Conn{})
		switch {
		case id == 0:
		case known:
			confirmed(s, id, &script.Recorder{})
		default: // remembered: an exchange is not finished
			answer := wire.AppendFrame(nil, &wire.ConnectResponse{Timeout: 6000, SessionID: id, Password: make([]byte, wire.PasswordSize)})
			l, _ := s.chain.Dial(script.Answers(bytes.NewReader(answer)), servers.Server{Name: "a", Address: "a"}, s.exchanging(&script.Talker{Last: 2}), time.Minute)
			_, _ = l.Read(make([]byte, len(answer)))
			_ = l.Close()
		}
		s.link = nil
		x, accepted := &script.Talker{Last: 2}, false
		authenticate := func(conn net.Conn, r io.Reader, limit time.Duration) error {
			err := s.exchanging(x)(conn, r, limit)
			accepted = err == nil
			return err
		}
		l, _ := s.chain.Dial(script.Answers(bytes.NewReader(answers)), servers.Server{Name: "a", Address: "a"}, authenticate, time.Minute)
		defer l.Close()
		_, _ = io.Copy(io.Discard, onlyReader{l})
		if s.link != nil && (!accepted || x.Calls != 2) {
			t.Errorf("session %#x was confirmed after %d calls of the exchange, accepted %t", s.chain.ID(), x.Calls, accepted)
		}
	})
}

// exchanging returns what authenticates a connection by an exchange.
func (s *Session) exchanging(x talk.Exchange) link.Authenticate {
	return func(conn net.Conn, r io.Reader, limit time.Duration) error {
		return s.servers.Authenticate(x, s.chain.Severed(), servers.Server{Name: "a", Address: "a"}, conn, r, limit)
	}
}

type onlyReader struct{ io.Reader }

// What a link makes of what a server sends before a session is confirmed.
func TestWhatALinkMakesOfAnExchange(t *testing.T) {
	const mine = 0x1234
	connected := func(timeout int32, id int64) []byte {
		return wire.AppendFrame(nil, &wire.ConnectResponse{Timeout: timeout, SessionID: id, Password: make([]byte, wire.PasswordSize)})
	}
	token := func(xid int32, token []byte) []byte {
		return wire.AppendFrame(nil, &wire.ReplyHeader{Xid: xid}, &wire.Token{Token: token})
	}
	for name, tt := range map[string]struct {
		answers   [][]byte
		calls     int // of the exchange
		confirmed bool
		malformed bool
		refused   bool
		expired   bool
		silent    bool // it hung up without an answer
	}{
		"accepted":            {[][]byte{connected(6000, mine), token(1, []byte("c")), token(2, nil)}, 2, true, false, false, false, false},
		"refused":             {[][]byte{connected(6000, mine), wire.AppendFrame(nil, &wire.ReplyHeader{Xid: 1, Err: wire.AuthFailed})}, 1, false, false, true, false, false},
		"malformed":           {[][]byte{connected(6000, mine), token(7, []byte("c"))}, 1, false, true, false, false, false},
		"it ends":             {[][]byte{connected(6000, mine)}, 1, false, false, false, false, false},
		"no answer":           {nil, 0, false, false, false, false, true},
		"half an answer":      {[][]byte{connected(6000, mine)[:20]}, 0, false, false, false, false, false},
		"too short":           {[][]byte{wire.AppendFrame(nil, &wire.ReplyHeader{})}, 0, false, true, false, false, false},
		"too long":            {[][]byte{{0, 0x10, 0, 0}, make([]byte, 200)}, 0, false, true, false, false, false},
		"granted too little":  {[][]byte{connected(1, mine)}, 0, false, true, false, false, false},
		"the session is gone": {[][]byte{connected(6000, 0)}, 0, false, false, false, true, false},
		"another session":     {[][]byte{connected(6000, mine+1)}, 0, false, false, false, true, false},
	} {
		s := opening(6 * time.Second)
		confirmed(s, mine, &script.Recorder{})
		s.link = nil
		x := &script.Talker{Last: 2}
		l, _ := s.chain.Dial(script.Answers(bytes.NewReader(slices.Concat(tt.answers...))), servers.Server{Name: "a", Address: "a"}, s.exchanging(x), time.Minute)
		_, _ = l.Write(wire.AppendFrame(nil, &wire.ConnectRequest{SessionID: mine, Password: make([]byte, wire.PasswordSize)}))
		_, _ = io.Copy(io.Discard, onlyReader{l})
		_ = l.Close()
		why := s.chain.Explain(io.EOF, time.Time{})
		if x.Calls != tt.calls || (s.link != nil) != tt.confirmed || (why.Error() != io.EOF.Error()) != tt.malformed || errors.Is(s.servers.Fault(), zkerr.AuthFailed) != tt.refused || (s.err != nil) != tt.expired || s.hungUp.since.IsZero() == tt.silent {
			t.Errorf("%s: %d calls, confirmed %t, malformed %v, last %v, session %v, hung up %v", name, x.Calls, s.link != nil, why, s.servers.Fault(), s.err, s.hungUp.since)
		}
		s.tasks.Wait()
	}
}
