// This file tests WithEnsembleTracking, in virtual time. The package servers
// has the tests of which addresses of a config count, and in which order they
// are called.
package managed_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// tracking is a client that follows the config of its ensemble.
var tracking = framework.WithEnsembleTracking()

// replaceAll adds a member for each of the first ones, and then removes and
// stops that.
func replaceAll(t *testing.T, ens *testutil.Embedded, members int, pause time.Duration) {
	t.Helper()
	for old := range members {
		_, err := ens.AddMember(t.Context())
		must(t, err)
		time.Sleep(pause)
		must(t, ens.RemoveMember(t.Context(), old))
		time.Sleep(pause)
		must(t, ens.Stop(old))
		time.Sleep(pause)
	}
}

// All members of an ensemble are replaced one by one, and nobody tells the
// client. Its session and its lease stay, and then it still finds the ensemble
// when its connection ends, again and again.
func TestAllMembersAreReplaced(t *testing.T) {
	for _, pause := range []time.Duration{timeout / 2, 2 * timeout} { // before and after the move
		t.Run(fmt.Sprint(pause), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				const n = 6
				var all [n]*framework.Client
				var networks [n]*testutil.ClientNet
				var lost [n]<-chan error
				var ids [n]int64
				for i := range n {
					all[i], networks[i] = connect(t, ens, tracking)
					s := session(t, all[i])
					lost[i], ids[i] = lossOf(t, s), s.ID()
				}
				time.Sleep(time.Second)
				replaceAll(t, ens, 3, pause)
				time.Sleep(3 * timeout)
				gone := strings.Split(ens.Servers(), ",")[:3]
				for i, c := range all {
					for range 6 {
						if at := c.Server(); at == "" || slices.Contains(gone, at) {
							t.Errorf("client %d is at %q", i, at)
						}
						networks[i].Drop()
						time.Sleep(timeout)
					}
					if len(lost[i]) > 0 || session(t, c).ID() != ids[i] {
						t.Errorf("client %d has lost its session", i)
					}
					for _, one := range c.Servers() {
						want := framework.ServerFromConfig
						if slices.Contains(gone, one.Name) {
							want = framework.ServerGiven
						}
						if one.From != want || (one.Connected != "") != (one.Name == c.Server()) {
							t.Errorf("%+v", one)
						}
					}
				}
			}, testutil.WithReconfig())
		})
	}
}

// When all members were replaced, and the session has ended, the client gets
// another one at an address that only the config has: the ensemble there is
// known.
func TestANewSessionAtATrackedAddress(t *testing.T) {
	for _, chroot := range []string{"", "/app"} {
		t.Run("at"+chroot, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				provision(t, ens, 0)
				given := ens.Servers()
				c, err := framework.New(given+chroot, framework.WithSessionTimeout(timeout), framework.WithDialer(ens.ClientNet("client").Dial), tracking)
				must(t, err)
				defer c.Close()
				must(t, c.WaitConnected(t.Context()))
				time.Sleep(time.Second)
				replaceAll(t, ens, 3, 2*timeout)
				before := session(t, c).ID()
				must(t, ens.ExpireSession(before))
				time.Sleep(timeout)
				if at := c.Server(); at == "" || strings.Contains(given, at) || session(t, c).ID() == before {
					t.Errorf("at %q, in session %x", at, session(t, c).ID())
				}
			}, testutil.WithReconfig())
		})
	}
}

// A client that does not follow the config loses its session when all members
// were replaced: that is what the option is for.
func TestAllMembersAreReplacedForAClientThatIsNotTracking(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		lost := lossOf(t, session(t, c))
		replaceAll(t, ens, 3, timeout)
		time.Sleep(3 * timeout)
		if len(lost) == 0 {
			t.Errorf("the client is at %q", c.Server())
		}
	}, testutil.WithReconfig())
}

