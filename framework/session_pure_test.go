package framework

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What a server answers to a connect, and what the session is then.
func TestOnConnectAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		now := time.Now()
		sentAt, before := now.Add(-time.Second), now.Add(-2*time.Second)
		for name, tt := range map[string]struct {
			story    func(s *session)
			id       int64
			proof    Proof
			ok       bool
			err      error
			proven   time.Time
			contacts int
		}{
			"new":                       {func(s *session) { s.id, s.proven = 0, time.Time{} }, 7, ProofSync, true, nil, sentAt, 0},
			"new, by writes":            {func(s *session) { s.id, s.proven = 0, time.Time{} }, 7, ProofWrite, true, nil, sentAt, 0},
			"remembered, by writes":     {func(s *session) { s.id, s.remembered.id, s.proven = 0, 7, time.Time{} }, 7, ProofWrite, true, nil, time.Time{}, 1},
			"again":                     {func(*session) {}, 7, ProofSync, true, nil, sentAt, 0},
			"again, by writes":          {func(*session) {}, 7, ProofWrite, true, nil, before, 1},
			"more was proven meanwhile": {func(s *session) { s.proven = now }, 7, ProofSync, true, nil, now, 0},
			"severed":                   {func(s *session) { s.sever() }, 7, ProofSync, false, nil, before, -1},
			"gone":                      {func(*session) {}, 0, ProofSync, true, errExpired, before, -1},
		} {
			s := sessionAt(now, 4*time.Second, 0)
			s.id, s.useful, s.hungUp.since = 7, true, now
			s.core.cfg.proof, s.core.cfg.serverTick = tt.proof, 1500*ms
			tt.story(s)
			l, old := &link{named: s.id != 0 || s.remembered.id != 0}, s.proof
			ok := s.onConnectAnswer(l, wire.ConnectResponse{SessionID: tt.id, Timeout: 3000, Password: []byte("secret")}, sentAt)
			if ok != tt.ok || !errors.Is(s.err, tt.err) || tt.err == nil && s.err != nil || s.expired != (tt.err != nil) || !s.proven.Equal(tt.proven) {
				t.Errorf("%s: %t, %v, expired %t, proven %v ago", name, ok, s.err, s.expired, now.Sub(s.proven))
			}
			if tt.contacts < 0 {
				if s.proof != old || s.link != nil || s.timeout != 6*time.Second {
					t.Errorf("%s: it counts", name)
				}
				continue
			}
			p := s.proof
			if s.id != 7 || string(s.password) != "secret" || s.timeout != 3*time.Second || s.margin != 300*ms || s.link != l || s.useful || s.hungUp != (hangUps{}) || !s.answered.Equal(now) ||
				p.timeout != 3*time.Second || p.wait != 1500*ms || p.kind != tt.proof || p.trips.longest() != time.Second || len(p.contacts) != tt.contacts {
				t.Errorf("%s: %+v, %+v", name, s, p)
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
		if got := (&session{id: tt.mine}).isAnother(tt.answered); got != tt.want {
			t.Errorf("%d in answer to %d: %t", tt.answered, tt.mine, got)
		}
	}
}

func TestOnAnswer(t *testing.T) {
	start := time.Now()
	l := &link{}
	s := sessionAt(start, 5*time.Second, 0)
	s.link, s.news = l, make(chan struct{})
	s.proof.contacts = []contact{{sent: start, answered: start, reported: 1}}
	s.proof.send(1, wire.OpSync, start)
	s.proof.send(2, wire.OpCloseSession, start)
	s.proof.send(wire.XidPing, wire.OpPing, start)
	s.closeXid = 2
	now := start.Add(100 * ms)
	check := func(step string, answered, proven time.Time, news, woken, confirmed bool) {
		t.Helper()
		if !s.answered.Equal(answered) || !s.proven.Equal(proven) || (s.news == nil) != news || (len(s.wakeup) > 0) != woken || s.closeConfirmed != confirmed {
			t.Errorf("%s: answered %v, proven %v, news %t, woken %t, confirmed %t", step, s.answered, s.proven, s.news == nil, len(s.wakeup) > 0, s.closeConfirmed)
		}
	}
	s.onAnswer(&link{}, 1, false, now)
	check("on another connection", time.Time{}, start.Add(-time.Second), false, false, false)
	s.onAnswer(l, 1, false, now)
	check("a proof", now, start, true, false, false)
	s.onAnswer(l, 2, true, now.Add(1))
	check("a close that is refused", now.Add(1), start, true, false, false)
	s.proof.send(2, wire.OpCloseSession, start)
	s.onAnswer(l, wire.XidPing, false, now.Add(2))
	check("a ping that has overtaken the close", now.Add(2), start, true, true, false)
	<-s.wakeup
	s.onAnswer(l, 2, false, now.Add(3))
	check("a close", now.Add(3), start, true, false, true)
	s.closeConfirmed, s.closeXid = false, 0
	s.proof.send(wire.XidPing, wire.OpPing, start)
	s.onAnswer(l, wire.XidPing, false, now.Add(4))
	check("a ping alone", now.Add(4), start, true, false, false)
	s.onAnswer(l, 0, false, now.Add(5))
	check("number 0, without a close", now.Add(5), start, true, false, false)
	s.proven, s.proof.contacts = now, []contact{{sent: start, answered: start, reported: 1}}
	s.proof.send(3, wire.OpSync, now)
	s.news = make(chan struct{})
	s.onAnswer(l, 3, false, now.Add(6))
	check("an old contact", now.Add(6), now, false, false, false)
}

