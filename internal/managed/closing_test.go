package managed_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Close dials to close the session. A dialer that ignored its timeout made it
// wait forever.
func TestCloseWithAHangingDialerIsBounded(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		release := make(chan struct{})
		defer close(release)
		var hanging atomic.Bool
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout),
			framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
				if hanging.Load() {
					<-release
					return nil, errors.New("at last")
				}
				return ens.Dial(network, address, limit)
			}))
		must(t, err)
		must(t, c.WaitConnected(t.Context()))
		hanging.Store(true)
		must(t, ens.DropConnections(session(t, c).ID()))
		time.Sleep(time.Second)
		began := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		select {
		case err := <-closed:
			if err == nil {
				t.Error("Close must say that the session is left to expire")
			}
		case <-time.After(15 * time.Second):
			t.Error("Close hangs with the dialer")
		}
		// For the wire client, for a server that closes the session.
		if took, most := time.Since(began), (2+4)*time.Second; took > most {
			t.Errorf("Close took %v, want %v at most", took, most)
		}
	})
}

// Close during a reconnect used to ask one server. If that one was down, the
// ephemeral znodes stayed.
func TestCloseFindsAServerThatIsThere(t *testing.T) {
	for range 10 {
		inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
			network := ens.ClientNet("alone")
			c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial))
			must(t, err)
			must(t, c.WaitConnected(t.Context()))
			s := session(t, c)
			for memberOf(t, ens, s.ID()) == ens.Leader() {
				must(t, ens.DropConnections(s.ID()))
				time.Sleep(time.Second)
			}
			must(t, ens.Pause(memberOf(t, ens, s.ID())))
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if alive(ens, s.ID()) {
				t.Error("the session is still there")
			}
		})
	}
}

// Close waits a second in all for the user's functions, which may block for
// good. What they are told then, they are told when they return.
func TestCloseWaitsASecondForTheUsersFunctions(t *testing.T) {
	for what, blocks := range map[string]struct{ observer, logger bool }{
		"an observer": {observer: true}, "the logger": {logger: true}, "both": {true, true}, "none": {},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				free := make(chan struct{})
				sink := &slowCore{LevelEnabler: zapcore.InfoLevel, released: free}
				var opts []framework.Option
				var told []framework.State
				if blocks.observer {
					opts = append(opts, framework.WithObserver(framework.Observer{StateChanged: func(c framework.StateChange) {
						<-free
						told = append(told, c.To)
					}}))
				}
				if blocks.logger {
					opts = append(opts, framework.WithLogger(zap.New(sink)))
				}
				c, _ := connect(t, ens, opts...)
				began, want := time.Now(), time.Second
				if what == "none" {
					want = 0
				}
				must(t, c.Close())
				if took := time.Since(began); took != want {
					t.Errorf("Close took %v, want %v", took, want)
				}
				close(free)
				synctest.Wait()
				if blocks.observer && !slices.Equal(told, []framework.State{framework.Connected, framework.Closed}) {
					t.Errorf("the observer was told of %v", told)
				}
			})
		})
	}
}

// Where there is no session at the ensemble, there is nothing to close, and
// Close asks nobody.
func TestCloseWithoutASession(t *testing.T) {
	for what, expires := range map[string]bool{"never connected": false, "expired at this instant": true} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				var refusing atomic.Bool
				refusing.Store(!expires)
				dials := 0
				c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout),
					framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
						dials++
						if refusing.Load() {
							return nil, errors.New("refused")
						}
						return ens.Dial(network, address, limit)
					}))
				must(t, err)
				synctest.Wait()
				closed := make(chan error, 1)
				if expires {
					s := session(t, c)
					_, err := s.Hold(func(error) { // right when it is known
						go func() { closed <- c.Close() }()
						<-c.Done()
					})
					must(t, err)
					must(t, ens.ExpireSession(s.ID()))
				} else {
					go func() { closed <- c.Close() }()
				}
				err = bubble.Await(t, "Close", closed)
				before := dials
				if must(t, err); expires && before != 2 || !expires && before != 1 {
					t.Errorf("%d dials", before)
				}
			})
		})
	}
}

