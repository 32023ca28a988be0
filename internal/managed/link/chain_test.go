package link

import (
	"context"
	"encoding/binary"
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
	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What a server answers to a connect, and what the chain tells of it.
func TestOnConnectAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		sentAt := now.Add(-time.Second)
		for name, tt := range map[string]struct {
			story   func(c *Chain, l *Link)
			id      int64
			ok      bool
			expired bool
			isNew   bool
			at      time.Time // when it was answered, as it is told
		}{
			"new":                  {func(c *Chain, _ *Link) { c.id = 0 }, 7, true, false, true, now},
			"remembered":           {func(c *Chain, l *Link) { c.id, c.remembered.ID, l.named = 0, 7, true }, 7, true, false, false, now},
			"again":                {func(_ *Chain, l *Link) { l.named = true }, 7, true, false, false, now},
			"before an exchange":   {func(_ *Chain, l *Link) { l.named, l.answeredAt = true, sentAt }, 7, true, false, false, sentAt},
			"severed":              {func(c *Chain, _ *Link) { c.Sever() }, 7, false, false, false, time.Time{}},
			"gone":                 {func(*Chain, *Link) {}, 0, true, true, false, time.Time{}},
			"gone, and is severed": {func(c *Chain, _ *Link) { c.Sever() }, 0, true, true, false, time.Time{}},
		} {
			s, c := chain()
			c.id = 7
			l := &Link{}
			tt.story(c, l)
			ok := c.onConnectAnswer(l, wire.ConnectResponse{SessionID: tt.id, Timeout: 3000, Password: []byte("secret")}, sentAt)
			if ok != tt.ok || s.expired != tt.expired {
				t.Errorf("%s: %t, expired %t", name, ok, s.expired)
			}
			if tt.at.IsZero() {
				if c.latest != nil || len(s.connected) > 0 || c.timeout != 6*time.Second {
					t.Errorf("%s: it counts", name)
				}
				continue
			}
			if o := c.Orphan(); o.ID != 7 || string(o.Password) != "secret" || o.Timeout != 3*time.Second || c.Latest() != l || !c.LastAnswer().Equal(now) {
				t.Errorf("%s: %+v", name, o)
			}
			if want := []connected{{l, 3 * time.Second, tt.isNew, sentAt, tt.at}}; !slices.Equal(s.connected, want) {
				t.Errorf("%s: told %+v, want %+v", name, s.connected, want)
			}
		}
	})
}

// Whose session an answer is.
func TestIsAnother(t *testing.T) {
	for _, tt := range []struct {
		mine, answered int64
		want           bool
	}{{0, 7, false}, {7, 7, false}, {7, 0, false}, {7, 8, true}} {
		if got := (&Chain{id: tt.mine}).isAnother(tt.answered); got != tt.want {
			t.Errorf("%d in answer to %d: %t", tt.answered, tt.mine, got)
		}
	}
}

// Only the end of the connection on which a close was sent may stand for its
// answer, and only if the server has ended it in order.
func TestOnEnd(t *testing.T) {
	for _, tt := range []struct {
		stale  bool // an earlier connection ends
		closes bool
		err    error
		want   bool
	}{
		{false, true, io.EOF, true},
		{false, true, syscall.ECONNRESET, false},
		{false, true, net.ErrClosed, false},
		{false, false, io.EOF, false},
		{true, true, io.EOF, false},
		{true, false, io.EOF, false},
	} {
		l := &Link{}
		_, c := chain()
		c.latest = l
		if tt.stale {
			c.latest = &Link{}
		}
		if tt.closes {
			c.closeXid = 1
		}
		if c.onEnd(l, tt.err); c.closeEnded != tt.want {
			t.Errorf("%+v: %t", tt, c.closeEnded)
		}
	}
}

// Only answers on the latest connection count, and only one to the request that
// closes the session confirms that.
func TestOnAnswer(t *testing.T) {
	s, c, l := standing()
	c.closeXid = 2
	now := time.Now()
	check := func(step string, answered time.Time, told int, confirmed bool) {
		t.Helper()
		if got, _ := c.Closing(); !c.LastAnswer().Equal(answered) || len(s.answered) != told || got != confirmed {
			t.Errorf("%s: answered %v, told %d, confirmed %t", step, c.LastAnswer(), s.answered, got)
		}
	}
	c.onAnswer(&Link{}, 2, false, now)
	check("on another connection", time.Time{}, 0, false)
	c.onAnswer(l, 1, false, now)
	check("another request", now, 1, false)
	c.onAnswer(l, 2, true, now.Add(1))
	check("a close that is refused", now.Add(1), 2, false)
	c.onAnswer(l, wire.XidPing, false, now.Add(2))
	check("a ping that has overtaken the close", now.Add(2), 3, false)
	c.onAnswer(l, 2, false, now.Add(3))
	check("a close", now.Add(3), 4, true)
	c.closeConfirmed, c.closeXid = false, 0
	c.onAnswer(l, 0, false, now.Add(4))
	check("number 0, without a close", now.Add(4), 5, false)
}

