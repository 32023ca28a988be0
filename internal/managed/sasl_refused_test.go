package managed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// oneOdd runs a scenario on three members, one of which has an older password
// file.
func oneOdd(t *testing.T, odd int, scenario func(t *testing.T, ens *testutil.Embedded)) {
	t.Helper()
	requiring(t, scenario, testutil.WithSASL(map[string]string{"app": "older"}, odd))
}

// After an outage, whose attempts were counted, the first refusal was taken for
// that of all servers: each call that waited failed.
func TestOneMemberRefusesAfterAnOutage(t *testing.T) {
	for i := range 12 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			oneOdd(t, i%3, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens, newPassword("secret").option())
				for range 4 {
					network.Cut()
					network.Drop()
					time.Sleep(timeout/2 + time.Duration(i)*timeout/12)
					network.Heal()
					_, _, err := c.Get(within(t, time.Minute), "/")
					must(t, err)
				}
			})
		})
	}
}

// A refusal of one member made the pauses of all attempts grow up to a minute,
// if each connection ended soon.
func TestOneMemberRefusesAndTheNetworkFlaps(t *testing.T) {
	oneOdd(t, 0, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, newPassword("secret").option())
		s := session(t, c)
		for range 60 {
			began := time.Now()
			for c.State() != framework.Connected {
				time.Sleep(10 * time.Millisecond)
			}
			if took := time.Since(began); took > timeout/3 {
				t.Fatalf("%v without a connection", took)
			}
			time.Sleep(timeout / 10)
			network.Drop()
			time.Sleep(10 * time.Millisecond)
		}
		if session(t, c).ID() != s.ID() {
			t.Error("the session was lost")
		}
	})
}

// countingBegins is a mechanism that counts how often it is asked.
func countingBegins(p *password) (framework.Option, *atomic.Int32) {
	var n atomic.Int32
	return framework.WithSASL(misbehaving{
		SASL:  digestmd5.Func(func() (string, string, error) { return "app", p.now.Load().(string), nil }),
		begin: func(context.Context) error { n.Add(1); return nil },
	}), &n
}

// The pauses of a client that all servers refuse are between half a minute and
// a minute, whatever the number of servers, and the first ones are shorter.
func TestPaceOfARefusedClient(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		option, asked := countingBegins(newPassword("wrong"))
		c, _ := start(t, ens, option)
		time.Sleep(10 * time.Second)
		if n := asked.Load(); n < 5 || n > 10 {
			t.Errorf("%d attempts in the first 10s", n)
		}
		time.Sleep(2 * time.Minute)
		before := asked.Load()
		hours := bubble.Few(2, 10)
		time.Sleep(time.Duration(hours) * time.Hour)
		if n := int(asked.Load() - before); n < 60*hours || n > 120*hours {
			t.Errorf("%d attempts in %d hours", n, hours)
		}
		if _, _, err := c.Get(t.Context(), "/"); !errors.Is(err, framework.ErrAuthFailed) {
			t.Errorf("error %v", err)
		}
	})
}

// The next attempt named a session that had expired during the pause, and
// brought only that news: a client was accepted after a second pause.
func TestHealingTakesOnePause(t *testing.T) {
	for i := range bubble.Few(5, 20) {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			p := newPassword("wrong")
			option, _ := countingBegins(p)
			c, _ := start(t, w.Embedded, option)
			time.Sleep(10*time.Minute + time.Duration(i)*7*time.Second)
			p.now.Store("secret")
			began := time.Now()
			awaitConnected(t, c)
			if took := time.Since(began); took > time.Minute+time.Second {
				t.Errorf("connected after %v", took)
			}
		}, testutil.WithMembers(1), testutil.WithSASL(users), testutil.WithEnforcedAuth("sasl"))
	}
}

// A pause longer than the session timeout was taken for a dialer that hangs,
// and ended a session that held nothing. It ends when the ensemble says so.
func TestAPauseEndsNoSession(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		p := newPassword("secret")
		option, _ := countingBegins(p)
		c, network := connect(t, ens, option)
		r := record(c)
		p.now.Store("wrong")
		network.Drop()
		time.Sleep(10 * timeout)
		p.now.Store("secret")
		began := time.Now()
		awaitConnected(t, c)
		if took := time.Since(began); took > time.Minute+time.Second {
			t.Errorf("connected after %v", took)
		}
		for _, change := range r.all() {
			if errors.Is(change.Err, framework.ErrUnproven) {
				t.Errorf("lost: %+v", change)
			}
		}
	})
}

