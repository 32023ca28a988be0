// This file tests a list of servers that changes while clients run, in virtual
// time: what SetServers refuses, when a client moves and where to, and what a
// move must not cost.
package managed_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/nameserver"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// membersOf returns the list of some members.
func membersOf(ens *testutil.Embedded, members ...int) string {
	all := strings.Split(ens.Servers(), ",")
	var some []string
	for _, i := range members {
		some = append(some, all[i])
	}
	return strings.Join(some, ",")
}

// without returns the list of all members but the one that c is connected to.
func without(ens *testutil.Embedded, c *framework.Client) string {
	at := c.Server()
	return strings.Join(slices.DeleteFunc(strings.Split(ens.Servers(), ","), func(s string) bool { return s == at }), ",")
}

func setServers(t *testing.T, c *framework.Client, list string) {
	t.Helper()
	must(t, c.SetServers(t.Context(), list))
}

// A client whose server is removed moves within a session timeout, in the same
// session, and the lease stays.
func TestAClientLeavesAServerThatIsRemoved(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		lost := lossOf(t, s)
		time.Sleep(2 * timeout)
		left, states := c.Server(), record(c)
		list := without(ens, c)
		setServers(t, c, list)
		if c.Server() != left {
			t.Error("SetServers has waited for the move")
		}
		time.Sleep(timeout + timeout/3)
		if at := c.Server(); at == left || !strings.Contains(list, at) {
			t.Errorf("the client is at %q", at)
		}
		if got := states.states(); got != "CONNECTED SUSPENDED CONNECTED " {
			t.Error(got)
		}
		time.Sleep(3 * timeout)
		if len(lost) > 0 || session(t, c).ID() != s.ID() {
			t.Error("the session was lost")
		}
		if n := ens.Connections(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// areSpread checks that clients have left their connections in each quarter of
// a session timeout, and not most of them in one.
func areSpread(t *testing.T, states []*recorder, began time.Time) {
	t.Helper()
	quarters := [4]int{}
	for _, one := range states {
		for _, change := range one.all() {
			if change.To == framework.Suspended {
				quarters[min(3, change.At.Sub(began)*4/timeout)]++
			}
		}
	}
	for _, moved := range quarters {
		if moved < 1 || moved > len(states)*3/5 {
			t.Errorf("moves in each quarter of a session timeout: %v", quarters)
		}
	}
}

// All clients of a removed server move, each at another moment: they are spread
// over a session timeout.
func TestMovesAreSpreadOverASessionTimeout(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		const n = 40
		clients, states := make([]*framework.Client, n), make([]*recorder, n)
		for i := range n {
			clients[i], _ = start(t, ens)
			setServers(t, clients[i], membersOf(ens, 0))
			must(t, clients[i].WaitConnected(t.Context()))
		}
		time.Sleep(2 * timeout) // those that were connected to another member have moved
		for i, c := range clients {
			states[i] = record(c)
			setServers(t, c, membersOf(ens, 1, 2))
		}
		began := time.Now()
		time.Sleep(timeout + timeout/6)
		for _, c := range clients {
			if at := c.Server(); !strings.Contains(membersOf(ens, 1, 2), at) {
				t.Errorf("a client is at %s", at)
			}
		}
		areSpread(t, states, began)
	})
}

// When a list grows, each client moves with the probability that leaves all
// evenly spread, and only to a server that is new.
func TestClientsSpreadOverAListThatGrows(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, ens *testutil.Embedded) {
		const n = 100
		all, before := make([]*framework.Client, n), make([]string, n)
		for i := range all {
			all[i], _ = start(t, ens)
			setServers(t, all[i], membersOf(ens, i%2))
			must(t, all[i].WaitConnected(t.Context()))
			before[i] = all[i].Server()
			setServers(t, all[i], membersOf(ens, 0, 1)) // it has grown as well
		}
		time.Sleep(3 * timeout)
		for i, c := range all {
			before[i] = c.Server()
			setServers(t, c, membersOf(ens, 0, 1, 2, 3))
		}
		time.Sleep(2 * timeout)
		at := map[string]int{}
		for i, c := range all {
			at[c.Server()]++
			if old := membersOf(ens, 0, 1); c.Server() != before[i] && strings.Contains(old, c.Server()) {
				t.Errorf("moved from %s to %s", before[i], c.Server())
			}
		}
		for _, server := range strings.Split(ens.Servers(), ",") {
			if at[server] < 8 || at[server] > 45 { // 25 are expected, with a deviation of 4.3
				t.Errorf("clients by server: %v", at)
			}
		}
	})
}