// What is told of a request before it is sent.
func TestOnSend(t *testing.T) {
	s, c, l := standing()
	now, told := time.Now(), 0
	c.AwaitSent("/a", func(*Link) { told++ })
	for _, tt := range []struct {
		on    *Link
		xid   int32
		op    wire.Op
		path  string
		check bool
		told  int
	}{
		{&Link{}, 1, wire.OpCreate, "/b", false, 0},
		{l, 2, wire.OpMulti, "/", true, 0},
		{l, 3, wire.OpMulti, "/b", false, 0},
		{l, 4, wire.OpCreate, "/", false, 0},
		{l, 5, wire.OpCreate, "/a", false, 1},
		{l, 6, wire.OpCreate, "/a", false, 1},
		{l, 7, wire.OpCloseSession, "", false, 1},
	} {
		s.sent = nil
		ok := c.onSend(tt.on, tt.xid, tt.op, []byte(tt.path), now)
		if want := []sent{{tt.on, tt.xid, tt.check, now}}; !ok || !slices.Equal(s.sent, want) || told != tt.told || c.closeXid != map[bool]int32{true: 7}[tt.xid == 7] {
			t.Errorf("%d: %t, %+v, told %d, closed by %d", tt.xid, ok, s.sent, told, c.closeXid)
		}
	}
	older, newer := c.AwaitSent("/c", func(*Link) {}), c.AwaitSent("/c", func(*Link) {})
	if c.ForgetSent(older); len(c.unsent) != 1 {
		t.Error("who waits for a later write of the same path is forgotten")
	}
	if c.ForgetSent(newer); len(c.unsent) != 0 {
		t.Error("a write that was not sent is remembered")
	}
	if c.Sever(); c.onSend(l, 8, wire.OpPing, nil, time.Now()) || len(s.sent) != 1 {
		t.Error("something is sent for a session that is severed")
	}
}

// A session may connect as itself, until it is severed.
func TestMayConnect(t *testing.T) {
	s, c := chain()
	if !c.mayConnect(0) || c.mostTimeout() != 0 {
		t.Error("a new session")
	}
	c.id = 7
	if !c.mayConnect(7) || c.mostTimeout() != 6*time.Second || s.expired {
		t.Error("the same again")
	}
	if c.mayConnect(0) || !s.expired {
		t.Error("another one")
	}
	s, c = chain()
	if c.Sever(); c.mayConnect(0) || s.expired {
		t.Error("severed")
	}
}

// What the answer to a connect means before the connection is authenticated.
func TestOnUnauthenticated(t *testing.T) {
	for name, tt := range map[string]struct {
		id       int64
		earlier  servers.Orphan // remembered before
		answer   int64          // the session in it, granted 4s
		goesOn   bool
		fails    bool
		skips    bool // the next attempt comes without a pause
		remember servers.Orphan
	}{
		"a new session":              {0, servers.Orphan{}, 7, true, false, false, servers.Orphan{ID: 7, Password: []byte("p"), Timeout: 4 * time.Second}},
		"the one that is remembered": {0, servers.Orphan{ID: 7, Password: nil, Timeout: 3 * time.Second}, 7, true, false, false, servers.Orphan{ID: 7, Password: []byte("p"), Timeout: 3 * time.Second}},
		"for longer":                 {0, servers.Orphan{ID: 7, Password: nil, Timeout: 5 * time.Second}, 7, true, false, false, servers.Orphan{ID: 7, Password: []byte("p"), Timeout: 4 * time.Second}},
		"another one":                {0, servers.Orphan{ID: 6, Password: nil, Timeout: 3 * time.Second}, 7, true, false, false, servers.Orphan{ID: 7, Password: []byte("p"), Timeout: 4 * time.Second}},
		"it is gone":                 {0, servers.Orphan{ID: 7, Password: nil, Timeout: 3 * time.Second}, 0, false, true, true, servers.Orphan{}},
		"none":                       {0, servers.Orphan{}, 0, false, false, false, servers.Orphan{}},
		"the own one":                {7, servers.Orphan{}, 7, true, false, false, servers.Orphan{}},
		"the own one is gone":        {7, servers.Orphan{}, 0, false, false, true, servers.Orphan{}},
		"another than the own one":   {7, servers.Orphan{}, 8, false, false, false, servers.Orphan{}},
	} {
		s, c := chain()
		c.id, c.remembered = tt.id, tt.earlier
		goesOn, err := c.onUnauthenticated(&Link{}, wire.ConnectResponse{SessionID: tt.answer, Timeout: 4000, Password: []byte("p")})
		now, skips := c.remembered, slices.Contains(s.ended, Reason{Forgotten, nil})
		if goesOn != tt.goesOn || (err != nil) != tt.fails || now.ID != tt.remember.ID || string(now.Password) != string(tt.remember.Password) || now.Timeout != tt.remember.Timeout || skips != tt.skips {
			t.Errorf("%s: %t, %v, remembers %+v, skips a pause %t", name, goesOn, err, now, skips)
		}
	}
}

