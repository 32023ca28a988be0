package apache_test

import (
	"context"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// All members are replaced by others, at other addresses, the leader too, while
// a client that knows the present members writes. Its session survives.
func TestReplaceAllMembers(t *testing.T) {
	e := apache.Start(t, 3, apache.WithReconfig())
	c := connectBy(t, e.Servers(), func(network, _ string, timeout time.Duration) (net.Conn, error) {
		servers := strings.Split(e.Servers(), ",")
		return e.Dial(network, servers[rand.IntN(len(servers))], timeout)
	})
	id := c.SessionID()
	if _, err := c.Create("/mine", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	stop, written := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				written <- n
				return
			default:
			}
			if _, err := c.Set("/mine", []byte("x"), -1); err == nil {
				n++
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	began := time.Now()
	must(t, load.ReplaceMembers(ctx, e, time.Second, func(old, added int) {
		t.Logf("member %d replaced by member %d after %v; member %d leads", old, added, time.Since(began).Round(time.Millisecond), e.Leader())
	}))
	if _, _, err := connect(t, e).Get("/mine"); err != nil || c.SessionID() != id {
		t.Errorf("session %#x of %#x: %v", c.SessionID(), id, err)
	}
	close(stop)
	if n := <-written; n == 0 {
		t.Error("nothing was written")
	}
	if e.Members() != 6 || e.Leader() < 3 {
		t.Errorf("%d members, and member %d leads", e.Members(), e.Leader())
	}
	if err := e.RemoveMember(ctx, 6); err == nil {
		t.Error("there is no such member")
	}
}

// Without the option members stay as they are.
func TestMembersAreFixedByDefault(t *testing.T) {
	e := apache.Start(t, 1)
	if _, err := e.AddMember(t.Context()); err == nil || e.RemoveMember(t.Context(), 0) == nil {
		t.Error("members change without WithReconfig")
	}
}