func TestOnSend(t *testing.T) {
	now := time.Now()
	l := &link{}
	s := sessionAt(now, 5*time.Second, 0)
	s.link = l
	sent := 0
	s.awaitSent("/a", func(on *link) { sent++ })
	for _, tt := range []struct {
		on     *link
		xid    int32
		op     wire.Op
		path   string
		notes  int
		prompt bool
		sent   int
	}{
		{&link{}, 1, wire.OpCreate, "/b", 0, false, 0},
		{l, 2, wire.OpMulti, "/", 1, true, 0},
		{l, 3, wire.OpMulti, "/b", 2, false, 0},
		{l, 4, wire.OpCreate, "/", 3, false, 0},
		{l, 5, wire.OpCreate, "/a", 4, false, 1},
		{l, 6, wire.OpCreate, "/a", 5, false, 1},
		{l, 7, wire.OpCloseSession, "", 6, false, 1},
	} {
		ok := s.onSend(tt.on, tt.xid, tt.op, []byte(tt.path), now)
		if n := len(s.proof.pending); !ok || n != tt.notes || n > 0 && s.proof.pending[n-1].prompt != tt.prompt || sent != tt.sent || s.closeXid != map[bool]int32{true: 7}[tt.xid == 7] {
			t.Errorf("%d: %t, %+v, sent %d, closed by %d", tt.xid, ok, s.proof.pending, sent, s.closeXid)
		}
	}
	older, newer := s.awaitSent("/c", func(*link) {}), s.awaitSent("/c", func(*link) {})
	if s.forgetSent(older); len(s.unsent) != 1 {
		t.Error("who waits for a later write of the same path is forgotten")
	}
	if s.forgetSent(newer); len(s.unsent) != 0 {
		t.Error("a write that was not sent is remembered")
	}
	if s.sever(); s.onSend(l, 8, wire.OpPing, nil, now) || len(s.proof.pending) != 6 {
		t.Error("something is sent for a session that is severed")
	}
}

// conversation is a core whose dialer reaches servers that answer what they are
// told to, one connection after the other. nil: no server is there.
func conversation(latency time.Duration, scripts ...[]wire.Message) (c *core, asked func() [][]byte, limits *[]time.Duration) {
	var mu sync.Mutex // guards frames
	var frames [][]byte
	asked = func() [][]byte {
		mu.Lock()
		defer mu.Unlock()
		return frames
	}
	limits = new([]time.Duration)
	c = &core{closing: make(chan struct{})}
	c.cfg.log = zap.NewNop()
	c.cfg.dial = func(_, _ string, limit time.Duration) (net.Conn, error) {
		time.Sleep(latency)
		n := len(*limits)
		*limits = append(*limits, limit)
		if n >= len(scripts) || scripts[n] == nil {
			return nil, errors.New("no server")
		}
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			frame := make([]byte, 4096)
			size, _ := theirs.Read(frame)
			if size == 0 {
				return // the time was over
			}
			mu.Lock()
			frames = append(frames, frame[:size])
			mu.Unlock()
			time.Sleep(latency)
			for _, answer := range scripts[n] {
				if text, ok := answer.(words); ok {
					_, _ = theirs.Write([]byte(text))
					continue
				}
				_, _ = theirs.Write(wire.AppendFrame(nil, answer))
			}
			_, _ = theirs.Read(frame) // until the other end closes
		}()
		return ours, nil
	}
	return c, asked, limits
}

// words is an answer that is no frame.
type words string

