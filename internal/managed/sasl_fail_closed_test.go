package managed_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A server that could not authenticate itself answered the next connect with a
// session timeout that is not allowed, and the client went on without an
// exchange: it presented its credentials, made requests and extended leases.
func TestNoRequestWithoutAnExchange(t *testing.T) {
	for _, after := range []int32{0, 1} {
		t.Run(fmt.Sprint("from answer ", after), func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				var n atomic.Int32
				dial := tamper.Wrap(ens.ClientNet("lied to").Dial, func(a tamper.Answer) tamper.Instead {
					if a.Op == wire.OpCreateSession && n.Add(1) > after {
						binary.BigEndian.PutUint32(a.Frame[8:], uint32((2 * time.Hour).Milliseconds()))
					}
					return tamper.Pass(a)
				})
				c, _ := start(t, ens, framework.WithDialer(dial), framework.WithSASL(digestmd5.New("app", "secret")),
					framework.WithAuth("digest", []byte("me:pw")))
				r := record(c)
				time.Sleep(time.Minute)
				if asked := ens.Requests(); n.Load() < 2 || asked[testutil.Op(wire.OpAuth)] > 0 {
					t.Errorf("%d answers, requests %v", n.Load(), asked)
				}
				if got := r.states(); got != "CONNECTING " {
					t.Errorf("states %s", got)
				}
				const want = "malformed answer: a session timeout of 2h0m0s"
				if err := c.WaitConnected(within(t, time.Second)); after == 0 && !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("error %v, want %q in it", err, want)
				}
			})
		})
	}
}

// The same lie in answer to a reconnect of a live session, by a server that
// does authenticate itself: the exchange is made.
func TestExchangeAfterALieAboutTheTimeout(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var lie atomic.Bool
		network := w.ClientNet("lied to")
		dial := tamper.Wrap(network.Dial, func(a tamper.Answer) tamper.Instead {
			if a.Op == wire.OpCreateSession && lie.Load() {
				binary.BigEndian.PutUint32(a.Frame[8:], uint32((2 * time.Hour).Milliseconds()))
			}
			return tamper.Pass(a)
		})
		c, _ := connect(t, w.Embedded, framework.WithDialer(dial), framework.WithSASL(digestmd5.New("app", "secret")))
		s := session(t, c)
		lie.Store(true)
		before := w.Requests()[testutil.Op(wire.OpSASL)]
		network.Drop()
		time.Sleep(time.Second)
		awaitConnected(t, c)
		if got := session(t, c); got.ID() != s.ID() || got.Timeout() != timeout || w.Requests()[testutil.Op(wire.OpSASL)] != before+2 {
			t.Errorf("session %#x of %v, then %#x of %v; %d requests of SASL", s.ID(), timeout, got.ID(), got.Timeout(), w.Requests()[testutil.Op(wire.OpSASL)]-before)
		}
	}, testutil.WithMembers(1), testutil.WithSASL(users))
}

// A client with SASL called for good after its ensemble was restored from a
// backup: the end of a connection without an answer was not counted.
func TestHistoryThatWasReplacedWithSASL(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		restored := bubble.New(t, testutil.WithMembers(1), testutil.WithSASL(users))
		network := w.ClientNet("client")
		var moved atomic.Bool
		c, _ := start(t, w.Embedded, framework.WithSASL(digestmd5.New("app", "secret")), framework.WithDialer(movable(network.Dial, restored, &moved)))
		for range 5 {
			_, err := c.Create(t.Context(), "/x", nil, 0)
			must(t, err)
			must(t, c.Delete(t.Context(), "/x", -1))
		}
		s := session(t, c)
		moved.Store(true)
		network.Drop()
		select {
		case <-s.Done():
		case <-time.After(3 * timeout):
			t.Fatal("the session is not over")
		}
		awaitConnected(t, c)
		bubble.AwaitTrue(t, "the session that was asked in to be closed", func() bool { return len(restored.Sessions()) == 1 })
	}, testutil.WithMembers(1), testutil.WithSASL(users))
}

// movable is a dialer that from some time on reaches another ensemble.
func movable(dial tamper.Dial, other *bubble.World, moved *atomic.Bool) tamper.Dial {
	there := other.ClientNet("moved")
	return func(network, address string, limit time.Duration) (net.Conn, error) {
		if moved.Load() {
			return there.Dial(network, other.Embedded.Servers(), limit)
		}
		return dial(network, address, limit)
	}
}
