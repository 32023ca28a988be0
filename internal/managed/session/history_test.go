package session

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Hour)
				ask := []wire.Message{script.ConnectedAs(9), &wire.ReplyHeader{Xid: 1, Zxid: tt.latest}}
				if tt.latest == 0 {
					ask = []wire.Message{}
				}
				dial, asked, _ := script.Dialer(0, ask, ask, ask, ask, ask, ask)
				s := sessionAt(time.Now(), 5*time.Second, 0)
				if call(s, servers.Config{Dial: dial}); tt.id != 0 {
					confirmed(s, tt.id, &script.Recorder{})
					s.hungUp.forget()
				}
				if tt.severed {
					s.Sever()
				}
				asks := 0
				for i, pause := range []time.Duration{0, 6*time.Second - 1, 1, 6*time.Second - 1, 1} {
					time.Sleep(pause)
					before := s.hungUp.askedAt
					s.onHangUp(servers.Server{Name: "a", Address: "a"}, tt.seen)
					if !s.hungUp.askedAt.Equal(before) {
						asks++
					}
					synctest.Wait()
					if asks != tt.asks[i] || (asks > 0) != (len(asked()) > 0) {
						t.Errorf("hang-up %d: asked %d times, %d connects", i, asks, len(asked()))
					}
				}
				if (s.Err() != nil) != tt.ends || tt.ends && !errors.Is(s.Err(), zkerr.SessionLost) {
					t.Errorf("session: %v", s.Err())
				}
				time.Sleep(time.Minute)
			})
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
		s := sessionAt(time.Now(), 5*time.Second, 0)
		if tt.tls {
			call(s, servers.Config{TLS: func() (*tls.Config, error) { return nil, nil }})
		}
		s.onNoAnswer(servers.Server{Name: "a", Address: "b"}, tt.seen, tt.err)
		text := ""
		if err := s.servers.Fault(); err != nil {
			text = err.Error()
		}
		if (text == "") != (tt.has == "") || !strings.Contains(text, tt.has) || strings.Contains(text, tt.lack) || s.hungUp.since.IsZero() == zkerr.IsHangUp(tt.err) {
			t.Errorf("%s: %q, hung up %v", name, text, s.hungUp.since)
		}
	}
}

// A server is asked for its history in steps, each of which has the time of a
// step of a close.
func TestTheTimeToAskForTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := standing()
		var within []time.Duration
		call(s, servers.Config{Dial: func(_, _ string, limit time.Duration) (net.Conn, error) {
			within = append(within, limit)
			return nil, io.ErrNoProgress
		}})
		s.askForHistory(servers.Server{Name: "a", Address: "a"}, 1)
		if want := s.StepTimeout(); len(within) == 0 || slices.Min(within) != want || slices.Max(within) != want {
			t.Errorf("dialed within %v, want %v", within, want)
		}
	})
}
