package managed_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/nameserver"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// quick is how long a silent name server may delay an attempt to connect.
const quick = timeout / 48

// named is a client whose servers have a name each, and the network behind
// those.
type named struct {
	*framework.Client
	names *nameserver.Server
	*behind
}

// threeNames are zk0.example to zk2.example, of the members 0 to 2.
const threeNames = "zk0.example.:2181,zk1.example.:2181,zk2.example.:2181"

// startNamed returns a client of a list of servers, which is closed with the
// test.
func startNamed(t *testing.T, ens *testutil.Embedded, servers string, opts ...framework.Option) *named {
	t.Helper()
	n := &named{names: &nameserver.Server{}, behind: &behind{network: ens.ClientNet(fmt.Sprint("named ", clients.Add(1))), members: map[string]string{}}}
	for i, member := range strings.Split(ens.Servers(), ",") {
		host := fmt.Sprint("10.0.0.", i+1)
		n.members[host+":2181"] = member
		n.names.Is(fmt.Sprintf("zk%d.example.", i), host)
	}
	var err error
	n.Client, err = framework.New(servers, append([]framework.Option{
		framework.WithSessionTimeout(timeout), framework.WithResolver(n.names.Resolver()), framework.WithDialer(n.Dial),
	}, opts...)...)
	must(t, err)
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// connected waits until the client is, within limit, and returns its session.
func (n *named) connected(t *testing.T, limit time.Duration) *framework.Session {
	t.Helper()
	if err := n.WaitConnected(within(t, limit)); err != nil {
		t.Fatalf("%v; called %v", err, n.all())
	}
	synctest.Wait() // what the client asks after a connect is answered
	return session(t, n.Client)
}

// lossOf holds a session, and returns a channel that gets why it was lost.
func lossOf(t *testing.T, s *framework.Session) <-chan error {
	t.Helper()
	lost := make(chan error, 1)
	_, err := s.Hold(func(why error) { lost <- why })
	must(t, err)
	return lost
}

// A lease was lost at the first reconnect after the name server had failed,
// though all servers were where they had been. With one of them down, too.
func TestALeaseOutlivesTheNameServer(t *testing.T) {
	for _, answer := range []nameserver.Answer{nameserver.Silence, nameserver.Failure} {
		for _, stopped := range []bool{false, true} {
			t.Run(fmt.Sprint(answer, ", a member stopped ", stopped), func(t *testing.T) {
				inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
					for range 8 { // the order is random
						n := startNamed(t, ens, threeNames)
						s := n.connected(t, timeout)
						lost := lossOf(t, s)
						n.names.Answer("", answer, 0)
						for range 3 {
							member := memberOf(t, ens, s.ID())
							if stopped {
								must(t, ens.Stop(member))
							} else {
								n.network.Drop()
							}
							pause := 3 * quick
							if stopped { // the ensemble elects another leader
								pause = timeout / 3
							}
							time.Sleep(pause)
							if !s.Connected() || len(lost) > 0 {
								t.Fatalf("connected %t, lost %d", s.Connected(), len(lost))
							}
							time.Sleep(2 * timeout)
							if stopped {
								must(t, ens.Restart(member))
							}
							time.Sleep(timeout)
						}
						if len(lost) > 0 || session(t, n.Client).ID() != s.ID() {
							t.Error("the lease was lost")
						}
						must(t, n.Close())
					}
				})
			})
		}
	}
}

// Two names of three are looked up without an answer. That delayed the third by
// T/3 each. A new client has no remembered address, one that holds a lease has.
func TestNamesAreLookedUpBesideEachOther(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		waited := map[bool]int{}
		for i := 0; i < 12 || len(waited) < 2 && i < 100; i++ { // the order is random
			n := startNamed(t, ens, threeNames)
			n.names.Answer("zk0.example.", nameserver.Silence, 0)
			n.names.Answer("zk1.example.", nameserver.Silence, 0)
			began := time.Now()
			s := n.connected(t, timeout)
			took := time.Since(began)
			if waited[took > 0]++; took > quick {
				t.Errorf("connected after %v", took)
			}
			lost := lossOf(t, s)
			for range 3 {
				time.Sleep(timeout / 2)
				n.network.Drop()
				time.Sleep(quick + time.Millisecond)
				if !s.Connected() || len(lost) > 0 {
					t.Fatalf("after a disconnect: connected %t, lost %d", s.Connected(), len(lost))
				}
			}
			must(t, n.Close())
		}
		if len(waited) != 2 {
			t.Error("all clients began with the same kind of name: the test shows less than it should")
		}
	})
}

