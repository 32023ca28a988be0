package framework

import (
	"math"
	"net"
	"slices"
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

// A server is asked what it has, and for its history, in steps, each of which
// has the time of a step of a close.
func TestTheTimeToAskAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, on := standing()
		var within []time.Duration
		s.core.cfg.dial = func(_, _ string, limit time.Duration) (net.Conn, error) {
			within = append(within, limit)
			return nil, errNotOffered
		}
		<-s.beginOffer(on, wire.OpMultiRead).known
		n := len(within)
		s.askForHistory(server{name: "a", address: "a"}, 1)
		if want := s.closeStepTimeout(); n == 0 || len(within) == n || slices.Min(within) != want || slices.Max(within) != want {
			t.Errorf("dialed within %v, want %v", within, want)
		}
		on.asked.end()
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
		synctest.Wait()
		select {
		case <-o.known:
		default:
			t.Error("it goes on")
			<-o.known
		}
	})
}
