package line_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Several clients use a lock while its directory is deleted and created again,
// with a sequence counter close to that of the last holder, and while
// connections and sessions end. There is never more than one holder, and tokens
// increase. The simulator recreates directories a few times in a run; here it
// happens all the time.
func TestDirectoryIsRecreatedAtRandom(t *testing.T) {
	for seed := range bubble.Few(1, bubble.Draw[uint64](2, 8)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) { recreatedAtRandom(t, w, seed) }, testutil.WithMembers(3))
		})
	}
}

func recreatedAtRandom(t *testing.T, w *bubble.World, seed uint64) {
	ctx, stop := context.WithTimeout(t.Context(), time.Duration(bubble.Few(6, 20))*time.Second)
	defer stop()
	var mu sync.Mutex // guards what follows
	var greatest recipes.Token
	var holder string
	var holding int64                // the holder's session
	var number int                   // of the last holder
	ended := map[int64]bool{0: true} // sessions that the test has ended early: their clients hear of it a moment later

	use := func(c *framework.Client, a recipes.Acquirer, d time.Duration) bool {
		l, err := a.Acquire(ctx)
		if err != nil {
			return false
		}
		mu.Lock()
		own := int64(0)
		if s, err := c.Session(); err == nil {
			own = s.ID()
		}
		if !ended[own] && l.Held() {
			if holder != "" && !ended[holding] {
				t.Errorf("%s and %s are held at the same time", l.Path(), holder)
			}
			if l.Token().Compare(greatest) <= 0 {
				t.Errorf("token %v after %v", l.Token(), greatest)
			}
			greatest = l.Token()
		}
		holder, holding = l.Path(), own
		if _, err := fmt.Sscanf(l.Path()[len(l.Path())-10:], "%d", &number); err != nil {
			t.Error(err)
		}
		mu.Unlock()
		select {
		case <-time.After(d):
		case <-l.Lost():
		}
		mu.Lock()
		holder = ""
		mu.Unlock()
		return l.Release(context.Background()) == nil
	}

	var working sync.WaitGroup
	for i := range 3 {
		name := fmt.Sprint("c", i)
		c := w.Connect(name, framework.WithSessionTimeout(3*time.Second))
		var opts []locks.Option
		if i > 0 { // these come back at once
			opts = append(opts, async)
		}
		a := mutexOf(t, c, opts...)
		network, draw := w.ClientNet(name), rand.New(rand.NewPCG(seed, uint64(i)))
		network.Latency(time.Duration(draw.IntN(5000))*time.Microsecond, time.Duration(draw.IntN(5000))*time.Microsecond)
		working.Go(func() {
			for ctx.Err() == nil {
				for range draw.IntN(30) {
					if !use(c, a, time.Duration(draw.IntN(2000))*time.Microsecond) {
						break
					}
				}
				switch draw.IntN(20) {
				case 0:
					network.Drop()
				case 1:
					for _, s := range w.Sessions() {
						if draw.IntN(3) == 0 && s.ID != 0 {
							mu.Lock()
							ended[s.ID] = true
							mu.Unlock()
							_ = w.ExpireSession(s.ID)
						}
					}
				}
				time.Sleep(time.Duration(draw.IntN(1000)) * time.Millisecond)
			}
		})
	}
	operator, draw := w.Connect("operator"), rand.New(rand.NewPCG(seed, 99))
	recreated := 0
	for ctx.Err() == nil {
		time.Sleep(time.Duration(draw.IntN(200)) * time.Millisecond)
		mu.Lock()
		near := max(0, number-draw.IntN(3))
		mu.Unlock()
		if _, err := operator.Multi(ctx, recreateOps(near)...); err == nil {
			recreated++
		}
	}
	working.Wait()
	if recreated == 0 {
		t.Error("the directory was never recreated")
	}
}

// recreateOps returns the ops that delete the directory and create it again,
// with so many sequence numbers used up.
func recreateOps(numbers int) []any {
	ops := []any{&zk.DeleteRequest{Path: lockPath, Version: -1}, &zk.CreateRequest{Path: lockPath, Acl: zk.WorldACL(zk.PermAll)}}
	for range numbers {
		ops = append(ops, &zk.CreateRequest{Path: lockPath + "/x", Acl: zk.WorldACL(zk.PermAll)}, &zk.DeleteRequest{Path: lockPath + "/x", Version: -1})
	}
	return ops
}

// The directory is deleted and created again while a create is on its way. The
// number of the new znode follows the client's last one, as if no other client
// had come between, but the znode stands behind another holder.
func TestDirectoryIsRecreatedBeforeTheCreate(t *testing.T) {
	bubble.Usual(t, bubble.ShortTimeout) // has times of its own
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		m, operator := mutexOf(t, w.Connect("a")), w.Connect("operator")
		var last *recipes.Lease
		for range 10 {
			last = bubble.Acquire(t, t.Context(), m)
			bubble.Release(t, last)
		}
		held := lockPath + "/_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000009"
		requests := append(recreateOps(9), &zk.CreateRequest{Path: held, Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral})
		w.ResetRequests()
		w.ClientNet("a").Latency(time.Second, 0)
		granted := make(chan *recipes.Lease, 1)
		go func() {
			l, err := m.Acquire(t.Context())
			if err != nil {
				t.Error(err)
			}
			granted <- l
		}()
		time.Sleep(500 * time.Millisecond)
		if _, err := operator.Multi(t.Context(), requests...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if got := w.Requests()[testutil.OpCreate]; got != 1 || !strings.HasSuffix(last.Path(), "-0000000009") {
			t.Errorf("%d creates after %s: the scenario was not reached", got, last.Path())
		}
		select {
		case l := <-granted:
			t.Errorf("%s and %s are held at the same time", l.Path(), held)
		default:
			if err := operator.Delete(t.Context(), held, -1); err != nil {
				t.Fatal(err)
			}
			l := <-granted
			if !strings.HasSuffix(l.Path(), "-0000000010") {
				t.Errorf("%s: the scenario was not reached", l.Path())
			}
			bubble.Release(t, l)
		}
	})
}