func (words) Append(b []byte) []byte { return b }
func (words) Decode(*wire.Decoder)   {}

// A new session is asked for the latest transaction, and closed.
func TestLatestTransaction(t *testing.T) {
	connected := func(id int64) wire.Message {
		return &wire.ConnectResponse{SessionID: id, Timeout: 4000, Password: []byte("sixteen letters.")}
	}
	answer := func(zxid int64, code wire.Code) wire.Message {
		return &wire.ReplyHeader{Xid: 1, Zxid: zxid, Err: code}
	}
	type script = []wire.Message
	for name, tt := range map[string]struct {
		latency time.Duration
		scripts []script
		zxid    int64
		fails   bool
		dials   int
		took    time.Duration
	}{
		"no server":          {0, []script{nil}, 0, true, 1, 0},
		"an answer":          {0, []script{{connected(7), answer(9, 0)}, {connected(7), answer(10, 0)}}, 9, false, 2, 0},
		"no session":         {0, []script{{connected(0)}}, 0, true, 1, 0},
		"a refusal":          {0, []script{{connected(7), answer(9, wire.NoAuth)}, {connected(7), answer(10, 0)}}, 0, true, 2, 0},
		"silence":            {0, []script{{}}, 0, true, 1, time.Second},
		"no sync":            {0, []script{{connected(7)}, {connected(7), answer(10, 0)}}, 0, true, 2, time.Second},
		"it is not closed":   {0, []script{{connected(7), answer(9, 0)}, {connected(7)}}, 9, false, 2, time.Second},
		"all takes its time": {900 * ms, []script{{connected(7), answer(9, 0)}, {}}, 9, false, 2, 2700 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, asked, limits := conversation(tt.latency, tt.scripts...)
				began := time.Now()
				zxid, err := c.latestTransaction(server{name: "a", address: "a"}, time.Second)
				if zxid != tt.zxid || (err != nil) != tt.fails || time.Since(began) != tt.took {
					t.Errorf("%d, %v, after %v", zxid, err, time.Since(began))
				}
				if len(*limits) != tt.dials || slices.ContainsFunc(*limits, func(d time.Duration) bool { return d != time.Second }) {
					t.Errorf("dialed within %v", *limits)
				}
				time.Sleep(time.Minute) // until the servers have ended
				synctest.Wait()
				for i, frame := range asked() {
					var request wire.ConnectRequest
					if err := wire.Unmarshal(frame[4:4+binary.BigEndian.Uint32(frame)], &request); err != nil || request.Timeout != 1 || request.SessionID != int64(7*i) || len(request.Password) != passwordSize {
						t.Errorf("connect %d: %+v, %v", i, request, err)
					}
				}
			})
		})
	}
}

