package line_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// What a contended grant costs: no request lies between the release and the
// grant, and of the next ones at most two hear of it.
func TestCostOfAGrantByEvent(t *testing.T) {
	for name, tt := range map[string]struct{ ahead, most int }{
		"two in line": {1, 5}, "three in line": {2, 6}, "ten in line": {9, 7},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				held := bubble.Acquire(t, t.Context(), mutexOf(t, w.ConnectNext()))
				var ahead []<-chan bubble.Grant
				for i := 1; i < tt.ahead; i++ {
					ahead = append(ahead, bubble.Acquiring(t.Context(), mutexOf(t, w.ConnectNext())))
					w.InLine(lockPath, i+1)
				}
				ours := w.Connect("ours")
				var requests atomic.Int64
				defer w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
					if r.Op != testutil.OpPing {
						requests.Add(1)
					}
					return testutil.Pass()
				})()
				waiting := bubble.Acquiring(t.Context(), mutexOf(t, ours))
				w.InLine(lockPath, tt.ahead+1)
				for _, next := range ahead {
					bubble.Release(t, held)
					held = bubble.Granted(t, next).Lease
					time.Sleep(5 * time.Millisecond)
				}
				synctest.Wait()
				before := requests.Load()
				bubble.Release(t, held)
				l := bubble.Granted(t, waiting).Lease
				if n := requests.Load() - before; n != 0 {
					t.Errorf("%d requests between the release and the grant", n)
				}
				bubble.Release(t, l)
				if n := requests.Load(); n > int64(tt.most) {
					t.Errorf("%d requests, want at most %d", n, tt.most)
				}
				w.NothingLeft(lockPath)
			})
		})
	}
}

// scene is a holder, a waiter and a third contender behind it.
type scene struct {
	*testing.T
	*bubble.World
	first, operator *framework.Client
	holder          *recipes.Lease
	waiter          string // its znode
	network         *bubble.Net
	leave           func() // the holder has stopped its work
}

func (s *scene) set(path, data string) {
	s.Helper()
	if _, err := s.operator.Set(s.Context(), path, []byte(data), -1); err != nil {
		s.Fatal(err)
	}
	synctest.Wait()
}

func (s *scene) revokeHolder() { s.set(s.holder.Path(), "__REVOKE__") }
func (s *scene) revokeWaiter() { s.set(s.waiter, "__REVOKE__") }
func (s *scene) release()      { s.leave(); _ = s.holder.Release(context.Background()) }
func (s *scene) drop()         { s.network.Drop() }
func (s *scene) cut()          { s.network.Drop(); s.network.Cut() }
func (s *scene) heal()         { s.network.Heal() }
func (s *scene) pause()        { time.Sleep(time.Second) }

func (s *scene) remove() {
	s.Helper()
	if err := s.operator.Delete(s.Context(), s.waiter, -1); err != nil {
		s.Fatal(err)
	}
}

