package testutil_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

var seed = flag.Uint64("seed", 0, "the seed of the random tests, 0 for a new one")

// A client sends connect and closeSession in one write and disconnects. The
// server executes both, however long the first takes.
func TestCloseSessionBehindASlowConnect(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, e *testutil.Embedded) {
		p := single(t, e, 0, 40*time.Second)
		p.ok(wire.OpCreate, create("/mine", "", 1))
		e.Partition(0, e.Leader())
		nc := dialMember(t, e, 0)
		b := wire.AppendFrame(nil, &wire.ConnectRequest{Timeout: 4000, SessionID: p.session, Password: p.pass})
		nc.Write(wire.AppendFrame(b, &wire.RequestHeader{Xid: 1, Op: wire.OpCloseSession}))
		nc.Close()
		time.Sleep(5 * time.Second)
		if !e.Exists("/mine") {
			t.Error("gone too early")
		}
		e.Heal()
		if e.Exists("/mine") || len(e.Sessions()) != 0 {
			t.Error("the session is alive")
		}
	})
}

// Whatever happens to the members, afterwards they agree, nothing that was
// confirmed to a client is lost, and transaction numbers never repeat.
func TestReplicasAgree(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	for i := range uint64(4) {
		t.Run(fmt.Sprint(first+i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { disturb(t, rand.New(rand.NewPCG(first+i, 0))) })
		})
	}
}

func disturb(t *testing.T, r *rand.Rand) {
	const members = 5
	e := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(members))
	created := make(chan string, 1<<16)
	stop := make(chan struct{})
	writers := make(chan struct{})
	for range 3 {
		c := wireClient(t, e.Servers(), e.Dial, 20*time.Second)
		go func() {
			defer func() { writers <- struct{}{} }()
			for {
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond):
				}
				if path, err := c.Create("/n-", nil, zk.FlagSequence, anyACL); err == nil {
					created <- path
				}
			}
		}()
	}
	for range 40 {
		m := r.IntN(members)
		switch r.IntN(8) {
		case 0:
			e.Stop(m)
		case 1:
			e.Restart(m)
		case 2:
			e.Pause(m)
		case 3:
			e.Resume(m)
		case 4:
			e.Partition(m, r.IntN(members))
		case 5:
			e.Heal()
		case 6:
			e.Lag(m)
		case 7:
			e.Unlag(m)
		}
		time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
	}
	e.Heal()
	for m := range members {
		e.Restart(m)
		e.Resume(m)
		e.Unlag(m)
	}
	time.Sleep(time.Minute)
	close(stop)
	for range 3 {
		<-writers
	}
	must(t, e.WaitServing(t.Context()))
	close(created)
	seen := map[string]bool{}
	for path := range created {
		if seen[path] {
			t.Errorf("%s was created twice", path)
		}
		seen[path] = true
		if !e.Exists(path) {
			t.Errorf("%s was created and is lost", path)
		}
	}
	if len(seen) < 100 {
		t.Errorf("only %d creates succeeded", len(seen))
	}
	var first string
	for m := range members {
		p := single(t, e, m, 20*time.Second)
		p.ok(wire.OpSync, &wire.PathRequest{Path: "/"})
		p.send(wire.OpGetChildren2, look("/", false))
		_, body, err := p.next()
		must(t, err)
		if m == 0 {
			first = string(body)
		} else if string(body) != first {
			t.Errorf("member %d has another tree than member 0\n%s", m, e.Describe())
		}
	}
}
