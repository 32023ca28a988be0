package managed_test

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// Watches of a single event on the real server, armed by reads and, after a
// reconnect, by SetWatches.
func TestReadAllAndWatchOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 1)
	network := ens.ClientNet("watcher")
	c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(4*time.Second), framework.WithDialer(network.Dial))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	other, err := framework.New(ens.Servers())
	must(t, err)
	t.Cleanup(func() { _ = other.Close() })
	must(t, c.WaitConnected(t.Context()))
	books := library(t, c, 500)
	s := session(t, c)
	e, stop := listen(t, s, "/lib")
	found, err := inside(s).ReadAllAndWatch(t.Context(), "/lib/none", books...)
	checkLibrary(t, books, found, err)
	hears := func(want string) {
		t.Helper()
		must(t, c.Sync(t.Context(), "/"))
		if heard, _ := e.take(); heard != want {
			t.Errorf("heard %q, want %q", heard, want)
		}
	}
	must(t, failure(other.Set(t.Context(), "/lib/0", nil, -1)))
	must(t, failure(other.Set(t.Context(), "/lib/0", nil, -1)))
	must(t, failure(other.Create(t.Context(), "/lib/none", nil, 0)))
	hears("=/lib/0 +/lib/none */lib")
	found, err = inside(s).ReadAllAndWatch(t.Context(), "/lib/gone", request.Read{Path: "/lib/0"}, request.Read{Path: "/lib/gone"}, request.Read{Path: "/lib", Children: true})
	must(t, err)
	seen := found[2].Zxid
	network.Cut()
	must(t, failure(other.Set(t.Context(), "/lib/0", nil, -1)))
	must(t, other.Delete(t.Context(), "/lib/1", -1))
	network.Heal()
	network.Drop()
	time.Sleep(time.Second)
	must(t, c.WaitConnected(t.Context()))
	stop()
	e, _ = listen(t, s, "/lib")
	_, armed, unset, err := inside(s).SetWatches(t.Context(), seen, request.Read{Path: "/lib/0"}, request.Read{Path: "/lib/2"}, request.Read{Path: "/lib", Children: true})
	must(t, err)
	heard, orders := e.take()
	if heard != "=/lib/0 */lib" || orders[1] >= armed || len(unset) > 0 {
		t.Errorf("heard %q at %v, armed at %d, unset %v", heard, orders, armed, unset)
	}
	must(t, failure(other.Set(t.Context(), "/lib/2", nil, -1)))
	hears("=/lib/2")
}
