package presence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Data that are too large are told at once, and those before them stay.
func TestDataTooLarge(t *testing.T) {
	large := make([]byte, 2<<20)
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		n, err := presence.New(c, path, large)
		must(t, err)
		must(t, n.Start())
		bubble.AwaitTrue(t, "why", func() bool { return errors.Is(n.Status().Err, framework.ErrTooLarge) })
		must(t, n.Set(t.Context(), []byte("a")))
		standing(t, w, c, n, "a")
		began := time.Now()
		if err := n.Set(t.Context(), large); !errors.Is(err, framework.ErrTooLarge) || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		standing(t, w, c, n, "a")
		w.ClientNet("ours").Cut()
		awaitState(t, n, presence.Suspended)
		w.Expire(c)
		result := make(chan error, 1)
		go func() { result <- n.Set(t.Context(), large) }()
		time.Sleep(time.Second)
		w.ClientNet("ours").Heal()
		if err := bubble.Await(t, "Set", result); !errors.Is(err, framework.ErrTooLarge) {
			t.Error(err)
		}
		standing(t, w, c, n, "a")
		closed(t, w, n)
	})
}

// Requests that break the connection each time are made more and more rarely.
func TestACreateThatBreaksTheConnection(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		var tries atomic.Int32
		stop := w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreate && r.Path == path {
				tries.Add(1)
				return testutil.DropBefore()
			}
			return testutil.Pass()
		})
		n, err := presence.New(c, path, nil)
		must(t, err)
		must(t, n.Start())
		time.Sleep(10 * time.Minute)
		if got := tries.Load(); got > 100 || n.Status().Err == nil {
			t.Errorf("%d tries, %v", got, n.Status())
		}
		stop()
		standing(t, w, c, n, "")
	})
}

// The directory is a container that the ensemble removes once it is empty.
func TestTheDirectoryIsRemoved(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers) // waits for the end of a container
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.ConnectNext(), w.ConnectNext()
		n := announce(t, c, path, "a")
		w.Expire(c)
		_ = other.Delete(t.Context(), "/services/billing", -1)
		_ = other.Delete(t.Context(), "/services", -1)
		awaitState(t, n, presence.Pending)
		standing(t, w, c, n, "a")
		must(t, other.Delete(t.Context(), path, -1))
		_ = other.Delete(t.Context(), "/services/billing", -1)
		time.Sleep(time.Second)
		standing(t, w, c, n, "a")
		closed(t, w, n)
		time.Sleep(5 * time.Minute)
		if w.Exists("/services") {
			t.Error("the directories are not containers")
		}
	})
}

// A client's chroot vanishes and comes back.
func TestTheChrootVanishes(t *testing.T) {
	bubble.Usual(t, bubble.Below) // it has a chroot of its own
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other := w.ConnectNext()
		must(t, other.MakePersistentPath(t.Context(), "/app"))
		c := w.ConnectTo("ours", w.Servers()+"/app")
		n, err := presence.Announce(t.Context(), c, "/a", []byte("a"))
		must(t, err)
		must(t, other.Delete(t.Context(), "/app/a", -1))
		must(t, other.Delete(t.Context(), "/app", -1))
		bubble.AwaitTrue(t, "why", func() bool { return n.Status().Err != nil && strings.Contains(n.Status().Err.Error(), "chroot /app") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := n.Standing(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "chroot") {
			t.Error(err)
		}
		must(t, other.MakePersistentPath(t.Context(), "/app"))
		must(t, n.Standing(t.Context()))
		must(t, n.Close(t.Context()))
		if w.Exists("/app/a") {
			t.Error("it is there after Close")
		}
	})
}

// What a node remembers does not grow with its sessions, nor with what others
// do to its znode.
func TestANodeDoesNotGrow(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("ours"), w.ConnectNext()
		n := announce(t, c, path, "a", presence.WithTakeover(func([]byte) bool { return true }))
		round := func(i int) {
			must(t, n.Set(t.Context(), fmt.Append(nil, i)))
			n.Listen(func(presence.Status) {})()
			w.ClientNet("ours").Drop()
			time.Sleep(10 * time.Second)
			if i%3 == 0 {
				_ = other.Delete(t.Context(), path, -1)
				_, _ = other.Create(t.Context(), path, nil, zk.FlagEphemeral)
			}
			w.Expire(c)
			time.Sleep(time.Minute)
			must(t, n.Standing(t.Context()))
		}
		for i := range 80 { // more sessions than the client remembers
			round(i)
		}
		before := w.Count(n, c)
		for i := range bubble.Few(30, 100) {
			round(i)
		}
		for _, more := range w.Count(n, c).Grown(before, 4) {
			t.Error(more)
		}
	})
}

// Clients that lose their sessions at the same time do not come back at once.
func TestClientsSpread(t *testing.T) {
	const all = 200
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var nodes []*presence.Node
		var clients []*framework.Client
		for i := range all {
			clients = append(clients, w.ConnectNext())
			nodes = append(nodes, announce(t, clients[i], fmt.Sprint("/services/billing/", i), ""))
		}
		var mu sync.Mutex
		at := map[int]int{}
		var began time.Time
		defer w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreate {
				mu.Lock()
				at[int(time.Since(began)/(100*time.Millisecond))]++
				mu.Unlock()
			}
			return testutil.Pass()
		})()
		began = time.Now()
		for _, c := range clients {
			w.Expire(c)
		}
		time.Sleep(10 * time.Second)
		for _, n := range nodes {
			must(t, n.Standing(t.Context()))
		}
		most, sum := 0, 0
		for _, n := range at {
			most, sum = max(most, n), sum+n
		}
		if sum != all || most > all/3 {
			t.Errorf("%d creates, %d of them within 100ms", sum, most)
		}
	})
}

// Data that are too large for a takeover are refused, and those before them are
// written.
func TestATakeoverWithDataTooLarge(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ours, other := w.Connect("ours"), w.ConnectNext()
		announce(t, other, path, "theirs")
		asked, answer := make(chan struct{}, 1), make(chan struct{})
		n, err := presence.New(ours, path, []byte("ours"), presence.WithTakeover(func([]byte) bool {
			asked <- struct{}{}
			<-answer
			return true
		}))
		must(t, err)
		must(t, n.Start())
		bubble.Await(t, "the question", asked)
		set := make(chan error, 1)
		go func() { set <- n.Set(t.Context(), make([]byte, 2<<20)) }()
		synctest.Wait()
		close(answer)
		if err := bubble.Await(t, "Set", set); !errors.Is(err, framework.ErrTooLarge) {
			t.Error(err)
		}
		standing(t, w, ours, n, "ours")
	})
}

// A Node that waits for a name only reads. When the name is free it tries to
// have it, without another look.
func TestWhatWaitingForANameCosts(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		theirs := announce(t, w.ConnectNext(), path, "theirs")
		c := w.ConnectNext()
		n, err := presence.New(c, path, []byte("ours"))
		must(t, err)
		must(t, n.Start())
		awaitState(t, n, presence.Taken)
		w.ResetRequests()
		time.Sleep(time.Hour)
		if got := w.Requests(); got[testutil.OpCreate] != 0 || got[testutil.OpMulti] != 0 {
			t.Errorf("requests of an hour: %v", got)
		}
		w.ResetRequests()
		must(t, theirs.Close(t.Context()))
		awaitState(t, n, presence.Standing)
		if got := w.Cost(); got[testutil.OpCreate] != 1 || got[testutil.OpGetData] != 1 { // of its own znode
			t.Errorf("requests until it stands: %v", got)
		}
		closed(t, w, n)
	})
}