// A list that comes twice, as from a file that is written in two steps, still
// makes clients spread.
func TestClientsSpreadOverAListThatComesTwice(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, ens *testutil.Embedded) {
		const n = 60
		all := make([]*framework.Client, n)
		for i := range all {
			all[i], _ = start(t, ens)
			setServers(t, all[i], membersOf(ens, i%2))
			must(t, all[i].WaitConnected(t.Context()))
			setServers(t, all[i], membersOf(ens, 0, 1))
		}
		time.Sleep(3 * timeout)
		for _, c := range all {
			setServers(t, c, membersOf(ens, 0, 1, 2, 3))
		}
		time.Sleep(time.Millisecond)
		for _, c := range all {
			setServers(t, c, membersOf(ens, 3, 2, 1, 0))
		}
		time.Sleep(2 * timeout)
		at := map[string]int{}
		for _, c := range all {
			at[c.Server()]++
		}
		for _, server := range strings.Split(ens.Servers(), ",") {
			if at[server] < 2 || at[server] > 28 { // 15 are expected, with a deviation of 3.4
				t.Errorf("clients by server: %v", at)
			}
		}
	})
}

// A server that lags, or serves nobody, is not moved to. The client stays, and
// moves when it can.
func TestAMoveWaitsForAServerThatServes(t *testing.T) {
	for name, fault := range map[string]struct {
		begin, end func(ens *testutil.Embedded, member int)
	}{
		"lags": {
			func(ens *testutil.Embedded, i int) { ens.Lag(i) },
			func(ens *testutil.Embedded, i int) { ens.Unlag(i) },
		},
		"has no quorum": {
			func(ens *testutil.Embedded, i int) { ens.Isolate(i) },
			func(ens *testutil.Embedded, _ int) { ens.Heal() },
		},
		"is down": {
			func(ens *testutil.Embedded, i int) { _ = ens.Stop(i) },
			func(ens *testutil.Embedded, i int) { _ = ens.Restart(i) },
		},
		"is frozen": {
			func(ens *testutil.Embedded, i int) { _ = ens.Pause(i) },
			func(ens *testutil.Embedded, i int) { _ = ens.Resume(i) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				leader := ens.Leader()
				target := (leader + 1) % 3
				c, _ := start(t, ens)
				setServers(t, c, membersOf(ens, leader))
				must(t, c.WaitConnected(t.Context()))
				s := session(t, c)
				lost := lossOf(t, s)
				fault.begin(ens, target)
				time.Sleep(2 * timeout) // a member without a leader notices it
				_, err := c.Create(t.Context(), "/written", nil, 0)
				must(t, err)
				states := record(c)
				setServers(t, c, membersOf(ens, target))
				time.Sleep(10 * timeout)
				if got := states.states(); got != "CONNECTED " || c.Server() != membersOf(ens, leader) {
					t.Fatalf("%s, at %s", got, c.Server())
				}
				all := c.Servers()
				if len(all) != 2 {
					t.Fatalf("%+v", all)
				}
				for _, one := range all {
					switch one.Name {
					case membersOf(ens, leader):
						if one.From != framework.ServerRemoved || one.Connected != one.Name {
							t.Errorf("%+v", one)
						}
					case membersOf(ens, target):
						if one.From != framework.ServerGiven || one.Connected != "" || one.Failure == nil || time.Since(one.FailureAt) > time.Minute+timeout {
							t.Errorf("%+v", one)
						}
					}
				}
				fault.end(ens, target)
				time.Sleep(2 * time.Minute)
				if got := states.states(); got != "CONNECTED SUSPENDED CONNECTED " || c.Server() != membersOf(ens, target) {
					t.Errorf("%s, at %s", got, c.Server())
				}
				if len(lost) > 0 {
					t.Errorf("the lease was lost: %v", <-lost)
				}
			})
		})
	}
}

// Under ErrorPolicyConnection the moment without a connection costs the leases.
// So the client moves when it holds nothing.
func TestAMoveWaitsUntilNothingIsHeld(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens, framework.WithErrorPolicy(framework.ErrorPolicyConnection))
		left := c.Server()
		lost := make(chan error, 1)
		release, err := session(t, c).Hold(func(why error) { lost <- why })
		must(t, err)
		setServers(t, c, without(ens, c))
		time.Sleep(20 * timeout)
		if c.Server() != left || len(lost) > 0 {
			t.Fatalf("at %s instead of %s; lost %d", c.Server(), left, len(lost))
		}
		release()
		time.Sleep(2*time.Minute + timeout)
		if c.Server() == left {
			t.Error("the client has not moved")
		}
	})
}

