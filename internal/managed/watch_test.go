package managed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A thousand waiters for one znode cost one request and one watch.
func TestWatchIsShared(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		_, err := c.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		ens.ResetRequests()
		fired := make(chan struct{}, 1000)
		for range cap(fired) {
			go func() {
				changed, err := s.Watch(t.Context(), "/a")
				if err != nil {
					t.Error(err)
				}
				<-changed
				fired <- struct{}{}
			}()
		}
		synctest.Wait()
		if got := ens.Requests()[testutil.OpGetData]; got != 1 || ens.WatchCount() != 1 || len(fired) != 0 {
			t.Errorf("%d requests, %d watches, %d woken; want 1, 1, 0", got, ens.WatchCount(), len(fired))
		}
		must(t, c.Delete(t.Context(), "/a", -1))
		synctest.Wait()
		if len(fired) != cap(fired) || ens.WatchCount() != 0 {
			t.Errorf("%d woken, %d watches left", len(fired), ens.WatchCount())
		}
	})
}

// A missing znode cannot be watched by Watch, and no watch is left behind:
// waiters that find their predecessor gone would otherwise leave one each.
// Known failures elsewhere: CURATOR-107, -14.
func TestWatchOfNothingLeavesNothing(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		for i := range 100 {
			if _, err := s.Watch(t.Context(), fmt.Sprintf("/%d", i)); !errors.Is(err, zk.ErrNoNode) {
				t.Fatal(err)
			}
			if _, _, err := s.WatchChildren(t.Context(), fmt.Sprintf("/%d", i)); !errors.Is(err, zk.ErrNoNode) {
				t.Fatal(err)
			}
		}
		if n := ens.WatchCount(); n != 0 {
			t.Errorf("%d watches", n)
		}
	})
}

// A change during a disconnect must not be missed, even if the watch could not
// be registered again. A reconnect wakes all watchers, and they look. Known
// failures elsewhere: CURATOR-77, -344.
func TestWatchersLookAgainAfterAReconnect(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		_, err := c.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		defer ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpSetWatches {
				return testutil.Fail(testutil.CodeSystemError)
			}
			return testutil.Pass()
		})()
		for range 10 {
			changed, err := s.Watch(t.Context(), "/a")
			must(t, err)
			network.Drop()
			select {
			case <-changed:
			case <-time.After(timeout):
				t.Fatal("nobody was woken by the reconnect")
			}
		}
		time.Sleep(time.Second)
		changed, err := s.Watch(t.Context(), "/a")
		must(t, err)
		must(t, c.Delete(t.Context(), "/a", -1))
		<-changed
	})
}

// The end of a session wakes its watchers.
func TestWatchersWakeWhenTheSessionEnds(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		_, changed, err := s.WatchChildren(t.Context(), "/")
		must(t, err)
		must(t, ens.ExpireSession(s.ID()))
		<-changed
		<-s.Done()
	})
}

// WatchData delivers the first value, and follows changes, deletions,
// reconnects and sessions. A slow reader misses values, but never the last one.
func TestWatchDataFollows(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		other, _ := connect(t, ens)
		values, err := c.WatchData(t.Context(), "/a")
		must(t, err)
		if v := <-values; v.Exists || v.Stat != nil {
			t.Errorf("nothing yet, but %+v", v)
		}
		_, err = other.Create(t.Context(), "/a", []byte("0"), 0)
		must(t, err)
		if v := <-values; !v.Exists || string(v.Data) != "0" || v.Stat == nil {
			t.Errorf("got %+v", v)
		}
		for i := range 100 {
			_, err := other.Set(t.Context(), "/a", fmt.Appendf(nil, "%d", i), -1)
			must(t, err)
		}
		time.Sleep(time.Second)
		if v := <-values; string(v.Data) != "99" {
			t.Errorf("the last value was missed: %q", v.Data)
		}
		network.Cut()
		time.Sleep(time.Minute) // the session is lost
		must(t, other.Delete(t.Context(), "/a", -1))
		network.Heal()
		time.Sleep(time.Minute)
		if v := <-values; v.Exists || v.Err != nil {
			t.Errorf("deleted while the session changed, but %+v", v)
		}
		must(t, c.Close())
		v, ok := <-values
		if ok && !errors.Is(v.Err, framework.ErrClosed) {
			t.Errorf("the last value was %+v", v)
		}
		if _, more := <-values; ok && more {
			t.Error("the channel is still open")
		}
	})
}

func TestWatchChildrenFollows(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		ctx := within(t, time.Hour)
		values, err := c.WatchChildren(ctx, "/a")
		must(t, err)
		<-values
		_, err = c.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		if v := <-values; !v.Exists || len(v.Names) != 0 {
			t.Errorf("got %+v", v)
		}
		for _, name := range []string{"x", "y"} {
			_, err := c.Create(t.Context(), "/a/"+name, nil, 0)
			must(t, err)
		}
		time.Sleep(time.Second)
		v := <-values
		if slices.Sort(v.Names); !slices.Equal(v.Names, []string{"x", "y"}) {
			t.Errorf("got %+v", v)
		}
		time.Sleep(time.Hour)
		if v, ok := <-values; ok {
			t.Errorf("the context has ended, but %+v", v)
		}
	})
}

