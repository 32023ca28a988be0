package managed_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/tlstest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// What a client and a server refuse of each other is what a call says that
// waits for the connection. In TLS 1.3 a client learns only from its first read
// that its certificate was refused. Once it is put right the client connects.
func TestTLSRefusals(t *testing.T) {
	trusted, stranger := tlstest.NewAuthority(t), tlstest.NewAuthority(t)
	server, own := trusted.Issue("ensemble.example", time.Hour), trusted.Issue("app", time.Hour)
	serving := func(pair tls.Certificate, most uint16) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: trusted.Pool(), ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: most}
	}
	using := func(pairs ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: trusted.Pool(), Certificates: pairs, ServerName: "ensemble.example"}
	}
	is := func(target any) func(error) bool {
		return func(err error) bool { return errors.As(err, target) }
	}
	expired := func(err error) bool {
		var invalid x509.CertificateInvalidError
		return errors.As(err, &invalid) && invalid.Reason == x509.Expired
	}
	says := func(text string) func(error) bool {
		return func(err error) bool { return strings.Contains(err.Error(), text) }
	}
	for _, test := range []struct {
		name   string
		server *tls.Config
		client *tls.Config
		told   func(error) bool
		half   string // that decides: it comes first
	}{
		{"the server's certificate has another name", serving(trusted.Issue("other.example", time.Hour), 0), using(own), is(&x509.HostnameError{}), "the server's certificate is for another name: "},
		{"the server's has expired", serving(trusted.Issue("ensemble.example", -time.Hour), 0), using(own), expired, "the server's certificate has expired, or is not valid yet: "},
		{"the server's is a stranger's", serving(stranger.Issue("ensemble.example", time.Hour), 0), using(own), is(&x509.UnknownAuthorityError{}), "the server's certificate is of an authority that the client does not trust: "},
		{"the client has none", serving(server, 0), using(), says("certificate"), "the server refuses the client's certificate: "},
		{"the client has none, TLS 1.2", serving(server, tls.VersionTLS12), using(), says("handshake failure"), "the server refuses the handshake, as one that wants a certificate of the client"},
		{"the client's has expired", serving(server, 0), using(trusted.Issue("app", -time.Hour)), says("certificate"), "the server refuses the client's certificate: "},
		{"the client's is a stranger's", serving(server, 0), using(stranger.Issue("app", time.Hour)), says("certificate"), "the server refuses the client's certificate: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			front := tlstest.NewFront(t, testutil.Start(t).Servers(), test.server)
			var current atomic.Pointer[tls.Config]
			current.Store(test.client)
			c, err := framework.New(front.Address, framework.WithSessionTimeout(timeout),
				framework.WithTLSFunc(func() (*tls.Config, error) { return current.Load(), nil }))
			must(t, err)
			told := func(err error) bool {
				return err != nil && test.told(err) && strings.Contains(err.Error(), front.Address) && strings.Contains(err.Error(), ": TLS: "+test.half)
			}
			for limit := within(t, time.Minute); !told(err); {
				if err = c.WaitConnected(within(t, time.Second)); err == nil || limit.Err() != nil {
					t.Fatalf("error %v", err)
				}
			}
			front.Configure(serving(server, 0))
			current.Store(using(own))
			if _, _, err := c.Get(within(t, time.Minute), "/"); err != nil {
				t.Errorf("once all is right: %v", err)
			}
			must(t, c.Close())
		})
	}
}

// One end expects TLS and the other does not.
func TestTLSAtOneEnd(t *testing.T) {
	authority := tlstest.NewAuthority(t)
	ens := testutil.Start(t)
	front := tlstest.NewFront(t, ens.Servers(), &tls.Config{Certificates: []tls.Certificate{authority.Issue("ensemble.example", time.Hour)}})
	for _, test := range []struct {
		servers string
		says    string
		opts    []framework.Option
	}{
		{front.Address, "or expects TLS", nil},
		{ens.Servers(), "does not expect TLS", []framework.Option{framework.WithTLS(&tls.Config{RootCAs: authority.Pool()})}},
		{alerting(t), "answers with TLS", nil},
	} {
		t.Run(test.says, func(t *testing.T) {
			t.Parallel()
			c, err := framework.New(test.servers, append(test.opts, framework.WithSessionTimeout(timeout))...)
			must(t, err)
			err = c.WaitConnected(within(t, time.Second))
			if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), test.servers) {
				t.Errorf("error %v", err)
			}
			must(t, c.Close())
		})
	}
}

// alerting returns the address of a server that answers with an alert of TLS,
// as the real one does where it expects TLS, and then closes.
func alerting(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1024))
			_, _ = conn.Write([]byte{21, 3, 3, 0, 2, 2, 80})
			conn.Close()
		}
	}()
	return l.Addr().String()
}

// A server that closes the connection without an answer to the connect request
// does not say why. The client says what is possible: it used to say that the
// time was over.
func TestServersThatCloseWithoutAnAnswer(t *testing.T) {
	t.Run("without a quorum", func(t *testing.T) {
		inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
			must(t, ens.Stop(0))
			must(t, ens.Stop(1))
			c, err := framework.New("member2:2181", framework.WithSessionTimeout(timeout), framework.WithDialer(ens.Dial))
			must(t, err)
			time.Sleep(timeout) // until it has found out
			err = c.WaitConnected(within(t, timeout))
			if err == nil || !strings.Contains(err.Error(), "member2:2181") || !strings.Contains(err.Error(), "quorum") || strings.Contains(err.Error(), "lags") {
				t.Errorf("error %v", err)
			}
			must(t, c.Close())
		})
	})
	t.Run("behind", func(t *testing.T) {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, network := connect(t, ens, framework.WithErrorPolicy(framework.ErrorPolicySession))
			must(t, c.MakePersistentPath(t.Context(), "/seen"))
			stop := network.Control(func(r testutil.Request) testutil.Action {
				if r.Op == testutil.OpCreateSession {
					return testutil.DropBefore()
				}
				return testutil.Pass()
			})
			network.Drop()
			time.Sleep(timeout / 3)
			_, _, err := c.Get(within(t, timeout/3), "/seen")
			if err == nil || !strings.Contains(err.Error(), "lags behind") {
				t.Errorf("error %v", err)
			}
			stop()
			_, _, err = c.Get(t.Context(), "/seen")
			must(t, err)
		})
	})
}

