package managed_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// A tree watch and watches of a single event on its path hear of everything on
// the real server, where one would replace the other, also after a reconnect.
func TestWatchTreeOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 1)
	network := ens.ClientNet("watcher")
	c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(4*time.Second), framework.WithDialer(network.Dial))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.WaitConnected(t.Context()))
	values, err := c.WatchData(t.Context(), "/a")
	must(t, err)
	<-values
	lists, err := c.WatchChildren(t.Context(), "/a")
	must(t, err)
	<-lists
	for round := range 3 {
		e, _, remove := mustWatchTree(t, session(t, c), "/a")
		for range 2 {
			must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
			<-values
			<-lists
			must(t, failure(c.Create(t.Context(), "/a/b", nil, 0)))
			<-lists
			must(t, failure(c.Set(t.Context(), "/a", nil, -1)))
			<-values
			must(t, c.Delete(t.Context(), "/a/b", -1))
			<-lists
			must(t, c.Delete(t.Context(), "/a", -1))
			<-values
			<-lists
			// The children's watch of a single event is heard as well.
			if heard, _ := e.take(); heard != "+/a +/a/b */a =/a -/a/b */a -/a" {
				t.Errorf("round %d: heard %q", round, heard)
			}
		}
		if round == 1 {
			network.Drop()
			time.Sleep(time.Second)
			must(t, c.WaitConnected(t.Context()))
		} else {
			remove()
		}
	}
}

// A server with the other watch manager refuses addWatch, and leaves the
// connection open.
func TestWatchTreeIsRefusedByTheRealServer(t *testing.T) {
	ens := apache.Start(t, 1, apache.WithProperty("zookeeper.watchManagerName", "org.apache.zookeeper.server.watch.WatchManagerOptimized"))
	c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(4*time.Second), framework.WithErrorPolicy(framework.ErrorPolicyConnection))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.WaitConnected(t.Context()))
	must(t, session(t, c).Prove(t.Context()))
	holdThroughout(t, session(t, c))
	for range 2 {
		if _, _, _, err := watchTree(t, t.Context(), session(t, c), "/a"); !managed.TreesRefused(err) {
			t.Errorf("error %v", err)
		}
	}
	_, err = c.Create(t.Context(), "/a", nil, zk.FlagEphemeral)
	must(t, err)
}
