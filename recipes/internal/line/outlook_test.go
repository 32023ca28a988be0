package line_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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
				first := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("first")))
				var ahead []<-chan bubble.Grant
				for i := 1; i < tt.ahead; i++ {
					ahead = append(ahead, bubble.Acquiring(t.Context(), mutexOf(t, w.ConnectNext())))
					w.InLine(lockPath, i+1)
				}
				ours := w.Connect("ours")
				mine := w.SessionID(ours)
				var mu sync.Mutex
				counted := map[testutil.Op]int{}
				defer w.Control(func(r testutil.Request) testutil.Action {
					if r.Session == mine && r.Op != testutil.OpPing {
						mu.Lock()
						counted[r.Op]++
						mu.Unlock()
					}
					return testutil.Pass()
				})()
				waiting := bubble.Acquiring(t.Context(), mutexOf(t, ours))
				w.InLine(lockPath, tt.ahead+1)
				held := first
				for _, next := range ahead {
					bubble.Release(t, held)
					held = bubble.Granted(t, next).Lease
					time.Sleep(5 * time.Millisecond)
				}
				synctest.Wait()
				mu.Lock()
				before := maps.Clone(counted)
				mu.Unlock()
				bubble.Release(t, held)
				l := bubble.Granted(t, waiting).Lease
				mu.Lock()
				if !maps.Equal(counted, before) {
					t.Errorf("requests between the release and the grant: %v, before %v", counted, before)
				}
				mu.Unlock()
				bubble.Release(t, l)
				sum := 0
				for _, n := range counted {
					sum += n
				}
				if sum > tt.most {
					t.Errorf("%d requests, want at most %d: %v", sum, tt.most, counted)
				}
				w.NothingLeft(lockPath)
			})
		})
	}
}

