package managed_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/nameserver"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// overTLS is a dialer whose connections speak TLS at the other end. It notes
// the names that clients ask for.
type overTLS struct {
	dial        func(network, address string, limit time.Duration) (net.Conn, error)
	certificate tls.Certificate

	mu    sync.Mutex // guards asked
	asked map[string]bool
}

func (o *overTLS) Dial(network, address string, limit time.Duration) (net.Conn, error) {
	inner, err := o.dial(network, address, limit)
	if err != nil {
		return nil, err
	}
	client, server := net.Pipe()
	secured := tls.Server(server, &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.asked == nil {
			o.asked = make(map[string]bool)
		}
		o.asked[hello.ServerName] = true
		return &o.certificate, nil
	}})
	for _, way := range [][2]net.Conn{{inner, secured}, {secured, inner}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			way[0].Close()
			way[1].Close()
		}()
	}
	return client, nil
}

// A certificate is for the name of a server, not for the addresses that the
// name has at present: with the address nobody could connect, or anybody who
// has a certificate for an address could be a server. The configured name comes
// first. That is so for a remembered address, and for the connection that
// closes a lost session.
func TestTLSChecksTheNameAndNotTheAddress(t *testing.T) {
	for _, test := range []struct {
		certified, configured string
		asked                 string // "": refused
	}{
		{certified: "zk.example", asked: "zk.example"},
		{certified: "10.0.0.1"},
		{certified: "other.example"},
		{certified: "other.example", configured: "other.example", asked: "other.example"},
		{certified: "zk.example", configured: "other.example"},
	} {
		t.Run(fmt.Sprintf("for %s, configured %q", test.certified, test.configured), func(t *testing.T) {
			certificate, pool := selfSigned(t, test.certified)
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				d := &nameserver.Server{}
				d.Is("", "10.0.0.1", "10.0.0.2")
				b := &behind{network: ens.ClientNet("behind a name"), members: map[string]string{
					"10.0.0.1:2181": "member0:2181", "10.0.0.2:2181": "member0:2181",
				}}
				secured := &overTLS{dial: b.Dial, certificate: certificate}
				c, err := framework.New("zk.example.:2181", framework.WithSessionTimeout(timeout),
					framework.WithResolver(d.Resolver()), framework.WithDialer(secured.Dial),
					framework.WithTLS(&tls.Config{RootCAs: pool, ServerName: test.configured}))
				must(t, err)
				err = c.WaitConnected(within(t, timeout))
				if test.asked == "" {
					var wrong x509.HostnameError
					if !errors.As(err, &wrong) {
						t.Errorf("connected with a certificate for %s: %v", test.certified, err)
					}
					_ = c.Close()
					return
				}
				must(t, err)
				s := session(t, c)
				d.Answer("", nameserver.Silence, 0) // with a remembered address it is no less
				b.network.Drop()                    // the next address
				time.Sleep(time.Second)
				if _, _, err := c.Get(t.Context(), "/"); err != nil || session(t, c).ID() != s.ID() {
					t.Errorf("after a reconnect: %v", err)
				}
				b.network.Cut()
				b.network.Drop()
				time.Sleep(10 * time.Millisecond)
				closed := make(chan error, 1)
				go func() { closed <- c.Close() }()
				time.Sleep(time.Second)
				b.network.Heal()
				must(t, <-closed)
				if alive(ens, s.ID()) {
					t.Error("the session still stands")
				}
				secured.mu.Lock()
				defer secured.mu.Unlock()
				if len(secured.asked) != 1 || !secured.asked[test.asked] {
					t.Errorf("asked for %v, want %s", secured.asked, test.asked)
				}
			})
		})
	}
}

