package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// How to write such a test. Everything inside synctest.Test runs in virtual
// time: a minute of sleep takes no time, and every time is exact.
//
//	synctest.Test(t, func(t *testing.T) {
//		ens := testutil.Start(t, testutil.InMemory())                  // within the bubble
//		client, err := framework.New(ens.Servers(), framework.WithDialer(ens.ClientNet("a").Dial))
//		...
//	})

// When the session of the ticker that holds the lock expires, it stops, the
// other ticker takes over, and the first one waits in line again.
func TestAnotherTakesOverWhenTheSessionExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory())
		a := start(t, ens, "a")
		time.Sleep(100 * time.Millisecond)
		b := start(t, ens, "b")

		time.Sleep(10 * time.Second)
		if a.count() != 10 || b.count() != 0 {
			t.Errorf("a ticked %d times in 10s, b %d times", a.count(), b.count())
		}
		session, err := a.client.Session()
		if err != nil {
			t.Fatal(err)
		}
		if err := ens.ExpireSession(session.ID()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if a.count() != 10 || b.count() < 9 {
			t.Errorf("after the expiry a ticked %d times, b %d times", a.count()-10, b.count())
		}
		if data, _ := ens.Data(tickPath); !strings.HasPrefix(string(data), "b ") {
			t.Errorf("the last tick is %q", data)
		}

		b.stop()
		time.Sleep(5 * time.Second)
		if a.count() < 14 {
			t.Errorf("a ticked %d times after b had stopped", a.count()-10)
		}
	})
}

// The ticker that holds the lock is cut off from all servers. It stops by its
// own clock, a tenth of the session timeout before anybody else can get the
// lock.
func TestItStopsInTimeWhenItIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3))
		a := start(t, ens, "a")
		time.Sleep(100 * time.Millisecond)
		b := start(t, ens, "b")
		time.Sleep(time.Minute)
		before := a.count()

		ens.ClientNet("a").Cut()
		cut := time.Now()
		time.Sleep(2 * timeout)
		if a.count() > before {
			t.Errorf("a ticked %d times while it was cut off", a.count()-before)
		}
		if b.count() == 0 {
			t.Fatal("b did not take over")
		}
		if gap := b.first().Sub(a.last()); gap < interval+timeout/10 {
			t.Errorf("b ticked %v after a", gap)
		}
		if took := b.first().Sub(cut); took > 2*timeout {
			t.Errorf("b ticked %v after the cut", took)
		}
		ens.ClientNet("a").Heal()
		time.Sleep(time.Minute)
		if a.count() > before {
			t.Error("a ticked while b held the lock")
		}
	})
}

// The service goes on when the leader of the ensemble stops.
func TestItGoesOnWhenAMemberStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3))
		a := start(t, ens, "a")
		time.Sleep(10 * time.Second)
		if err := ens.Stop(ens.Leader()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if a.count() < 20 {
			t.Errorf("a ticked %d times in 30s", a.count())
		}
		if at := time.Since(a.last()); at > interval {
			t.Errorf("a ticked %v ago", at)
		}
	})
}

// The command as a user runs it, in real time.
func TestExample(t *testing.T) {
	ens := testutil.Start(t)
	var out strings.Builder
	if err := run(t.Context(), ens.Servers(), &out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "main "); lines != ticks {
		t.Errorf("%d ticks:\n%s", lines, out.String())
	}
}

// service is a running ticker, with the times at which it ticked.
type service struct {
	client *framework.Client
	stop   context.CancelFunc

	mu  sync.Mutex // guards ats
	ats []time.Time
}

// start runs a ticker, with its own client and network, until the test ends.
func start(t *testing.T, ens *testutil.Embedded, name string) *service {
	t.Helper()
	client, err := framework.New(ens.Servers(), framework.WithDialer(ens.ClientNet(name).Dial))
	if err != nil {
		t.Fatal(err)
	}
	ticker, err := newTicker(client, name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s := &service{client: client, stop: stop}
	ticker.ticked = func(string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ats = append(s.ats, time.Now())
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := ticker.run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	})
	t.Cleanup(func() {
		stop()
		wg.Wait()
		_ = client.Close()
	})
	return s
}

func (s *service) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ats)
}

func (s *service) first() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ats[0]
}

func (s *service) last() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ats[len(s.ats)-1]
}