// What was discarded while the client was refused stayed for up to a minute
// after it was accepted, and the log blamed an ACL.
func TestDiscardWhileRefused(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		logs, logged := observer.New(zap.ErrorLevel)
		p := newPassword("secret")
		c, network := connect(t, ens, p.option(), framework.WithSessionTimeout(40*time.Second), framework.WithLogger(zap.New(logs)))
		_, err := c.Create(t.Context(), "/mine", nil, zk.FlagEphemeral)
		must(t, err)
		s := session(t, c)
		p.now.Store("wrong")
		network.Drop()
		time.Sleep(2 * time.Second)
		gone := s.Discard("/mine")
		time.Sleep(10 * time.Second)
		p.now.Store("secret")
		awaitConnected(t, c)
		began := time.Now()
		bubble.Await(t, "the znode to be removed", gone)
		if took := time.Since(began); took > 100*time.Millisecond || session(t, c).ID() != s.ID() {
			t.Errorf("removed after %v", took)
		}
		if n := logged.FilterMessageSnippet("cannot remove").Len(); n != 0 {
			t.Errorf("%d lines blame an ACL", n)
		}
	})
}

// Each attempt left a goroutine behind while a function of the mechanism
// blocked.
func TestMechanismThatBlocksIsNotCalledWithoutEnd(t *testing.T) {
	for _, in := range []string{"begin", "next"} {
		t.Run(in, func(t *testing.T) {
			requiring(t, func(t *testing.T, ens *testutil.Embedded) {
				var n atomic.Int32
				release := make(chan struct{})
				block := func() error {
					n.Add(1)
					<-release
					return nil
				}
				m := misbehaving{SASL: digestmd5.New("app", "secret")}
				if in == "begin" {
					m.begin = func(context.Context) error { return block() }
				} else {
					m.next = block
				}
				c, _ := start(t, ens, framework.WithSASL(m))
				time.Sleep(time.Hour)
				if got := n.Load(); got != 16 {
					t.Errorf("%d calls have not returned", got)
				}
				_, _, err := c.Get(within(t, time.Second), "/")
				if err == nil || errors.Is(err, framework.ErrAuthFailed) || !strings.Contains(err.Error(), "no result") {
					t.Errorf("error %v", err)
				}
				close(release)
				awaitConnected(t, c)
			})
		})
	}
}

// A watch ended for good when its client was refused after a disconnect.
func TestWatchOutlivesARefusal(t *testing.T) {
	requiring(t, func(t *testing.T, ens *testutil.Embedded) {
		other, _ := connect(t, ens, newPassword("secret").option())
		p := newPassword("secret")
		c, network := connect(t, ens, p.option())
		values, err := c.WatchData(t.Context(), "/watched")
		must(t, err)
		<-values
		p.now.Store("wrong")
		network.Drop()
		time.Sleep(10 * time.Minute)
		_, err = other.Create(t.Context(), "/watched", []byte("new"), 0)
		must(t, err)
		p.now.Store("secret")
		awaitConnected(t, c)
		if now := <-values; now.Err != nil || string(now.Data) != "new" {
			t.Errorf("watched %+v", now)
		}
	})
}

// lateContext gives a request to the wire client only after a moment, in which
// the connection may end.
type lateContext struct{ context.Context }

func (c lateContext) Done() <-chan struct{} {
	time.Sleep(20 * time.Millisecond)
	return c.Context.Done()
}

// A request that came to the wire client when the connection had just ended
// waited there until the client was accepted again, and not only for the
// refusal. That may come before the request or after it.
func TestRequestWithoutAConnectionIsRefused(t *testing.T) {
	for _, latency := range []time.Duration{0, 30 * time.Millisecond} {
		requiring(t, func(t *testing.T, ens *testutil.Embedded) {
			p := newPassword("secret")
			c, network := connect(t, ens, p.option())
			network.Latency(latency, latency)
			p.now.Store("wrong")
			failed := make(chan error)
			go func() {
				_, err := c.Create(lateContext{within(t, time.Hour)}, "/znode", nil, 0)
				failed <- err
			}()
			time.Sleep(10 * time.Millisecond)
			network.Drop()
			began := time.Now()
			if err := <-failed; !errors.Is(err, framework.ErrAuthFailed) || framework.MaybeApplied(err) {
				t.Errorf("error %v", err)
			}
			if took := time.Since(began); took > timeout {
				t.Errorf("refused after %v", took)
			}
			p.now.Store("secret")
			awaitConnected(t, c)
		})
	}
}