// Requests that are under way when a move begins are answered before it. None
// fails, and none may have been applied.
func TestAMoveLosesNoRequest(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		network.Latency(10*time.Millisecond, 10*time.Millisecond)
		_, err := c.Create(t.Context(), "/written", nil, 0)
		must(t, err)
		lost := lossOf(t, session(t, c))
		moved := record(c)
		setServers(t, c, without(ens, c))
		writes := make(chan error)
		const writers = 5
		for range writers {
			go func() {
				for end := time.Now().Add(2 * timeout); time.Now().Before(end); {
					if _, err := c.Create(t.Context(), "/written/n-", nil, 2); err != nil { // sequential: never repeated
						writes <- err
						return
					}
				}
				writes <- nil
			}()
		}
		for range writers {
			if err := <-writes; err != nil {
				t.Errorf("%v; may have been applied: %t", err, framework.MaybeApplied(err))
			}
		}
		if got := moved.states(); got != "CONNECTED SUSPENDED CONNECTED " || len(lost) > 0 {
			t.Errorf("%s; losses: %d", got, len(lost))
		}
		changes := moved.all()
		if took := changes[2].At.Sub(changes[1].At); took > 100*time.Millisecond {
			t.Errorf("%v without a connection", took)
		}
	})
}

// Where round trips are so slow that half of a lease's time is never ahead, a
// client moves when the most is ahead, and keeps its lease.
func TestAMoveInASlowNetwork(t *testing.T) {
	for _, trip := range []time.Duration{timeout / 100, timeout / 20, timeout / 13} {
		t.Run(trip.String(), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				network.Latency(trip/2, trip/2)
				time.Sleep(2 * timeout)
				s := session(t, c)
				must(t, s.Prove(t.Context()))
				lost := lossOf(t, s)
				left := c.Server()
				time.Sleep(2 * timeout)
				setServers(t, c, without(ens, c))
				time.Sleep(4 * timeout)
				if c.Server() == left {
					t.Error("the client has not moved")
				}
				time.Sleep(4 * timeout)
				if len(lost) > 0 {
					t.Errorf("the lease was lost: %v", <-lost)
				}
			})
		})
	}
}

// However often the list changes, a client moves at most once in a session
// timeout.
func TestAtMostOneMoveInASessionTimeout(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		lost := lossOf(t, session(t, c))
		states := record(c)
		const turns = 200
		for range turns {
			setServers(t, c, without(ens, c))
			time.Sleep(timeout / 10)
		}
		moves, latest := 0, time.Time{}
		for _, change := range states.all() {
			if change.To == framework.Suspended {
				moves++
				if since := change.At.Sub(latest); since < timeout {
					t.Errorf("a move %v after another one", since)
				}
				latest = change.At
			}
		}
		if moves < turns/10/4 || len(lost) > 0 {
			t.Errorf("%d moves; losses: %d", moves, len(lost))
		}
	})
}

// The connection ends before the client has moved. It is then made to a server
// of the new list.
func TestALostConnectionComesBeforeTheMove(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		for range 10 {
			c, network := connect(t, ens)
			list := without(ens, c)
			setServers(t, c, list)
			network.Drop()
			time.Sleep(time.Second)
			if at := c.Server(); at == "" || !strings.Contains(list, at) {
				t.Errorf("the client is at %q", at)
			}
		}
	})
}

// A client whose servers are all gone connects as soon as it has others.
func TestOtherServersForAClientWithoutAConnection(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("late")
		c, err := framework.New("nowhere:2181,nobody:2181", framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial))
		must(t, err)
		defer c.Close()
		time.Sleep(time.Hour)
		setServers(t, c, ens.Servers())
		began := time.Now()
		must(t, c.WaitConnected(within(t, timeout)))
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// between returns a dialer to two ensembles of one member: one address leads
// there, all others home. before is called for each dial, and may refuse it.
func between(address string, there, home *testutil.ClientNet, before func(isThere bool) error) framework.Dialer {
	return func(network, to string, limit time.Duration) (net.Conn, error) {
		if err := before(to == address); err != nil {
			return nil, err
		}
		leads := home
		if to == address {
			leads = there
		}
		return leads.Dial(network, "member0:2181", limit)
	}
}