// What happens to a waiter, or to the znode ahead, between its list and the
// event. Each of these was a double grant where an event was trusted for less
// than it says. The holder works on for a while, unless it has lost its lease.
func TestNoGrantByAnEventThatSaysLess(t *testing.T) {
	for name, steps := range map[string][]func(s *scene){
		"nothing":                             nil,
		"the holder is revoked, and works on": {(*scene).revokeHolder},
		"the holder is revoked twice, and works on": {
			(*scene).revokeHolder,
			func(s *scene) { s.set(s.holder.Path(), "__REVOKE__ soon") },
		},
		"the waiter is revoked": {(*scene).revokeWaiter},
		"the waiter is removed": {(*scene).remove},
		"the waiter is removed with the holder's release": {
			(*scene).pause,
			func(s *scene) {
				s.Latency(5 * time.Millisecond)
				go func() { _ = s.operator.Delete(context.Background(), s.waiter, -1) }()
			},
			(*scene).release,
		},
		"the waiter is revoked, then removed": {(*scene).revokeWaiter, (*scene).remove},
		"the waiter is revoked and removed at once": {
			func(s *scene) {
				s.Latency(5 * time.Millisecond) // the list and the own read are under way
				if _, err := s.operator.Multi(s.Context(), bubble.Set(s.waiter, "__REVOKE__")); err != nil {
					s.Fatal(err)
				}
			},
			(*scene).remove, (*scene).release,
		},
		"the holder is revoked, then the waiter is removed": {(*scene).revokeHolder, (*scene).remove},
		"the waiter reconnects":                             {(*scene).drop, (*scene).pause},
		"the waiter reconnects, then it is removed":         {(*scene).drop, (*scene).pause, (*scene).remove},
		"the waiter is removed while it is cut off": {
			(*scene).cut, (*scene).remove,
			func(s *scene) { time.AfterFunc(2*time.Second, s.heal) },
		},
		"the waiter is removed while it is cut off, and hears of the release": {
			(*scene).cut, (*scene).remove, (*scene).heal, (*scene).pause, (*scene).pause, (*scene).pause,
		},
		"the waiter is removed by its name, and made again": {
			func(s *scene) { remake(s.T, s.operator, s.waiter, zk.FlagPersistent) },
			(*scene).remove,
		},
		"the holder is removed by its name, and made again": {
			func(s *scene) {
				s.leave() // it hears of that, and removes what has its name
				remake(s.T, s.operator, s.holder.Path(), zk.FlagPersistent)
			},
		},
		"the holder's session expires": {func(s *scene) { s.leave(); s.Expire(s.first) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				inside := bubble.Exclusion{T: t}
				s := &scene{T: t, World: w, first: w.Connect("a"), operator: w.Connect("operator")}
				s.holder = bubble.Acquire(t, t.Context(), mutexOf(t, s.first))
				inside.Enter()
				s.leave = sync.OnceFunc(inside.Leave)
				use := func(name string) <-chan struct{} {
					done := make(chan struct{})
					m := mutexOf(t, w.Connect(name))
					go func() {
						defer close(done)
						for range 3 {
							got, err := m.Acquire(t.Context())
							if err != nil {
								t.Error(err)
								return
							}
							inside.Enter()
							time.Sleep(400 * time.Millisecond)
							inside.Leave()
							_ = got.Release(context.Background())
						}
					}()
					return done
				}
				b := use("b")
				s.waiter = lastInLine(w, 2)
				s.network = w.ClientNet("b")
				c := use("c")
				w.InLine(lockPath, 3)
				synctest.Wait()
				for _, step := range steps {
					step(s)
				}
				time.Sleep(3 * bubble.Timeout) // also for the looks without an event
				s.release()
				<-b
				<-c
				w.NothingLeft(lockPath)
			})
		})
	}
}

// The nearest one ahead gives up while the first still holds.
func TestTwoAheadAndTheNearestLeaves(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		for ahead := 1; ahead < 4; ahead++ {
			held := bubble.Acquire(t, t.Context(), mutexOf(t, w.ConnectNext()))
			ctx, giveUp := context.WithCancel(t.Context())
			var given []<-chan bubble.Grant
			for i := range ahead {
				given = append(given, bubble.Acquiring(ctx, mutexOf(t, w.ConnectNext())))
				w.InLine(lockPath, i+2)
			}
			waiting := bubble.Acquiring(t.Context(), mutexOf(t, w.ConnectNext()))
			w.InLine(lockPath, ahead+2)
			giveUp()
			for _, g := range given {
				bubble.WantErr(t, (<-g).Err, context.Canceled)
			}
			time.Sleep(time.Second)
			bubble.Pending(t, waiting)
			bubble.Release(t, held)
			bubble.Release(t, bubble.Granted(t, waiting).Lease)
		}
		w.NothingLeft(lockPath)
	})
}

