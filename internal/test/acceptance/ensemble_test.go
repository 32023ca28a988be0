package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// inRing3 reports whether tests on real servers are wanted.
var inRing3 = os.Getenv("ZKR_REAL") == "1"

// onBoth runs a scenario that needs no virtual time on both kinds of ensemble:
// the embedded one over TCP in ring 2, and real servers in ring 3, which does
// not repeat ring 2's work.
func onBoth(t *testing.T, members int, scenario func(t *testing.T, ens testutil.Ensemble)) {
	if !inRing3 {
		t.Run("embedded", func(t *testing.T) { scenario(t, embedded(t, members)) })
	}
	t.Run("real", func(t *testing.T) { scenario(t, apache.Start(t, members)) })
}

// wholeInRing3 skips a test that loads all processors with real servers for
// minutes, unless ZKR_WHOLE is set. Ring 2 has it on the embedded ensemble.
func wholeInRing3(t *testing.T) {
	t.Helper()
	if inRing3 && os.Getenv("ZKR_WHOLE") == "" {
		t.Skip("loads all processors for minutes: make load")
	}
}

// embedded starts the embedded ensemble with the same times as the real one. It
// fails the test when any client sends a request that the ensemble does not
// know: the connection is then closed, which some recipes of some clients do
// not survive.
func embedded(t *testing.T, members int, more ...testutil.Option) testutil.Ensemble {
	opts := []testutil.Option{
		testutil.WithMembers(members), testutil.WithTick(200 * time.Millisecond),
		testutil.WithSessionTimeouts(400*time.Millisecond, time.Minute), testutil.WithLogger(func(format string, args ...any) {
			if strings.Contains(format, "it asks for") {
				t.Errorf(format, args...)
			}
		}),
	}
	return testutil.Start(t, append(opts, more...)...)
}

// timeout is the session timeout. It is long enough for an election on a busy
// machine. A lease has half of it ahead, so it also survives pauses of a second
// or two.
const timeout = 6 * time.Second