// Servers that hang up are asked once in T, from T after the first time on, and
// a session ends only if its transactions are later than theirs.
func TestOnHangUp(t *testing.T) {
	connected := &wire.ConnectResponse{SessionID: 9, Timeout: 4000, Password: make([]byte, passwordSize)}
	for name, tt := range map[string]struct {
		id, seen, latest int64
		severed          bool
		asks             []int // how often, in all, after each hang-up
		ends             bool
	}{
		"nobody answers":      {7, 1, 0, false, []int{0, 0, 1, 1, 2}, false},
		"a new session":       {0, 1, 0, false, []int{0, 0, 0, 0, 0}, false},
		"nothing was seen":    {7, 0, 0, false, []int{0, 0, 0, 0, 0}, false},
		"severed":             {7, 1, 0, true, []int{0, 0, 0, 0, 0}, false},
		"the same history":    {7, 5, 5, false, []int{0, 0, 1, 1, 2}, false},
		"an earlier history":  {7, 5, 4, false, []int{0, 0, 1, 1, 1}, true},
		"the first session's": {1, 5, 6, false, []int{0, 0, 1, 1, 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Hour)
				ask := []wire.Message{connected, &wire.ReplyHeader{Xid: 1, Zxid: tt.latest}}
				if tt.latest == 0 {
					ask = []wire.Message{}
				}
				c, asked, _ := conversation(0, ask, ask, ask, ask, ask, ask)
				s := sessionAt(time.Now(), 5*time.Second, 0)
				s.core, s.id = c, tt.id
				if tt.severed {
					s.sever()
				}
				asks := 0
				for i, pause := range []time.Duration{0, 6*time.Second - 1, 1, 6*time.Second - 1, 1} {
					time.Sleep(pause)
					before := s.hungUp.askedAt
					s.onHangUp(server{name: "a", address: "a"}, tt.seen)
					if !s.hungUp.askedAt.Equal(before) {
						asks++
					}
					synctest.Wait()
					if asks != tt.asks[i] || (asks > 0) != (len(asked()) > 0) {
						t.Errorf("hang-up %d: asked %d times, %d connects", i, asks, len(asked()))
					}
				}
				if (s.Err() != nil) != tt.ends || tt.ends && !errors.Is(s.Err(), ErrSessionLost) {
					t.Errorf("session: %v", s.Err())
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// A step of closing a session may take T/3, and 2s at most.
func TestCloseStepTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{3 * time.Second: time.Second, 6 * time.Second: 2 * time.Second, time.Minute: 2 * time.Second} {
		if got := (&session{timeout: timeout}).closeStepTimeout(); got != want {
			t.Errorf("T = %v: %v, want %v", timeout, got, want)
		}
	}
}

// What closes a lost session, and what does not.
func TestCloseRemotely(t *testing.T) {
	connected := func(id int64) wire.Message {
		return &wire.ConnectResponse{SessionID: id, Timeout: 4000, Password: make([]byte, passwordSize)}
	}
	for name, tt := range map[string]struct {
		auths  []auth
		script []wire.Message
		want   error
	}{
		"closed":          {nil, []wire.Message{connected(7), &wire.ReplyHeader{Xid: 1}}, nil},
		"gone already":    {nil, []wire.Message{connected(0)}, nil},
		"another session": {nil, []wire.Message{connected(8), &wire.ReplyHeader{Xid: 1}}, errAnotherSession},
		"another session, whose close is not answered": {nil, []wire.Message{connected(8)}, errAnotherSession},
		"refused":           {nil, []wire.Message{connected(7), &wire.ReplyHeader{Xid: 1, Err: wire.NoAuth}}, wire.NoAuth},
		"with credentials":  {[]auth{{"digest", nil}}, []wire.Message{connected(7), &wire.ReplyHeader{Xid: wire.XidAuth}, &wire.ReplyHeader{Xid: 1}}, nil},
		"silence":           {nil, []wire.Message{}, os.ErrDeadlineExceeded},
		"no answer":         {nil, []wire.Message{connected(7)}, os.ErrDeadlineExceeded},
		"none to the auth":  {[]auth{{"digest", nil}}, []wire.Message{connected(7)}, os.ErrDeadlineExceeded},
		"they are rejected": {[]auth{{"digest", nil}}, []wire.Message{connected(7), &wire.ReplyHeader{Xid: wire.XidAuth, Err: wire.AuthFailed}}, zk.ErrAuthFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _, limits := conversation(0, tt.script)
				c.cfg.auths = tt.auths
				began := time.Now()
				err := c.closeRemotely(t.Context(), server{name: "a", address: "a"}, 7, make([]byte, passwordSize), true, time.Second)
				if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
					t.Error(err)
				}
				if late := errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(name, "not answered"); (time.Since(began) == time.Second) != late || (*limits)[0] != time.Second {
					t.Errorf("after %v, dialed within %v", time.Since(began), *limits)
				}
				synctest.Wait()
			})
		})
	}
}

// What a server is, and what it has, as it says itself or as a try shows.
func TestAskOffer(t *testing.T) {
	connected := &wire.ConnectResponse{SessionID: 7, Timeout: 4000, Password: make([]byte, passwordSize)}
	version := func(text string) []wire.Message { return []wire.Message{words("Zookeeper version: " + text + "\n")} }
	type script = []wire.Message
	for name, tt := range map[string]struct {
		scripts []script
		minor   int
		every   bool
		fails   bool
		took    time.Duration
		dials   int
	}{
		"3.5":            {[]script{version("3.5.9-83df9301aa5c2a5d")}, 5, true, false, 0, 1},
		"3.9":            {[]script{version("3.9.2")}, 9, true, false, 0, 1},
		"2.9":            {[]script{version("2.9.2")}, 0, true, false, 0, 1},
		"4.0":            {[]script{version("4.0.2")}, math.MaxInt, true, false, 0, 1},
		"no server":      {[]script{nil, nil}, 0, false, true, 0, 2},
		"silence":        {[]script{{}, {}}, 0, false, true, 2 * time.Second, 2},
		"no version, it": {[]script{version("x"), {connected, &wire.ReplyHeader{Xid: firstXid}}, {connected, &wire.ReplyHeader{Xid: firstXid}}}, 6, false, false, 0, 3},
		"it is refused":  {[]script{version("x"), {connected, &wire.ReplyHeader{Xid: firstXid, Err: wire.Unimplemented}}, {connected, &wire.ReplyHeader{Xid: firstXid}}}, 0, false, false, 0, 3},
		"not answered":   {[]script{version("x"), {connected}, {connected, &wire.ReplyHeader{Xid: firstXid}}}, 0, false, false, time.Second, 3},
		"not closed":     {[]script{version("x"), {connected, &wire.ReplyHeader{Xid: firstXid}}, {connected}}, 6, false, false, time.Second, 3},
		"no session":     {[]script{version("x"), {&wire.ConnectResponse{}}}, 0, false, true, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _, limits := conversation(0, tt.scripts...)
				began := time.Now()
				minor, every, err := c.askOffer(t.Context(), server{name: "a", address: "a"}, wire.OpMultiRead, time.Second)
				if minor != tt.minor || every != tt.every || (err != nil) != tt.fails || time.Since(began) != tt.took || len(*limits) != tt.dials {
					t.Errorf("3.%d, of every one %t, %v, after %v and %d connections", minor, every, err, time.Since(began), len(*limits))
				}
				for _, limit := range *limits {
					if limit != time.Second {
						t.Errorf("dialed within %v", *limits)
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
			})
		})
	}
}