// A move, and one that fails, are logged and observed.
func TestMovesAreTold(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		log, logged := observer.New(zap.InfoLevel)
		var mu sync.Mutex
		var moves []framework.Move
		c, _ := connect(t, ens, framework.WithLogger(zap.New(log)), framework.WithObserver(framework.Observer{Moved: func(m framework.Move) {
			mu.Lock()
			defer mu.Unlock()
			moves = append(moves, m)
		}}))
		time.Sleep(timeout)
		from := c.Server()
		setServers(t, c, "gone:2181")
		time.Sleep(timeout + timeout/3)
		to := strings.Split(without(ens, c), ",")[0]
		setServers(t, c, to)
		time.Sleep(2 * timeout)
		synctest.Wait()
		for _, want := range []struct{ message, field, value string }{
			{"the list of servers was replaced", "to", "gone:2181"},
			{"cannot move to another server of the list", "from", from},
			{"moving to another server of the list", "to", to},
		} {
			if lines := logged.FilterMessage(want.message).All(); len(lines) == 0 || lines[0].ContextMap()[want.field] != want.value {
				t.Errorf("%s: %v", want.message, lines)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if last := moves[len(moves)-1]; moves[0].Err == nil || moves[0].From != from || last.Err != nil || last.To != to {
			t.Errorf("%+v", moves)
		}
	})
}

// A function that has not returned yet does not keep a client from connecting.
func TestAClientConnectsBeforeItsFunctionReturns(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens, framework.WithServersFunc(func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}))
		for range 3 {
			must(t, c.WaitConnected(within(t, time.Second)))
			_, _, err := c.Get(t.Context(), "/")
			must(t, err)
			time.Sleep(timeout)
		}
	})
}

// A list has nothing but another ensemble's servers: the client finds out when
// it moves there, goes back, and stays where it is, with its session and its
// lease, also if it has no chroot that could be compared. A list that has its
// own servers as well it follows.
func TestAMoveToAnotherEnsemble(t *testing.T) {
	for _, chroot := range []string{"", "/app"} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			provision(t, ens, ours)
			time.Sleep(time.Second)
			theirs := other(t, more).ClientNet("taken")
			home := ens.ClientNet("home")
			var dials atomic.Int64
			log, logged := observer.New(zap.WarnLevel)
			c, err := framework.New("ours:2181"+chroot, framework.WithSessionTimeout(timeout), framework.WithLogger(zap.New(log)), framework.WithDialer(between("theirs:2181", theirs, home, func(isThere bool) error {
				if isThere {
					dials.Add(1)
				}
				return nil
			})))
			must(t, err)
			defer c.Close()
			must(t, c.WaitConnected(t.Context()))
			s := session(t, c)
			lost := lossOf(t, s)
			states := record(c)
			must(t, c.SetServers(t.Context(), "theirs:2181"+chroot))
			time.Sleep(20 * timeout)
			// It was asked, and connected to, once.
			if at := c.Server(); len(lost) > 0 || dials.Load() != 2 || at != "ours:2181" || states.states() != "CONNECTED SUSPENDED CONNECTED " {
				t.Fatalf("chroot %q: lost %d, %d dials, at %q: %s", chroot, len(lost), dials.Load(), at, states.states())
			}
			if lines := logged.FilterMessage("a server of the list is another ensemble's").All(); len(lines) != 1 || lines[0].ContextMap()["server"] != "theirs:2181" {
				t.Errorf("logged: %v", logged.All())
			}
			must(t, c.SetServers(t.Context(), "theirs:2181,alsoours:2181"+chroot))
			time.Sleep(5 * timeout)
			if at := c.Server(); len(lost) > 0 || s.Err() != nil || at != "alsoours:2181" {
				t.Errorf("chroot %q: lost %d, session %v, at %q", chroot, len(lost), s.Err(), at)
			}
			states, before := record(c), dials.Load()
			must(t, c.SetServers(t.Context(), "alsoours:2181,theirs:2181"+chroot))
			time.Sleep(10 * timeout)
			if got := states.states(); got != "CONNECTED " || dials.Load() > before {
				t.Errorf("chroot %q: %s, %d dials", chroot, got, dials.Load()-before)
			}
		})
	}
}