// Certificates are replaced on both sides, the authority as well, while a
// session is held, and each connection after that uses the new ones.
func TestTLSFuncIsAskedForEachConnection(t *testing.T) {
	var asked atomic.Int32
	var roots atomic.Pointer[x509.CertPool]
	oldPair, oldPool := selfSigned(t, "member0")
	newPair, newPool := selfSigned(t, "member0")
	roots.Store(oldPool)
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("secured")
		front := &overTLS{dial: network.Dial, certificate: oldPair}
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(front.Dial),
			framework.WithTLSFunc(func() (*tls.Config, error) {
				asked.Add(1)
				return &tls.Config{RootCAs: roots.Load()}, nil
			}))
		must(t, err)
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		holdUntilLost(t, s)
		front.mu.Lock()
		front.certificate = newPair
		front.mu.Unlock()
		must(t, ens.Stop(0))
		must(t, ens.Restart(0))
		time.Sleep(timeout / 6)
		if state := c.State(); state != framework.Suspended {
			t.Errorf("with the old authority: %v", state)
		}
		roots.Store(newPool)
		must(t, c.WaitConnected(t.Context()))
		if session(t, c).ID() != s.ID() || s.Err() != nil {
			t.Errorf("another session: %v", s.Err())
		}
		if n := asked.Load(); n < 3 {
			t.Errorf("asked %d times", n)
		}
		must(t, c.Close())
	})
}

// A function that fails, panics, ends its goroutine, returns nothing or does
// not return costs attempts. Nothing is dialed for it, and Close does not wait.
func TestTLSFuncMisbehaves(t *testing.T) {
	pair, pool := selfSigned(t, "member0")
	for name, bad := range map[string]struct {
		do   func(stuck <-chan struct{}) (*tls.Config, error)
		says string
	}{
		"fails":    {func(<-chan struct{}) (*tls.Config, error) { return nil, errors.New("no such file") }, "no such file"},
		"panics":   {func(<-chan struct{}) (*tls.Config, error) { panic("broken") }, "broken"},
		"exits":    {func(<-chan struct{}) (*tls.Config, error) { runtime.Goexit(); return nil, nil }, "ended its goroutine"},
		"nil":      {func(<-chan struct{}) (*tls.Config, error) { return nil, nil }, "nil"},
		"is stuck": {func(stuck <-chan struct{}) (*tls.Config, error) { <-stuck; return &tls.Config{RootCAs: pool}, nil }, "no result within"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				stuck := make(chan struct{})
				var good atomic.Bool
				var dials atomic.Int32
				front := &overTLS{dial: ens.Dial, certificate: pair}
				open := func() *framework.Client {
					c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout),
						framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
							dials.Add(1)
							return front.Dial(network, address, limit)
						}), framework.WithTLSFunc(func() (*tls.Config, error) {
							if good.Load() {
								return &tls.Config{RootCAs: pool}, nil
							}
							return bad.do(stuck)
						}))
					must(t, err)
					return c
				}
				c := open()
				err := c.WaitConnected(within(t, timeout))
				if err == nil || !strings.Contains(err.Error(), "TLS") || !strings.Contains(err.Error(), bad.says) {
					t.Errorf("error %v", err)
				}
				if n := dials.Load(); n > 0 {
					t.Errorf("%d dials", n)
				}
				good.Store(true)
				must(t, c.WaitConnected(within(t, timeout)))
				must(t, c.Close())

				good.Store(false)
				c = open()
				time.Sleep(time.Second)
				began, before := time.Now(), dials.Load()
				must(t, c.Close())
				if took := time.Since(began); took > time.Second {
					t.Errorf("Close has taken %v", took)
				}
				close(stuck) // a late result
				synctest.Wait()
				if n := dials.Load(); n != before {
					t.Errorf("%d dials for a closed client", n-before)
				}
			})
		})
	}
}

// What the configuration calls during the handshake does not hold the client up
// either, and a panic there is an error.
func TestTLSCallbacksMisbehave(t *testing.T) {
	pair, pool := selfSigned(t, "member0")
	for name, bad := range map[string]func(stuck <-chan struct{}) error{
		"panics":   func(<-chan struct{}) error { panic("broken") },
		"is stuck": func(stuck <-chan struct{}) error { <-stuck; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				stuck := make(chan struct{})
				defer close(stuck)
				front := &overTLS{dial: w.Dial, certificate: pair}
				c, err := framework.New(w.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(front.Dial),
					framework.WithTLS(&tls.Config{RootCAs: pool, VerifyConnection: func(tls.ConnectionState) error { return bad(stuck) }}))
				must(t, err)
				if err := c.WaitConnected(within(t, timeout)); err == nil || !strings.Contains(err.Error(), "TLS") {
					t.Errorf("error %v", err)
				}
				began := time.Now()
				must(t, c.Close())
				if took := time.Since(began); took > time.Second {
					t.Errorf("Close has taken %v", took)
				}
			})
		})
	}
}

func TestNilTLSFunc(t *testing.T) {
	if _, err := framework.New("h:1", framework.WithTLSFunc(nil)); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("error %v", err)
	}
}
