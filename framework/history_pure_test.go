package framework

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// A new session is asked for the latest transaction, and closed.
func TestLatestTransaction(t *testing.T) {
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
		"an answer":          {0, []script{{connectedAs(7), answer(9, 0)}, {connectedAs(7), answer(10, 0)}}, 9, false, 2, 0},
		"no session":         {0, []script{{connectedAs(0)}}, 0, true, 1, 0},
		"a refusal":          {0, []script{{connectedAs(7), answer(9, wire.NoAuth)}, {connectedAs(7), answer(10, 0)}}, 0, true, 2, 0},
		"silence":            {0, []script{{}}, 0, true, 1, time.Second},
		"no sync":            {0, []script{{connectedAs(7)}, {connectedAs(7), answer(10, 0)}}, 0, true, 2, time.Second},
		"it is not closed":   {0, []script{{connectedAs(7), answer(9, 0)}, {connectedAs(7)}}, 9, false, 2, time.Second},
		"all takes its time": {900 * ms, []script{{connectedAs(7), answer(9, 0)}, {}}, 9, false, 2, 2700 * ms},
	} {
		inVirtualTime(t, name, func(t *testing.T) {
			c, asked, limits := conversation(tt.latency, tt.scripts...)
			began := time.Now()
			zxid, err := c.latestTransaction(server{name: "a", address: "a"}, time.Second)
			if zxid != tt.zxid || (err != nil) != tt.fails || time.Since(began) != tt.took {
				t.Errorf("%d, %v, after %v", zxid, err, time.Since(began))
			}
			checkDials(t, *limits, tt.dials)
			time.Sleep(time.Minute) // until the servers have ended
			synctest.Wait()
			for i, frame := range asked() {
				var request wire.ConnectRequest
				if err := wire.Unmarshal(frame[4:4+binary.BigEndian.Uint32(frame)], &request); err != nil || request.Timeout != 1 || request.SessionID != int64(7*i) || len(request.Password) != passwordSize {
					t.Errorf("connect %d: %+v, %v", i, request, err)
				}
			}
		})
	}
}

// Servers that hang up are asked once in T, from T after the first time on, and
// a session ends only if its transactions are later than theirs.
func TestOnHangUp(t *testing.T) {
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
		inVirtualTime(t, name, func(t *testing.T) {
			time.Sleep(time.Hour)
			ask := []wire.Message{connectedAs(9), &wire.ReplyHeader{Xid: 1, Zxid: tt.latest}}
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
		if err := s.core.fault(); err != nil {
			text = err.Error()
		}
		if (text == "") != (tt.has == "") || !strings.Contains(text, tt.has) || strings.Contains(text, tt.lack) || s.hungUp.since.IsZero() == zkerr.IsHangUp(tt.err) {
			t.Errorf("%s: %q, hung up %v", name, text, s.hungUp)
		}
	}
}