// elsewhere returns a client that was given another ensemble's server, has gone
// back, and stays at its own. down says that its own refuses connections.
func elsewhere(t *testing.T, ens *testutil.Embedded, chroot string, down *atomic.Bool) (c *framework.Client, home *testutil.ClientNet, lost <-chan error) {
	t.Helper()
	provision(t, ens, ours)
	time.Sleep(time.Second)
	theirs := other(t, more).ClientNet("taken")
	home = ens.ClientNet("home")
	c, err := framework.New("ours:2181"+chroot, framework.WithSessionTimeout(timeout), framework.WithDialer(between("theirs:2181", theirs, home, func(isThere bool) error {
		if !isThere && down.Load() {
			return syscall.ECONNREFUSED
		}
		return nil
	})))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.WaitConnected(t.Context()))
	lost = lossOf(t, session(t, c))
	must(t, c.SetServers(t.Context(), "theirs:2181"+chroot))
	time.Sleep(4 * timeout)
	return c, home, lost
}

// The connection to its own ensemble ends then, and cannot be made for a
// moment. The client returns there, and keeps its session and its lease.
func TestAClientReturnsToItsOwnEnsemble(t *testing.T) {
	for _, chroot := range []string{"", "/app"} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			var down atomic.Bool
			c, home, lost := elsewhere(t, ens, chroot, &down)
			s := session(t, c)
			for _, outage := range []time.Duration{0, timeout / 10} {
				down.Store(outage > 0)
				home.Drop()
				time.Sleep(outage)
				down.Store(false)
				time.Sleep(3 * timeout)
				if at := c.Server(); len(lost) > 0 || s.Err() != nil || at != "ours:2181" {
					t.Fatalf("chroot %q, after %v: lost %d, %v, at %q", chroot, outage, len(lost), s.Err(), at)
				}
			}
		})
	}
}

// The chroot is deleted when another ensemble was found, and made anew, which
// the client does not read. It must not believe that ensemble: others hold
// locks below the new chroot.
func TestAnotherEnsembleAndAChrootMadeAnew(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var down atomic.Bool
		c, home, _ := elsewhere(t, ens, "/app", &down)
		o, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial))
		must(t, err)
		defer o.Close()
		must(t, o.Delete(t.Context(), "/app", -1))
		must(t, c.SetServers(t.Context(), "ours:2181,theirs:2181/app"))
		time.Sleep(4 * timeout)
		_, err = o.Create(t.Context(), "/app", nil, 0)
		must(t, err)
		down.Store(true)
		home.Drop()
		for range 60 {
			if time.Sleep(timeout / 20); c.Server() == "theirs:2181" {
				t.Fatal("the client has a session of another ensemble")
			}
		}
	})
}

// writesNothing is a connection to a server that hears nothing.
type writesNothing struct{ net.Conn }

func (writesNothing) Write(p []byte) (int, error) { return len(p), nil }

// The server that a client moves to is silent, and the one that it has left is,
// too: there is time to reach a third one before the lease is lost.
func TestAMoveBetweenTwoSilentServers(t *testing.T) {
	for range bubble.Draw(5, 40) {
		inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
			all := strings.Split(ens.Servers(), ",")
			var target atomic.Pointer[string]
			var asked sync.Map
			c, err := framework.New(all[0], framework.WithSessionTimeout(timeout), framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
				if to := target.Load(); to != nil && (address == *to || address == all[0]) {
					time.Sleep(limit)
					return nil, syscall.ETIMEDOUT
				}
				conn, err := ens.Dial(network, address, limit)
				if _, again := asked.LoadOrStore(address, true); again && err == nil && address != all[0] { // it has answered srvr
					target.Store(&address)
					return writesNothing{conn}, nil
				}
				return conn, err
			}))
			must(t, err)
			defer c.Close()
			must(t, c.WaitConnected(t.Context()))
			lost := lossOf(t, session(t, c))
			time.Sleep(2 * timeout)
			must(t, c.SetServers(t.Context(), all[1]+","+all[2]))
			time.Sleep(4 * timeout)
			if at := c.Server(); len(lost) > 0 || at == "" || target.Load() == nil || at == *target.Load() {
				t.Errorf("lost %d, at %q", len(lost), at)
			}
		})
	}
}