// What happens to a waiter, or to the znode ahead, between its list and the
// event. Each of these was a double grant where an event was trusted for less
// than it says. A third contender stands behind. The holder works on for a
// while, unless it has lost its lease.
func TestNoGrantByAnEventThatSaysLess(t *testing.T) {
	type line struct {
		w               *bubble.World
		first, operator *framework.Client
		holder          *recipes.Lease
		waiter          string // its znode
		network         *testutil.ClientNet
		leave           func() // the holder has stopped its work
	}
	do := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	remove := func(t *testing.T, l *line) {
		t.Helper()
		do(t, l.operator.Delete(t.Context(), l.waiter, -1))
	}
	set := func(t *testing.T, l *line, path, data string) {
		t.Helper()
		_, err := l.operator.Set(t.Context(), path, []byte(data), -1)
		do(t, err)
		synctest.Wait()
	}
	// anew has a multi of the operator remove the znode of the holder, or of the
	// waiter, and make another one with its name.
	anew := func(t *testing.T, l *line, path string) {
		t.Helper()
		_, err := l.operator.Multi(t.Context(), &zk.DeleteRequest{Path: path, Version: -1},
			&zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)})
		do(t, err)
	}
	for name, spoil := range map[string]func(t *testing.T, l *line){
		"nothing": func(*testing.T, *line) {},
		"the holder is revoked, and works on": func(t *testing.T, l *line) {
			set(t, l, l.holder.Path(), "__REVOKE__")
		},
		"the holder is revoked twice, and works on": func(t *testing.T, l *line) {
			set(t, l, l.holder.Path(), "__REVOKE__")
			set(t, l, l.holder.Path(), "__REVOKE__ soon")
		},
		"the waiter is revoked": func(t *testing.T, l *line) { set(t, l, l.waiter, "__REVOKE__") },
		"the waiter is removed": remove,
		"the waiter is removed with the holder's release": func(t *testing.T, l *line) {
			time.Sleep(time.Second)
			l.w.Latency(5 * time.Millisecond)
			go func() { _ = l.operator.Delete(context.Background(), l.waiter, -1) }()
			l.leave()
			_ = l.holder.Release(context.Background())
		},
		"the waiter is revoked, then removed": func(t *testing.T, l *line) {
			set(t, l, l.waiter, "__REVOKE__")
			remove(t, l)
		},
		"the waiter is revoked and removed at once": func(t *testing.T, l *line) {
			l.w.Latency(5 * time.Millisecond) // the list and the own read are under way
			_, err := l.operator.Multi(t.Context(), bubble.Set(l.waiter, "__REVOKE__"))
			do(t, err)
			remove(t, l)
			l.leave()
			_ = l.holder.Release(context.Background())
		},
		"the holder is revoked, then the waiter is removed": func(t *testing.T, l *line) {
			set(t, l, l.holder.Path(), "__REVOKE__")
			remove(t, l)
		},
		"the waiter reconnects": func(_ *testing.T, l *line) {
			l.network.Drop()
			time.Sleep(time.Second)
		},
		"the waiter reconnects, then it is removed": func(t *testing.T, l *line) {
			l.network.Drop()
			time.Sleep(time.Second)
			remove(t, l)
		},
		"the waiter is removed while it is cut off": func(t *testing.T, l *line) {
			l.network.Drop()
			l.network.Cut()
			remove(t, l)
			time.AfterFunc(2*time.Second, l.network.Heal)
		},
		"the waiter is removed while it is cut off, and hears of the release": func(t *testing.T, l *line) {
			l.network.Drop()
			l.network.Cut()
			remove(t, l)
			l.network.Heal()
			time.Sleep(3 * time.Second)
		},
		"the waiter is removed by its name, and made again": func(t *testing.T, l *line) {
			anew(t, l, l.waiter)
			remove(t, l)
		},
		"the holder is removed by its name, and made again": func(t *testing.T, l *line) {
			l.leave() // it hears of that, and removes what has its name
			anew(t, l, l.holder.Path())
		},
		"the holder's session expires": func(_ *testing.T, l *line) {
			l.leave()
			l.w.Expire(l.first)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
				inside := bubble.Exclusion{T: t}
				l := &line{w: w, first: w.Connect("a"), operator: w.Connect("operator")}
				l.holder = bubble.Acquire(t, t.Context(), mutexOf(t, l.first))
				inside.Enter()
				l.leave = sync.OnceFunc(inside.Leave)
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
				for _, name := range w.InLine(lockPath, 2) {
					if path := lockPath + "/" + name; path != l.holder.Path() {
						l.waiter = path
					}
				}
				l.network = w.ClientNet("b")
				c := use("c")
				w.InLine(lockPath, 3)
				synctest.Wait()
				spoil(t, l)
				time.Sleep(3 * bubble.Timeout) // also for the looks without an event
				l.leave()
				_ = l.holder.Release(context.Background())
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
				for _, name := range w.InLine(lockPath, 2) {
					if path := lockPath + "/" + name; path != held.Path() {
						if err := operator.Delete(t.Context(), path, -1); err != nil {
							t.Fatal(err)
						}
					}
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
		own := ""
		for _, name := range w.InLine(lockPath, 2) {
			if path := lockPath + "/" + name; path != held.Path() {
				own = path
			}
		}
		synctest.Wait()
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

// A multi removes the holder's znode and the waiter's, in either order. The
// waiter joins again, or the event behind ends its grant at once.
func TestOneTransactionRemovesTheWaiterAsWell(t *testing.T) {
	for _, holderFirst := range []bool{true, false} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			operator := w.Connect("operator")
			held := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
			waiting := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("b")))
			names := w.InLine(lockPath, 2)
			first := &zk.DeleteRequest{Path: held.Path(), Version: -1}
			second := &zk.DeleteRequest{Version: -1}
			for _, name := range names {
				if !strings.HasSuffix(held.Path(), name) {
					second.Path = lockPath + "/" + name
				}
			}
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
		var ops []any
		for _, name := range w.InLine(lockPath, 2) {
			ops = append(ops, &zk.DeleteRequest{Path: lockPath + "/" + name, Version: -1})
		}
		dir, _ := w.Stat(lockPath)
		ops = append(ops, &zk.DeleteRequest{Path: lockPath, Version: -1}, &zk.CreateRequest{Path: lockPath, Acl: zk.WorldACL(zk.PermAll)})
		for _, name := range w.InLine(lockPath, 2) {
			ops = append(ops, &zk.CreateRequest{Path: lockPath + "/" + name, Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral})
		}
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

// Somebody else replaces a waiter's znode by one of the same name. No event
// grants then. The list that does so shows the name, and the lease is lost when
// the znode is read.
func TestAnotherSessionsZnodeBeforeTheGrant(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		operator, ours := w.Connect("operator"), w.Connect("ours")
		held := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("first")))
		waiting := bubble.Acquiring(t.Context(), mutexOf(t, ours))
		for _, name := range w.InLine(lockPath, 2) {
			if path := lockPath + "/" + name; path != held.Path() {
				if _, err := operator.Multi(t.Context(), &zk.DeleteRequest{Path: path, Version: -1},
					&zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral}); err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait()
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

// The same, and the waiter has listed once more since: nothing was to be
// watched again.
func TestAnotherSessionsZnodeAndAList(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		operator := w.Connect("operator")
		first := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("first")))
		second := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("second")))
		ahead := w.InLine(lockPath, 2)
		waiting := bubble.Acquiring(t.Context(), mutexOf(t, w.Connect("ours")))
		for _, name := range w.InLine(lockPath, 3) {
			if path := lockPath + "/" + name; !slices.Contains(ahead, name) {
				if _, err := operator.Multi(t.Context(), &zk.DeleteRequest{Path: path, Version: -1},
					&zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral}); err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait()
		bubble.Release(t, first)
		held := bubble.Granted(t, second).Lease
		synctest.Wait()
		w.ResetRequests()
		bubble.Release(t, held)
		g := bubble.Granted(t, waiting)
		if w.Requests()[testutil.OpGetChildren2] == 0 {
			t.Error("granted without a list")
		}
		bubble.Lost(t, g.Lease)
		bubble.WantErr(t, g.Lease.Release(t.Context()), recipes.ErrNotHeld)
		w.NothingLeft(lockPath)
	})
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
	read := func(w *bubble.World, opts ...rwlock.Option) recipes.Acquirer {
		return must(rwlock.New(w.ConnectNext(), lockPath, opts...)).Reader()
	}
	write := func(w *bubble.World, opts ...rwlock.Option) recipes.Acquirer {
		return must(rwlock.New(w.ConnectNext(), lockPath, opts...)).Writer()
	}
	for name, tt := range map[string]struct {
		ahead, waiter func(w *bubble.World) recipes.Acquirer
		n             int // hold what is ahead
	}{
		"a mutex": {
			func(w *bubble.World) recipes.Acquirer { return mutexOf(w.T, w.ConnectNext()) },
			func(w *bubble.World) recipes.Acquirer { return mutexOf(w.T, w.ConnectNext()) }, 1,
		},
		"an election": {
			func(w *bubble.World) recipes.Acquirer { return must(leader.New(w.ConnectNext(), lockPath)) },
			func(w *bubble.World) recipes.Acquirer { return must(leader.New(w.ConnectNext(), lockPath)) }, 1,
		},
		"a reader behind a writer": {
			func(w *bubble.World) recipes.Acquirer { return write(w) }, func(w *bubble.World) recipes.Acquirer { return read(w) }, 1,
		},
		"a writer behind readers": {
			func(w *bubble.World) recipes.Acquirer { return read(w) }, func(w *bubble.World) recipes.Acquirer { return write(w) }, 5,
		},
		"a writer of Curator behind readers": {
			func(w *bubble.World) recipes.Acquirer { return read(w, rwlock.WithLayout(rwlock.LayoutCurator)) },
			func(w *bubble.World) recipes.Acquirer { return write(w, rwlock.WithLayout(rwlock.LayoutCurator)) }, 5,
		},
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
