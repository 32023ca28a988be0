package framework_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// domain is a name server with one answer, which may change.
type domain struct {
	delay   time.Duration   // before each answer
	unknown map[string]bool // names without an address; false: without any answer

	mu      sync.Mutex // guards what follows
	hosts   []string   // the addresses of all other names
	lookups int
}

func (d *domain) is(hosts ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts = hosts
}

func (d *domain) asked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lookups
}

// resolver asks d, over connections in memory.
func (d *domain) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go d.serve(theirs)
		return ours, nil
	}}
}

// serve answers as a name server does over TCP.
func (d *domain) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		time.Sleep(d.delay)
		answer := d.answer(query)
		if answer == nil {
			continue
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// answer answers a query of one question.
func (d *domain) answer(query []byte) []byte {
	const head = 12
	end := head + slices.Index(query[head:], 0) + 1
	kind := binary.BigEndian.Uint16(query[end:])
	name := ""
	for label := query[head:]; label[0] != 0; label = label[1+label[0]:] {
		name += string(label[1:1+label[0]]) + "."
	}
	answers, isUnknown := d.unknown[name]
	if isUnknown && !answers {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var records []byte
	n := 0
	for _, host := range d.hosts {
		if isUnknown {
			break
		}
		address := netip.MustParseAddr(host)
		if address.Is4() != (kind == 1) || address.Is6() != (kind == 28) {
			continue
		}
		n++
		records = append(records, 0xc0, head) // the name of the question
		records = binary.BigEndian.AppendUint16(records, kind)
		records = append(records, 0, 1, 0, 0, 0, 0) // Internet, to be kept for no time
		records = binary.BigEndian.AppendUint16(records, uint16(len(address.AsSlice())))
		records = append(records, address.AsSlice()...)
	}
	if kind == 1 {
		d.lookups++
	}
	reply := append([]byte(nil), query[:end+4]...)
	reply[2] |= 0x80 // an answer
	binary.BigEndian.PutUint16(reply[6:], uint16(n))
	binary.BigEndian.PutUint16(reply[8:], 0)
	binary.BigEndian.PutUint16(reply[10:], 0)
	return append(reply, records...)
}

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

// resolveOnce makes the runtime read its configuration outside of any bubble:
// what it creates for that belongs to the place where it was created.
func resolveOnce(t *testing.T) {
	t.Helper()
	_, _ = (&domain{hosts: []string{"10.0.0.1"}}).resolver().LookupIPAddr(t.Context(), "zk.example.")
}

// One name stood for the whole ensemble, and its first member accepted and
// dropped connections. Go's dialer stops at the first address that accepts, so
// the client never connected.
func TestEachAddressOfANameIsTried(t *testing.T) {
	resolveOnce(t)
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		for range 10 { // the order is random
			d := &domain{}
			d.is("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
			b := &behind{network: ens.ClientNet("behind a name"), members: map[string]string{
				"10.0.0.1:2181": "drops", "10.0.0.2:2181": "drops", "10.0.0.3:2181": "drops", "10.0.0.4:2181": "member0:2181",
			}}
			c, err := framework.New("zk.example.:2181", framework.WithSessionTimeout(timeout),
				framework.WithResolver(d.resolver()), framework.WithDialer(b.Dial))
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
			if n := d.asked(); n != len(called) {
				t.Errorf("resolved %d times in %d attempts", n, len(called))
			}
			must(t, c.Close())
		}
	})
}

// The servers have moved to other addresses while the client was connected. The
// client finds them, although none of the old addresses answers.
func TestANameThatStandsForOtherAddressesLater(t *testing.T) {
	resolveOnce(t)
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		d := &domain{}
		d.is("10.0.0.1", "10.0.0.2")
		b := &behind{network: ens.ClientNet("behind a name"), members: map[string]string{
			"10.0.0.1:2181": "member0:2181", "10.0.0.2:2181": "member1:2181",
			"[fd00::3]:2181": "member2:2181",
		}}
		c, err := framework.New("zk.example.:2181", framework.WithSessionTimeout(timeout),
			framework.WithResolver(d.resolver()), framework.WithDialer(b.Dial))
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
		d.is("fd00::3")
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
	resolveOnce(t)
	inBubble(t, 1, func(t *testing.T, _ *testutil.Embedded) {
		d := &domain{}
		d.is("10.0.0.1", "10.0.0.2", "fd00::3", "fd00::4")
		b := &behind{members: map[string]string{
			"10.0.0.1:2181": "drops", "10.0.0.2:2181": "drops", "[fd00::3]:2181": "drops", "10.0.0.9:2181": "drops",
		}}
		c, err := framework.New("zk.example.:2181,10.0.0.9:2181", framework.WithSessionTimeout(timeout),
			framework.WithResolver(d.resolver()), framework.WithDialer(b.Dial))
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
	resolveOnce(t)
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		d := &domain{}
		b := &behind{network: ens.ClientNet("behind a name"), members: map[string]string{"10.0.0.1:2181": "member0:2181"}}
		c, err := framework.New("zk.example.:2181", framework.WithSessionTimeout(timeout),
			framework.WithResolver(d.resolver()), framework.WithDialer(b.Dial))
		must(t, err)
		defer c.Close()
		err = c.WaitConnected(within(t, 10*time.Second))
		if err == nil || !strings.Contains(err.Error(), "resolve zk.example.") {
			t.Errorf("the error does not say why: %v", err)
		}
		if n := d.asked(); n < 5 || n > 1000 {
			t.Errorf("asked %d times in 10s", n)
		}
		d.is("10.0.0.1")
		must(t, c.WaitConnected(within(t, 2*time.Second)))
	})
}

// A client that closes without a connection closes its session through the
// addresses of the name.
func TestASessionIsClosedByAddress(t *testing.T) {
	resolveOnce(t)
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		d := &domain{}
		d.is("10.0.0.1", "10.0.0.2", "10.0.0.3")
		b := &behind{network: ens.ClientNet("behind a name"), members: map[string]string{
			"10.0.0.1:2181": "member0:2181", "10.0.0.2:2181": "drops", "10.0.0.3:2181": "drops",
		}}
		c, err := framework.New("zk.example.:2181", framework.WithSessionTimeout(time.Minute),
			framework.WithResolver(d.resolver()), framework.WithDialer(b.Dial))
		must(t, err)
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		d.is("10.0.0.2")
		b.network.Drop()
		time.Sleep(10*time.Second + 50*time.Millisecond)
		if s.Connected() || !alive(ens, s.ID()) {
			t.Fatalf("connected %t, alive %t", s.Connected(), alive(ens, s.ID()))
		}
		d.is("10.0.0.1", "10.0.0.2", "10.0.0.3")
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