// One name of the list has no address, or the name server says nothing about
// it. The other servers are called all the same, by a new client, after each
// disconnect, and to close a session.
func TestANameWithoutAnAddressHidesNoOther(t *testing.T) {
	for _, answer := range []nameserver.Answer{nameserver.NoName, nameserver.NoAddress, nameserver.Failure, nameserver.Silence} {
		t.Run(string(answer), func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				waited := map[bool]int{} // clients, by whether they waited for the name server
				for range 20 {           // the order is random
					d := &nameserver.Server{}
					d.Answer("gone.example.", answer, 0)
					d.Is("", "10.0.0.1")
					b := &behind{network: ens.ClientNet("behind a name"), members: map[string]string{"10.0.0.1:2181": "member0:2181"}}
					c, err := framework.New("gone.example.:2181,zk.example.:2181", framework.WithSessionTimeout(timeout),
						framework.WithResolver(d.Resolver()), framework.WithDialer(b.Dial))
					must(t, err)
					began := time.Now()
					if err := c.WaitConnected(within(t, timeout)); err != nil {
						t.Fatalf("%v; called %v", err, b.all())
					}
					took := time.Since(began)
					waited[took > 0]++
					if took > timeout/48 || answer != nameserver.Silence && took > 0 {
						t.Errorf("it took %v", took)
					}
					s := session(t, c)
					for range 3 {
						b.network.Drop()
						time.Sleep(timeout / 2)
						if !s.Connected() || s.Err() != nil {
							t.Fatalf("after a disconnect: connected %t, %v; called %v", s.Connected(), s.Err(), b.all())
						}
					}
					b.network.Cut() // so another connection closes the session
					b.network.Drop()
					time.Sleep(10 * time.Millisecond)
					closed := make(chan error, 1)
					go func() { closed <- c.Close() }()
					time.Sleep(100 * time.Millisecond)
					b.network.Heal()
					must(t, <-closed)
					if alive(ens, s.ID()) {
						t.Error("the session still stands")
					}
				}
				time.Sleep(time.Minute) // lookups that nobody waits for end by themselves
				if answer == nameserver.Silence && len(waited) != 2 {
					t.Error("all clients began with the same name: the test shows less than it should")
				}
			})
		})
	}
}

// A name with several addresses: a dead one may use half of the time that is
// left of T/3 after the lookup, so that the client has time for another one. A
// name with one address gives it all of that.
func TestADeadAddressUsesHalfOfTheTime(t *testing.T) {
	const slow = timeout / 30
	for _, test := range []struct {
		dead  string // what the dead address does
		hosts []string
		delay time.Duration // of each answer of the name server
	}{
		{"silent", []string{"10.0.0.1", "10.0.0.2"}, 0},
		{"silent", []string{"10.0.0.1", "fd00::2"}, 0},
		{"silent", []string{"10.0.0.1", "10.0.0.2"}, slow},
		{"silent", []string{"10.0.0.1"}, 0},
		{"silent", []string{"10.0.0.1"}, slow},
		{"mute", []string{"10.0.0.1", "10.0.0.2"}, 0}, // in TLS
	} {
		t.Run(fmt.Sprint(test.dead, " ", test.hosts, " ", test.delay), func(t *testing.T) {
			certificate, pool := selfSigned(t, "zk.example")
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				d := &nameserver.Server{}
				d.Answer("", nameserver.Addresses, test.delay)
				d.Is("", test.hosts...)
				began := time.Now()
				_, err := d.Resolver().LookupIPAddr(t.Context(), "zk.example.")
				must(t, err)
				lookup := time.Since(began) // one answer or two, as this machine has it
				want := (timeout/3 - lookup) / 2
				if len(test.hosts) == 1 { // the latest call used the answer to the one before
					want = timeout/3 - min(lookup, timeout/48)
				}
				late := 0                                          // clients that called the dead address first
				for tries := 0; late < 5 && tries < 100; tries++ { // the order is random
					const dead = "10.0.0.1:2181"
					b := &behind{network: ens.ClientNet("behind a name"), members: map[string]string{
						dead: test.dead, "10.0.0.2:2181": "member0:2181", "[fd00::2]:2181": "member0:2181",
					}}
					opts := []framework.Option{framework.WithSessionTimeout(timeout), framework.WithResolver(d.Resolver()), framework.WithDialer(b.Dial)}
					if test.dead == "mute" {
						good := &overTLS{dial: b.Dial, certificate: certificate}
						opts = append(opts, framework.WithTLS(&tls.Config{RootCAs: pool}), framework.WithDialer(
							func(network, address string, limit time.Duration) (net.Conn, error) {
								if address == dead {
									return b.Dial(network, address, limit)
								}
								return good.Dial(network, address, limit)
							}))
					}
					c, err := framework.New("zk.example.:2181", opts...)
					must(t, err)
					began := time.Now()
					err = c.WaitConnected(within(t, timeout-time.Millisecond))
					took := time.Since(began)
					if !strings.Contains(fmt.Sprint(b.all()), dead) {
						must(t, c.Close())
						continue
					}
					late++
					if got := b.limits[dead]; got != want {
						t.Errorf("a call of the dead address may take %v, want %v", got, want)
					}
					// The second attempt uses the answer that the first one has got.
					if whole := lookup + want + min(lookup, timeout/48); len(test.hosts) > 1 && (err != nil || took != whole) {
						t.Errorf("connected after %v, want %v: %v", took, whole, err)
					}
					must(t, c.Close())
				}
				if late == 0 {
					t.Error("no client called the dead address: the test shows nothing")
				}
			})
		})
	}
}