// One of two servers that a client should spread to does not take it: it moves
// to the other one.
func TestASpreadThatFails(t *testing.T) {
	moved := 0
	for range 20 {
		inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
			all := strings.Split(ens.Servers(), ",")
			var dials atomic.Int64
			c, err := framework.New(all[0], framework.WithSessionTimeout(timeout), framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
				conn, err := ens.Dial(network, address, limit)
				if err == nil && address == all[1] && dials.Add(1)%2 == 0 { // it answers srvr
					_ = conn.Close()
				}
				return conn, err
			}))
			must(t, err)
			defer c.Close()
			must(t, c.WaitConnected(t.Context()))
			must(t, c.SetServers(t.Context(), ens.Servers()))
			time.Sleep(10 * timeout)
			if c.Server() == all[2] {
				moved++
			}
		})
	}
	if moved < 8 { // two thirds should
		t.Errorf("%d of 20 have moved", moved)
	}
}

// A client is given the servers of another ensemble, and loses its connection
// before it has looked at them. It opens no session there, also when its own
// has ended: the rest of the fleet may hold locks at the servers of the list
// before. At a new member of its own ensemble it does.
func TestAListOfAnotherEnsemble(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		provision(t, ens, ours)
		time.Sleep(time.Second)
		theirs := other(t, more).ClientNet("taken")
		home := ens.ClientNet("home")
		var cut atomic.Bool
		c, err := framework.New("ours:2181/app", framework.WithSessionTimeout(timeout), framework.WithDialer(between("theirs:2181", theirs, home, func(isThere bool) error {
			if !isThere && cut.Load() {
				return syscall.ECONNREFUSED
			}
			return nil
		})))
		must(t, err)
		defer c.Close()
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		must(t, c.SetServers(t.Context(), "theirs:2181/app"))
		synctest.Wait() // what the ensemble is known by was read
		cut.Store(true)
		home.Drop()
		time.Sleep(3 * timeout)
		if c.State() == framework.Connected || c.Server() != "" {
			t.Fatalf("the client is %v at %q", c.State(), c.Server())
		}
		if err := c.Servers()[0].Failure; !errors.Is(err, zkerr.NotVouched) {
			t.Errorf("it says %v", err)
		}
		must(t, c.SetServers(t.Context(), "moved:2181,theirs:2181/app"))
		cut.Store(false)
		time.Sleep(3 * timeout)
		if at := c.Server(); at != "moved:2181" || s.Err() == nil {
			t.Errorf("the client is at %q, its first session has ended: %v; %+v", at, s.Err(), c.Servers())
		}
	})
}

// The chroot was never there, so no ensemble can be told from another one but
// by the session. A client that has found no session of its own where it moves
// to must not doubt that server for ever: when it loses its own it would never
// connect again.
func TestAMoveWithoutAChroot(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		there := other(t, more).ClientNet("there")
		home := ens.ClientNet("home")
		var isDown atomic.Bool
		c, err := framework.New("here:2181/absent", framework.WithSessionTimeout(timeout), framework.WithDialer(between("there:2181", there, home, func(isThere bool) error {
			if isDown.Load() && !isThere {
				return syscall.ECONNREFUSED
			}
			return nil
		})))
		must(t, err)
		defer c.Close()
		must(t, c.WaitConnected(t.Context()))
		must(t, c.SetServers(t.Context(), "there:2181/absent"))
		time.Sleep(3 * timeout)
		if c.Server() != "here:2181" {
			t.Errorf("the client has left its ensemble for %q", c.Server())
		}
		isDown.Store(true)
		home.Drop()
		time.Sleep(3 * timeout)
		if c.Server() != "there:2181" {
			t.Errorf("the client is at %q: %+v", c.Server(), c.Servers())
		}
	})
}

// A dialer that hangs at the server that a client moves to does not keep it
// from moving later.
func TestADialerThatHangsAtATarget(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		release := make(chan struct{})
		defer close(release)
		var there atomic.Pointer[string] // where dials hang
		c, err := framework.New(membersOf(ens, 0), framework.WithSessionTimeout(timeout), framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
			if at := there.Load(); at != nil && *at == address {
				<-release
			}
			return ens.Dial(network, address, limit)
		}))
		must(t, err)
		defer c.Close()
		must(t, c.WaitConnected(t.Context()))
		lost := lossOf(t, session(t, c))
		hangs := membersOf(ens, 1)
		there.Store(&hangs)
		setServers(t, c, hangs)
		time.Sleep(3 * timeout)
		setServers(t, c, membersOf(ens, 2))
		time.Sleep(3*timeout + time.Minute)
		if at := c.Server(); at != membersOf(ens, 2) || len(lost) > 0 {
			t.Errorf("the client is at %q, lost %d", at, len(lost))
		}
	})
}