// A znode is created between the read that misses it and the watch for its
// creation. That watch is then on a znode that exists. It was taken for armed
// forever, and the follower spun when the znode was deleted.
func TestWatchDataOfAZnodeThatComesInBetween(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		_, err := c.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		defer once(ens, testutil.OpGetData, testutil.Fail(testutil.CodeNoNode))()
		values, err := c.WatchData(within(t, time.Hour), "/a")
		must(t, err)
		for range 3 {
			if v := <-values; !v.Exists {
				t.Fatalf("it exists, but %+v", v)
			}
			must(t, c.Delete(t.Context(), "/a", -1))
			if v := <-values; v.Exists {
				t.Fatalf("it is gone, but %+v", v)
			}
			_, err := c.Create(t.Context(), "/a", nil, 0)
			must(t, err)
		}
		if n := ens.Requests()[testutil.OpGetData]; n > 20 {
			t.Errorf("%d reads", n)
		}
	})
}

// If the context ends while a change is being read, the channel is closed, and
// the end of the context is no value.
func TestWatchDataEndsWhileItReads(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		_, err := c.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		values, err := c.WatchData(ctx, "/a")
		must(t, err)
		<-values
		defer once(ens, testutil.OpGetData, testutil.Delay(time.Second))()
		_, err = c.Set(t.Context(), "/a", []byte("x"), -1)
		must(t, err)
		synctest.Wait()
		cancel()
		if v, ok := <-values; ok {
			t.Errorf("told %+v", v)
		}
	})
}

// An error of the path is an error of the call.
func TestWatchDataReportsErrors(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		_, err := c.Create(t.Context(), "/secret", nil, 0, zk.DigestACL(zk.PermAll, "someone", "else")...)
		must(t, err)
		if _, err := c.WatchData(t.Context(), "/secret"); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("watching what may not be read: %v", err)
		}
		if _, err := c.WatchData(t.Context(), "secret"); err == nil {
			t.Error("a relative path was accepted")
		}
	})
}

// WatchExists fires for everything that can happen to a znode, and shares its
// watch with Watch.
func TestWatchExists(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		other, _ := connect(t, ens)
		s := session(t, c)
		watch := func(want bool) <-chan struct{} {
			t.Helper()
			exists, stat, changed, err := s.WatchExists(t.Context(), "/a")
			if err != nil || exists != want || (stat != nil) != want {
				t.Fatalf("exists %t with stat %v, %v; want %t", exists, stat, err, want)
			}
			return changed
		}
		fires := func(what string, changed <-chan struct{}, change func() error) {
			t.Helper()
			synctest.Wait()
			select {
			case <-changed:
				t.Fatalf("fired before the znode was %s", what)
			default:
			}
			must(t, change())
			select {
			case <-changed:
			case <-time.After(timeout):
				t.Fatalf("not fired though the znode was %s", what)
			}
		}
		for range 3 {
			ens.ResetRequests()
			changed := watch(false)
			watch(false)
			if n := ens.Requests(); n[testutil.OpExists] != 1 || ens.WatchCount() != 1 {
				t.Errorf("requests %v, %d watches, want one look and one watch", n, ens.WatchCount())
			}
			fires("created", changed, func() error { _, err := other.Create(t.Context(), "/a", nil, 0); return err })
			changed = watch(true)
			reads := ens.Requests()[testutil.OpGetData]
			if _, err := s.Watch(t.Context(), "/a"); err != nil || ens.WatchCount() != 1 || ens.Requests()[testutil.OpGetData] != reads {
				t.Errorf("the watch of an existing znode is not shared with Watch: %v, %d watches", err, ens.WatchCount())
			}
			fires("written", changed, func() error { _, err := other.Set(t.Context(), "/a", nil, -1); return err })
			fires("deleted", watch(true), func() error { return other.Delete(t.Context(), "/a", -1) })
			if n := ens.WatchCount(); n != 0 {
				t.Errorf("%d watches left of a znode that is gone", n)
			}
		}
	})
}

// A missing znode has one watch at the server, however often the session
// reconnects and however many callers there are. Its creation releases it.
func TestWatchExistsOfAMissingZnodeIsOneWatch(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		other, _ := connect(t, ens)
		s := session(t, c)
		var changed <-chan struct{}
		for range 100 {
			for range 3 {
				exists, _, fired, err := s.WatchExists(t.Context(), "/a")
				if err != nil || exists {
					t.Fatalf("exists %t, %v", exists, err)
				}
				changed = fired
			}
			time.Sleep(time.Second) // until every member knows that the old connection has ended
			synctest.Wait()
			if n := ens.WatchCount(); n != 1 {
				t.Fatalf("%d watches, want 1", n)
			}
			network.Drop()
			select {
			case <-changed: // look again
			case <-time.After(timeout):
				t.Fatal("not fired by a reconnect")
			}
		}
		_, _, changed, err := s.WatchExists(t.Context(), "/a")
		must(t, err)
		_, err = other.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		<-changed
		if n := ens.WatchCount(); n != 0 {
			t.Errorf("%d watches left", n)
		}
		if session(t, c).ID() != s.ID() {
			t.Error("the session was lost")
		}
	})
}

