package managed_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// Watches that are given up, joined again, and taken up after a reconnect, hear
// of everything on the real server, and no lease is lost over their removal.
func TestUnwatchOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 1)
	network := ens.ClientNet("watcher")
	const short = 4 * time.Second
	answered := make(chan struct{}, 100)
	c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(short), framework.WithDialer(network.Dial),
		framework.WithObserver(framework.Observer{RequestEnd: func(_ context.Context, r framework.Request, result framework.RequestResult) {
			if r.Op == "watch" && r.Path == "/a" && result.Err == nil {
				answered <- struct{}{}
			}
		}}))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.WaitConnected(t.Context()))
	s := session(t, c)
	must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
	for round := range 2 {
		_, _, kept, resume, err := inside(s).WatchAndResume("/a")
		must(t, err)
		<-answered // the read
		_, children, err := s.WatchChildren(t.Context(), "/a")
		must(t, err)
		<-answered
		s.Unwatch(children)
		bubble.Await(t, "the end of the channel", children)
		<-answered // the removal, which succeeds
		must(t, failure(c.Create(t.Context(), "/a/b", nil, 0)))
		must(t, c.Delete(t.Context(), "/a/b", -1))
		network.Drop()
		bubble.Await(t, "the reconnect", kept)
		must(t, c.WaitConnected(t.Context()))
		again, ok := resume()
		if !ok {
			t.Fatal("not taken up")
		}
		select {
		case <-again:
			t.Fatal("it has fired")
		case <-time.After(2 * short): // it is wanted: nothing removes it
		}
		must(t, failure(c.Set(t.Context(), "/a", nil, -1)))
		bubble.Await(t, "the change", again)
		if session(t, c).ID() != s.ID() || len(answered) != 0 {
			t.Errorf("round %d: %d requests more", round, len(answered))
		}
	}
}

// The real server removes watches below a recursive one, which stays.
func TestUnwatchBelowATreeOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 1)
	const short = 4 * time.Second
	c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(short))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.WaitConnected(t.Context()))
	s := session(t, c)
	must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
	tree, _, _ := mustWatchTree(t, s, "/")
	watchAndGiveUp(t, s, "/a")
	watched := func() string {
		conn, err := net.Dial("tcp", ens.Servers())
		must(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte("wchp"))
		must(t, err)
		text, err := io.ReadAll(conn)
		must(t, err)
		return string(text)
	}
	if text := watched(); !strings.Contains(text, "/a/none\n") {
		t.Fatalf("watched:\n%s", text)
	}
	bubble.AwaitTrue(t, "the removals", func() bool { return !strings.Contains(watched(), "/a") })
	if text := watched(); !strings.HasPrefix(text, "/\n") {
		t.Errorf("watched:\n%s", text)
	}
	tree.take()
	must(t, failure(c.Set(t.Context(), "/a", nil, -1)))
	must(t, failure(c.Create(t.Context(), "/a/none", nil, 0)))
	if heard, _ := tree.take(); heard != "=/a +/a/none" {
		t.Errorf("heard %q", heard)
	}
}