// Tries to reach a server of a new list come after 2T, then 4T, 8T and at last
// a minute, give or take a quarter.
func TestAMoveIsTriedLessAndLess(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, ens *testutil.Embedded) {
		var tries []time.Time
		none := membersOf(ens, 1)
		c, err := framework.New(membersOf(ens, 0), framework.WithSessionTimeout(timeout), framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
			if address == none {
				if now := time.Now(); len(tries) == 0 || now.Sub(tries[len(tries)-1]) > timeout {
					tries = append(tries, now)
				}
				return nil, errors.New("no route")
			}
			return ens.Dial(network, address, limit)
		}))
		must(t, err)
		must(t, c.WaitConnected(t.Context()))
		setServers(t, c, none)
		time.Sleep(10 * time.Minute)
		must(t, c.Close())
		pauses := []time.Duration{2 * timeout, 4 * timeout, 8 * timeout, time.Minute, time.Minute}
		if len(tries) <= len(pauses) {
			t.Fatalf("%d tries", len(tries))
		}
		for i, pause := range pauses {
			if took := tries[i+1].Sub(tries[i]); took < pause*3/4 || took > pause*5/4+timeout {
				t.Errorf("pause %d took %v, want %v", i+1, took, pause)
			}
		}
	})
}

// A name that cannot be looked up removes nobody. Once it can, the client
// leaves a server that it does not stand for.
func TestANameThatIsNotFoundRemovesNobody(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		n := startNamed(t, ens, "zk0.example.:2181")
		s := n.connected(t, timeout)
		lost := lossOf(t, s)
		n.names.Answer("zk1.example.", nameserver.Silence, 0)
		must(t, n.SetServers(t.Context(), "zk1.example.:2181,zk2.example.:2181"))
		time.Sleep(5 * timeout)
		if at := n.Server(); !strings.HasPrefix(at, "zk0.example.") {
			t.Fatalf("the client is at %s", at)
		}
		if all := n.Servers(); len(all) != 3 || all[0].From != framework.ServerRemoved || all[1].Failure == nil || len(all[1].Addresses) != 0 || len(all[2].Addresses) != 1 {
			t.Errorf("%+v", all)
		}
		n.names.Answer("zk1.example.", nameserver.Addresses, 0)
		time.Sleep(2 * time.Minute)
		if at := n.Server(); strings.HasPrefix(at, "zk0.example.") || at == "" {
			t.Errorf("the client is at %s", at)
		}
		if len(lost) > 0 {
			t.Errorf("the lease was lost: %v", <-lost)
		}
	})
}

// A server that the client should move to gets another address, and the old one
// is gone: the client looks the name up again.
func TestATargetWithAnotherAddress(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		n := startNamed(t, ens, "zk0.example.:2181", framework.WithSessionTimeout(timeout))
		n.names.Is("zk1.example.", "10.0.0.8") // nobody is there
		n.connected(t, timeout)
		must(t, n.SetServers(t.Context(), "zk1.example.:2181"))
		time.Sleep(3 * timeout)
		if at := n.Server(); !strings.HasPrefix(at, "zk0.example.") {
			t.Fatalf("the client is at %s", at)
		}
		n.names.Is("zk1.example.", "10.0.0.2")
		time.Sleep(3 * time.Minute)
		if at := n.Server(); at != "zk1.example.:2181 at 10.0.0.2:2181" {
			t.Errorf("the client is at %s", at)
		}
	})
}

// Another name for the server that the client is connected to: it stays.
func TestAnotherNameForTheSameServer(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		n := startNamed(t, ens, "zk0.example.:2181")
		n.connected(t, timeout)
		n.names.Is("other.example.", "10.0.0.1")
		states := record(n.Client)
		must(t, n.SetServers(t.Context(), "other.example.:2181"))
		time.Sleep(3 * timeout)
		if got := states.states(); got != "CONNECTED " {
			t.Error(got)
		}
		if all := n.Servers(); len(all) != 1 || all[0].Name != "other.example.:2181" || all[0].Connected != "10.0.0.1:2181" || all[0].Failure != nil {
			t.Errorf("%+v", all)
		}
	})
}

