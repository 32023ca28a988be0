package framework_test

import (
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

// A thousand who wait for one znode cost one request and one watch.
func TestWatchIsShared(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
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

// What is not there cannot be watched, and no watch is left behind: waiters that
// find their predecessor gone would otherwise pile them up.
func TestWatchOfNothingLeavesNothing(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
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

// A change during a disconnect must not be missed, also when the watch could not
// be registered again: everybody is woken by a reconnect, and looks.
func TestWatchersLookAgainAfterAReconnect(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
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

// Watchers of a session that ends are woken with it.
func TestWatchersWakeWhenTheSessionEnds(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		_, changed, err := s.WatchChildren(t.Context(), "/")
		must(t, err)
		must(t, ens.ExpireSession(s.ID()))
		<-changed
		<-s.Done()
	})
}

// Values are followed from the first, over changes, deletions, reconnects and
// sessions; a reader that is slow misses some, but never the last.
func TestWatchDataFollows(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
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
	bubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
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

// A znode that comes into being between the read that misses it and the watch for
// its creation leaves that watch on a znode that exists. It was once taken for
// armed for ever, and whoever followed the znode spun when it was deleted.
func TestWatchDataOfAZnodeThatComesInBetween(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
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

// An error of the path is an error of the call.
func TestWatchDataReportsErrors(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
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
