package testutil_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestWrongUse(t *testing.T) {
	for name, opts := range map[string][]testutil.Option{
		"no members":      {testutil.WithMembers(0)},
		"no tick":         {testutil.WithTick(0)},
		"bounds":          {testutil.WithSessionTimeouts(2*time.Second, time.Second)},
		"sync limit":      {testutil.WithSyncLimit(0)},
		"memory and port": {testutil.InMemory(), testutil.WithListen("127.0.0.1:0")},
		"too few ports":   {testutil.WithMembers(2), testutil.WithListen("127.0.0.1:0")},
		"bad port":        {testutil.WithListen("127.0.0.1:nonsense")},
		"no interval":     {testutil.WithContainerInterval(0)},
		"no digest":       {testutil.WithSuperDigest("super:secret")},
		"no delays":       {hidden.WithTouchDelays(nil)},
		"no report delay": {hidden.WithReportDelays(nil)},
		"nil option":      {testutil.InMemory(), nil},
		"32 bits":         {testutil.WithSessionTimeouts(600*time.Hour, 700*time.Hour)},
		"member's tick":   {testutil.WithMemberTick(0, time.Millisecond)},
		"member's bounds": {testutil.WithMemberTimeouts(0, 2*time.Second, time.Second)},
		"member's 32 bit": {testutil.WithMemberTimeouts(0, 600*time.Hour, 0)},
		"no such member":  {testutil.WithMemberTick(1, time.Second)},
		"hop by itself":   {testutil.WithMembers(3), hidden.WithSecondHop(1, 1)},
		"hop by nobody":   {testutil.WithMembers(3), hidden.WithSecondHop(1, 3)},
		"three hops":      {testutil.WithMembers(3), hidden.WithSecondHop(0, 1), hidden.WithSecondHop(1, 2)},
	} {
		if e, err := testutil.New(opts...); err == nil {
			e.Close()
			t.Errorf("%s: no error", name)
		}
	}
	e := testutil.Start(t)
	if e.Stop(1) == nil || e.Restart(0) == nil || e.Resume(0) == nil || e.Pause(-1) == nil {
		t.Error("no error for a member that is not there, or not in that state")
	}
	must(t, e.Close())
	must(t, e.Close())
	if e.Restart(0) == nil || e.WaitServing(t.Context()) == nil {
		t.Error("a closed ensemble goes on")
	}
}

// Everything at once, from many goroutines, for the race detector.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	e := testutil.Start(t, testutil.WithMembers(3), testutil.WithTick(20*time.Millisecond), testutil.WithElectionTime(time.Millisecond))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		c := wireClient(t, e.Servers(), e.ClientNet("all").Dial, time.Second)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				c.ChildrenW("/")
				if path, err := c.Create("/n-", nil, 3, anyACL); err == nil {
					c.Delete(path, -1)
				}
			}
		}()
	}
	for i := range 30 {
		m := i % 3
		switch i % 5 {
		case 0:
			e.Stop(m)
			time.Sleep(5 * time.Millisecond)
			e.Restart(m)
		case 1:
			e.Isolate(m)
			time.Sleep(5 * time.Millisecond)
			e.Heal()
		case 2:
			e.Pause(m)
			time.Sleep(5 * time.Millisecond)
			e.Resume(m)
		case 3:
			e.DropConnections(0)
		case 4:
			e.ClientNet("all").Cut()
			e.Latency(time.Millisecond)
			time.Sleep(time.Millisecond)
			e.ClientNet("all").Heal()
			e.Latency(0)
		}
		e.Sessions()
		e.Tree()
		e.Describe()
		e.Watches()
		time.Sleep(5 * time.Millisecond)
	}
	must(t, e.WaitServing(t.Context()))
	close(stop)
	wg.Wait()
}

// A client that sends requests and reads nothing blocks neither the others nor
// Close.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	e := testutil.Start(t)
	p := newPeer(t, "P", dialMember(t, e, 0), 20*time.Second, &transcript{sessions: map[int64]string{}})
	p.ok(wire.OpCreate, create("/big", strings.Repeat("x", 1<<19), 0))
	greedy := newPeer(t, "G", dialMember(t, e, 0), 2*patience, &transcript{sessions: map[int64]string{}})
	for range 100 {
		greedy.send(wire.OpGetData, look("/big", false))
	}
	p.ok(wire.OpSetData, set("/big", "", -1))
	began := time.Now()
	must(t, e.Close())
	if took := time.Since(began); took > patience { // until its session has ended
		t.Errorf("Close took %v", took)
	}
}