// A client leaves a member that was removed before that is stopped, and does
// not move for one that was added.
func TestAClientLeavesAMemberThatIsRemoved(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens, tracking)
		lost := lossOf(t, session(t, c))
		time.Sleep(time.Second)
		states, left := record(c), c.Server()
		_, err := ens.AddMember(t.Context())
		must(t, err)
		time.Sleep(3 * timeout)
		if got := states.states(); got != "CONNECTED " {
			t.Errorf("after a member was added: %s", got)
		}
		must(t, ens.RemoveMember(t.Context(), slices.Index(strings.Split(ens.Servers(), ","), left)))
		time.Sleep(3 * timeout)
		if at := c.Server(); at == left || at == "" || len(lost) > 0 {
			t.Errorf("the client is at %q, losses: %d", at, len(lost))
		}
	}, testutil.WithReconfig())
}

// At version 0 each member shows what its own file says. A client that has
// heard of a member from another one finds it.
func TestFilesThatDiffer(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, tracking)
		s := session(t, c)
		lost := lossOf(t, s)
		_, err := ens.AddMember(t.Context()) // the files have it, the members that run do not show it
		must(t, err)
		for i := range 3 {
			must(t, ens.Stop(i))
			must(t, ens.Restart(i))
			time.Sleep(timeout)
		}
		for range 6 {
			network.Drop()
			time.Sleep(timeout)
		}
		if n := len(c.Servers()); n != 4 || len(lost) > 0 || session(t, c).ID() != s.ID() {
			t.Errorf("%d servers, losses: %d", n, len(lost))
		}
	})
}

// A client that follows the config asks for it once in a session timeout, and
// twice after a reconnect: for the znode, and for the root.
func TestWhatTrackingCosts(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		asked := func(opts ...framework.Option) (idle, reconnects int) {
			c, network := connect(t, ens, opts...)
			count := func(round func()) (n int) {
				ens.ResetRequests()
				for range 10 {
					round()
				}
				for op, times := range ens.Requests() {
					if op != testutil.OpPing {
						n += times
					}
				}
				return n
			}
			time.Sleep(2 * timeout)
			idle = count(func() { time.Sleep(timeout) })
			reconnects = count(func() {
				network.Drop()
				time.Sleep(timeout)
			})
			must(t, c.Close())
			return idle, reconnects
		}
		idle, reconnects := asked()
		more, moreReconnects := asked(tracking)
		t.Logf("in ten timeouts %d and %d requests, with ten reconnects %d and %d", idle, more, reconnects, moreReconnects)
		if n := more - idle; n < 5 || n > 15 {
			t.Errorf("%d requests in ten timeouts", n)
		}
		if n := moreReconnects - reconnects; n < 20 || n > 40 {
			t.Errorf("%d requests in ten reconnects and timeouts", n)
		}
	}, testutil.WithReconfig())
}

// Without /zookeeper/config, as on a standalone server, the list stays.
func TestTrackingOfAStandaloneServer(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens, tracking)
		time.Sleep(5 * timeout)
		if all := c.Servers(); len(all) != 1 || all[0].From != framework.ServerGiven || all[0].Connected == "" {
			t.Errorf("%+v", all)
		}
	})
}

// The config of an ensemble is outside of the chroot and the namespace.
func TestTrackingBelowAChroot(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		provision(t, ens, 0)
		network := ens.ClientNet("chroot")
		c, err := framework.New(membersOf(ens, 0)+"/app", framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial), tracking)
		must(t, err)
		defer c.Close()
		must(t, c.WaitConnected(t.Context()))
		lost := lossOf(t, session(t, c))
		time.Sleep(time.Second)
		if n := len(c.Servers()); n != 3 {
			t.Errorf("%+v", c.Servers())
		}
		must(t, ens.Stop(0))
		time.Sleep(3 * timeout)
		if at := c.Server(); !strings.Contains(membersOf(ens, 1, 2), at) || at == "" || len(lost) > 0 {
			t.Errorf("the client is at %q, losses: %d", at, len(lost))
		}
	})
}

