package framework

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// talker is an exchange that answers each challenge with a token, and is done
// with the response to challenge number last, the first of which is nil.
type talker struct{ last, calls int }

func (x *talker) Next(challenge []byte) ([]byte, bool, error) {
	x.calls++
	if (challenge == nil) != (x.calls == 1) {
		return nil, false, fmt.Errorf("challenge %q at call %d", challenge, x.calls)
	}
	return []byte{}, x.calls == x.last, nil
}

// What a server may answer to each token.
func TestSASLExchange(t *testing.T) {
	token := func(xid int32, token []byte) []byte {
		return wire.AppendFrame(nil, &wire.ReplyHeader{Xid: xid}, &wire.Token{Token: token})
	}
	code := func(xid int32, code wire.Code) []byte {
		return wire.AppendFrame(nil, &wire.ReplyHeader{Xid: xid, Err: code})
	}
	many := make([][]byte, 20)
	for i := range many {
		many[i] = token(int32(i+1), []byte("again"))
	}
	large := append([]byte{0, 1, 0, 20}, make([]byte, 1<<16+20)...)
	for name, tt := range map[string]struct {
		last    int
		answers [][]byte // then the connection ends
		refused bool
		text    string // of the error; empty: none
	}{
		"accepted":                    {2, [][]byte{token(1, []byte("c")), token(2, nil)}, false, ""},
		"accepted, with a last token": {2, [][]byte{token(1, []byte("c")), token(2, []byte("x"))}, false, ""},
		"accepted at once":            {1, [][]byte{token(1, nil)}, false, ""},
		"an empty challenge":          {2, [][]byte{token(1, []byte{}), token(2, nil)}, false, ""},
		"refused with -115":           {2, [][]byte{token(1, []byte("c")), code(2, wire.AuthFailed)}, true, "does not accept"},
		"refused with -124":           {2, [][]byte{code(1, wire.SessionClosedRequire)}, true, "does not accept"},
		"refused by the end":          {2, [][]byte{token(1, []byte("c"))}, true, "closed the connection"},
		"refused by the end, of one":  {1, nil, true, "closed the connection"},
		"the connection ends":         {2, nil, false, "EOF"},
		"another code":                {2, [][]byte{code(1, wire.NoAuth)}, true, "not authenticated"},
		"a null token":                {2, [][]byte{token(1, nil)}, true, "no SASL"},
		"another number":              {2, [][]byte{token(7, []byte("c"))}, false, "number 7"},
		"a notification":              {2, [][]byte{code(-1, wire.OK)}, false, "malformed"},
		"half an answer":              {2, [][]byte{token(1, []byte("challenge"))[:20]}, false, "closed"},
		"an answer without a token":   {2, [][]byte{code(1, wire.OK)}, false, "malformed"},
		"an answer over 64 KiB":       {2, [][]byte{large}, false, "limit"},
		"a length below zero":         {2, [][]byte{{255, 255, 255, 255}}, false, "malformed"},
		"a 17th challenge":            {20, many, false, "more than 16"},
		"a silent server":             {2, [][]byte{nil}, false, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				go func() {
					defer theirs.Close()
					for _, answer := range tt.answers {
						if _, err := wire.ReadFrame(theirs, 100, nil); err != nil {
							return
						}
						if answer == nil {
							_, _ = io.Copy(io.Discard, theirs)
						}
						if _, err := theirs.Write(answer); err != nil {
							return
						}
					}
					if len(tt.answers) < tt.last {
						_, _ = wire.ReadFrame(theirs, 100, nil)
					}
				}()
				c := newCore(config{log: zap.NewNop()}, nil, "")
				timer := time.AfterFunc(time.Second, func() { _ = ours.Close() })
				defer timer.Stop()
				err := c.authenticateSASL(&talker{last: tt.last}, nil, server{name: "a", address: "a"}, ours, ours, 2*time.Second)
				_ = ours.Close()
				if (err == nil) != (tt.text == "") || err != nil && !strings.Contains(err.Error(), tt.text) {
					t.Errorf("error %v", err)
				}
				if errors.Is(err, ErrAuthFailed) != tt.refused {
					t.Errorf("%v counts as a refusal: %v", err, !tt.refused)
				}
			})
		})
	}
}

