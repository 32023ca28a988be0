package acceptance_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// A directory with 100,000 other children costs time and nothing else.
func TestAHundredThousandChildren(t *testing.T) { // not in parallel: it would starve other tests
	onBoth(t, 1, func(t *testing.T, ens testutil.Ensemble) {
		const path, each = "/suite/many", 2000
		children := 100_000
		if testing.Short() {
			children = 10_000
		}
		s := &stage{Ensemble: ens, path: path}
		c := s.joinFor(t, 30*time.Second).Client // a list may take a while on a busy machine
		if err := c.MakeContainerPath(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < children; i += each {
			var ops []any
			for j := range each {
				ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/job-2f1b6a5e-9c0d-4e4f-8a39-0f4f6f2c1d77-%09d", path, i+j)})
			}
			if _, err := c.Multi(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
		}
		session, err := c.Session()
		if err != nil {
			t.Fatal(err)
		}
		standing := func(n int32) { // counts by the number alone, since a list is expensive here
			bubble.AwaitTrue(t, fmt.Sprint(n, " stand there"), func() bool {
				_, stat, err := c.Exists(t.Context(), path)
				return err == nil && stat.NumChildren == n
			})
		}
		for _, k := range append(kinds[:3:3], readers) {
			began := time.Now()
			held := acquire(t, t.Context(), k.of(t, c, path))
			other := k.of(t, s.joinFor(t, 30*time.Second).Client, path)
			if k.name != readers.name {
				busy(t, other)
				waiting := acquiring(t.Context(), other)
				standing(int32(children) + 2)
				pending(t, waiting)
				release(t, held)
				held = granted(t, waiting)
			}
			release(t, held)
			standing(int32(children))
			t.Logf("%s: %v", k.name, time.Since(began).Round(time.Millisecond))
		}
		if now, err := c.Session(); err != nil || now.ID() != session.ID() {
			t.Errorf("the session was lost: %v", err)
		}
	})
}

// A list that is longer than an answer may be is an error, after as many tries
// as the retry policy has. A holder on the same client keeps its lease. Nothing
// of the attempt is left, at the latest when the session ends: without a list
// the client cannot look for its znode.
func TestAListThatIsTooLong(t *testing.T) { // not in parallel either
	ens := testutil.Start(t, testutil.WithTick(200*time.Millisecond), testutil.WithSessionTimeouts(400*time.Millisecond, time.Minute), testutil.WithLogger(func(string, ...any) {}))
	const path = "/suite/huge"
	s := &stage{Ensemble: ens, path: path}
	watcher := s.joinFor(t, 30*time.Second).Client
	for i := range 80 {
		if err := watcher.MakeContainerPath(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		if _, err := watcher.Create(t.Context(), fmt.Sprintf("%s/%s-%d", path, strings.Repeat("x", 900<<10), i), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	c := s.joinFor(t, 30*time.Second, framework.WithRetry(retry.NTimes(10, 100*time.Millisecond))).Client
	held := acquire(t, t.Context(), kinds[0].of(t, c, "/suite/other"))
	ens.ResetRequests()
	_, err := kinds[0].of(t, c, path).Acquire(t.Context())
	// On a slow machine the client may leave the connection before the answer
	// begins.
	if !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, zk.ErrNoServer) {
		t.Error(err)
	}
	if n := ens.Requests()[testutil.OpGetChildren2]; n > 11 { // as often as the policy tries
		t.Errorf("listed %d times", n)
	}
	release(t, held)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	bubble.AwaitTrue(t, "nothing is left", func() bool { return len(ens.Children(path)) == 80 })
}

// A server that enforces quotas refuses new contenders when the path is full,
// and they leave. Existing ones are not affected.
func TestAQuotaOfTheServer(t *testing.T) {
	ens := apache.Start(t, 1, apache.WithProperty("zookeeper.enforceQuota", "true"))
	s := &stage{ens, "/suite/quota", client(t, ens)}
	for _, k := range append(kinds[:3:3], readers) { // taking a permit needs room for its place in line, too
		s.path = "/suite/quota-" + strings.ReplaceAll(k.name, " ", "-")
		first, second := k.of(t, s.join(t).Client, s.path), k.of(t, s.join(t).Client, s.path)
		dirs := k.directories(t, s)
		quota := "/zookeeper/quota" + s.path
		if err := s.watcher.MakeContainerPath(t.Context(), quota); err != nil {
			t.Fatal(err)
		}
		// Room for all directories and one holder.
		limits := fmt.Sprintf("count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=%d", len(dirs)+1)
		if _, err := s.watcher.Create(t.Context(), quota+"/zookeeper_limits", []byte(limits), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.watcher.Create(t.Context(), quota+"/zookeeper_stats", []byte(fmt.Sprintf("count=%d,bytes=0", len(dirs))), 0); err != nil {
			t.Fatal(err)
		}
		held := acquire(t, t.Context(), first)
		_, err := second.Acquire(t.Context())
		if !isQuota(err) {
			t.Errorf("%s: %v", k.name, err)
		}
		k.standing(t, s, 1, 0)
		if !held.Held() {
			t.Errorf("%s: the holder lost its lease: %v", k.name, held.Err())
		}
		release(t, held)
		release(t, acquire(t, t.Context(), second))
		k.standing(t, s, 0, 0)
	}
}

// Servers accept less than a client sends by default, or more. A request that
// is too large for them ends the connection each time it is tried, and costs no
// lease. A client that knows their limit does not send it.
func TestAnotherMaxBuffer(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]int{"below": 64 << 10, "above": 4 << 20} {
		t.Run(name, func(t *testing.T) {
			ens := apache.Start(t, 1, apache.WithProperty("jute.maxbuffer", fmt.Sprint(server)))
			s := newStage(t, ens, client(t, ens))
			c := muster(t, s, ens.Servers(), enduring)
			lasting(t, s.watcher, s.path+"/data")
			write := func(held *recipes.Lease, bytes int) error {
				_, err := held.Multi(t.Context(), &zk.SetDataRequest{Path: s.path + "/data", Data: make([]byte, bytes), Version: -1})
				return err
			}
			lock := s.path + "/lock"
			open := func(opts ...framework.Option) *framework.Client { // through no ClientNet, which has a limit of its own
				c, err := framework.New(ens.Servers(), append(opts, framework.WithSessionTimeout(enduring))...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			known := open(framework.WithMaxRequest(server - 1))
			var breaks atomic.Int32
			known.Listen(func(change framework.StateChange) {
				if change.To == framework.Suspended {
					breaks.Add(1)
				}
			})
			held := acquire(t, t.Context(), kinds[0].of(t, known, lock))
			if err := write(held, server-1024); err != nil {
				t.Errorf("a request that servers and client accept: %v", err)
			}
			if err := write(held, server); !errors.Is(err, framework.ErrTooLarge) {
				t.Errorf("a request that neither accepts: %v", err)
			}
			if n := breaks.Load(); n > 0 {
				t.Errorf("%d connections have ended", n)
			}
			release(t, held)

			unaware := open(framework.WithRetry(retry.NTimes(5, 300*time.Millisecond)))
			held = acquire(t, t.Context(), kinds[0].of(t, unaware, lock))
			next := acquiring(t.Context(), kinds[0].of(t, known, lock))
			kinds[0].standing(t, &stage{ens, lock, s.watcher}, 1, 1)
			err := write(held, server/2+server/4)
			switch wants := server < 1<<20; {
			case wants && err != nil: // servers accept it
				t.Error(err)
			case !wants && !errors.Is(err, framework.ErrTooLarge):
				t.Errorf("a request that the client does not send: %v", err)
			}
			if server < 1<<20 {
				_, err := unaware.Set(t.Context(), s.path+"/data", make([]byte, 2*server), 1) // it is tried again
				for what, err := range map[string]error{"write": write(held, 2*server), "set": err} {
					if !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, zk.ErrNoServer) {
						t.Errorf("%s: a request that the servers do not accept: %v", what, err)
					}
				}
			}
			if data, _, err := unaware.Get(t.Context(), s.path+"/data"); err != nil || len(data) < server/2 {
				t.Errorf("%d bytes, %v", len(data), err) // answers are limited by no server
			}
			if !held.Held() {
				t.Errorf("the lease was lost: %v", held.Err())
			}
			pending(t, next)
			release(t, held)
			release(t, granted(t, next))
			c.goesOn(t)
			c.keeps(t)
			c.handsOver(t)
			c.disband(t)
		})
	}
}

// Malformed answers to any request of a recipe: it recovers, the holder has one
// znode, and nothing is left.
func TestNonsenseUnderARecipe(t *testing.T) {
	parallel(t)
	lies := map[string]func(frame []byte) tamper.Instead{
		"short":    func(f []byte) tamper.Instead { return framed(f[:len(f)-1]) },
		"empty":    func(f []byte) tamper.Instead { return framed(f[:20]) },
		"huge":     func(f []byte) tamper.Instead { return framed(append(f[:20:20], 0x7f, 0xff, 0xff, 0xff)) },
		"nobody's": func(f []byte) tamper.Instead { f[4] ^= 0x40; return tamper.Instead{Frame: f} },
		"noise":    func(f []byte) tamper.Instead { return tamper.Instead{Frame: []byte(strings.Repeat("noise", 100))} },
		"an end":   func(f []byte) tamper.Instead { return tamper.Instead{Frame: f[:10], HangUp: true} },
	}
	onBoth(t, 1, func(t *testing.T, ens testutil.Ensemble) {
		watcher := client(t, ens)
		for _, k := range kinds {
			for _, op := range []wire.Op{wire.OpCreate, wire.OpGetChildren2, wire.OpGetData, wire.OpMulti, wire.OpDelete} {
				if op == wire.OpMulti && k.line == k.hold || op == wire.OpGetData && k.line != k.hold {
					continue
				}
				for name, lie := range lies {
					if op == wire.OpDelete && (name == "short" || name == "empty") {
						continue // its answer has no body
					}
					t.Run(fmt.Sprint(k.name, "/", op, "/", name), func(t *testing.T) {
						s := &stage{ens, "/suite/nonsense/" + strings.NewReplacer(" ", "_", "/", "_", "'", "").Replace(t.Name()), watcher}
						var lied atomic.Int32
						c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout),
							framework.WithDialer(tamper.Wrap(ens.Dial, func(a tamper.Answer) tamper.Instead {
								if a.Op != op || op != wire.OpMulti && !strings.HasPrefix(a.Path, s.path) || lied.Add(1) > 2 {
									return tamper.Pass(a)
								}
								return lie(append([]byte(nil), a.Frame...))
							})))
						if err != nil {
							t.Fatal(err)
						}
						defer c.Close()
						liedTo, other := k.of(t, c, s.path), k.of(t, s.join(t).Client, s.path)
						held := acquire(t, t.Context(), other)
						waiting := acquiring(t.Context(), liedTo)
						k.standing(t, s, 1, 1)
						if op == wire.OpGetData { // the watch on the one ahead: a contender may not have come so far
							bubble.AwaitTrue(t, "a watch was answered", func() bool { return lied.Load() > 0 })
						}
						release(t, held)
						held = granted(t, waiting)
						k.standing(t, s, 1, 0)
						busy(t, other)
						release(t, held)
						k.standing(t, s, 0, 0)
						if lied.Load() == 0 {
							t.Error("no file was replaced")
						}
					})
				}
			}
		}
	})
}

// framed returns a frame: its length, then its contents.
func framed(frame []byte) tamper.Instead {
	size := wire.AppendInt32(nil, int32(len(frame)-4))
	return tamper.Instead{Frame: append(size, frame[4:]...)}
}
