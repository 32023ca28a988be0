package testutil_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// reconfigurable runs a test on three members in virtual time.
func reconfigurable(t *testing.T, test func(t *testing.T, e *testutil.Embedded), opts ...testutil.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, testutil.Start(t, append([]testutil.Option{testutil.InMemory(), testutil.WithMembers(3)}, opts...)...))
	})
}

func added(t *testing.T, e *testutil.Embedded) int {
	t.Helper()
	member, err := e.AddMember(t.Context())
	must(t, err)
	return member
}

// configAt returns what a member shows, and when it has written that.
func configAt(t *testing.T, e *testutil.Embedded, member int) (config string, stat wire.Stat) {
	t.Helper()
	p := single(t, e, member, 20*time.Second)
	p.send(wire.OpGetData, look("/zookeeper/config", false))
	_, body, err := p.next()
	must(t, err)
	var m wire.DataResponse
	must(t, wire.Unmarshal(body, &m))
	p.ok(wire.OpCloseSession, nil)
	return string(m.Data), m.Stat
}

// A member that is added has all data, serves, and votes: of four members three
// are a majority.
func TestAddMember(t *testing.T) {
	reconfigurable(t, func(t *testing.T, e *testutil.Embedded) {
		p := single(t, e, 0, 20*time.Second)
		p.ok(wire.OpCreate, create("/before", "", 0))
		if member := added(t, e); member != 3 || e.Members() != 4 || !strings.HasSuffix(e.Servers(), ",member3:2181") {
			t.Fatalf("member %d of %s", member, e.Servers())
		}
		q := single(t, e, 3, 20*time.Second)
		q.ok(wire.OpExists, look("/before", false))
		q.ok(wire.OpCreate, create("/mine", "", 1))
		p.ok(wire.OpExists, look("/mine", false)) // nobody has lost a connection
		must(t, e.Stop(0))
		q.ok(wire.OpCreate, create("/three of four", "", 0))
		must(t, e.Stop(1))
		if code, answered := q.code(wire.OpCreate, create("/two of four", "", 0)); answered {
			t.Errorf("two of four members are a majority: %v", code)
		}
		must(t, e.Restart(0))
		must(t, e.WaitServing(t.Context()))
		must(t, e.Stop(e.Leader()))
		must(t, e.Restart(1))
		must(t, e.WaitServing(t.Context()))
		if !e.Exists("/mine") {
			t.Error("a session did not survive")
		}
	}, testutil.WithReconfig())
}

// A member that has joined after much was written, and after a restore, has all
// of it.
func TestAddMemberLate(t *testing.T) {
	reconfigurable(t, func(t *testing.T, e *testutil.Embedded) {
		p := single(t, e, 1, 20*time.Second)
		for range 5000 {
			p.ok(wire.OpCreate, create("/n-", "", 2))
		}
		e.Restore(e.Snapshot())
		must(t, e.WaitServing(t.Context()))
		single(t, e, added(t, e), 4*time.Second).ok(wire.OpExists, look("/n-0000004999", false))
	}, testutil.WithReconfig())
}

// A removed member keeps its clients, and its vote counts no more: without one
// of the two that vote nothing is written. Once it is stopped it cannot be
// started, unless it is added again before.
func TestRemoveMember(t *testing.T) {
	reconfigurable(t, func(t *testing.T, e *testutil.Embedded) {
		p := single(t, e, 0, 20*time.Second)
		must(t, e.RemoveMember(t.Context(), 0))
		p.ok(wire.OpCreate, create("/after", "", 0))
		if !strings.Contains(e.Describe(), "member 0 (member0:2181) follows member 2, without a vote") {
			t.Errorf("it says:\n%s", e.Describe())
		}
		if err := e.RemoveMember(t.Context(), 0); err == nil {
			t.Error("removed twice")
		}
		if err := e.RemoveMember(t.Context(), 1); err == nil {
			t.Error("one member is left")
		}
		must(t, e.Stop(1))
		if _, answered := p.code(wire.OpCreate, create("/never", "", 0)); answered {
			t.Error("a removed member votes")
		}
		must(t, e.Restart(1))
		must(t, e.WaitServing(t.Context()))
		must(t, e.Stop(2))
		time.Sleep(time.Minute)
		if l := e.Leader(); l != -1 {
			t.Errorf("member %d leads with the vote of a removed one", l)
		}
		must(t, e.Restart(2))
		must(t, e.WaitServing(t.Context()))
		single(t, e, 0, 4*time.Second).ok(wire.OpExists, look("/after", false)) // it follows the new leader
		must(t, e.Stop(0))
		if err := e.Restart(0); err == nil {
			t.Error("a removed member is started")
		}
	}, testutil.WithReconfig())
}