// exchange is an exchange that has these responses, one after the other.
type exchange func() ([]byte, bool, error)

func (x exchange) Next([]byte) ([]byte, bool, error) { return x() }

type deaf struct{ net.Conn }

func (deaf) Write([]byte) (int, error) { return 0, net.ErrClosed }

// What a mechanism may have no response to, and who is to blame.
func TestAMechanismThatHasNoResponse(t *testing.T) {
	token := func() ([]byte, bool, error) { return []byte("x"), false, nil }
	for name, tt := range map[string]struct {
		x       exchange
		conn    net.Conn
		text    string // of the error; empty: none
		refused bool
	}{
		"it is done":         {func() ([]byte, bool, error) { return nil, true, nil }, deaf{}, "", false},
		"it is not":          {func() ([]byte, bool, error) { return nil, false, nil }, deaf{}, "no response", true},
		"it fails":           {func() ([]byte, bool, error) { return nil, true, io.ErrNoProgress }, deaf{}, io.ErrNoProgress.Error(), true},
		"it cannot be sent":  {token, deaf{}, net.ErrClosed.Error(), false},
		"it is not answered": {token, discard{}, "closed the connection", true},
	} {
		c := newCore(config{log: zap.NewNop()}, nil, "")
		err := c.authenticateSASL(tt.x, nil, server{name: "a", address: "a"}, tt.conn, bytes.NewReader(nil), time.Minute)
		if (err == nil) != (tt.text == "") || err != nil && !strings.Contains(err.Error(), tt.text) || errors.Is(err, ErrAuthFailed) != tt.refused || err != nil && !errors.Is(err, zkerr.SASL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var m mechanism
	c := newCore(config{log: zap.NewNop(), sasl: &m}, nil, "")
	for _, tt := range []struct {
		x   SASLExchange
		err error
	}{{nil, nil}, {nil, io.ErrNoProgress}, {exchange(token), io.ErrNoProgress}} {
		m.x, m.err = tt.x, tt.err
		if x, err := c.beginSASL(t.Context(), nil, server{name: "a", address: "b"}, time.Minute); x != nil || !errors.Is(err, zkerr.SASL) || errors.Is(err, io.ErrNoProgress) != (tt.err != nil) {
			t.Errorf("begun with %v, %v: %v", tt.x, tt.err, err)
		}
	}
	m.x, m.err = exchange(token), nil
	if x, err := c.beginSASL(t.Context(), nil, server{name: "a", address: "b"}, time.Minute); x == nil || err != nil || m.to != (SASLServer{"a", "b"}) {
		t.Errorf("%v with %v: %v", x, m.to, err)
	}
	if x, err := newCore(config{log: zap.NewNop()}, nil, "").beginSASL(t.Context(), nil, server{}, time.Minute); x != nil || err != nil {
		t.Errorf("without a mechanism: %v, %v", x, err)
	}
}

type mechanism struct {
	x   SASLExchange
	err error
	to  SASLServer
}

func (m *mechanism) Begin(_ context.Context, to SASLServer) (SASLExchange, error) {
	m.to = to
	return m.x, m.err
}

// What the answer to a connect means before the connection is authenticated.
func TestOnUnauthenticated(t *testing.T) {
	for name, tt := range map[string]struct {
		id       int64
		earlier  orphan // remembered before
		answer   int64  // the session in it, granted 4s
		goesOn   bool
		fails    bool
		skips    bool // the next attempt comes without a pause
		remember orphan
	}{
		"a new session":              {0, orphan{}, 7, true, false, false, orphan{7, []byte("p"), 4 * time.Second}},
		"the one that is remembered": {0, orphan{7, nil, 3 * time.Second}, 7, true, false, false, orphan{7, []byte("p"), 3 * time.Second}},
		"for longer":                 {0, orphan{7, nil, 5 * time.Second}, 7, true, false, false, orphan{7, []byte("p"), 4 * time.Second}},
		"another one":                {0, orphan{6, nil, 3 * time.Second}, 7, true, false, false, orphan{7, []byte("p"), 4 * time.Second}},
		"it is gone":                 {0, orphan{7, nil, 3 * time.Second}, 0, false, true, true, orphan{}},
		"none":                       {0, orphan{}, 0, false, false, false, orphan{}},
		"the own one":                {7, orphan{}, 7, true, false, false, orphan{}},
		"the own one is gone":        {7, orphan{}, 0, false, false, true, orphan{}},
		"another than the own one":   {7, orphan{}, 8, false, false, false, orphan{}},
	} {
		s := &session{core: newCore(config{log: zap.NewNop()}, nil, ""), id: tt.id, remembered: tt.earlier}
		s.core.pace.rare = time.Second
		goesOn, err := s.onUnauthenticated(wire.ConnectResponse{SessionID: tt.answer, Timeout: 4000, Password: []byte("p")})
		now := s.remembered
		if goesOn != tt.goesOn || (err != nil) != tt.fails || now.id != tt.remember.id || string(now.password) != string(tt.remember.password) || now.timeout != tt.remember.timeout || s.core.pace.skip != tt.skips {
			t.Errorf("%s: %t, %v, remembers %+v, skips a pause %t", name, goesOn, err, now, s.core.pace.skip)
		}
	}
}

// Whatever a server sends, an exchange ends.
func FuzzSASLAnswers(f *testing.F) {
	f.Add(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: 1}, &wire.Token{Token: []byte("c")}), 2)
	f.Add(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: 1, Err: wire.AuthFailed}), 1)
	f.Fuzz(func(t *testing.T, answers []byte, last int) {
		c := newCore(config{log: zap.NewNop()}, nil, "")
		x := &talker{last: last}
		err := c.authenticateSASL(x, nil, server{name: "a", address: "a"}, discard{}, bytes.NewReader(answers), time.Minute)
		if err == nil && x.calls != last {
			t.Errorf("accepted after %d of %d", x.calls, last)
		}
	})
}