// A server does not send the event that says that the own znode was removed.
// The lease that began by the event of the holder's is lost when its znode is
// read, soon after.
func TestAGrantWithoutAZnodeIsLost(t *testing.T) {
	for name, wait := range map[string]time.Duration{"soon": 0, "after a long wait": bubble.Timeout * 3 / 5} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				operator := w.Connect("operator")
				held := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
				waiting := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("b")))
				w.InLine(lockPath, 2)
				time.Sleep(wait)
				w.ClientNet("b").LoseEvents(true)
				if err := operator.Delete(t.Context(), lastInLine(w, 2), -1); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				w.ClientNet("b").LoseEvents(false)
				bubble.Release(t, held)
				g := bubble.Granted(t, waiting)
				most := 310 * time.Millisecond
				if wait > 0 {
					most = 10 * time.Millisecond
				}
				if took := bubble.Lost(t, g.Lease).Sub(g.At); took > most {
					t.Errorf("lost after %v", took)
				}
				bubble.WantErr(t, g.Lease.Release(t.Context()), recipes.ErrNotHeld)
				w.NothingLeft(lockPath)
			})
		})
	}
}

// A watch of the own znode was used up without an event before the grant by a
// list: the holder still hears that its znode is removed.
func TestOwnWatchUsedUpBeforeAListGrants(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		operator := w.Connect("operator")
		held := bubble.Acquire(t, t.Context(), must(rwlock.New(w.Connect("a"), lockPath)).Writer())
		waiting := bubble.Acquiring(t.Context(), must(rwlock.New(w.Connect("b"), lockPath)).Writer())
		own := lastInLine(w, 2)
		w.ClientNet("b").LoseEvents(true)
		if _, err := operator.Set(t.Context(), own, []byte("x"), -1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.ClientNet("b").LoseEvents(false)
		w.ResetRequests()
		bubble.Release(t, held)
		g := bubble.Granted(t, waiting)
		if w.Requests()[testutil.OpGetChildren2] == 0 {
			t.Fatal("granted without a list")
		}
		time.Sleep(time.Second)
		if err := operator.Delete(t.Context(), own, -1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * bubble.Timeout)
		if g.Lease.Held() {
			t.Error("still held, without a znode")
		}
		_ = g.Lease.Release(context.Background())
		w.NothingLeft(lockPath)
	})
}

// A list that grants has shown the own znode: it is not read at once, however
// long ago the waiter has read it.
func TestAListThatGrantsCountsAsARead(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		held := bubble.Acquire(t, t.Context(), must(rwlock.New(w.Connect("a"), lockPath)).Writer())
		waiting := bubble.Acquiring(t.Context(), must(rwlock.New(w.Connect("b"), lockPath)).Writer())
		w.InLine(lockPath, 2)
		time.Sleep(bubble.Timeout * 2 / 3) // before it looks by itself
		w.ResetRequests()
		bubble.Release(t, held)
		g := bubble.Granted(t, waiting)
		time.Sleep(100 * time.Millisecond)
		if reads := w.Cost()[testutil.OpGetData] + w.Cost()[testutil.OpExists]; reads > 0 {
			t.Errorf("%d reads before and behind the list", reads)
		}
		bubble.Release(t, g.Lease)
		w.NothingLeft(lockPath)
	})
}

// A multi removes the holder's znode and the waiter's, in either order. The
// waiter joins again, or the event behind ends its grant at once.
func TestOneTransactionRemovesTheWaiterAsWell(t *testing.T) {
	for _, holderFirst := range []bool{true, false} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			operator := w.Connect("operator")
			held := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
			waiting := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("b")))
			first := &zk.DeleteRequest{Path: held.Path(), Version: -1}
			second := &zk.DeleteRequest{Path: lastInLine(w, 2), Version: -1}
			if !holderFirst {
				first, second = second, first
			}
			if _, err := operator.Multi(t.Context(), first, second); err != nil {
				t.Fatal(err)
			}
			g := bubble.Granted(t, waiting)
			if g.Lease.Path() == first.Path || g.Lease.Path() == second.Path { // otherwise it has joined again
				if took := bubble.Lost(t, g.Lease).Sub(g.At); took > 10*time.Millisecond {
					t.Errorf("lost after %v", took)
				}
			}
			_ = g.Lease.Release(t.Context())
			_ = held.Release(t.Context())
			w.NothingLeft(lockPath)
		})
	}
}

