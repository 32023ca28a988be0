package servers

import (
	"encoding/binary"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What a server is, and what it has, as it says itself or as a try shows.
func TestAskOffer(t *testing.T) {
	connected := script.ConnectedAs(7)
	version := func(text string) []wire.Message {
		return []wire.Message{script.Words("Zookeeper version: " + text + "\n")}
	}
	type frames = []wire.Message
	read, closed := &wire.ReplyHeader{Xid: talk.FirstXid}, frames{connected, &wire.ReplyHeader{Xid: talk.FirstXid}}
	tried := func(code wire.Code) wire.Message { return &wire.ReplyHeader{Xid: talk.FirstXid + 1, Err: code} }
	for name, tt := range map[string]struct {
		scripts []frames
		minor   int
		every   bool
		fails   bool
		took    time.Duration
		dials   int
	}{
		"3.5":               {[]frames{version("3.5.9-83df9301aa5c2a5d")}, 5, true, false, 0, 1},
		"3.9":               {[]frames{version("3.9.2")}, 9, true, false, 0, 1},
		"2.9":               {[]frames{version("2.9.2")}, 0, true, false, 0, 1},
		"4.0":               {[]frames{version("4.0.2")}, math.MaxInt, true, false, 0, 1},
		"no server":         {[]frames{nil, nil}, 0, false, true, 0, 2},
		"silence":           {[]frames{{}, {}}, 0, false, true, 2 * time.Second, 2},
		"no version, it":    {[]frames{version("x"), {connected, read, tried(wire.OK)}, closed}, 6, false, false, 0, 3},
		"it may not":        {[]frames{version("x"), {connected, read, tried(wire.NoAuth)}, closed}, 6, false, false, 0, 3},
		"it is refused":     {[]frames{version("x"), {connected, read, tried(wire.Unimplemented)}, closed}, 0, false, false, 0, 3},
		"it ends":           {[]frames{version("x"), {connected, read, script.HangsUp}, closed}, 0, false, false, 0, 3},
		"it ends too early": {[]frames{version("x"), {connected, script.HangsUp}, closed}, 0, false, true, time.Second, 3},
		"throttled":         {[]frames{version("x"), {connected, read, tried(wire.Throttled)}, closed}, 0, false, true, 0, 3},
		"not answered":      {[]frames{version("x"), {connected}, closed}, 0, false, true, time.Second, 3},
		"not closed":        {[]frames{version("x"), {connected, read, tried(wire.OK)}, {connected}}, 6, false, false, time.Second, 3},
		"no session":        {[]frames{version("x"), {&wire.ConnectResponse{}}}, 0, false, true, 0, 2},
	} {
		inVirtualTime(t, name, func(t *testing.T) {
			dial, _, limits := script.Dialer(0, tt.scripts...)
			c := of(Config{Dial: dial})
			began := time.Now()
			minor, every, err := c.askOffer(t.Context(), Server{Name: "a", Address: "a"}, wire.OpMultiRead, time.Second)
			if minor != tt.minor || every != tt.every || (err != nil) != tt.fails || time.Since(began) != tt.took {
				t.Errorf("3.%d, of every one %t, %v, after %v", minor, every, err, time.Since(began))
			}
			checkDials(t, *limits, tt.dials)
			time.Sleep(time.Minute)
			synctest.Wait()
		})
	}
}

// A new session is asked for the latest transaction, and closed.
func TestLatestTransaction(t *testing.T) {
	answer := func(zxid int64, code wire.Code) wire.Message {
		return &wire.ReplyHeader{Xid: 1, Zxid: zxid, Err: code}
	}
	type frames = []wire.Message
	for name, tt := range map[string]struct {
		latency time.Duration
		scripts []frames
		zxid    int64
		fails   bool
		dials   int
		took    time.Duration
	}{
		"no server":          {0, []frames{nil}, 0, true, 1, 0},
		"an answer":          {0, []frames{{script.ConnectedAs(7), answer(9, 0)}, {script.ConnectedAs(7), answer(10, 0)}}, 9, false, 2, 0},
		"no session":         {0, []frames{{script.ConnectedAs(0)}}, 0, true, 1, 0},
		"a refusal":          {0, []frames{{script.ConnectedAs(7), answer(9, wire.NoAuth)}, {script.ConnectedAs(7), answer(10, 0)}}, 0, true, 2, 0},
		"silence":            {0, []frames{{}}, 0, true, 1, time.Second},
		"no sync":            {0, []frames{{script.ConnectedAs(7)}, {script.ConnectedAs(7), answer(10, 0)}}, 0, true, 2, time.Second},
		"it is not closed":   {0, []frames{{script.ConnectedAs(7), answer(9, 0)}, {script.ConnectedAs(7)}}, 9, false, 2, time.Second},
		"all takes its time": {900 * time.Millisecond, []frames{{script.ConnectedAs(7), answer(9, 0)}, {}}, 9, false, 2, 2700 * time.Millisecond},
	} {
		inVirtualTime(t, name, func(t *testing.T) {
			dial, asked, limits := script.Dialer(tt.latency, tt.scripts...)
			c := of(Config{Dial: dial})
			began := time.Now()
			zxid, err := c.LatestTransaction(Server{Name: "a", Address: "a"}, 0, time.Second)
			if zxid != tt.zxid || (err != nil) != tt.fails || time.Since(began) != tt.took {
				t.Errorf("%d, %v, after %v", zxid, err, time.Since(began))
			}
			checkDials(t, *limits, tt.dials)
			time.Sleep(time.Minute) // until the servers have ended
			synctest.Wait()
			for i, frame := range asked() {
				var request wire.ConnectRequest
				if err := wire.Unmarshal(frame[4:4+binary.BigEndian.Uint32(frame)], &request); err != nil || request.Timeout != 1 || request.SessionID != int64(7*i) || len(request.Password) != wire.PasswordSize {
					t.Errorf("connect %d: %+v, %v", i, request, err)
				}
			}
		})
	}
}
