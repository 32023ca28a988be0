package cache_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// What is moved near the limit of a cache: movable znodes of 1,000 bytes, of
// which half as many again would be too many.
const (
	movable   = 300
	nearLimit = movable * 1500
)

// near and far are where they are moved. A walk reads what is near before it
// lists what is far.
const (
	near = root + "/a"
	far  = root + "/z/deep"
)

func fillNear(t bubble.T, c *framework.Client) {
	t.Helper()
	for _, path := range []string{root, near, root + "/z", far, far + "/stays"} {
		create(t, c, path, "")
	}
	for i := range movable {
		create(t, c, fmt.Sprintf("%s/%03d", near, i), strings.Repeat("x", 1000))
	}
}

// moveZnodes moves the znodes of these numbers.
func moveZnodes(t bubble.T, c *framework.Client, from, to string, numbers ...int) {
	t.Helper()
	var ops []any
	for _, i := range numbers {
		ops = append(ops,
			&zk.DeleteRequest{Path: fmt.Sprintf("%s/%03d", from, i), Version: -1},
			&zk.CreateRequest{Path: fmt.Sprintf("%s/%03d", to, i), Data: make([]byte, 1000), Acl: zk.WorldACL(zk.PermAll)})
	}
	if _, err := c.Multi(context.Background(), ops...); err != nil {
		t.Error(err)
	}
}

func moveAll(t bubble.T, c *framework.Client, from, to string) {
	t.Helper()
	for first := 0; first < movable; first += 100 {
		numbers := make([]int, 100)
		for i := range numbers {
			numbers[i] = first + i
		}
		moveZnodes(t, c, from, to, numbers...)
	}
}

// retries counts the walks that have gone beyond the limit, and reports to
// limit. Those that follow one, and do not say so, are mute.
type retries struct{ inARow, all, mute atomic.Int32 }

func (r *retries) observer() cache.Observer {
	return cache.Observer{Read: func(read cache.Read) {
		if read.Reason.Walk() && r.inARow.Load() > 0 && read.Reason != cache.ReadSize {
			r.mute.Add(1)
		}
		switch {
		case !read.Reason.Walk():
		case read.Err == nil:
			r.inARow.Store(0)
		case strings.Contains(read.Err.Error(), "see WithMaxBytes"):
			r.inARow.Add(1)
			r.all.Add(1)
		}
	}}
}

// Znodes are moved at each step of a walk: of the first one, and of one in
// another session. So they are counted twice, and the cache does not fail.
func TestMovesDuringAWalk(t *testing.T) {
	bubble.Usual(t, bubble.SmallRequest, bubble.OneShot) // makes large requests; needs multiRead, or recursive watches
	for name, tt := range map[string]struct {
		opts  []cache.Option
		op    testutil.Op
		every int // requests are a step
		again bool
	}{
		"first":           {nil, testutil.OpMultiRead, 1, false},
		"again":           {nil, testutil.OpMultiRead, 1, true},
		"first, one-shot": {[]cache.Option{cache.WithOneShotWatches()}, testutil.OpGetData, 50, false},
		"again, one-shot": {[]cache.Option{cache.WithOneShotWatches()}, testutil.OpGetData, 50, true},
	} {
		var r retries
		for step := range 12 {
			t.Run(fmt.Sprint(name, ", step ", step), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					c, other := w.Connect("reader", cache.WithObserver(r.observer())), w.Connect("writer")
					fillNear(t, other)
					opts := append([]cache.Option{cache.WithMaxBytes(nearLimit)}, tt.opts...)
					var k *cache.Cache
					if tt.again {
						k = synced(t, c, opts...)
					}
					release := make(chan struct{})
					hold := testutil.NewFault(testutil.Match{Op: tt.op, Skip: step * tt.every}, testutil.HoldReply(release))
					defer w.ClientNet("reader").Control(hold.Control)()
					if tt.again {
						w.Expire(c)
					} else {
						k = start(t, c, opts...)
					}
					select {
					case <-hold.Hit():
						moveAll(t, other, near, far)
					case <-time.After(3 * bubble.Timeout): // a walk has fewer steps
					}
					close(release)
					view(t, k.Synced)
					shows(t, w, k)
					k.Close()
					time.Sleep(3 * bubble.Timeout)
					if left := w.Watches(); len(left) > 0 {
						t.Errorf("watches are left: %v", left)
					}
				})
			})
		}
		if r.all.Load() == 0 {
			t.Errorf("%s: no walk has counted znodes twice", name)
		}
		if n := r.mute.Load(); n > 0 {
			t.Errorf("%s: %d walks have another reason than the limit", name, n)
		}
	}
}