// A call is left when its caller's context or the session ends. Whoever is told
// then gets the result, and only then.
func TestDetach(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	endless := context.Background()
	for name, tt := range map[string]struct {
		ctx               context.Context
		cancels           bool          // meanwhile
		over, overBehind  bool          // the session: meanwhile, and just before the result
		took              time.Duration // until it returns
		calls, late, fail bool
		detached          bool
	}{
		"a result":                        {t.Context(), false, false, false, time.Second, true, false, false, false},
		"for a context that cannot end":   {endless, false, false, false, time.Second, true, false, false, false},
		"it has ended":                    {ended, false, false, false, 0, false, false, true, false},
		"it ends":                         {t.Context(), true, false, false, 500 * ms, true, true, true, true},
		"the session ends":                {t.Context(), false, true, false, 500 * ms, true, true, true, true},
		"the session ends before":         {t.Context(), false, false, true, time.Second, true, true, true, true},
		"before the end of what does not": {endless, false, false, true, time.Second, true, true, true, true},
	} {
		for _, wanted := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				s := sessionAt(time.Now(), 5*time.Second, 0)
				ctx := tt.ctx
				if ctx != endless && ctx != ended {
					var cancel context.CancelFunc
					ctx, cancel = context.WithCancel(context.Background())
					defer cancel()
					if tt.cancels {
						time.AfterFunc(500*ms, cancel)
					}
				}
				if tt.over {
					time.AfterFunc(500*ms, func() { s.end(ErrSessionLost) })
				}
				called, lates := false, 0
				late := func(v int, err error) {
					if lates++; v != 3 || err != nil {
						t.Errorf("%s: late %d, %v", name, v, err)
					}
				}
				if !wanted {
					late = nil
				}
				began := time.Now()
				v, err := detach(ctx, s, func() (int, error) {
					called = true
					if time.Sleep(time.Second); tt.overBehind {
						s.mu.Lock()
						s.err = ErrSessionLost // and no goroutine has heard of it
						s.mu.Unlock()
					}
					return 3, nil
				}, late)
				took := time.Since(began)
				time.Sleep(time.Minute)
				synctest.Wait()
				if (v == 3) == tt.fail || (err != nil) != tt.fail || isDetached(err) != tt.detached || took != tt.took || called != tt.calls || (lates == 1) != (tt.late && wanted) {
					t.Errorf("%s: %d, %v after %v, called %t, %d late", name, v, err, took, called, lates)
				}
			})
		}
	}
}