// The given servers are all gone, and silent: nobody waits for them at a
// reconnect, and the lease stays.
func TestGivenServersThatAreSilent(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		home := ens.ClientNet("home")
		var gone atomic.Pointer[[]string]
		gone.Store(new([]string))
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), tracking,
			framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
				if slices.Contains(*gone.Load(), address) {
					time.Sleep(limit)
					return nil, syscall.ETIMEDOUT
				}
				return home.Dial(network, address, limit)
			}))
		must(t, err)
		defer c.Close()
		must(t, c.WaitConnected(t.Context()))
		lost := lossOf(t, session(t, c))
		time.Sleep(time.Second)
		given := strings.Split(ens.Servers(), ",")
		replaceAll(t, ens, 3, 2*timeout)
		gone.Store(&given)
		for range 6 {
			home.Drop()
			time.Sleep(timeout)
		}
		if at := c.Server(); len(lost) > 0 || at == "" || slices.Contains(given, at) {
			t.Errorf("lost %d, at %q", len(lost), at)
		}
	}, testutil.WithReconfig())
}

// A change of the config is heard of by a watch, and not at the next look.
func TestAChangeOfTheMembersIsHeardOf(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens, tracking)
		for n := 4; n < 7; n++ {
			time.Sleep(timeout / 3)
			_, err := ens.AddMember(t.Context())
			must(t, err)
			time.Sleep(timeout / 20)
			if all := c.Servers(); len(all) != n {
				t.Errorf("%d servers, want %d", len(all), n)
			}
		}
	}, testutil.WithReconfig())
}

// All clients of a member that is removed from the ensemble move, each at
// another moment within a session timeout.
func TestClientsLeaveARemovedMemberOneByOne(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		const n = 40
		leaves := (ens.Leader() + 1) % 3
		clients, states := make([]*framework.Client, n), make([]*recorder, n)
		for i := range n {
			var err error
			clients[i], err = framework.New(membersOf(ens, leaves), framework.WithSessionTimeout(timeout), tracking, framework.WithDialer(ens.Dial))
			must(t, err)
			defer clients[i].Close()
			must(t, clients[i].WaitConnected(t.Context()))
		}
		time.Sleep(2 * timeout)
		for i, c := range clients {
			states[i] = record(c)
		}
		must(t, ens.RemoveMember(t.Context(), leaves))
		began := time.Now()
		time.Sleep(timeout + timeout/6)
		for _, c := range clients {
			if at := c.Server(); at == "" || at == membersOf(ens, leaves) {
				t.Errorf("a client is at %q", at)
			}
		}
		areSpread(t, states, began)
	}, testutil.WithReconfig())
}

// A member has gone, and another ensemble has its address. A client whose
// session has ended opens no other one there, and one whose session lasts
// keeps it.
func TestATrackedAddressOfAnotherEnsemble(t *testing.T) {
	for _, chroot := range []string{"", "/app"} {
		for name, writes := range map[string]int{"with fewer transactions": fewer, "with more transactions": more} {
			if chroot == "" && writes == more {
				continue // without a chroot nothing tells them apart
			}
			t.Run(name+chroot, func(t *testing.T) {
				inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
					provision(t, ens, ours)
					theirs := other(t, writes)
					home := ens.ClientNet("home")
					given := membersOf(ens, 0)
					var away atomic.Bool
					var calls atomic.Int64
					c, err := framework.New(given+chroot, framework.WithSessionTimeout(timeout), tracking,
						framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
							if away.Load() && address != given {
								calls.Add(1)
								return theirs.Dial(network, theirs.Servers(), limit)
							}
							return home.Dial(network, address, limit)
						}))
					must(t, err)
					defer c.Close()
					must(t, c.WaitConnected(t.Context()))
					s := session(t, c)
					time.Sleep(time.Second)
					if n := len(c.Servers()); n != 3 {
						t.Fatalf("%+v", c.Servers())
					}
					away.Store(true)
					must(t, ens.Stop(0))
					time.Sleep(timeout / 2)
					if calls.Load() == 0 || s.Err() != nil {
						t.Errorf("%d calls; the session has ended by what another ensemble says: %v", calls.Load(), s.Err())
					}
					time.Sleep(20 * timeout)
					for _, one := range c.Servers() {
						if one.Failure == nil {
							t.Errorf("nothing is said of %+v", one)
						}
					}
					if c.Server() != "" || len(theirs.Sessions()) > 0 {
						t.Errorf("the client is at %q, with %d sessions of another ensemble", c.Server(), len(theirs.Sessions()))
					}
					must(t, ens.Restart(0))
					must(t, c.WaitConnected(within(t, 5*timeout)))
					if at := c.Server(); at != given {
						t.Errorf("the client is at %q", at)
					}
				})
			})
		}
	}
}