// Znodes are moved during each walk. The cache has failed after the third, with
// pauses between them, in which it is Stale.
func TestMovesDuringEachWalk(t *testing.T) {
	bubble.Usual(t, bubble.SmallRequest, bubble.OneShot) // makes large requests; needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var r retries
		c, other := w.Connect("reader", cache.WithObserver(r.observer())), w.Connect("writer")
		fillNear(t, other)
		k := synced(t, c, cache.WithMaxBytes(nearLimit), cache.WithRecheck(0))
		began := time.Now()
		for walk := range int32(3) {
			held, release := make(chan struct{}, 1), make(chan struct{})
			stop := w.ClientNet("reader").Control(func(req testutil.Request) testutil.Action {
				if req.Does(testutil.OpGetChildren, far) {
					select {
					case held <- struct{}{}:
					default:
					}
					return testutil.Hold(release)
				}
				return testutil.Pass()
			})
			if walk == 0 {
				w.Expire(c)
			}
			bubble.Await(t, "the list of "+far, held) // what is near is read
			moveAll(t, other, near, far)
			close(release)
			stop()
			for r.inARow.Load() == walk { // the next one comes soon
				time.Sleep(time.Millisecond)
			}
			if got := k.Status(); walk < 2 && got.State != cache.Stale {
				t.Errorf("after walk %d: %+v", walk+1, got)
			}
			moveAll(t, other, far, near)
		}
		status := await(t, k, cache.Failed)
		wantErr(t, status.Err, nil, "more than 450000 bytes at "+far, "see WithMaxBytes")
		if took := status.Since.Sub(began); r.all.Load() != 3 || took < 10*time.Millisecond {
			t.Errorf("failed after %v and %d walks", took, r.all.Load())
		}
	})
}

// Random moves near the limit, lost connections and sessions. The cache does
// not fail as long as no three walks in a row find more than the limit.
func TestRandomMovesNearTheLimit(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries, bubble.SmallRequest) // outlasts an outage; makes large requests
	random := bubble.Random(t)
	for range bubble.Few(2, bubble.Draw(5, 50)) {
		seed := random.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { playMoves(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func playMoves(t *testing.T, random *rand.Rand) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var r retries
		c, other := w.Connect("reader", cache.WithObserver(r.observer())), w.Connect("writer")
		fillNear(t, other)
		limit := movable*1200 + random.IntN(movable*300) // 1,130 each are needed
		opts := []cache.Option{cache.WithMaxBytes(int64(limit))}
		if random.IntN(3) == 0 {
			opts = append(opts, cache.WithOneShotWatches())
		}
		network := w.ClientNet("reader")
		network.Latency(20*time.Millisecond, 20*time.Millisecond) // a walk takes about 300ms
		k := start(t, c, opts...)
		at := map[int]string{}
		for i := range movable {
			at[i] = near
		}
		for range 30 {
			switch random.IntN(4) {
			case 0:
				network.Drop()
			case 1:
				if s, err := c.Session(); err == nil {
					_ = w.ExpireSession(s.ID())
				}
			}
			for range random.IntN(20) {
				if r.inARow.Load() == 2 {
					break
				}
				from := []string{near, far}[random.IntN(2)]
				to := map[string]string{near: far, far: near}[from]
				var numbers []int
				for i := range movable {
					if at[i] == from && random.IntN(2) == 0 && len(numbers) < 100 {
						numbers, at[i] = append(numbers, i), to
					}
				}
				moveZnodes(t, other, from, to, numbers...)
				time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
			}
			if random.IntN(3) == 0 {
				shows(t, w, k)
			}
		}
		shows(t, w, k)
		t.Logf("%d walks have gone beyond the limit", r.all.Load())
	})
}
