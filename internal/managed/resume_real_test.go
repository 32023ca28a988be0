package managed_test

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// Watches of different ages after a reconnect to the real server: they go on
// where nothing has changed, and nowhere else.
func TestWatchesGoOnOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 1)
	network := ens.ClientNet("watcher")
	c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(10*time.Second), framework.WithDialer(network.Dial))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	other, err := framework.New(ens.Servers())
	must(t, err)
	t.Cleanup(func() { _ = other.Close() })
	must(t, c.WaitConnected(t.Context()))
	s := session(t, c)
	paths := []string{"/same", "/changed", "/made again", "/deleted", "/young"}
	changed, resume := make([]<-chan struct{}, len(paths)), make([]func() (<-chan struct{}, bool), len(paths))
	for i, path := range paths {
		must(t, failure(other.Create(t.Context(), path, nil, 0)))
		must(t, c.Sync(t.Context(), "/"))
		_, _, changed[i], resume[i], err = inside(s).WatchAndResume(path)
		must(t, err)
	}
	network.Cut()
	must(t, failure(other.Set(t.Context(), "/changed", nil, -1)))
	must(t, other.Delete(t.Context(), "/made again", -1))
	must(t, failure(other.Create(t.Context(), "/made again", nil, 0)))
	must(t, other.Delete(t.Context(), "/deleted", -1))
	network.Heal()
	network.Drop()
	for i, path := range paths {
		bubble.Await(t, "the reconnect", changed[i])
		again, ok := resume[i]()
		if want := path == "/same" || path == "/young"; ok != want {
			t.Errorf("%s: taken up: %t", path, ok)
		}
		changed[i] = again
	}
	for _, i := range []int{0, 4} {
		select {
		case <-changed[i]:
			t.Errorf("%s has fired", paths[i])
		default:
		}
		must(t, failure(other.Set(t.Context(), paths[i], nil, -1)))
		bubble.Await(t, "the change", changed[i])
	}
}