// A host without a route to one of the two address families does not try all
// addresses of that family first: a call of one is followed by one of the
// other, as long as there are any.
func TestAddressFamiliesAlternate(t *testing.T) {
	for _, hosts := range [][]string{
		{"10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2", "fd00::3"},
		{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "fd00::1"},
		{"10.0.0.1", "fd00::1", "fd00::2", "fd00::3", "fd00::4"},
	} {
		for range bubble.Few(4, 20) { // the order is random
			inBubble(t, 1, func(t *testing.T, _ *testutil.Embedded) {
				d, b := &nameserver.Server{}, &behind{}
				d.Is("", hosts...)
				c, err := framework.New("zk.example.:2181", framework.WithSessionTimeout(timeout),
					framework.WithResolver(d.Resolver()), framework.WithDialer(b.Dial))
				must(t, err)
				defer c.Close()
				_ = c.WaitConnected(within(t, timeout/3))
				called := b.all()
				if len(called) < len(hosts) {
					t.Fatalf("called %v", called)
				}
				left := map[bool]int{} // addresses that were not called, by family
				for _, h := range hosts {
					left[strings.Contains(h, "::")]++
				}
				for i, one := range called[:len(hosts)] {
					family := one[0] == '['
					if i > 0 && family == (called[i-1][0] == '[') && left[!family] > 0 {
						t.Fatalf("called %v: %d and %d are of one family", called[:len(hosts)], i, i+1)
					}
					left[family]--
				}
			})
		}
	}
}

// The deadline counts from when a connect was sent. Its answer may have been on
// the way for a third of the session timeout.
func TestALateConnectAnswerProvesNoMore(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		const late = timeout/3 - 100*time.Millisecond
		c, network := start(t, ens)
		network.Latency(0, late)
		began := time.Now()
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		if !near(s.Deadline(), began.Add(timeout)) {
			t.Errorf("a new session's deadline is %v after its connect was sent, want %v", s.Deadline().Sub(began), timeout)
		}
		for range 3 {
			network.Drop()
			began := time.Now()
			for at := s.Deadline(); s.Deadline().Equal(at); {
				time.Sleep(time.Millisecond)
			}
			if took := time.Since(began); took < late {
				t.Fatalf("connected again within %v", took)
			}
			if at := s.Deadline(); at.After(time.Now().Add(timeout - late)) {
				t.Errorf("the deadline is %v ahead, %v after a connect was sent", time.Until(at), late)
			}
		}
	})
}