// A member that was removed while it was stopped does not know it: it starts,
// and follows without a vote.
func TestRemoveStoppedMember(t *testing.T) {
	reconfigurable(t, func(t *testing.T, e *testutil.Embedded) {
		must(t, e.Stop(0))
		must(t, e.RemoveMember(t.Context(), 0))
		must(t, e.Restart(0))
		must(t, e.WaitServing(t.Context()))
		config, _ := configAt(t, e, 0)
		if strings.Contains(config, "server.1=") {
			t.Errorf("it shows %q", config)
		}
		must(t, e.Stop(1))
		time.Sleep(10 * time.Second)
		if e.Leader() != -1 {
			t.Error("it votes")
		}
	}, testutil.WithReconfig())
}

// When the leader is removed it still answers the request; then all members
// drop their clients, elect another one, and it follows. Sessions survive.
func TestRemoveLeader(t *testing.T) {
	reconfigurable(t, func(t *testing.T, e *testutil.Embedded) {
		old := e.Leader()
		p := single(t, e, old, 4*time.Second)
		other := single(t, e, 0, 4*time.Second)
		p.ok(wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte("super:secret")})
		p.ok(wire.OpCreate, create("/mine", "", 1))
		added(t, e)
		p.ok(wire.OpReconfig, leaving(fmt.Sprint(old+1)))
		if !p.gone(time.Second) || !other.gone(0) {
			t.Error("clients keep their connections")
		}
		must(t, e.WaitServing(t.Context()))
		if l := e.Leader(); l != 3 {
			t.Errorf("member %d leads", l)
		}
		q := single(t, e, old, 4*time.Second)
		if head := q.header(wire.OpCreate, create("/there", "", 0)); head.Zxid>>32 != 2 || head.Err != wire.OK {
			t.Errorf("at the former leader: %+v", head)
		}
		if !e.Exists("/mine") {
			t.Error("the session has not survived")
		}
	}, testutil.WithReconfig(), testutil.WithSuperDigest(testutil.Digest("super:secret")))
}

// All members are replaced, one after another, and a session lives on.
func TestReplaceAllMembers(t *testing.T) {
	reconfigurable(t, func(t *testing.T, e *testutil.Embedded) {
		p := single(t, e, 0, 20*time.Second)
		p.ok(wire.OpCreate, create("/mine", "", 1))
		must(t, load.ReplaceMembers(t.Context(), e, time.Second, func(int, int) {}))
		if l := e.Leader(); l < 3 || !e.Exists("/mine") {
			t.Errorf("member %d leads\n%s", l, e.Describe())
		}
		nc := dialMember(t, e, 4)
		got := attach(t, nc, &wire.ConnectRequest{Timeout: 4000, SessionID: p.session, Password: p.pass, LastZxidSeen: 2})
		if got == nil || got.SessionID != p.session {
			t.Errorf("attach: %+v", got)
		}
		config, _ := configAt(t, e, 3)
		if want := "server.4=member3:2888:3888:participant;member3:2181\nserver.5="; !strings.HasPrefix(config, want) {
			t.Errorf("the configuration is %q", config)
		}
	}, testutil.WithReconfig())
}

// Each member writes the znode by itself when it has found a leader, so its
// times differ. The version is that of the first leader, and stays.
func TestConfigOfEachMember(t *testing.T) {
	reconfigurable(t, func(t *testing.T, e *testutil.Embedded) {
		times := map[int64]bool{}
		for member := range 3 {
			time.Sleep(time.Second)
			must(t, e.Stop(member))
			must(t, e.WaitServing(t.Context()))
			must(t, e.Restart(member))
			must(t, e.WaitServing(t.Context()))
		}
		for member := range 3 {
			config, stat := configAt(t, e, member)
			times[stat.Mtime] = true
			if !strings.HasSuffix(config, "version=100000000") || stat.Mzxid != 1<<32 || stat.Version != -1 || stat.Czxid != 0 {
				t.Errorf("member %d: %q, %+v", member, config, stat)
			}
		}
		if len(times) < 2 {
			t.Errorf("%d times", len(times))
		}
		e.Restore(nil)
		must(t, e.WaitServing(t.Context()))
		added(t, e)
		if config, _ := configAt(t, e, 0); strings.HasSuffix(config, "version=100000000") || e.Leader() < 0 {
			t.Errorf("after a rebuild: %q", config)
		}
	}, testutil.WithReconfig())
}

