package talk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What a server may answer to each token.
func TestExchange(t *testing.T) {
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
				c := of(Config{})
				timer := time.AfterFunc(time.Second, func() { _ = ours.Close() })
				defer timer.Stop()
				err := c.Authenticate(&script.Talker{Last: tt.last}, nil, serverlist.Server{Name: "a", Address: "a"}, ours, ours, 2*time.Second)
				_ = ours.Close()
				if (err == nil) != (tt.text == "") || err != nil && !strings.Contains(err.Error(), tt.text) {
					t.Errorf("error %v", err)
				}
				if errors.Is(err, zkerr.AuthFailed) != tt.refused {
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
		"it is not answered": {token, &script.Recorder{}, "closed the connection", true},
	} {
		c := of(Config{})
		err := c.Authenticate(tt.x, nil, serverlist.Server{Name: "a", Address: "a"}, tt.conn, bytes.NewReader(nil), time.Minute)
		if (err == nil) != (tt.text == "") || err != nil && !strings.Contains(err.Error(), tt.text) || errors.Is(err, zkerr.AuthFailed) != tt.refused || err != nil && !errors.Is(err, zkerr.SASL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var m mechanism
	c := of(Config{SASL: Mechanism{Begin: m.Begin}})
	for _, tt := range []struct {
		x   Exchange
		err error
	}{{nil, nil}, {nil, io.ErrNoProgress}, {exchange(token), io.ErrNoProgress}} {
		m.x, m.err = tt.x, tt.err
		if x, err := c.BeginSASL(t.Context(), nil, serverlist.Server{Name: "a", Address: "b"}, time.Minute); x != nil || !errors.Is(err, zkerr.SASL) || errors.Is(err, io.ErrNoProgress) != (tt.err != nil) {
			t.Errorf("begun with %v, %v: %v", tt.x, tt.err, err)
		}
	}
	m.x, m.err = exchange(token), nil
	if x, err := c.BeginSASL(t.Context(), nil, serverlist.Server{Name: "a", Address: "b"}, time.Minute); x == nil || err != nil || m.to != (serverlist.Server{Name: "a", Address: "b"}) {
		t.Errorf("%v with %v: %v", x, m.to, err)
	}
	if x, err := of(Config{}).BeginSASL(t.Context(), nil, serverlist.Server{}, time.Minute); x != nil || err != nil {
		t.Errorf("without a mechanism: %v, %v", x, err)
	}
}

type mechanism struct {
	x   Exchange
	err error
	to  serverlist.Server
}

func (m *mechanism) Begin(_ context.Context, to serverlist.Server) (Exchange, error) {
	m.to = to
	return m.x, m.err
}

// Whatever a server sends, an exchange ends.
func FuzzSASLAnswers(f *testing.F) {
	f.Add(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: 1}, &wire.Token{Token: []byte("c")}), 2)
	f.Add(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: 1, Err: wire.AuthFailed}), 1)
	f.Fuzz(func(t *testing.T, answers []byte, last int) {
		c := of(Config{})
		x := &script.Talker{Last: last}
		err := c.Authenticate(x, nil, serverlist.Server{Name: "a", Address: "a"}, &script.Recorder{}, bytes.NewReader(answers), time.Minute)
		if err == nil && x.Calls != last {
			t.Errorf("accepted after %d of %d", x.Calls, last)
		}
	})
}