type discard struct{ net.Conn }

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// A session that was remembered is named until it has surely expired.
func TestASessionThatHasExpiredIsNotNamed(t *testing.T) {
	const id, timeout = 0x1234, time.Minute
	for ago, want := range map[time.Duration]int64{0: id, timeout * 14 / 10: id, timeout * 16 / 10: 0} {
		s := &session{core: newCore(config{log: zap.NewNop()}, nil, "")}
		s.remembered, s.rememberedAt = orphan{id: id, password: make([]byte, passwordSize), timeout: timeout}, time.Now().Add(-ago)
		connect := s.nameRemembered(make([]byte, connectPassword+passwordSize))
		if got := int64(binary.BigEndian.Uint64(connect[connectSessionID:])); got != want || s.remembered.id != want {
			t.Errorf("after %v: session %#x is named, want %#x", ago, got, want)
		}
	}
}

// Whatever a server sends, the session is not confirmed before the exchange has
// ended, neither on the first connection of a session nor on a later one.
func FuzzNoSessionWithoutAnExchange(f *testing.F) {
	const mine = 0x1234
	for _, timeout := range []int32{1, 6000, 2 * 3600 * 1000} { // ms
		answer := wire.AppendFrame(nil, &wire.ConnectResponse{Timeout: timeout, SessionID: mine, Password: make([]byte, passwordSize)})
		for _, id := range []int64{0, 1, mine} {
			for _, known := range []bool{false, true} {
				f.Add(answer, id, known)
				f.Add(append(answer, wire.AppendFrame(nil, &wire.ReplyHeader{Xid: 1}, &wire.Token{})...), id, known)
				f.Add(answer[:len(answer)-2], id, known)
			}
		}
	}
	f.Fuzz(func(t *testing.T, answers []byte, id int64, known bool) {
		c := newCore(config{sessionTimeout: 6 * time.Second, log: zap.NewNop()}, nil, "")
		s := &session{core: c, over: make(chan struct{}), severed: make(chan struct{}), evidence: evidenceOf(6*time.Second, 600*ms, false)}
		s.hub.session, s.buffers.conn = s, &zk.Conn{}
		if known {
			s.id = id
		} else if id != 0 {
			s.remembered, s.rememberedAt = orphan{id: id, timeout: s.evidence.Timeout()}, time.Now()
		}
		x := &talker{last: 2}
		l := newLink(scripted{Reader: bytes.NewReader(answers)}, s, server{name: "a", address: "a"}, x, time.Minute)
		defer l.Close()
		_, _ = io.Copy(io.Discard, onlyReader{l})
		if s.link != nil && (l.sasl != nil || x.calls != 2) {
			t.Errorf("session %#x was confirmed after %d calls of the exchange", s.id, x.calls)
		}
	})
}

