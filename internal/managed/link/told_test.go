package link

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Why a connection ends, by what its server has sent and how it has ended.
func TestReasons(t *testing.T) {
	const mine = 7
	confirmed := wire.AppendFrame(nil, &wire.ConnectResponse{Timeout: 6000, SessionID: mine, Password: make([]byte, wire.PasswordSize)})
	gone := wire.AppendFrame(nil, &wire.ConnectResponse{Timeout: 6000, Password: make([]byte, wire.PasswordSize)})
	another := wire.AppendFrame(nil, &wire.ConnectResponse{Timeout: 6000, SessionID: mine + 1, Password: make([]byte, wire.PasswordSize)})
	refuses := func(net.Conn, io.Reader, time.Duration) error { return zkerr.AuthFailed }
	lies := func(net.Conn, io.Reader, time.Duration) error { return zkerr.Malformed }
	late := func(net.Conn, io.Reader, time.Duration) error {
		time.Sleep(time.Hour)
		synctest.Wait() // the timer of the connect has run
		return net.ErrClosed
	}
	slow := func(net.Conn, io.Reader, time.Duration) error {
		time.Sleep(time.Hour)
		synctest.Wait() // the timer of the connect has run
		return supplied.ErrNoResult
	}
	for name, tt := range map[string]struct {
		answers      []byte
		authenticate Authenticate
		end          error
		want         []Reason // only the kinds are compared, and what is wrapped
		expired      bool
		confirmed    bool
	}{
		"no answer":               {nil, nil, io.EOF, []Reason{{NoAnswer, io.EOF}}, false, false},
		"no answer, and a reset":  {nil, nil, syscall.ECONNRESET, []Reason{{NoAnswer, syscall.ECONNRESET}}, false, false},
		"it hangs up":             {confirmed, nil, io.EOF, []Reason{{HungUp, io.EOF}}, false, true},
		"we have closed it":       {confirmed, nil, net.ErrClosed, nil, false, true},
		"no size":                 {[]byte{255, 255, 255, 255}, nil, io.EOF, []Reason{{Malformed, zkerr.Malformed}}, false, false},
		"a refusal":               {confirmed, refuses, io.EOF, []Reason{{Unauthenticated, zkerr.AuthFailed}}, false, false},
		"a malformed exchange":    {confirmed, lies, io.EOF, []Reason{{Malformed, zkerr.Malformed}}, false, false},
		"an exchange too late":    {confirmed, late, io.EOF, []Reason{{Silent, nil}}, false, false},
		"the mechanism hangs":     {confirmed, slow, io.EOF, []Reason{{Silent, nil}, {Unauthenticated, supplied.ErrNoResult}}, false, false},
		"gone, and is not asked":  {gone, nil, io.EOF, []Reason{{HungUp, io.EOF}}, true, false},
		"gone before an exchange": {gone, refuses, io.EOF, []Reason{{Forgotten, nil}, {HungUp, io.EOF}}, true, false},
		"another session":         {another, nil, io.EOF, nil, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, c := chain()
			c.id = mine
			c.Begin(&zk.Conn{})
			l, err := c.Dial(&ending{script.Recorder{}, bytes.NewReader(tt.answers), tt.end}, servers.Server{Name: "a", Address: "a"}, tt.authenticate, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = l.Write(wire.AppendFrame(nil, &wire.ConnectRequest{SessionID: mine, Password: make([]byte, wire.PasswordSize)}))
			_, _ = io.Copy(io.Discard, struct{ io.Reader }{l})
			synctest.Wait()
			if !slices.EqualFunc(s.ended, tt.want, func(a, b Reason) bool { return a.Kind == b.Kind && errors.Is(a.Err, b.Err) }) {
				t.Errorf("%s: %v, want %v", name, s.ended, tt.want)
			}
			if s.expired != tt.expired || (len(s.connected) > 0) != tt.confirmed || c.IsSevered() != (name == "another session") {
				t.Errorf("%s: expired %t, confirmed %v, severed %t", name, s.expired, s.connected, c.IsSevered())
			}
			_ = l.Close()
		})
	}
}

// ending is a connection that brings some answers, and then ends.
type ending struct {
	script.Recorder
	answers io.Reader
	end     error
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.answers.Read(p)
	if err != nil {
		err = e.end
	}
	return n, err
}

// A connect that is not answered in time is told as a silence, and its
// connection is closed.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := chain()
		conn, began := &timed{}, time.Now()
		if _, err := c.Dial(conn, servers.Server{}, nil, time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); conn.closedAt.Sub(began) != time.Second || !slices.Equal(s.ended, []Reason{{Silent, nil}}) {
			t.Errorf("closed after %v, %v", conn.closedAt.Sub(began), s.ended)
		}
	})
}

// timed is a connection that notes when it is closed.
type timed struct {
	script.Recorder
	closedAt time.Time
}

func (c *timed) Close() error {
	c.closedAt = time.Now()
	return nil
}

// What is sent is told before the first byte leaves, with the time before that.
func TestSentIsToldFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, on := standing()
		slow := &slowConn{session: s}
		on.Conn, on.connectSent, on.begun = slow, true, true
		close(on.presented)
		began := time.Now()
		frame := func(xid int32) []byte {
			return wire.AppendFrame(nil, &wire.RequestHeader{Xid: xid, Op: wire.OpSync}, &wire.PathRequest{Path: "/"})
		}
		_, _ = on.Write(frame(1))
		if !slices.Equal(slow.told, []int{1}) || !s.sent[0].at.Equal(began) {
			t.Errorf("a frame: %v told before each write, the first at %v", slow.told, s.sent[0].at.Sub(began))
		}
		on.SendBehind(wire.OpSync, &wire.PathRequest{Path: "/"})
		began = time.Now()
		_, _ = on.Write(frame(2))
		if !slices.Equal(slow.told, []int{1, 3}) || !s.sent[2].at.Equal(began) {
			t.Errorf("two in one write: %v told before each write, the last at %v", slow.told, s.sent[2].at.Sub(began))
		}
		began = time.Now()
		if !on.sendOwn(wire.OpSync, frame(-1001), -1001) || !slices.Equal(slow.told, []int{1, 3, 4}) || !s.sent[3].at.Equal(began) {
			t.Errorf("a request of ours: %v told before each write, the last at %v", slow.told, s.sent[3].at.Sub(began))
		}
	})
}

// slowConn is a connection that takes a second for each write, and notes how
// many requests were told before.
type slowConn struct {
	script.Recorder
	session *session
	told    []int
}

func (c *slowConn) Write(p []byte) (int, error) {
	c.told = append(c.told, len(c.session.sent))
	time.Sleep(time.Second)
	return len(p), nil
}
