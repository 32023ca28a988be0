package managed_test

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/nameserver"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// behind is a network on which addresses lead to members, or to something that
// drops connections or says nothing. It remembers what was called.
type behind struct {
	members map[string]string // by address
	network *testutil.ClientNet

	mu     sync.Mutex // guards what follows
	called []string
	limits map[string]time.Duration // that the latest call of each address had
}

func (b *behind) Dial(kind, address string, limit time.Duration) (net.Conn, error) {
	b.mu.Lock()
	b.called = append(b.called, address)
	if b.limits == nil {
		b.limits = make(map[string]time.Duration)
	}
	b.limits[address] = limit
	b.mu.Unlock()
	member, ok := b.members[address]
	switch {
	case !ok:
		return nil, errors.New("no such host")
	case member == "drops":
		ours, theirs := net.Pipe()
		theirs.Close()
		return ours, nil
	case member == "silent": // as a host that is off
		time.Sleep(limit)
		return nil, os.ErrDeadlineExceeded
	case member == "mute": // it accepts, and says nothing
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		return ours, nil
	}
	return b.network.Dial(kind, member, limit)
}

// all returns what was called since the last time.
func (b *behind) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	called := b.called
	b.called = nil
	return called
}

// One name stood for the whole ensemble, and its first member accepted and
// dropped connections. Go's dialer stops at the first address that accepts, so
// the client never connected.
func TestEachAddressOfANameIsTried(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		for range 10 { // the order is random
			d := &nameserver.Server{}
			d.Is("", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
			b := &behind{network: ens.ClientNet("behind a name"), members: map[string]string{
				"10.0.0.1:2181": "drops", "10.0.0.2:2181": "drops", "10.0.0.3:2181": "drops", "10.0.0.4:2181": "member0:2181",
			}}
			c, err := framework.New("zk.example.:2181", framework.WithSessionTimeout(timeout),
				framework.WithResolver(d.Resolver()), framework.WithDialer(b.Dial))
			must(t, err)
			began := time.Now()
			if err := c.WaitConnected(within(t, timeout)); err != nil {
				t.Fatalf("%v; called %v", err, b.all())
			}
			if took := time.Since(began); took > timeout/10 {
				t.Errorf("it took %v", took)
			}
			called := b.all()
			slices.Sort(called)
			if once := slices.Compact(slices.Clone(called)); len(once) != len(called) {
				t.Errorf("called in the first round: %v", called)
			}
			if n := d.Asked(); n != len(called) {
				t.Errorf("resolved %d times in %d attempts", n, len(called))
			}
			must(t, c.Close())
		}
	})
}

// The servers have moved to other addresses while the client was connected. The
// client finds them, although none of the old addresses answers.
func TestANameThatStandsForOtherAddressesLater(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		d := &nameserver.Server{}
		d.Is("", "10.0.0.1", "10.0.0.2")
		b := &behind{network: ens.ClientNet("behind a name"), members: map[string]string{
			"10.0.0.1:2181": "member0:2181", "10.0.0.2:2181": "member1:2181",
			"[fd00::3]:2181": "member2:2181",
		}}
		c, err := framework.New("zk.example.:2181", framework.WithSessionTimeout(timeout),
			framework.WithResolver(d.Resolver()), framework.WithDialer(b.Dial))
		must(t, err)
		defer c.Close()
		must(t, c.WaitConnected(t.Context()))
		first := b.all()
		b.network.Drop()
		time.Sleep(time.Second)
		if again := b.all(); len(first) != 1 || len(again) != 1 || first[0] == again[0] {
			t.Errorf("called %v, then %v: want one each, and not the one that has just been lost", first, again)
		}
		s := session(t, c)
		d.Is("", "fd00::3")
		b.network.Drop()
		time.Sleep(time.Second)
		if got := b.all(); !slices.Equal(got, []string{"[fd00::3]:2181"}) {
			t.Errorf("called %v", got)
		}
		if session(t, c).ID() != s.ID() || !s.Connected() {
			t.Error("the session was lost")
		}
	})
}