// A name server may take its time, within a bound: the first server is any of
// the list, and not the one whose name is looked up first.
func TestTheOrderOfServersIsRandomWhateverTheNameServerDoes(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		first := map[string]int{}
		for range 60 {
			n := startNamed(t, ens, threeNames)
			n.names.Answer("zk0.example.", nameserver.Addresses, quick/3)
			n.names.Answer("zk1.example.", nameserver.Addresses, quick/4)
			n.connected(t, timeout)
			first[n.all()[0]]++
			must(t, n.Close())
		}
		for i := range 3 {
			if n := first[fmt.Sprintf("10.0.0.%d:2181", i+1)]; n < 6 {
				t.Errorf("first was %v", first)
			}
		}
	})
}

// A name server that is slower than that is waited for where nothing else is
// known, and delays no reconnect.
func TestASlowNameServer(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		n := startNamed(t, ens, "zk0.example.:2181")
		n.names.Answer("", nameserver.Addresses, timeout/12)
		s := n.connected(t, timeout/3)
		lost := lossOf(t, s)
		for range 5 {
			time.Sleep(timeout / 2)
			n.network.Drop()
			time.Sleep(quick + time.Millisecond)
			if !s.Connected() || len(lost) > 0 {
				t.Fatalf("after a disconnect: connected %t, lost %d", s.Connected(), len(lost))
			}
		}
	})
}

// What the name server says counts: no remembered address is called where the
// name does not exist, or has another address.
func TestARememberedAddressIsNotUsedAgainstTheNameServer(t *testing.T) {
	for name, answer := range map[string]func(n *named){
		"no such name":  func(n *named) { n.names.Answer("", nameserver.NoName, 0) },
		"no address":    func(n *named) { n.names.Answer("", nameserver.NoAddress, 0) },
		"another one":   func(n *named) { n.names.Is("zk0.example.", "10.0.0.9") },
		"also silenced": func(n *named) { n.names.Answer("", nameserver.NoName, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				n := startNamed(t, ens, "zk0.example.:2181")
				n.connected(t, timeout)
				n.all()
				answer(n)
				n.network.Drop()
				time.Sleep(timeout / 2)
				if name == "also silenced" { // it has not been silent all the time
					n.names.Answer("", nameserver.Silence, 0)
				}
				time.Sleep(timeout)
				if called := n.all(); slices.Contains(called, "10.0.0.1:2181") || name == "another one" && len(called) == 0 {
					t.Errorf("called %v", called)
				}
				n.names.Answer("", nameserver.Addresses, 0)
				n.names.Is("zk0.example.", "10.0.0.1")
				n.connected(t, timeout)
			})
		})
	}
}

// Close waited for lookups, and left some behind. The bubble checks that none
// is: those that go on while the client is connected, those of an attempt to
// connect, and those of a session that was lost.
func TestLookupsEndWithTheClient(t *testing.T) {
	for _, at := range []string{"before any answer", "connected", "disconnected", "session lost"} {
		t.Run(at, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				n := startNamed(t, ens, threeNames)
				if at == "before any answer" {
					n.names.Answer("", nameserver.Silence, 0)
					if err := n.WaitConnected(within(t, timeout/4)); err == nil {
						t.Fatal("connected")
					}
				} else {
					s := n.connected(t, timeout)
					n.names.Answer("", nameserver.Silence, 0)
					holdUntilLost(t, s)
					if at != "connected" {
						n.network.Cut()
					}
					n.network.Drop()
					time.Sleep(quick + time.Millisecond) // with remembered addresses
					if at == "session lost" {
						time.Sleep(timeout + quick)
					}
				}
				if n.names.Asked() == 0 {
					t.Fatal("nothing is looked up")
				}
				n.network.Heal()
				began := time.Now()
				must(t, n.Close())
				if took := time.Since(began); took > timeout/3 || at == "before any answer" && took > 0 {
					t.Errorf("Close took %v", took)
				}
			})
		})
	}
}

