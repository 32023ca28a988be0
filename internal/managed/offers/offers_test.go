package offers

import (
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/talk"
	"github.com/zkrecipes/zkrecipes/internal/test/script"
	"github.com/zkrecipes/zkrecipes/internal/test/standing"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

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
			var tries, asks atomic.Int32
			silent := time.Now().Add(time.Hour)
			s, on := connectedFor(func(_, _ string, _ time.Duration) (net.Conn, error) {
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
					_, _ = theirs.Write(wire.AppendFrame(wire.AppendFrame(nil, script.ConnectedAs(7)), &wire.ReplyHeader{Xid: 1}))
					if _, err := theirs.Read(frames); err == nil {
						_, _ = theirs.Write(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: 2}))
					}
				}()
				return ours, nil
			})
			if s.HasOffer(on, wire.OpMultiRead) {
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
					if !o.isKnown() || o.yes != want || s.HasOffer(on, op) != want {
						t.Errorf("%v: %t, want %t", op, o.yes, want)
					}
				}
			}
			if n := asks.Load(); n != tt.asks {
				t.Errorf("asked %d times", n)
			}
			on.End()
			time.Sleep(time.Minute)
		})
	}
}

// What a server has, it may say in a session timeout, but a dial for that,
// which nothing ends, has only the time of a dial.
func TestTheTimeToAskAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var within []time.Duration
		s, on := connectedFor(func(_, _ string, limit time.Duration) (net.Conn, error) {
			within = append(within, limit)
			return nil, ErrNotOffered
		})
		s.beginOffer(on, wire.OpMultiRead)
		synctest.Wait()
		if want := talk.MaxStep; len(within) == 0 || slices.Min(within) != want || slices.Max(within) != want {
			t.Errorf("dialed within %v, want %v", within, want)
		}
		on.End()
		synctest.Wait()
	})
}

// A server is not asked any longer than its connection lasts.
func TestAQuestionEndsWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent, _, _ := script.Dialer(0, []wire.Message{}, []wire.Message{})
		s, on := connectedFor(silent)
		o := s.beginOffer(on, wire.OpMultiRead)
		time.Sleep(time.Millisecond)
		on.End()
		synctest.Wait() // no goroutine is left
		if o.isKnown() {
			t.Error("it was answered")
		}
	})
}

// inVirtualTime runs a subtest in virtual time.
func inVirtualTime(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// connectedFor returns what is said in a session with a connection on which
// nothing is answered. Servers are asked by dial.
func connectedFor(dial standing.Dial) (*Said, *link.Link) {
	in, on := standing.Unready(dial, nil, nil)
	in.Use()
	return NewSaid(New(in.Servers, 6*time.Second, false, zap.NewNop(), in.Closing, &in.Tasks), in.Session), on
}