// Without reconfigurations each member shows the file with which it was
// started, at version 0.
func TestMembersThatShowTheirOwnFiles(t *testing.T) {
	reconfigurable(t, func(t *testing.T, e *testutil.Embedded) {
		servers := func(member int) int {
			config, stat := configAt(t, e, member)
			if !strings.HasSuffix(config, "version=0") || stat.Mzxid != 0 {
				t.Errorf("member %d: %q, %+v", member, config, stat)
			}
			return strings.Count(config, "server.")
		}
		added(t, e)
		for member, want := range []int{3, 3, 3, 4} {
			if got := servers(member); got != want {
				t.Errorf("member %d shows %d servers, not %d", member, got, want)
			}
		}
		must(t, e.Stop(0))
		must(t, e.Stop(1)) // the leader's file has three members
		time.Sleep(10 * time.Second)
		if e.Leader() != -1 {
			t.Error("a member votes of which the leader does not know")
		}
		must(t, e.Restart(0))
		must(t, e.Restart(1))
		must(t, e.WaitServing(t.Context()))
		must(t, e.Stop(2))
		must(t, e.Restart(2))
		must(t, e.WaitServing(t.Context()))
		for member := range 4 {
			if got := servers(member); got != 4 {
				t.Errorf("member %d shows %d servers", member, got)
			}
		}
		must(t, e.RemoveMember(t.Context(), 0))
		if got := servers(0); got != 4 {
			t.Errorf("before its restart it shows %d servers", got)
		}
		must(t, e.Stop(0))
		if e.Restart(0) == nil {
			t.Error("a removed member is started")
		}
		must(t, e.Stop(1))
		must(t, e.Restart(1))
		must(t, e.WaitServing(t.Context()))
		if got := servers(1); got != 3 {
			t.Errorf("after its restart it shows %d servers", got)
		}
	})
}

// What cannot be changed says why, and nothing has changed.
func TestRefusedReconfigurations(t *testing.T) {
	if e, err := testutil.New(testutil.WithReconfig()); err == nil {
		e.Close()
		t.Error("a standalone server is reconfigured")
	}
	alone := testutil.Start(t)
	if _, err := alone.AddMember(t.Context()); err == nil || alone.RemoveMember(t.Context(), 0) == nil {
		t.Error("a standalone server has got another member")
	}
	reconfigurable(t, func(t *testing.T, e *testutil.Embedded) {
		must(t, e.Stop(0))
		must(t, e.Stop(1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := e.AddMember(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a majority: %v", err)
		}
		if err := e.RemoveMember(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a majority: %v", err)
		}
		if err := e.RemoveMember(ctx, 3); err == nil {
			t.Error("there is no such member")
		}
		must(t, e.Restart(0))
		must(t, e.RemoveMember(t.Context(), 1)) // it waits for the majority
		added(t, e)
		must(t, e.Stop(3))
		if err := e.RemoveMember(t.Context(), 0); err == nil {
			t.Error("of the two that would be left one is stopped")
		}
		must(t, e.Close())
		if _, err := e.AddMember(t.Context()); err == nil || e.RemoveMember(t.Context(), 0) == nil || e.Members() != 4 {
			t.Error("a closed ensemble changes")
		}
	}, testutil.WithReconfig())
}

// A client's network knows a member that was added later: its faults name it,
// and another process reaches it.
func TestClientNetOfANewMember(t *testing.T) {
	e := testutil.Start(t, testutil.WithMembers(3), testutil.WithReconfig())
	n := e.ClientNet("worker")
	before, err := n.Listen()
	must(t, err)
	member := added(t, e)
	after, err := n.Listen()
	must(t, err)
	if !strings.HasPrefix(after, before+",") || strings.Count(after, ",") != member {
		t.Fatalf("%q after %q", after, before)
	}
	asked := testutil.NewFault(testutil.Match{Op: testutil.OpExists, Member: member + 1}, testutil.Pass())
	defer n.Control(asked.Control)()
	c := wireClient(t, strings.Split(after, ",")[member], net.DialTimeout, 10*time.Second)
	_, _, err = c.Exists("/")
	must(t, err)
	if asked.Count() != 1 {
		t.Errorf("the new member was asked %d times", asked.Count())
	}
}

// Members come and go while clients connect and everything is looked at: for
// the race detector.
func TestReconfigureWhileEverythingGoesOn(t *testing.T) {
	e := testutil.Start(t, testutil.WithMembers(3), testutil.WithReconfig(), testutil.WithTick(20*time.Millisecond), testutil.WithElectionTime(time.Millisecond))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, f := range []func(){
		func() {
			servers := strings.Split(e.Servers(), ",")
			if c, err := e.ClientNet("all").Dial("tcp", servers[len(servers)-1], time.Second); err == nil {
				c.Write(wire.AppendFrame(nil, &wire.ConnectRequest{Timeout: 5000, Password: make([]byte, 16)}))
				c.Close()
			}
		},
		func() { e.Sessions(); e.Describe(); e.Watches(); e.Connections(); e.Leader() },
	} {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	for old := range 3 {
		added(t, e)
		must(t, e.RemoveMember(t.Context(), old))
		must(t, e.Stop(old))
	}
	must(t, e.WaitServing(t.Context()))
	close(stop)
	wg.Wait()
}