// scripted is a connection that brings what a server has sent.
type scripted struct {
	discard
	io.Reader
}

func (s scripted) Read(p []byte) (int, error) { return s.Reader.Read(p) }
func (scripted) Close() error                 { return nil }
func (scripted) RemoteAddr() net.Addr         { return &net.TCPAddr{} }

type onlyReader struct{ io.Reader }

// changes is a mechanism whose credentials change after so many looks.
type changes struct {
	mechanism
	looks, after int
}

func (m *changes) Changed() bool { m.looks++; return m.looks > m.after }

// While the client is refused the next attempt comes after half a minute to a
// minute, or within a second of a change, which begins a round.
func TestTheTurnOfAClientThatIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		refused     bool
		after       int // looks
		least, most time.Duration
		rare        bool // afterwards
		attempts    refusals
	}{
		"no change":     {true, 1000, 30 * time.Second, time.Minute, true, refusals{1, 2}},
		"a change":      {true, 0, time.Second, time.Second, false, refusals{}},
		"a later one":   {true, 4, 5 * time.Second, 5 * time.Second, false, refusals{}},
		"it is not one": {false, 0, 0, 0, false, refusals{1, 2}},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &changes{after: tt.after}
			c := newCore(config{log: zap.NewNop(), sasl: m}, []string{"a", "b"}, "")
			if c.pace.refusals = (refusals{1, 2}); tt.refused {
				c.pace.rare = longestRefused
			}
			began := time.Now()
			if !c.awaitTurn(nil) {
				t.Errorf("%s: it is not its turn", name)
			}
			if took := time.Since(began); took < tt.least || took > tt.most {
				t.Errorf("%s: after %v", name, took)
			}
			if c.pace.isRefused() != tt.rare || c.pace.refusals != tt.attempts || c.pace.tries != 1 && !tt.rare {
				t.Errorf("%s: refused %t, %+v, %d tries", name, c.pace.isRefused(), c.pace.refusals, c.pace.tries)
			}
			stop := make(chan struct{})
			close(stop)
			if c.pace.rare = time.Hour; c.awaitTurn(stop) {
				t.Errorf("%s: it goes on after the end", name)
			}
			synctest.Wait()
		})
	}
}

// What a link makes of what a server sends before a session is confirmed.
func TestWhatALinkMakesOfAnExchange(t *testing.T) {
	const mine = 0x1234
	connected := func(timeout int32, id int64) []byte {
		return wire.AppendFrame(nil, &wire.ConnectResponse{Timeout: timeout, SessionID: id, Password: make([]byte, passwordSize)})
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
		c := newCore(config{sessionTimeout: 6 * time.Second, log: zap.NewNop()}, nil, "")
		s := &session{core: c, over: make(chan struct{}), severed: make(chan struct{}), evidence: evidenceOf(6*time.Second, 600*ms, false), id: mine}
		s.hub.session, s.buffers.conn = s, &zk.Conn{}
		x := &talker{last: 2}
		l := newLink(scripted{Reader: bytes.NewReader(slices.Concat(tt.answers...))}, s, server{name: "a", address: "a"}, x, time.Minute)
		l.named, l.sentAt = true, time.Now()
		_, _ = io.Copy(io.Discard, onlyReader{l})
		_ = l.Close()
		if x.calls != tt.calls || (s.link != nil) != tt.confirmed || (s.malformed != nil) != tt.malformed || errors.Is(c.fault(), ErrAuthFailed) != tt.refused || (s.err != nil) != tt.expired || s.hungUp.since.IsZero() == tt.silent {
			t.Errorf("%s: %d calls, confirmed %t, malformed %v, last %v, session %v, hung up %v", name, x.calls, s.link != nil, s.malformed, c.fault(), s.err, s.hungUp.since)
		}
		c.tasks.Wait()
	}
}