// What is at tracked addresses speaks another protocol, or none, or is silent.
// The client names it, and keeps its session at the given address. It calls one
// that is silent no more than it has to.
func TestTrackedAddressesThatAreNoServers(t *testing.T) {
	for name, tt := range map[string]struct {
		says   string // before it closes the connection
		mute   bool   // it says nothing, and does not close it
		silent bool   // it does not answer the dial
		why    string
	}{
		"SSH":      {says: "SSH-2.0-OpenSSH_9.2\r\n", why: "malformed"},
		"HTTP":     {says: "HTTP/1.1 400 Bad Request\r\n\r\n", why: "malformed"},
		"TLS":      {says: "\x15\x03\x01\x00\x02\x02\x46", why: "it answers with TLS"}, // an alert
		"hangs up": {says: "", why: "it has no quorum"},
		"mute":     {mute: true, why: "no answer to the connect request"},
		"silent":   {silent: true, why: "i/o timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				home, given := ens.ClientNet("home"), membersOf(ens, 0)
				var away atomic.Bool
				var calls atomic.Int64
				c, err := framework.New(given, framework.WithSessionTimeout(timeout), tracking,
					framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
						if address == given && away.Load() {
							return nil, fmt.Errorf("dial %s: %w", address, syscall.ECONNREFUSED)
						}
						if address == given {
							return home.Dial(network, address, limit)
						}
						calls.Add(1)
						if tt.silent {
							time.Sleep(limit)
							return nil, fmt.Errorf("dial %s: %w", address, os.ErrDeadlineExceeded)
						}
						near, far := net.Pipe()
						go func() {
							if _, err := far.Read(make([]byte, 1024)); err == nil && !tt.mute {
								_, _ = io.WriteString(far, tt.says)
								_ = far.Close()
							}
						}()
						return near, nil
					}))
				must(t, err)
				defer c.Close()
				must(t, c.WaitConnected(t.Context()))
				s := session(t, c)
				lost := lossOf(t, s)
				time.Sleep(timeout)
				away.Store(true)
				home.Drop()
				time.Sleep(timeout / 12)
				away.Store(false)
				time.Sleep(2 * timeout)
				if calls.Load() == 0 {
					t.Error("nobody has called a tracked address")
				}
				named := 0
				for _, one := range c.Servers() {
					if one.From == framework.ServerFromConfig && one.Failure != nil {
						named++
						if !strings.Contains(one.Failure.Error(), tt.why) {
							t.Errorf("%+v", one)
						}
					}
				}
				if named == 0 {
					t.Errorf("no failure: %+v", c.Servers())
				}
				before := calls.Load()
				for range 10 {
					home.Drop()
					time.Sleep(timeout)
				}
				if c.Server() != given || len(lost) > 0 || session(t, c).ID() != s.ID() {
					t.Errorf("the client is at %q, losses: %d", c.Server(), len(lost))
				}
				if n := calls.Load() - before; n > 0 {
					t.Errorf("%d calls while the given server answers", n)
				}
			})
		})
	}
}