// A znode that is created during a disconnect, or while WatchExists reads, is
// not missed.
func TestWatchExistsMissesNothing(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		other, _ := connect(t, ens)
		s := session(t, c)
		_, _, changed, err := s.WatchExists(t.Context(), "/a")
		must(t, err)
		network.Cut()
		network.Drop()
		_, err = other.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		network.Heal()
		<-changed
		exists, _, _, err := s.WatchExists(t.Context(), "/a")
		if err != nil || !exists {
			t.Errorf("created during a disconnect: exists %t, %v", exists, err)
		}
		// Between the read that finds nothing and the one that watches for it.
		struck := testutil.NewFault(testutil.Match{Op: testutil.OpExists, Path: "/b"}, testutil.Delay(time.Second))
		defer ens.Control(struck.Control)()
		go func() {
			<-struck.Hit()
			if _, err := other.Create(t.Context(), "/b", nil, 0); err != nil {
				t.Error(err)
			}
		}()
		exists, stat, changed, err := s.WatchExists(t.Context(), "/b")
		if err != nil || !exists || stat == nil {
			t.Fatalf("created as it was looked for: exists %t, %v", exists, err)
		}
		must(t, other.Delete(t.Context(), "/b", -1))
		<-changed
	})
}

// The event of a creation is lost, and the server has used its watch up. That
// is found when the znode is read under the watch, after a reconnect. The next
// creation is heard of.
func TestAWatchForACreationIsArmedAgainAfterALostEvent(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		other, _ := connect(t, ens)
		s := session(t, c)
		exists := func(want bool) <-chan struct{} {
			t.Helper()
			exists, _, changed, err := s.WatchExists(t.Context(), "/a")
			if err != nil || exists != want {
				t.Fatalf("exists %t, %v, want %t", exists, err, want)
			}
			return changed
		}
		exists(false)
		network.LoseEvents(true)
		_, err := other.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		network.Drop()
		time.Sleep(time.Second)
		stop := once(ens, testutil.OpGetData, testutil.Fail(testutil.CodeNoNode)) // it was created right behind this read
		exists(true)
		stop()
		must(t, other.Delete(t.Context(), "/a", -1))
		time.Sleep(timeout) // so that the watch of the znode is checked
		network.LoseEvents(false)
		changed := exists(false)
		_, err = other.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		select {
		case <-changed:
		case <-time.After(atOnce):
			t.Error("the creation is not heard of")
		}
	})
}

// WatchExists ends with its context, with the session and with the client.
func TestWatchExistsEnds(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		holdUntilLost(t, s)
		_, _, changed, err := s.WatchExists(t.Context(), "/a")
		must(t, err)
		if _, _, _, err := s.WatchExists(t.Context(), "relative"); err == nil {
			t.Error("a relative path was watched")
		}
		network.Cut()
		if _, _, _, err := s.WatchExists(within(t, time.Second), "/b"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a server: %v", err)
		}
		<-changed
		<-s.Done()
		if _, _, _, err := s.WatchExists(t.Context(), "/a"); !errors.Is(err, framework.ErrSessionLost) {
			t.Errorf("in a session that is over: %v", err)
		}
		network.Heal()
		must(t, c.WaitConnected(t.Context()))
		s = session(t, c)
		_, _, changed, err = s.WatchExists(t.Context(), "/a")
		must(t, err)
		must(t, c.Close())
		<-changed
		if _, _, _, err := s.WatchExists(t.Context(), "/a"); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("in a client that is closed: %v", err)
		}
	})
}

// Who cannot watch a znode that is missing leaves no watch behind.
func TestAFollowerThatCannotBegin(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c := below(t, ens, "/none")
		if _, err := c.WatchData(t.Context(), "/a"); !errors.As(err, new(interface{ MissingChroot() string })) {
			t.Errorf("below a missing chroot: %v", err)
		}
		if ens.WatchCount() != 1 {
			t.Errorf("%d watches", ens.WatchCount())
		}
		time.Sleep(3 * timeout)
		if n := ens.WatchCount(); n != 0 {
			t.Errorf("%d watches are left", n)
		}
		refused := testutil.NewFault(testutil.Match{Op: testutil.OpExists}, testutil.Fail(-8))
		defer ens.Control(refused.Control)()
		if _, err := c.WatchData(t.Context(), "/b"); !errors.Is(err, zk.ErrBadArguments) {
			t.Errorf("an absence that may not be watched: %v", err)
		}
	})
}