func client(t *testing.T, ens testutil.Ensemble) *framework.Client {
	t.Helper()
	opts := []framework.Option{framework.WithDialer(stalling(ens.Dial)), framework.WithSessionTimeout(timeout)}
	c, err := framework.New(ens.Servers(), append(opts, identityAt(ens)...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the servers may be gone
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// audit is a resource that remembers the greatest token, like a fenced one. It
// fails the test when two work at it or a token comes late.
type audit struct {
	t      *testing.T
	mu     sync.Mutex // guards what follows
	worker string
	lease  *recipes.Lease // of the goroutine that works; nil if none does
	last   recipes.Token
	grants int
}

// work does nothing if the lease was lost before work could start, and stops
// when the lease is lost, however late it notices: a pause of the machine must
// not look like a double grant.
func (a *audit) work(who string, l *recipes.Lease, d time.Duration) {
	a.mu.Lock()
	if !l.Held() {
		a.mu.Unlock()
		return
	}
	if a.lease != nil && a.lease.Held() {
		judge.Errorf(a.t, "%s works while %s works", who, a.worker)
	}
	if l.Token().Compare(a.last) <= 0 {
		judge.Errorf(a.t, "%s has token %v, after %v", who, l.Token(), a.last)
	}
	a.worker, a.lease, a.last = who, l, l.Token()
	a.grants++
	a.mu.Unlock()
	select {
	case <-l.Lost():
	case <-time.After(d):
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lease == l {
		a.lease = nil
	}
}

// nothingLeft fails the test unless the directory becomes empty.
func nothingLeft(t *testing.T, c *framework.Client, path string) {
	t.Helper()
	nothingLeftAfter(t, c, path, load.Patience)
}

func nothingLeftAfter(t *testing.T, c *framework.Client, path string, patience time.Duration) {
	t.Helper()
	var names []string
	for began := time.Now(); time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		if err := c.Sync(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		var err error
		if names, _, err = c.Children(t.Context(), path); errors.Is(err, zk.ErrNoNode) || err == nil && len(names) == 0 {
			return
		}
	}
	judge.Errorf(t, "left at %s: %v", path, names)
}

// Several clients with several goroutines each contend for one mutex while
// members are killed and restarted, the leader first. No two work at once,
// tokens are in order, every contender is served, and nothing is left.
func TestMutexWhileMembersAreKilled(t *testing.T) {
	onBoth(t, 3, func(t *testing.T, ens testutil.Ensemble) {
		const path, clients, each, rounds = "/suite/mutex", 3, 2, 25
		a := &audit{t: t}
		var wg sync.WaitGroup
		for i := range clients {
			c := client(t, ens)
			for g := range each {
				who := fmt.Sprintf("client %d, goroutine %d", i, g)
				m, err := locks.NewMutex(c, path)
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					for served := 0; served < rounds; {
						l, err := m.Acquire(t.Context())
						if err != nil {
							t.Errorf("%s: %v", who, err)
							return
						}
						a.work(who, l, 10*time.Millisecond)
						if err := l.Release(t.Context()); err == nil {
							served++
						} else if !errors.Is(err, recipes.ErrNotHeld) {
							t.Errorf("%s: %v", who, err)
						}
					}
				})
			}
		}
		done := make(chan struct{})
		go func() {
			wg.Wait()
			close(done)
		}()
		for _, victim := range []int{load.Leading(t, ens), 0, 2} {
			time.Sleep(200 * time.Millisecond)
			restart(t, ens, victim)
		}
		<-done
		if a.grants < clients*each*rounds {
			t.Errorf("%d grants", a.grants)
		}
		nothingLeft(t, client(t, ens), path)
	})
}

// restart kills a member and restarts it.
func restart(t *testing.T, ens testutil.Ensemble, member int) {
	t.Helper()
	if err := ens.Stop(member); err != nil {
		t.Error(err)
	}
	time.Sleep(500 * time.Millisecond)
	if err := ens.Restart(member); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := ens.WaitServing(ctx); err != nil {
		t.Error(err)
	}
}

// The ensemble ends the session of a holder. The holder learns of it, the
// waiter is granted, and a late write of the former holder is refused.
func TestGuardedWriteAfterAnExpiry(t *testing.T) {
	onBoth(t, 1, func(t *testing.T, ens testutil.Ensemble) {
		const path = "/suite/guard"
		holder, waiter := client(t, ens), client(t, ens)
		first, err := locks.NewMutex(holder, path)
		if err != nil {
			t.Fatal(err)
		}
		second, err := locks.NewMutex(waiter, path)
		if err != nil {
			t.Fatal(err)
		}
		l, err := first.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		write := &zk.CreateRequest{Path: "/suite/written", Acl: zk.WorldACL(zk.PermAll)}
		if _, err := l.Multi(t.Context(), write); err != nil {
			t.Fatal(err)
		}
		guarded := l.Guard(&zk.SetDataRequest{Path: "/suite/written", Data: []byte("late"), Version: -1})
		s, err := holder.Session()
		if err != nil {
			t.Fatal(err)
		}
		if err := ens.ExpireSession(s.ID()); err != nil {
			t.Fatal(err)
		}
		next, err := second.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		<-l.Lost()
		if next.Token().Compare(l.Token()) <= 0 {
			judge.Errorf(t, "token %v after %v", next.Token(), l.Token())
		}
		if _, err := waiter.Multi(t.Context(), guarded...); !errors.Is(err, zk.ErrNoNode) {
			judge.Errorf(t, "a late guarded write by other means: %v", err)
		}
		if _, err := l.Multi(t.Context(), write); !errors.Is(err, recipes.ErrNotHeld) {
			judge.Errorf(t, "a late write: %v", err)
		}
		if err := l.Release(t.Context()); !errors.Is(err, recipes.ErrNotHeld) {
			t.Errorf("release of a lost lease: %v", err)
		}
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
		nothingLeft(t, waiter, path)
	})
}

// Tokens continue to grow after the lock's directory has vanished and was
// created again. A sequence number would start from 0.
func TestTokensOutliveTheDirectory(t *testing.T) {
	onBoth(t, 1, func(t *testing.T, ens testutil.Ensemble) {
		c := client(t, ens)
		m, err := locks.NewMutex(c, "/suite/tokens/lock")
		if err != nil {
			t.Fatal(err)
		}
		var last recipes.Token
		for range 5 {
			l, err := m.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if l.Token().Compare(last) <= 0 {
				judge.Errorf(t, "token %v after %v", l.Token(), last)
			}
			last = l.Token()
			if !strings.HasSuffix(l.Path(), "-lock-0000000000") {
				t.Errorf("the directory was not created again: %s", l.Path())
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.Delete(t.Context(), "/suite/tokens/lock", -1); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// At most one leader exists at a time, and a next one soon, while members and
// leaders fail.
func TestElectionWhileMembersAreKilled(t *testing.T) {
	onBoth(t, 3, func(t *testing.T, ens testutil.Ensemble) {
		const path, candidates = "/suite/leader", 3
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a := &audit{t: t}
		var terms atomic.Int32
		var wg sync.WaitGroup
		for i := range candidates {
			id := fmt.Sprintf("candidate %d", i)
			e, err := leader.New(client(t, ens), path, leader.WithID(id))
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				err := e.Run(ctx, func(ctx context.Context, term *recipes.Lease) error {
					terms.Add(1)
					a.work(id, term, 100*time.Millisecond)
					return nil
				})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", id, err)
				}
			})
		}
		for range 3 {
			before := terms.Load()
			bubble.AwaitTrue(t, "terms go on", func() bool { return terms.Load() >= before+2*candidates })
			restart(t, ens, load.Leading(t, ens))
		}
		cancel()
		wg.Wait()
		nothingLeft(t, client(t, ens), path)
	})
}