// A config names 10,000 members, or loopback alone, in place of the ensemble's.
// The client says so in its log, calls none of them, and keeps its session and
// its lease at the given address.
func TestHostileConfigs(t *testing.T) {
	member := func(i int, client string) string {
		return fmt.Sprintf("server.%d=zk%d:2888:3888:participant;%s\n", i, i, client)
	}
	many, loopback := "", ""
	for i := range 10_000 {
		many += member(i, fmt.Sprintf("10.9.%d.%d:2181", i/250, i%250))
	}
	for i, client := range []string{"127.0.0.1:2181", "[::1]:2181", "localhost:2181"} {
		loopback += member(i, client)
	}
	for name, tt := range map[string]struct{ config, log string }{
		"10,000 members": {many, "10000 members: at most 255 are followed"},
		"loopback":       {loopback, "a local address, and none was given"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				const given = "10.0.0.1:2181"
				network := ens.ClientNet("c")
				core, logs := observer.New(zap.WarnLevel)
				var calls atomic.Int64
				c, err := framework.New(given, framework.WithSessionTimeout(timeout), tracking, framework.WithLogger(zap.New(core)),
					framework.WithDialer(func(transport, address string, limit time.Duration) (net.Conn, error) {
						if address != given {
							calls.Add(1)
							return nil, fmt.Errorf("dial %s: %w", address, syscall.ECONNREFUSED)
						}
						return network.Dial(transport, ens.Servers(), limit)
					}))
				must(t, err)
				defer c.Close()
				must(t, c.WaitConnected(t.Context()))
				s := session(t, c)
				lost := lossOf(t, s)
				operator, _ := connect(t, ens, framework.WithAuth("digest", []byte("super:secret")))
				for version := range 3 { // each is shown later than the one before
					_, err := operator.Set(t.Context(), "/zookeeper/config", fmt.Appendf(nil, "%sversion=%x", tt.config, 0x100000000+version), -1)
					must(t, err)
					time.Sleep(timeout)
					network.Drop()
					time.Sleep(timeout)
				}
				if len(lost) > 0 || session(t, c).ID() != s.ID() || c.Server() != given {
					t.Errorf("the client is at %q, losses: %d", c.Server(), len(lost))
				}
				if all := c.Servers(); len(all) != 1 || all[0].Name != given || calls.Load() > 0 {
					t.Errorf("%d calls of other servers than the one that was given; %+v", calls.Load(), all)
				}
				said := false
				for _, entry := range logs.All() {
					why, _ := entry.ContextMap()["error"].(string)
					said = said || strings.Contains(why, tt.log)
				}
				if !said {
					t.Errorf("not logged: %v", logs.All())
				}
			}, testutil.WithSuperDigest(testutil.Digest("super:secret")))
		})
	}
}

// A member that accepts connections and answers nothing was called in turn, and
// each of those reconnects took a third of a session timeout.
func TestAMemberThatAnswersNothingIsCalledLast(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("client")
		hung := membersOf(ens, 2)
		var calls atomic.Int64
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout),
			framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
				if address == hung {
					calls.Add(1)
				}
				return network.Dial(kind, address, limit)
			}))
		must(t, err)
		defer c.Close()
		must(t, ens.Pause(2))
		must(t, c.WaitConnected(t.Context()))
		time.Sleep(timeout)
		for range 3 {
			network.Drop()
			time.Sleep(timeout)
		}
		before := calls.Load()
		for range 12 {
			network.Drop()
			time.Sleep(timeout)
			if c.Server() == "" || c.Server() == hung {
				t.Errorf("the client is at %q", c.Server())
			}
		}
		if n := calls.Load(); before == 0 || n > before {
			t.Errorf("%d calls, then %d", before, n)
		}
		must(t, ens.Resume(2))
	})
}