// Another form of the address that the client is connected to.
func TestAnotherFormOfTheSameAddress(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		n := startNamed(t, ens, "10.0.0.1:2181")
		n.connected(t, timeout)
		states := record(n.Client)
		must(t, n.SetServers(t.Context(), "[::ffff:10.0.0.1]:2181"))
		time.Sleep(3 * timeout)
		if got := states.states(); got != "CONNECTED " {
			t.Error(got)
		}
		if all := n.Servers(); len(all) != 1 || all[0].From != framework.ServerGiven || all[0].Connected != "10.0.0.1:2181" {
			t.Errorf("%+v", all)
		}
	})
}

// What SetServers refuses. Nothing changes then.
func TestServersThatAreRefused(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		provision(t, ens, 0)
		network := ens.ClientNet("refused")
		c, err := framework.New(ens.Servers()+"/app", framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial))
		must(t, err)
		must(t, c.WaitConnected(t.Context()))
		var many []string
		for i := range 1001 {
			many = append(many, fmt.Sprint("h", i))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for list, want := range map[string]string{
			"":                               "no server in the list",
			" , /app":                        "no server in the list",
			"h1:0/app":                       "port",
			"h1/app,h2/app":                  "comma",
			"h1":                             `must stay "/app"`,
			"h1/other":                       `must stay "/app"`,
			"h1/app/":                        "chroot",
			strings.Join(many, ",") + "/app": "1001 servers: at most 1000",
		} {
			if err := c.SetServers(t.Context(), list); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%.30q: %v", list, err)
			}
		}
		if err := c.SetServers(ended, "h1/app"); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended: %v", err)
		}
		if all := c.Servers(); len(all) != 1 || all[0].Name != ens.Servers() || all[0].Connected != ens.Servers() {
			t.Errorf("%+v", all)
		}
		must(t, c.SetServers(t.Context(), ens.Servers()+","+ens.Servers()+"/app")) // twice the same
		if all := c.Servers(); len(all) != 1 {
			t.Errorf("%+v", all)
		}
		must(t, c.Close())
		if err := c.SetServers(t.Context(), "h1/app"); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("a closed client: %v", err)
		}
		if err := new(framework.Client).SetServers(t.Context(), "h1"); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("a zero client: %v", err)
		}
		if all := new(framework.Client).Servers(); len(all) != 0 {
			t.Errorf("a zero client: %+v", all)
		}
	})
}

// SetServers ends with its context, and with the client, while the name server
// says nothing. Then it has changed nothing.
func TestSetServersIsBounded(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		n := startNamed(t, ens, "zk0.example.:2181")
		n.connected(t, timeout)
		n.names.Answer("zk1.example.", nameserver.Silence, 0)
		for name, tt := range map[string]struct {
			limit, want time.Duration
			err         error
		}{
			"the context": {time.Second, time.Second, context.DeadlineExceeded},
			"the client":  {time.Minute, timeout / 3, nil},
		} {
			began := time.Now()
			err := n.SetServers(within(t, tt.limit), "zk1.example.:2181")
			if !errors.Is(err, tt.err) || time.Since(began) != tt.want {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
			if all := n.Servers(); tt.err != nil && (len(all) != 1 || all[0].Name != "zk0.example.:2181") {
				t.Errorf("%s: %+v", name, all)
			}
			must(t, n.SetServers(t.Context(), "zk0.example.:2181"))
		}
		ended := make(chan error)
		go func() { ended <- n.SetServers(t.Context(), "zk1.example.:2181") }()
		synctest.Wait()
		must(t, n.Close())
		if err := <-ended; !errors.Is(err, framework.ErrClosed) {
			t.Errorf("a client that closes: %v", err)
		}
	})
}

// A client that closes while it waits for a move, or makes it, leaves nothing
// behind: the bubble would not end.
func TestCloseDuringAMove(t *testing.T) {
	for i := range 12 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				network.Latency(50*time.Millisecond, 50*time.Millisecond)
				for moves := 0; moves == 0; {
					states := record(c)
					setServers(t, c, without(ens, c))
					for range 90 {
						time.Sleep(timeout / 72)
						if strings.Contains(states.states(), "SUSPENDED") {
							moves++
							break
						}
					}
					if moves == 0 {
						t.Fatal("no move")
					}
				}
				time.Sleep(time.Duration(i) * 15 * time.Millisecond)
				must(t, c.Close())
				if n := len(ens.Sessions()); n != 0 {
					t.Errorf("%d sessions are left", n)
				}
			})
		})
	}
}