// While a waiter has its first list, but not read its znode yet, its session
// removes the directory and makes it again, with znodes of the same names. The
// grant that follows has a token of the directory that there is now.
func TestAnotherDirectoryBeforeTheWatch(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		ours := w.Connect("ours")
		held := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("first")))
		w.Once(testutil.OpGetChildren2, lockPath, testutil.DelayReply(time.Second))
		waiting := bubble.Acquiring(t.Context(), mutexOf(t, ours))
		ops := []any{&zk.DeleteRequest{Path: lockPath, Version: -1}, &zk.CreateRequest{Path: lockPath, Acl: zk.WorldACL(zk.PermAll)}}
		for _, name := range w.InLine(lockPath, 2) {
			path := lockPath + "/" + name
			ops = append([]any{&zk.DeleteRequest{Path: path, Version: -1}}, ops...)
			ops = append(ops, &zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral})
		}
		dir, _ := w.Stat(lockPath)
		go func() { _, _ = ours.Multi(context.Background(), ops...) }() // the answer comes behind the list
		g := bubble.Granted(t, waiting)                                 // the holder has removed what has the name of its znode
		now, _ := w.Stat(lockPath)
		if now.Czxid == dir.Czxid {
			t.Fatal("the scenario was not reached")
		}
		if want := fmt.Sprintf("%016x", now.Czxid); g.Lease.Token().String()[:16] != want {
			t.Errorf("token %s, the directory has %s, before %x", g.Lease.Token(), want, dir.Czxid)
		}
		bubble.Release(t, g.Lease)
		bubble.WantErr(t, held.Release(t.Context()), recipes.ErrNotHeld)
		w.NothingLeft(lockPath)
	})
}

// Another session replaces a waiter's znode by one of the same name. No event
// grants then, even if the waiter has listed once more since: nothing was to be
// watched again. The list that grants shows the name, and the lease is lost
// when the znode is read.
func TestAnotherSessionsZnodeBeforeTheGrant(t *testing.T) {
	for ahead := 1; ahead <= 2; ahead++ {
		bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
			held := bubble.Acquire(t, t.Context(), mutexOf(t, w.ConnectNext()))
			var second <-chan bubble.Grant
			if ahead == 2 {
				second = bubble.Acquiring(t.Context(), mutexOf(t, w.ConnectNext()))
				w.InLine(lockPath, 2)
			}
			waiting := bubble.Acquiring(t.Context(), mutexOf(t, w.ConnectNext()))
			remake(t, w.ConnectNext(), lastInLine(w, ahead+1), zk.FlagEphemeral)
			synctest.Wait()
			if ahead == 2 {
				bubble.Release(t, held)
				held = bubble.Granted(t, second).Lease
				synctest.Wait()
			}
			w.ResetRequests()
			bubble.Release(t, held)
			g := bubble.Granted(t, waiting)
			if w.Requests()[testutil.OpGetChildren2] == 0 {
				t.Error("granted without a list")
			}
			if took := bubble.Lost(t, g.Lease).Sub(g.At); took > 310*time.Millisecond {
				t.Errorf("lost after %v", took)
			}
			bubble.WantErr(t, g.Lease.Release(t.Context()), recipes.ErrNotHeld)
			w.NothingLeft(lockPath)
		})
	}
}

// A mutex of Kazoo's, or an election, stands behind a write of its read/write
// lock, which has the same name, and is downgraded. The waiter must not be
// granted beside the read: it does not wait for reads, and fails.
func TestKazooLockBehindADowngradedWrite(t *testing.T) {
	for name, waiter := range map[string]func(c *framework.Client) recipes.Acquirer{
		"a mutex": func(c *framework.Client) recipes.Acquirer {
			return must(locks.NewMutex(c, lockPath, locks.WithLayout(locks.LayoutKazoo)))
		},
		"an election": func(c *framework.Client) recipes.Acquirer {
			return must(leader.New(c, lockPath, leader.WithLayout(leader.LayoutKazoo)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				rw := must(rwlock.New(w.ConnectNext(), lockPath, rwlock.WithLayout(rwlock.LayoutKazoo)))
				writing := bubble.Acquire(t, t.Context(), rw.Writer())
				waiting := bubble.Acquiring(t.Context(), waiter(w.ConnectNext()))
				w.InLine(lockPath, 2)
				synctest.Wait()
				reading := bubble.Acquire(t, writing.Context(), rw.Reader())
				bubble.Release(t, writing)
				bubble.WantErr(t, (<-waiting).Err, recipes.ErrLayout)
				if !reading.Held() {
					t.Error("the read is not held")
				}
				bubble.Release(t, reading)
				w.NothingLeft(lockPath)
			})
		})
	}
}

