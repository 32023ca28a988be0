package gssapi_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/sasl/gssapi"
)

// away are the ways in which a KDC may not answer, and how it comes back.
var away = map[string]struct{ leave, back func(kdc) }{
	"down":   {func(k kdc) { k.Stop() }, func(k kdc) { k.Start() }},
	"silent": {func(k kdc) { k.Pause() }, func(k kdc) { k.Resume() }},
}

// The KDC is away at the first connection, and comes back. Meanwhile calls fail
// in time, and not with a refusal.
func TestKDCIsAwayAtTheFirstConnection(t *testing.T) {
	t.Parallel()
	for name, kdcIs := range away {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := startKDC(t)
			ens := k.Ensemble()
			kdcIs.leave(k)
			c, _ := k.open(t, ens, k.mechanism(k.keytab(), k.server()))
			_, _, err := c.Get(within(t, 5*time.Second), "/")
			if err == nil || errors.Is(err, framework.ErrAuthFailed) || !strings.Contains(err.Error(), "SASL with") {
				t.Errorf("error %v", err)
			}
			kdcIs.back(k)
			must(t, c.WaitConnected(within(t, time.Minute)))
		})
	}
}

// A lock is held over reconnects: without a KDC while the ticket lives, and
// over the ends of tickets of a few seconds with one. The session goes on past
// the end of its last ticket, without a KDC, until it has to reconnect. When
// the KDC is back, so is the session.
func TestALockIsHeldOverReconnects(t *testing.T) {
	t.Parallel()
	for name, kdcIs := range away {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := startKDC(t)
			k.Admin("modprinc -maxlife 6s app")
			ens := k.Ensemble()
			c, relay := k.open(t, ens, k.mechanism(k.keytab(), k.server()))
			lease := acquire(t, c, "/lock")
			for began := time.Now(); time.Since(began) < 14*time.Second; {
				relay.Drop()
				must(t, c.Sync(within(t, time.Minute), "/"))
				time.Sleep(500 * time.Millisecond)
			}
			kdcIs.leave(k)
			relay.Drop() // a ticket lives
			must(t, c.Sync(within(t, time.Minute), "/"))
			time.Sleep(7 * time.Second) // none lives
			if err := c.Sync(within(t, time.Minute), "/"); err != nil || !lease.Held() {
				t.Errorf("the session has not outlived its ticket: %v", err)
			}
			relay.Drop()
			time.Sleep(time.Second)
			if c.State() != framework.Suspended {
				t.Errorf("without a ticket and a KDC the state is %v", c.State())
			}
			kdcIs.back(k)
			must(t, c.Sync(within(t, time.Minute), "/"))
			stillHeld(t, lease)
			must(t, lease.Release(within(t, time.Minute)))
			must(t, c.Close())
		})
	}
}

// Tickets in a credentials cache end. The session goes on until it has to
// reconnect; that is refused, and the error says what to do. After that has
// been done, the client is connected.
func TestACCacheRunsOut(t *testing.T) {
	t.Parallel()
	k := startKDC(t)
	ens := k.Ensemble()
	k.Kinit("-l", "6s")
	c, relay := k.open(t, ens, k.mechanism(gssapi.WithCCache(k.Path("ccache")), k.server()))
	must(t, c.WaitConnected(within(t, time.Minute)))
	time.Sleep(7 * time.Second)
	must(t, c.Sync(within(t, time.Minute), "/"))
	relay.Drop()
	err := c.Sync(within(t, time.Minute), "/")
	if !errors.Is(err, framework.ErrAuthFailed) || !strings.Contains(err.Error(), "kinit") {
		t.Errorf("error %v", err)
	}
	k.Kinit("-c", k.Path("next"))
	must(t, os.Rename(k.Path("next"), k.Path("ccache")))
	awaitConnected(t, c)
}

// A session that has expired is followed by another one, which is authenticated
// as well, and has the same user's rights.
func TestSessionExpires(t *testing.T) {
	t.Parallel()
	k := startKDC(t)
	ens := k.Ensemble()
	c, relay := k.open(t, ens, k.mechanism(k.keytab(), k.server()))
	must(t, c.WaitConnected(within(t, time.Minute)))
	first, err := c.Session()
	must(t, err)
	_, err = c.Create(within(t, time.Minute), "/own", nil, 0, zk.ACL{Perms: zk.PermAll, Scheme: "auth"})
	must(t, err)
	lease := acquire(t, c, "/lock")
	relay.Cut()
	select {
	case <-lease.Lost():
	case <-within(t, time.Minute).Done():
		t.Fatal("the lock is not lost")
	}
	other, _ := k.open(t, ens, k.mechanism(k.keytab(), k.server()))
	next := acquire(t, other, "/lock") // after the session has expired
	relay.Heal()
	must(t, next.Release(within(t, time.Minute)))
	must(t, acquire(t, c, "/lock").Release(within(t, time.Minute)))
	second, err := c.Session()
	if err != nil || second.ID() == first.ID() {
		t.Errorf("the same session: %v", err)
	}
	_, _, err = c.Get(within(t, time.Minute), "/own")
	must(t, err)
}

// A session that is over by the client's own clock is closed on a connection
// that authenticates: its lock is free long before the session would expire.
func TestADeadSessionIsClosed(t *testing.T) {
	k := startKDC(t)
	ens := k.Ensemble()
	c, _ := k.open(t, ens, k.mechanism(k.keytab(), k.server()), framework.WithSessionTimeout(30*time.Second))
	other, _ := k.open(t, ens, k.mechanism(k.keytab(), k.server()))
	lease := acquire(t, c, "/lock")
	t.Cleanup(clock.Reset)
	began := time.Now()
	clock.Jump(time.Minute)
	select {
	case <-lease.Lost():
	case <-within(t, time.Minute).Done():
		t.Fatal("the lock is not lost")
	}
	must(t, acquire(t, other, "/lock").Release(within(t, time.Minute)))
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("free after %v", took)
	}
}

func acquire(t *testing.T, c *framework.Client, path string, opts ...locks.Option) *recipes.Lease {
	t.Helper()
	mutex, err := locks.NewMutex(c, path, opts...)
	must(t, err)
	lease, err := mutex.Acquire(within(t, time.Minute))
	must(t, err)
	return lease
}

func stillHeld(t *testing.T, lease *recipes.Lease) {
	t.Helper()
	select {
	case <-lease.Lost():
		t.Errorf("the lock was lost: %v", lease.Err())
	default:
	}
}