// Close waits two seconds for the answer to its request. Then it asks again by
// another connection. A server that does not answer delays it no longer.
func TestCloseWithoutAnAnswer(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(ens.Dial))
		must(t, err)
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		never := make(chan struct{})
		defer close(never)
		asked := 0
		ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCloseSession {
				if asked++; asked == 1 {
					return testutil.Hold(never)
				}
			}
			return testutil.Pass()
		})
		began := time.Now()
		must(t, c.Close())
		if took := time.Since(began); took < 2*time.Second || took > 2100*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
		if alive(ens, s.ID()) {
			t.Error("the session is still there")
		}
	})
}

// Close without a connection waits long enough for a slow server: two seconds
// for the connection and two for the answer.
func TestCloseWaitsForASlowServer(t *testing.T) {
	for what, slow := range map[string]struct {
		dial, answer time.Duration
		closed       bool
	}{
		"slow to be reached":               {1900 * time.Millisecond, 0, true},
		"slow to answer":                   {0, 1900 * time.Millisecond, true},
		"slow to be reached and to answer": {1900 * time.Millisecond, 1900 * time.Millisecond, true},
		"too slow to be reached":           {2100 * time.Millisecond, 0, false},
		"too slow to answer":               {0, 2100 * time.Millisecond, false},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				var late atomic.Bool
				c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout),
					framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
						if late.Load() {
							time.Sleep(min(slow.dial, limit))
							if slow.dial > limit {
								return nil, errors.New("timed out")
							}
						}
						return ens.Dial(network, address, limit)
					}))
				must(t, err)
				must(t, c.WaitConnected(t.Context()))
				s := session(t, c)
				late.Store(true)
				ens.Control(func(r testutil.Request) testutil.Action {
					if r.Op == testutil.OpCreateSession {
						return testutil.Delay(slow.answer)
					}
					return testutil.Pass()
				})
				must(t, ens.DropConnections(s.ID()))
				synctest.Wait()
				if err := c.Close(); (err == nil) != slow.closed {
					t.Errorf("Close: %v", err)
				}
			})
		})
	}
}

// A TLS connection that is closed properly can take five seconds, if the other
// end reads nothing. The goroutine that watches the deadline waited for that,
// and so did the holders. Here virtual time stood still forever.
func TestHoldersDoNotWaitForTLSToSayGoodbye(t *testing.T) {
	certificate, pool := selfSigned(t, "member0")
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory())
		var frozen atomic.Bool // what the client sends is taken and lost, and no other connection is
		stopped := make(chan struct{})
		thaw := make(chan struct{})
		dial := func(network, address string, limit time.Duration) (net.Conn, error) {
			if frozen.Load() {
				return nil, errors.New("refused")
			}
			inner, err := ens.Dial(network, address, limit)
			if err != nil {
				return nil, err
			}
			client, server := net.Pipe()
			secured := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{certificate}})
			go func() {
				<-stopped
				_ = server.SetReadDeadline(time.Now())
			}()
			go func() {
				defer server.Close()
				defer inner.Close()
				buf := make([]byte, 4096)
				for {
					n, err := secured.Read(buf)
					if err != nil {
						<-thaw
						return
					}
					if !frozen.Load() {
						_, _ = inner.Write(buf[:n])
					}
				}
			}()
			go func() { _, _ = io.Copy(secured, inner) }()
			return client, nil
		}
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(dial),
			framework.WithTLS(&tls.Config{RootCAs: pool}))
		must(t, err)
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		time.Sleep(time.Second)
		var lostAt time.Time
		_, err = s.Hold(func(error) { lostAt = time.Now() })
		must(t, err)
		time.Sleep(2*timeout + 100*time.Millisecond)
		frozen.Store(true)
		deadline := s.Deadline()
		time.Sleep(timeout/3 + timeout/6 - 200*time.Millisecond)
		close(stopped)
		<-s.Done()
		synctest.Wait()
		if want := deadline.Add(-timeout / 10); !near(lostAt, want) {
			t.Errorf("the hold was lost %v from the stop margin", lostAt.Sub(want))
		}
		close(thaw)
		_ = c.Close() // the dialer refuses
	})
}

// A dial that timed out is the reason why there is no server, not why the call
// ended. In the error it looked as if the caller's context had ended.
func TestTimedOutDialIsNotTheCallersDeadline(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := start(t, ens, framework.WithRetry(retry.NTimes(5, time.Second)),
			framework.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
			}))
		var dial *net.OpError
		_, _, err := c.Get(t.Context(), "/")
		if !errors.Is(err, zk.ErrNoServer) || !errors.As(err, &dial) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a server: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err = c.WaitConnected(ctx)
		if !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a cancelled wait: %v", err)
		}
	})
}