// Addresses that accept and drop connections are called at the pace of a list
// of as many servers: one round at once, then a pause before each further one.
func TestThePaceCountsAddresses(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, _ *testutil.Embedded) {
		d := &nameserver.Server{}
		d.Is("", "10.0.0.1", "10.0.0.2", "fd00::3", "fd00::4")
		b := &behind{members: map[string]string{
			"10.0.0.1:2181": "drops", "10.0.0.2:2181": "drops", "[fd00::3]:2181": "drops", "10.0.0.9:2181": "drops",
		}}
		c, err := framework.New("zk.example.:2181,10.0.0.9:2181", framework.WithSessionTimeout(timeout),
			framework.WithResolver(d.Resolver()), framework.WithDialer(b.Dial))
		must(t, err)
		defer c.Close()
		time.Sleep(time.Minute)
		called := b.all()
		if len(called) < 5*60 || len(called) > 5*60*12 {
			t.Errorf("%d calls in a minute", len(called))
		}
		count := map[string]int{}
		for _, a := range called {
			count[a]++
		}
		for a, n := range count {
			if len(count) != 5 || n < len(called)/5-1 || n > len(called)/5+1 {
				t.Errorf("%s was called %d times of %d", a, n, len(called))
			}
		}
		err = c.WaitConnected(within(t, time.Second))
		if err == nil || !strings.Contains(err.Error(), ":2181") {
			t.Errorf("the error does not say what was called: %v", err)
		}
	})
}

// A name that cannot be resolved counts as an attempt, and the error says so.
func TestANameThatCannotBeResolved(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		d := &nameserver.Server{}
		b := &behind{network: ens.ClientNet("behind a name"), members: map[string]string{"10.0.0.1:2181": "member0:2181"}}
		c, err := framework.New("zk.example.:2181", framework.WithSessionTimeout(timeout),
			framework.WithResolver(d.Resolver()), framework.WithDialer(b.Dial))
		must(t, err)
		defer c.Close()
		err = c.WaitConnected(within(t, 10*time.Second))
		if err == nil || !strings.Contains(err.Error(), "resolve zk.example.") {
			t.Errorf("the error does not say why: %v", err)
		}
		if n := d.Asked(); n < 5 || n > 1000 {
			t.Errorf("asked %d times in 10s", n)
		}
		d.Is("", "10.0.0.1")
		must(t, c.WaitConnected(within(t, 2*time.Second)))
	})
}

// A client that closes without a connection closes its session through the
// addresses of the name.
func TestASessionIsClosedByAddress(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		d := &nameserver.Server{}
		d.Is("", "10.0.0.1", "10.0.0.2", "10.0.0.3")
		b := &behind{network: ens.ClientNet("behind a name"), members: map[string]string{
			"10.0.0.1:2181": "member0:2181", "10.0.0.2:2181": "drops", "10.0.0.3:2181": "drops",
		}}
		c, err := framework.New("zk.example.:2181", framework.WithSessionTimeout(time.Minute),
			framework.WithResolver(d.Resolver()), framework.WithDialer(b.Dial))
		must(t, err)
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		d.Is("", "10.0.0.2")
		b.network.Drop()
		time.Sleep(10*time.Second + 50*time.Millisecond)
		if s.Connected() || !alive(ens, s.ID()) {
			t.Fatalf("connected %t, alive %t", s.Connected(), alive(ens, s.ID()))
		}
		d.Is("", "10.0.0.1", "10.0.0.2", "10.0.0.3")
		must(t, c.Close())
		if alive(ens, s.ID()) {
			t.Error("the session still stands")
		}
	})
}

// Each server of the list is tried at once, and then there is a pause. More
// attempts without a pause would be hammering, and fewer would keep a client
// from a server that is up.
func TestEachServerIsTriedOnceBeforeThePause(t *testing.T) {
	for _, servers := range []string{"a", "a,b", "a,b,c,d,e"} {
		inBubble(t, 1, func(t *testing.T, _ *testutil.Embedded) {
			b := &behind{}
			c, err := framework.New(servers, framework.WithDialer(b.Dial))
			must(t, err)
			defer c.Close()
			synctest.Wait()
			called := b.all()
			slices.Sort(called)
			want := strings.Split(strings.ReplaceAll(servers, ",", ":2181,")+":2181", ",")
			if !slices.Equal(called, want) {
				t.Errorf("called %v before the pause, want %v", called, want)
			}
		})
	}
}

// The dialer gets names, not addresses, at every attempt. A known failure
// elsewhere: CURATOR-229.
func TestDialerGetsNamesEachTime(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var dialed atomic.Int32
		c, _ := connect(t, ens, framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
			if address != "member0:2181" || limit <= 0 || limit > timeout/3 {
				t.Errorf("dialed %s within %v", address, limit)
			}
			dialed.Add(1)
			return ens.Dial(network, address, limit)
		}))
		for range 5 {
			must(t, ens.DropConnections(session(t, c).ID()))
			time.Sleep(3 * time.Second)
		}
		if got := dialed.Load(); got != 6 {
			t.Errorf("dialed %d times, want 6", got)
		}
	})
}