// A waiter lists before its grant where it does not know enough: where it may
// not read its znode, or shares the watch of the znode ahead with another
// caller of its session, and where that znode is hidden.
func TestListBeforeTheGrant(t *testing.T) {
	unread := framework.WithACL(zk.WorldACL(zk.PermAll &^ zk.PermRead)...)
	for name, tt := range map[string]struct {
		ours     []framework.Option
		follows  bool
		wantList bool
	}{
		"it knows all":                       {},
		"its znode cannot be read":           {ours: []framework.Option{unread}, wantList: true},
		"another caller has armed the watch": {follows: true, wantList: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				held := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("first")))
				ours := w.Connect("ours", tt.ours...)
				if tt.follows {
					if _, err := w.Session(ours).Watch(t.Context(), held.Path()); err != nil {
						t.Fatal(err)
					}
				}
				waiting := bubble.Acquiring(t.Context(), mutexOf(t, ours))
				w.InLine(lockPath, 2)
				w.ResetRequests()
				bubble.Release(t, held)
				bubble.Release(t, bubble.Granted(t, waiting).Lease)
				if lists := w.Requests()[testutil.OpGetChildren2]; (lists > 0) != tt.wantList {
					t.Errorf("%d lists", lists)
				}
			})
		})
	}
}

// All recipes that have a line are granted by events, but locks of Kazoo's:
// none of them lists between the release of what is ahead and its grant.
func TestGrantsByEventOfAllRecipes(t *testing.T) {
	type maker = func(w *bubble.World) recipes.Acquirer
	mutex := func(w *bubble.World) recipes.Acquirer { return mutexOf(w.T, w.ConnectNext()) }
	election := func(w *bubble.World) recipes.Acquirer { return must(leader.New(w.ConnectNext(), lockPath)) }
	read := func(opts ...rwlock.Option) maker {
		return func(w *bubble.World) recipes.Acquirer {
			return must(rwlock.New(w.ConnectNext(), lockPath, opts...)).Reader()
		}
	}
	write := func(opts ...rwlock.Option) maker {
		return func(w *bubble.World) recipes.Acquirer {
			return must(rwlock.New(w.ConnectNext(), lockPath, opts...)).Writer()
		}
	}
	curator := rwlock.WithLayout(rwlock.LayoutCurator)
	for name, tt := range map[string]struct {
		ahead, waiter maker
		n             int // hold what is ahead
	}{
		"a mutex":                            {mutex, mutex, 1},
		"an election":                        {election, election, 1},
		"a reader behind a writer":           {write(), read(), 1},
		"a writer behind readers":            {read(), write(), 5},
		"a writer of Curator behind readers": {read(curator), write(curator), 5},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				var held []*recipes.Lease
				for range tt.n {
					held = append(held, bubble.Acquire(t, t.Context(), tt.ahead(w)))
				}
				waiting := bubble.Acquiring(t.Context(), tt.waiter(w))
				w.InLine(lockPath, tt.n+1)
				w.ResetRequests()
				for i := range held {
					bubble.Pending(t, waiting)
					bubble.Release(t, held[(i+2)%len(held)])
				}
				l := bubble.Granted(t, waiting).Lease
				if got := bubble.Without(w.Requests(), testutil.OpSync); !maps.Equal(got, map[testutil.Op]int{testutil.OpDelete: tt.n}) {
					t.Errorf("requests: %v", got)
				}
				bubble.Release(t, l)
			})
		})
	}
}

func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
