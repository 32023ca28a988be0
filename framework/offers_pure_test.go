package framework

import (
	"math"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What a server is, and what it has, as it says itself or as a try shows.
func TestAskOffer(t *testing.T) {
	connected := connectedAs(7)
	version := func(text string) []wire.Message { return []wire.Message{words("Zookeeper version: " + text + "\n")} }
	type script = []wire.Message
	read, closed := &wire.ReplyHeader{Xid: firstXid}, script{connected, &wire.ReplyHeader{Xid: firstXid}}
	tried := func(code wire.Code) wire.Message { return &wire.ReplyHeader{Xid: firstXid + 1, Err: code} }
	for name, tt := range map[string]struct {
		scripts []script
		minor   int
		every   bool
		fails   bool
		took    time.Duration
		dials   int
	}{
		"3.5":               {[]script{version("3.5.9-83df9301aa5c2a5d")}, 5, true, false, 0, 1},
		"3.9":               {[]script{version("3.9.2")}, 9, true, false, 0, 1},
		"2.9":               {[]script{version("2.9.2")}, 0, true, false, 0, 1},
		"4.0":               {[]script{version("4.0.2")}, math.MaxInt, true, false, 0, 1},
		"no server":         {[]script{nil, nil}, 0, false, true, 0, 2},
		"silence":           {[]script{{}, {}}, 0, false, true, 2 * time.Second, 2},
		"no version, it":    {[]script{version("x"), {connected, read, tried(wire.OK)}, closed}, 6, false, false, 0, 3},
		"it may not":        {[]script{version("x"), {connected, read, tried(wire.NoAuth)}, closed}, 6, false, false, 0, 3},
		"it is refused":     {[]script{version("x"), {connected, read, tried(wire.Unimplemented)}, closed}, 0, false, false, 0, 3},
		"it ends":           {[]script{version("x"), {connected, read, hangsUp}, closed}, 0, false, false, 0, 3},
		"it ends too early": {[]script{version("x"), {connected, hangsUp}, closed}, 0, false, true, time.Second, 3},
		"throttled":         {[]script{version("x"), {connected, read, tried(wire.Throttled)}, closed}, 0, false, true, 0, 3},
		"not answered":      {[]script{version("x"), {connected}, closed}, 0, false, true, time.Second, 3},
		"not closed":        {[]script{version("x"), {connected, read, tried(wire.OK)}, {connected}}, 6, false, false, time.Second, 3},
		"no session":        {[]script{version("x"), {&wire.ConnectResponse{}}}, 0, false, true, 0, 2},
	} {
		inVirtualTime(t, name, func(t *testing.T) {
			c, _, limits := conversation(0, tt.scripts...)
			began := time.Now()
			minor, every, err := c.askOffer(t.Context(), server{name: "a", address: "a"}, wire.OpMultiRead, time.Second)
			if minor != tt.minor || every != tt.every || (err != nil) != tt.fails || time.Since(began) != tt.took {
				t.Errorf("3.%d, of every one %t, %v, after %v", minor, every, err, time.Since(began))
			}
			checkDials(t, *limits, tt.dials)
			time.Sleep(time.Minute)
			synctest.Wait()
		})
	}
}

// One answer says of every operation whether the server has it, if it is exact.
// Otherwise each is asked for. Without an answer the server is asked again,
// with growing pauses, until it answers.
func TestWhatOneAnswerSaysOfOtherOperations(t *testing.T) {
	all := func(remove, many, add bool) map[wire.Op]bool {
		return map[wire.Op]bool{wire.OpRemoveWatches: remove, wire.OpMultiRead: many, wire.OpAddWatch: add}
	}
	for name, tt := range map[string]struct {
		srvr string
		want map[wire.Op]bool
		asks int32 // for all three
	}{
		"3.4":             {"Zookeeper version: 3.4.9\n", all(false, false, false), 1},
		"3.5":             {"Zookeeper version: 3.5.9\n", all(true, false, false), 1},
		"3.6":             {"Zookeeper version: 3.6.0\n", all(true, true, true), 1},
		"it has each one": {"no version\n", all(true, true, true), 3},
	} {
		inVirtualTime(t, name, func(t *testing.T) {
			s, on := standing()
			var tries, asks atomic.Int32
			silent := time.Now().Add(time.Hour)
			s.core.cfg.dial = func(_, _ string, _ time.Duration) (net.Conn, error) {
				if tries.Add(1); time.Now().Before(silent) {
					return nil, zk.ErrNoServer
				}
				ours, theirs := net.Pipe()
				go func() {
					defer theirs.Close()
					frames := make([]byte, 4096)
					if n, _ := theirs.Read(frames); string(frames[:n]) == "srvr" {
						asks.Add(1)
						_, _ = theirs.Write([]byte(tt.srvr))
						return
					}
					_, _ = theirs.Write(wire.AppendFrame(wire.AppendFrame(nil, connectedAs(7)), &wire.ReplyHeader{Xid: firstXid}))
					if _, err := theirs.Read(frames); err == nil {
						_, _ = theirs.Write(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: firstXid + 1}))
					}
				}()
				return ours, nil
			}
			if s.hasOffer(on, wire.OpMultiRead) {
				t.Error("it has it, without an answer")
			}
			time.Sleep(time.Hour - time.Nanosecond)
			if n := tries.Load() / 2; n < 60 || n > 150 || s.beginOffer(on, wire.OpMultiRead).isKnown() { // two connections a time, and pauses of three quarters of a minute on average
				t.Errorf("asked %d times in an hour", n)
			}
			for range 2 {
				for op, want := range tt.want {
					o := s.beginOffer(on, op)
					time.Sleep(lastAskPause)
					if !o.isKnown() || o.yes != want || s.hasOffer(on, op) != want {
						t.Errorf("%v: %t, want %t", op, o.yes, want)
					}
				}
			}
			if n := asks.Load(); n != tt.asks {
				t.Errorf("asked %d times", n)
			}
			on.asked.end()
			time.Sleep(time.Minute)
		})
	}
}

// A server is asked for its history in steps, each of which has the time of a
// step of a close. What it has, it may say in a session timeout, but a dial for
// that, which nothing ends, has only the time of a dial.
func TestTheTimeToAskAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, on := standing()
		var within []time.Duration
		s.core.cfg.dial = func(_, _ string, limit time.Duration) (net.Conn, error) {
			within = append(within, limit)
			return nil, errNotOffered
		}
		s.beginOffer(on, wire.OpMultiRead)
		synctest.Wait()
		if want := maxCloseStep; len(within) == 0 || slices.Min(within) != want || slices.Max(within) != want {
			t.Errorf("dialed within %v, want %v", within, want)
		}
		on.asked.end()
		synctest.Wait()
		within = nil
		s.askForHistory(server{name: "a", address: "a"}, 1)
		if want := s.closeStepTimeout(); len(within) == 0 || slices.Min(within) != want || slices.Max(within) != want {
			t.Errorf("dialed within %v, want %v", within, want)
		}
	})
}

// A server is not asked any longer than its connection lasts.
func TestAQuestionEndsWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, on := standing()
		silent, _, _ := conversation(0, []wire.Message{}, []wire.Message{})
		s.core.cfg.dial = silent.cfg.dial
		o := s.beginOffer(on, wire.OpMultiRead)
		time.Sleep(time.Millisecond)
		on.asked.end()
		synctest.Wait() // no goroutine is left
		if o.isKnown() {
			t.Error("it was answered")
		}
	})
}