// A session that was remembered is named until it has surely expired.
func TestASessionThatHasExpiredIsNotNamed(t *testing.T) {
	const id, timeout = 0x1234, time.Minute
	for ago, want := range map[time.Duration]int64{0: id, timeout * 14 / 10: id, timeout * 16 / 10: 0} {
		_, c := chain()
		c.remembered, c.rememberedAt = servers.Orphan{ID: id, Password: make([]byte, wire.PasswordSize), Timeout: timeout}, time.Now().Add(-ago)
		connect := c.nameRemembered(make([]byte, connectPassword+wire.PasswordSize))
		if got := int64(binary.BigEndian.Uint64(connect[connectSessionID:])); got != want || c.remembered.ID != want {
			t.Errorf("after %v: session %#x is named, want %#x", ago, got, want)
		}
	}
}

// A server that has opened another session has a step's time to close it.
func TestTheTimeToCloseAnotherSession(t *testing.T) {
	for _, limit := range []time.Duration{time.Second, talk.MaxStep, 2 * talk.MaxStep} {
		synctest.Test(t, func(t *testing.T) {
			_, c, _ := standing()
			conn, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			on := newLink(conn, c, servers.Server{}, nil, limit)
			on.connectTimer.Stop()
			began := time.Now()
			if err := on.closeAnother(); !errors.Is(err, zkerr.AnotherSession) || time.Since(began) != min(limit, talk.MaxStep) || !c.IsSevered() {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			_ = theirs.Close()
		})
	}
}

// Nothing is sent on a connection that is severed, or behind the request that
// closes the session.
func TestNothingIsSentBehindTheEnd(t *testing.T) {
	frame := wire.AppendFrame(nil, &wire.RequestHeader{Xid: 5, Op: wire.OpDelete}, &wire.PathRequest{Path: "/a"})
	sync := &wire.PathRequest{Path: "/a"}
	for name, end := range map[string]func(c *Chain, on *Link){
		"severed": func(c *Chain, _ *Link) { c.Sever() },
		"closed":  func(_ *Chain, on *Link) { on.closeSent = true },
	} {
		s, c, on := standing()
		conn := &script.Recorder{}
		on.Conn, on.connectSent, on.connectTimer = conn, true, time.NewTimer(time.Hour)
		close(on.presented)
		end(c, on)
		if _, err := on.ask(t.Context(), wire.OpSync, sync); !errors.Is(err, zk.ErrNoServer) {
			t.Errorf("%s: a request of ours: %v", name, err)
		}
		for _, p := range [][]byte{frame, frame[:6]} {
			if n, err := on.Write(p); n != len(p) || err != nil {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		}
		if len(conn.Written) > 0 || len(s.sent) > 0 || conn.Closed.Load() != (name == "severed") {
			t.Errorf("%s: %q is written, closed %t", name, conn.Written, conn.Closed.Load())
		}
	}
	// It is severed between a frame and what was to follow it.
	_, c, on := standing()
	on.SendBehind(wire.OpSync, sync)
	on.SendBehind(wire.OpSync, sync)
	c.Sever()
	if got := on.withBehind(frame); !slices.Equal(got, frame) || len(on.behind) > 0 {
		t.Errorf("behind a frame: %q", got[len(frame):])
	}
	on.End()
	if on.SendBehind(wire.OpSync, sync) != nil || len(on.behind) > 0 {
		t.Error("something is to be sent that nobody will answer")
	}
}

// The loss of a connection is explained by the latest malformed answer, unless
// that came before the call began.
func TestExplain(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		malformed error
		age       time.Duration // of the answer, when the call began
		explains  bool
	}{
		"there was none":          {nil, 0, false},
		"it came during the call": {zkerr.Malformed, -1, true},
		"it came as the call did": {zkerr.Malformed, 0, true},
		"it came before the call": {zkerr.Malformed, 1, false},
	} {
		_, c := chain()
		c.malformed, c.malformedAt = tt.malformed, now.Add(-tt.age)
		if err := c.Explain(zk.ErrConnectionClosed, now); !errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zkerr.Malformed) != tt.explains {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What waits ends with its context, with the connection and with the session,
// whichever it is, and says so.
func TestWhatEndsAWait(t *testing.T) {
	missed, body := zk.ErrNoServer, &wire.PathRequest{Path: "/a"}
	for name, tt := range map[string]struct {
		wait                  func(ctx context.Context, c *Chain, on *Link) error
		byCtx, byLink, bySess error // nil: that does not end it
	}{
		"credentials": {func(ctx context.Context, _ *Chain, on *Link) error {
			_, err := on.ask(ctx, wire.OpSync, body)
			return err
		}, missed, missed, missed},
		"a turn to send": {func(_ context.Context, _ *Chain, on *Link) error {
			close(on.presented)
			on.sending <- struct{}{}
			_, err := on.ask(context.Background(), wire.OpSync, body)
			return err
		}, nil, missed, nil},
		"requests in one piece": {func(_ context.Context, c *Chain, on *Link) (err error) {
			c.AskTogether(on, wire.OpSync, []wire.Appender{body}, func(_ int, _ Reply, e error) { err = e })
			return err
		}, nil, missed, missed},
		"an answer": {func(_ context.Context, _ *Chain, on *Link) error {
			_, err := on.Await(make(chan Reply))
			return err
		}, nil, nil, zk.ErrConnectionClosed},
	} {
		for by, want := range map[string]error{"its context": tt.byCtx, "the connection": tt.byLink, "the session": tt.bySess} {
			if want == nil {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				s, c, on := standing()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				errs := make(chan error, 1)
				go func() { errs <- tt.wait(ctx, c, on) }()
				if synctest.Wait(); len(errs) > 0 {
					t.Fatalf("%s: it does not wait: %v", name, <-errs)
				}
				switch by {
				case "its context":
					cancel()
				case "the connection":
					on.End()
				case "the session":
					s.end()
				}
				if synctest.Wait(); len(errs) == 0 {
					t.Errorf("%s: %s has ended, and it still waits", name, by)
				} else if err := <-errs; !errors.Is(err, want) {
					t.Errorf("%s: after the end of %s %v, want %v", name, by, err, want)
				}
				s.end()
				on.End()
				time.Sleep(time.Hour)
			})
		}
	}
}

// Without a connection that may be used nothing is asked.
func TestNothingIsAskedWithoutAConnection(t *testing.T) {
	for name, end := range map[string]func(s *session, c *Chain){
		"it may not be used":  func(s *session, _ *Chain) { s.down = true },
		"there is none":       func(_ *session, c *Chain) { c.latest = nil },
		"there is a next one": func(_ *session, c *Chain) { c.latest = &Link{} },
		"it has ended":        func(_ *session, c *Chain) { c.latest.End() },
		"the session is over": func(s *session, _ *Chain) { s.end() },
	} {
		s, c, on := standing()
		on.Conn = &script.Recorder{}
		end(s, c)
		body := &wire.PathRequest{Path: "/a"}
		if _, err := c.Ask(t.Context(), on, wire.OpSync, body, 0); !errors.Is(err, zk.ErrNoServer) {
			t.Errorf("%s: a request: %v", name, err)
		}
		n := 0
		c.AskTogether(on, wire.OpSync, []wire.Appender{body, body, body}, func(i int, _ Reply, err error) {
			if i != n || !errors.Is(err, zk.ErrNoServer) {
				t.Errorf("%s: request %d is %d: %v", name, n, i, err)
			}
			n++
		})
		if n != 3 || len(on.asked.waiting) > 0 || on.Unanswered() > 0 || len(s.sent) > 0 {
			t.Errorf("%s: %d of 3 have failed, %d wait, %v is sent", name, n, len(on.asked.waiting), s.sent)
		}
	}
}