// A resolver whose Dial hangs, panics or ends its goroutine holds nobody up,
// and leaves nothing behind.
func TestADialOfAResolverThatDoesNotReturn(t *testing.T) {
	for name, dial := range map[string]func(hang <-chan struct{}){
		"hangs":  func(hang <-chan struct{}) { <-hang },
		"panics": func(<-chan struct{}) { panic("no") },
		"exits":  func(<-chan struct{}) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				n := startNamed(t, ens, "10.0.0.1:2181")
				hang := make(chan struct{})
				bad := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
					dial(hang)
					return nil, net.ErrClosed
				}}
				c, err := framework.New("10.0.0.1:2181,bad.example.:2181", framework.WithSessionTimeout(timeout), framework.WithResolver(bad), framework.WithDialer(n.Dial))
				must(t, err)
				must(t, c.WaitConnected(within(t, 2*quick)))
				began := time.Now()
				must(t, c.Close())
				if took := time.Since(began); took > 0 {
					t.Errorf("Close took %v", took)
				}
				close(hang)
			})
		})
	}
}

// other returns another ensemble, which was provisioned by the same script.
func other(t *testing.T, writes int) *testutil.Embedded {
	t.Helper()
	ens, err := testutil.New(testutil.InMemory(), testutil.WithLogger(func(string, ...any) {}))
	must(t, err)
	t.Cleanup(func() { must(t, ens.Close()) })
	provision(t, ens, writes)
	return ens
}

// provision creates the chroot and makes some writes.
func provision(t *testing.T, ens *testutil.Embedded, writes int) {
	t.Helper()
	c, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial))
	must(t, err)
	_, err = c.Create(t.Context(), "/app", nil, 0)
	must(t, err)
	for range writes {
		_, err := c.Set(t.Context(), "/app", nil, -1)
		must(t, err)
	}
	must(t, c.Close())
}

// What the client's ensemble has, and what another one has.
const fewer, ours, more = 0, 100, 200

// Two ensembles could grant one lock: the address of a server was given to
// another ensemble, and the name server does not say so. A session is resumed
// at a remembered address. A new one is used there only if the ensemble is
// known, and whatever else is said there counts only then.
func TestARememberedAddressOfAnotherEnsemble(t *testing.T) {
	for _, chroot := range []string{"", "/app"} {
		for name, writes := range map[string]int{"the same": -1, "another with fewer transactions": fewer, "another with more": more} {
			for _, expired := range []bool{false, true} {
				t.Run(fmt.Sprintf("chroot %q, %s, expired %t", chroot, name, expired), func(t *testing.T) {
					inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
						provision(t, ens, ours)
						time.Sleep(time.Second)
						n := startNamed(t, ens, "zk0.example.:2181"+chroot)
						s := n.connected(t, timeout)
						home := n.network
						if writes >= 0 {
							n.network = other(t, writes).ClientNet("taken")
						}
						n.names.Answer("", nameserver.Silence, 0)
						if expired {
							must(t, ens.ExpireSession(s.ID()))
						}
						n.all()
						home.Drop()
						time.Sleep(timeout / 2)
						now, err := n.Session()
						switch {
						case writes < 0 && !expired:
							if err != nil || now.ID() != s.ID() || !s.Connected() {
								t.Fatalf("not resumed: %v", err)
							}
							return
						case writes < 0, writes == more && chroot == "": // by what the client can know
							if err != nil || !now.Connected() || s.Err() == nil {
								t.Fatalf("no new session: %v, %v", err, s.Err())
							}
							return
						case s.Err() != nil, s.Connected():
							t.Fatalf("connected %t; the session has ended by what another ensemble says: %v", s.Connected(), s.Err())
						}
						if called := len(n.all()); called == 0 || called > 20 {
							t.Errorf("%d calls", called)
						}
						time.Sleep(2 * timeout) // the session has expired at its own ensemble
						if s.Err() != nil {
							t.Errorf("the session has ended: %v", s.Err())
						}
						n.network = home
						n.names.Answer("", nameserver.Addresses, 0)
						if now := n.connected(t, timeout); s.Err() == nil || now.ID() == s.ID() {
							t.Errorf("no new session: %v", s.Err())
						}
					})
				})
			}
		}
	}
}

// The client has created its chroot itself, after the first connect.
func TestAChrootThatTheClientCreatesIsKnown(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		n := startNamed(t, ens, "zk0.example.:2181/app", framework.WithCreateChroot())
		s := n.connected(t, timeout)
		_, err := n.Create(t.Context(), "/any", nil, 0)
		must(t, err)
		synctest.Wait()
		n.names.Answer("", nameserver.Silence, 0)
		must(t, ens.ExpireSession(s.ID()))
		n.network.Drop()
		time.Sleep(timeout / 2)
		if now := n.connected(t, timeout); now.ID() == s.ID() {
			t.Error("no new session")
		}
	})
}