// The search for strays ends with the last id, or with the session, and the
// directory is forgotten.
func TestTheSearchForStraysEnds(t *testing.T) {
	for name, end := range map[string]func(s *session, h *straySearch){
		"the last id":      func(_ *session, h *straySearch) { h.ids = nil },
		"of the session":   func(s *session, _ *straySearch) { s.end(ErrSessionLost) },
		"nothing has, yet": nil,
	} {
		s := sessionAt(time.Now(), 5*time.Second, 0)
		h := &straySearch{session: s, dir: "/a", ids: map[string]*stray{"x": {due: time.Now()}}}
		s.straySearches = map[string]*straySearch{"/a": h}
		if end != nil {
			end(s, h)
		}
		if _, ok := h.next(time.Time{}); ok != (end == nil) || (s.straySearches["/a"] == h) != ok {
			t.Errorf("%s: goes on %t, %v", name, ok, s.straySearches)
		}
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
		"there was none":           {nil, 0, false},
		"it came during the call":  {errMalformed, -1, true},
		"it came as the call did":  {errMalformed, 0, true},
		"it came before the call":  {errMalformed, 1, false},
		"there is no session, too": {nil, -1, false},
	} {
		s := sessionAt(now, 5*time.Second, 0)
		s.malformed, s.malformedAt = tt.malformed, now.Add(-tt.age)
		if name == "there is no session, too" {
			s = nil
		}
		if err := s.explain(zk.ErrConnectionClosed, now); !errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, errMalformed) != tt.explains {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The deadline is far ahead from T/3 on.
func TestIsFarAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]bool{2 * time.Second: true, 2*time.Second - 1: false} {
			if got := sessionAt(time.Now(), left, 0).isFarAhead(); got != want {
				t.Errorf("%v left: %t", left, got)
			}
		}
	})
}

// A margin that leaves no time for a round trip is an error at once.
func TestAMarginThatIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for margin, want := range map[time.Duration]error{2 * time.Second: nil, 4 * time.Second: ErrUnproven} {
			s := sessionAt(time.Now(), 5*time.Second, 0)
			s.margin = margin
			if _, err := s.isProvenToLast(); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("a margin of %v: %v", margin, err)
			}
		}
	})
}

// A session is ready if it is connected, and no end of a connection waits to be
// handled. It may connect as itself, until it is severed.
func TestIsReady(t *testing.T) {
	for name, tt := range map[string]struct {
		story func(s *session)
		want  bool
	}{
		"connected":         {func(s *session) { s.up = true }, true},
		"not":               {func(*session) {}, false},
		"an end is unseen":  {func(s *session) { s.up, s.unseenEnds = true, 1 }, false},
		"the session ended": {func(s *session) { s.up = true; s.end(ErrClosed) }, false},
	} {
		s := sessionAt(time.Now(), 5*time.Second, 0)
		if tt.story(s); s.isReady() != tt.want {
			t.Errorf("%s: ready %t", name, !tt.want)
		}
	}
	s := sessionAt(time.Now(), 5*time.Second, 0)
	if !s.mayConnect(0) || s.mostTimeout() != 0 {
		t.Error("a new session")
	}
	s.id = 7
	if !s.mayConnect(7) || s.mostTimeout() != 6*time.Second || s.err != nil {
		t.Error("the same again")
	}
	if s.mayConnect(0) || !errors.Is(s.err, errExpired) {
		t.Errorf("another one: %v", s.err)
	}
	s = sessionAt(time.Now(), 5*time.Second, 0)
	if s.sever(); s.mayConnect(0) || s.err != nil {
		t.Errorf("severed: %v", s.err)
	}
}

// A caller leaves before the request is sent that arms its watch, and after
// that the client reconnects. The watch is removed once it is armed.
func TestAWatchThatIsArmedForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, on := &session{timeout: time.Hour}, &link{}
		h := &s.hub
		h.session = s
		w, _ := h.join(watchKey{watchData, "/a"})
		w.leave()
		h.reset(on)
		h.begin(w, on)
		h.noteArmed(w, 1)
		if u, ok := h.unwanted[w.key]; !ok || u.on != on {
			t.Errorf("to be removed: %v", h.unwanted)
		}
	})
}

// A watch that is armed on the new connection already, or not sent yet, says
// nothing of the earlier one, and does not fire when that is replaced.
func TestWatchesOfTheNewConnectionStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, on := &session{timeout: time.Hour}, &link{}
		h := &s.hub
		h.session = s
		for name, tt := range map[string]struct {
			at    *link
			to    *link
			fires bool
		}{
			"not sent yet":                 {nil, on, false},
			"on the new connection":        {on, on, false},
			"on an earlier one":            {&link{}, on, true},
			"there is no connection":       {on, nil, true},
			"nor was there an earlier one": {nil, nil, true},
		} {
			w, _ := h.join(watchKey{watchData, "/" + name})
			h.begin(w, tt.at)
			if h.reset(tt.to); w.hasFired() != tt.fires {
				t.Errorf("%s: fired %t", name, !tt.fires)
			}
			h.drop(w)
		}
	})
}

// What is sent behind the request that closes the session is left out and
// reported as sent: an error would have the wire client close the connection
// before it has read the last answer.
func TestWritesBehindTheLastRequest(t *testing.T) {
	l := &link{sending: make(chan struct{}, 1), closeSent: true} // a write to its Conn would panic
	if n, err := l.Write(make([]byte, 12)); n != 12 || err != nil {
		t.Errorf("wrote %d bytes: %v", n, err)
	}
}