// A server answers at a remembered address that has another chroot than before.
// Once the name server confirms the address that counts, whatever was found
// there until then.
func TestAnAddressThatIsConfirmedLater(t *testing.T) {
	for _, chroot := range []string{"", "/app"} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			provision(t, ens, ours)
			time.Sleep(time.Second)
			n := startNamed(t, ens, "zk0.example.:2181"+chroot)
			s := n.connected(t, timeout)
			home := n.network
			n.network = other(t, fewer).ClientNet("rebuilt")
			n.names.Answer("", nameserver.Silence, 0)
			home.Drop()
			time.Sleep(3 * timeout)
			if s.Connected() || s.Err() != nil {
				t.Fatalf("chroot %q: connected %t; the session has ended: %v", chroot, s.Connected(), s.Err())
			}
			n.names.Answer("", nameserver.Addresses, 0)
			if now := n.connected(t, 2*timeout); s.Err() == nil || now.ID() == s.ID() {
				t.Errorf("chroot %q: no new session: %v", chroot, s.Err())
			}
		})
	}
}

// Close says whether the session is gone. Another ensemble does not know.
func TestAnotherEnsembleClosesNoSession(t *testing.T) {
	for _, writes := range []int{-1, fewer, more} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			provision(t, ens, ours)
			time.Sleep(time.Second)
			n := startNamed(t, ens, "zk0.example.:2181/app")
			s := n.connected(t, timeout)
			n.names.Answer("", nameserver.Silence, 0)
			n.network.Cut()
			n.network.Drop()
			time.Sleep(time.Millisecond)
			elsewhere := writes >= 0
			if elsewhere {
				n.network = other(t, writes).ClientNet("taken")
			} else {
				n.network.Heal()
			}
			if err := n.Close(); (err != nil) != elsewhere || alive(ens, s.ID()) != elsewhere {
				t.Errorf("%d: %v, alive %t", writes, err, alive(ens, s.ID()))
			}
		})
	}
}

// What an ensemble is known by costs one request for each connection, and none
// where no name is looked up.
func TestTheCostOfKnowingTheEnsemble(t *testing.T) {
	for servers, want := range map[string]int{"zk0.example.:2181": 3, "10.0.0.1:2181": 0} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			n := startNamed(t, ens, servers)
			n.connected(t, timeout)
			for range 2 {
				n.network.Drop()
				n.connected(t, timeout)
				time.Sleep(time.Second)
			}
			if got := ens.Requests()[testutil.OpExists]; got != want {
				t.Errorf("%s: %d reads, want %d", servers, got, want)
			}
			if asked := n.names.Asked(); (asked > 0) != (want > 0) {
				t.Errorf("%s: looked up %d times", servers, asked)
			}
		})
	}
}

// Two servers on one host have a name each, with one lookup by Go's resolver.
func TestLookupsOfOneHostEndWithTheClient(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		n := startNamed(t, ens, "zk0.example.:2181,zk0.example.:2182")
		n.names.Answer("", nameserver.Silence, 0)
		time.Sleep(timeout / 10)
		must(t, n.Close())
		synctest.Wait()
		stacks := make([]byte, 1<<20)
		if stacks = stacks[:runtime.Stack(stacks, true)]; strings.Contains(string(stacks), "net.(*Resolver)") {
			t.Errorf("a lookup has not ended:\n%s", stacks)
		}
	})
}

// Another ensemble at a remembered address has fewer transactions than the
// session has seen, but more than it had seen when it connected last. It does
// not say that the history was replaced.
func TestAnotherEnsembleSaysNothingOfTheHistory(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		provision(t, ens, ours)
		n := startNamed(t, ens, "zk0.example.:2181")
		s := n.connected(t, timeout)
		for range 100 {
			_, err := n.Set(t.Context(), "/app", nil, -1)
			must(t, err)
		}
		home := n.network
		n.network = other(t, ours+50).ClientNet("taken")
		n.names.Answer("", nameserver.Silence, 0)
		home.Drop()
		time.Sleep(4 * timeout)
		if s.Err() != nil {
			t.Errorf("ended by what another ensemble says: %v", s.Err())
		}
		n.network = home
		n.names.Answer("", nameserver.Addresses, 0)
	})
}