// Nothing removes watches on a path while one is being armed there, or removed,
// and what a tree asks there waits for the last one that is being armed.
func TestOneRequestAboutAPathAtATime(t *testing.T) {
	var ts trees
	mayRemove := func(want bool) {
		t.Helper()
		if got := ts.beginRemoval("/a"); got != want {
			t.Fatalf("may be removed: %t", got)
		}
	}
	ts.beginOneLocked("/a")
	ts.beginOneLocked("/a")
	mayRemove(false)
	ts.endOne("/a")
	mayRemove(false)
	ts.endOne("/a")
	mayRemove(true)
	if ts.arming["/a"] != 1 {
		t.Error("a removal does not keep a tree waiting")
	}
	ts.endRemoval("/a")
	mayRemove(true)
	ts.endRemoval("/a")

	quiet := make(chan struct{})
	ts.beginOneLocked("/a")
	ts.beginOneLocked("/a")
	ts.at = map[string]*tree{"/a": {quiet: quiet}}
	mayRemove(false)
	for i := range 2 {
		select {
		case <-quiet:
			t.Fatalf("a tree goes on after %d of 2", i)
		default:
		}
		ts.endOne("/a")
	}
	<-quiet
}

// A session that is over is not connected any more.
func TestAConnectionThatComesTooLate(t *testing.T) {
	s, _ := standing()
	s.core.changed = make(chan struct{})
	s.up = false
	s.end(ErrSessionLost)
	if s.onConnected(); s.up || s.core.state != Connecting || s.core.session != nil {
		t.Errorf("up %t, state %v", s.up, s.core.state)
	}
}

// Why there is no connection, when a server has ended one without an answer.
func TestOnNoAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		err       error
		tls       bool
		seen      int64
		has, lack string
	}{
		"we have closed it":      {net.ErrClosed, false, 1, "", "x"},
		"the same, in memory":    {io.ErrClosedPipe, false, 1, "", "x"},
		"it is too late":         {os.ErrDeadlineExceeded, false, 1, "no answer from a at b: i/o timeout", "quorum"},
		"the server has":         {io.EOF, false, 0, "it has no quorum, or has as many connections from this address as it allows (maxClientCnxns), or expects TLS", "lags"},
		"with TLS":               {syscall.ECONNRESET, true, 0, "or refuses the client's certificate", "expects"},
		"after some transaction": {syscall.EPIPE, false, 1, "or expects TLS, or lags behind what this client has seen", "certificate"},
	} {
		s, on := standing()
		s.id, on.to, on.seen = 0, server{name: "a", address: "b"}, tt.seen
		if tt.tls {
			s.core.cfg.tls = func() (*tls.Config, error) { return nil, nil }
		}
		on.onNoAnswer(tt.err)
		text := ""
		if s.core.lastErr != nil {
			text = s.core.lastErr.Error()
		}
		if (text == "") != (tt.has == "") || !strings.Contains(text, tt.has) || strings.Contains(text, tt.lack) || s.hungUp.since.IsZero() == isHangUp(tt.err) {
			t.Errorf("%s: %q, hung up %v", name, text, s.hungUp)
		}
	}
}

// How a follower joins a tree, at each of its phases.
func TestStepIn(t *testing.T) {
	for name, tt := range map[string]struct {
		story   func(ts *trees, tr *tree, f *follower, other *link)
		waits   bool
		joins   bool
		order   uint64
		refused error
	}{
		"armed":               {func(*trees, *tree, *follower, *link) {}, false, true, 9, nil},
		"being armed":         {func(_ *trees, tr *tree, _ *follower, _ *link) { tr.phase = treeArming }, true, true, 0, nil},
		"being removed":       {func(_ *trees, tr *tree, _ *follower, _ *link) { tr.phase = treeRemoving }, true, false, 0, nil},
		"it has failed":       {func(_ *trees, tr *tree, _ *follower, _ *link) { tr.err = errNoTrees }, true, false, 0, nil},
		"another connection":  {func(_ *trees, tr *tree, _ *follower, other *link) { tr.on = other }, true, false, 0, nil},
		"joined, being armed": {func(_ *trees, tr *tree, f *follower, _ *link) { f.tree, tr.phase = tr, treeArming }, true, true, 0, nil},
		"joined, armed":       {func(_ *trees, tr *tree, f *follower, _ *link) { f.tree = tr }, false, true, 5, nil},
		"joined, has failed":  {func(_ *trees, tr *tree, f *follower, _ *link) { f.tree, tr.phase, tr.err = tr, treeGone, zk.ErrNoAuth }, false, true, 0, zk.ErrNoAuth},
		"none may be":         {func(ts *trees, _ *tree, _ *follower, _ *link) { ts.over, ts.at = true, nil }, false, false, 0, errNoTrees},
	} {
		s, on := standing()
		s.order.Store(9)
		tr := &tree{path: "/a", on: on, phase: treeArmed, order: 5, moved: make(chan struct{})}
		f := &follower{path: "/a", on: func(uint64, zk.EventType, string) {}}
		s.trees.at = map[string]*tree{"/a": tr}
		tt.story(&s.trees, tr, f, &link{})
		before := f.tree
		order, moved, err := s.stepIn(f, on)
		told := len(s.trees.told["/a"]) == 1
		if (moved != nil) != tt.waits || (f.tree == tr) != tt.joins || order != tt.order || !errors.Is(err, tt.refused) || told != (tt.joins && before == nil) || (tr.followers == 1) != told {
			t.Errorf("%s: armed at %d, waits %t, joined %t, told %t, %v", name, order, moved != nil, f.tree == tr, told, err)
		}
	}
}

// One answer says of every operation whether the server has it, if it is exact.
// Otherwise each is asked for, and again some time after a failure.
func TestWhatOneAnswerSaysOfOtherOperations(t *testing.T) {
	type answer struct {
		minor int
		every bool
		err   error
	}
	for name, tt := range map[string]struct {
		answer
		has  map[wire.Op]bool // without asking again
		asks int              // in ten seconds less a moment, and after them
		then int
	}{
		"3.4":                {answer{4, true, nil}, map[wire.Op]bool{wire.OpMultiRead: false, wire.OpRemoveWatches: false, wire.OpAddWatch: false}, 1, 1},
		"3.5":                {answer{5, true, nil}, map[wire.Op]bool{wire.OpMultiRead: false, wire.OpRemoveWatches: true, wire.OpAddWatch: false}, 1, 1},
		"3.6":                {answer{6, true, nil}, map[wire.Op]bool{wire.OpMultiRead: true, wire.OpRemoveWatches: true, wire.OpAddWatch: true}, 1, 1},
		"it has this one":    {answer{6, false, nil}, map[wire.Op]bool{wire.OpMultiRead: true}, 1, 1},
		"it cannot be asked": {answer{0, false, zk.ErrNoServer}, map[wire.Op]bool{wire.OpMultiRead: false}, 1, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			var f offers
			asks := 0
			ask := func() (int, bool, error) { asks++; return tt.minor, tt.every, tt.err }
			begin := func(op wire.Op) *offered {
				o := f.begin(op, ask)
				<-o.known
				return o
			}
			for range 2 {
				begin(wire.OpMultiRead)
			}
			for op, yes := range tt.has {
				if o := begin(op); o.yes != yes || asks != 1 {
					t.Errorf("%s: %v %t, asked %d times", name, op, o.yes, asks)
				}
			}
			time.Sleep(offerPause - 1)
			if begin(wire.OpMultiRead); asks != tt.asks {
				t.Errorf("%s: asked %d times at once", name, asks)
			}
			time.Sleep(time.Nanosecond)
			if begin(wire.OpMultiRead); asks != tt.then {
				t.Errorf("%s: asked %d times", name, asks)
			}
			if begin(wire.OpAddWatch); asks != tt.then && tt.every || asks != tt.then+1 && !tt.every {
				t.Errorf("%s: asked %d times for another operation", name, asks)
			}
		})
	}
}

// No two requests of a session have one number, in whatever way they are sent.
func TestNumbersOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, on := standing()
		on.Conn = &recorder{}
		close(on.presented)
		body := &wire.PathRequest{Path: "/a"}
		sent := 0
		for range 3 {
			on.sendBehind(wire.OpSync, body)
			go func() { _, _ = on.ask(context.Background(), wire.OpSync, body) }()
			synctest.Wait()
			if !on.sendTogether(wire.OpSync, []wire.Appender{body, body}, make([]<-chan reply, 2)) {
				t.Error("not sent")
			}
			if sent += 4; len(on.asked.waiting) != sent || s.ownRequests.Load() != uint64(sent) {
				t.Errorf("%d numbers for %d requests", len(on.asked.waiting), sent)
			}
		}
		s.end(ErrSessionLost)
		synctest.Wait()
	})
}
