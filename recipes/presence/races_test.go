package presence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// A write that waits for a connection is not made to a znode that another
// session has made meanwhile, with the same version.
func TestAForeignZnodeOfTheSameVersion(t *testing.T) {
	for name, act := range map[string]func(n *presence.Node) error{
		"set":   func(n *presence.Node) error { return n.Set(context.Background(), []byte("mine")) },
		"close": func(n *presence.Node) error { return n.Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("ours"), w.ConnectNext()
				n := announce(t, c, path, "ours")
				w.ClientNet("ours").Cut()
				awaitState(t, n, presence.Suspended)
				result := make(chan error, 1)
				go func() { result <- act(n) }()
				must(t, other.Delete(t.Context(), path, -1))
				theirs := announce(t, other, path, "theirs")
				before, _ := w.Stat(path)
				w.ClientNet("ours").Heal()
				time.Sleep(time.Minute)
				if after, _ := w.Stat(path); after != before {
					t.Errorf("%+v became %+v", before, after)
				}
				must(t, theirs.Close(t.Context()))
				if err := bubble.Await(t, name, result); err != nil {
					t.Error(err)
				}
				if name == "set" {
					standing(t, w, c, n, "mine")
				}
			})
		})
	}
}

// The same if the event of the removal is lost: the znode is read before it is
// written or deleted. That is what a Set costs.
func TestAForeignZnodeThatNoEventTells(t *testing.T) {
	for name, act := range map[string]func(ctx context.Context, n *presence.Node) error{
		"set":   func(ctx context.Context, n *presence.Node) error { return n.Set(ctx, []byte("mine")) },
		"close": func(ctx context.Context, n *presence.Node) error { return n.Close(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("ours"), w.ConnectNext()
				n := announce(t, c, path, "ours")
				before := w.Cost()
				must(t, n.Set(t.Context(), []byte("still ours")))
				time.Sleep(time.Second)
				cost := w.Cost()
				for op, n := range before {
					cost[op] -= n
				}
				if cost[testutil.OpExists] != 1 || cost[testutil.OpSetData] != 1 || cost[testutil.OpGetData] != 1 {
					t.Errorf("a Set costs %v", cost)
				}
				w.ClientNet("ours").LoseEvents(true)
				must(t, other.Delete(t.Context(), path, -1))
				theirs := announce(t, other, path, "their")
				must(t, theirs.Set(t.Context(), []byte("theirs")))
				stat, _ := w.Stat(path)
				result := make(chan error, 1)
				go func() { result <- act(t.Context(), n) }()
				time.Sleep(time.Second)
				if after, _ := w.Stat(path); after != stat {
					t.Errorf("%+v became %+v", stat, after)
				}
				must(t, theirs.Close(t.Context()))
				if err := bubble.Await(t, name, result); err != nil {
					t.Error(err)
				}
				if name == "set" {
					standing(t, w, c, n, "mine")
				}
			})
		})
	}
}

// WithYield sees a removal that it did not hear of, and one whose look fails.
func TestYieldWhileSuspended(t *testing.T) {
	for _, action := range []testutil.Action{testutil.Pass(), testutil.DropBefore(), testutil.DropAfter(), testutil.Fail(testutil.CodeSystemError)} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, other := w.Connect("ours"), w.ConnectNext()
			n := announce(t, c, path, "a", presence.WithYield())
			w.ClientNet("ours").Cut()
			awaitState(t, n, presence.Suspended)
			must(t, other.Delete(t.Context(), path, -1))
			struck := w.Once(testutil.OpGetData, path, action)
			w.ClientNet("ours").Heal()
			awaitState(t, n, presence.Removed)
			if struck.Load() == 0 {
				t.Error("no look was struck")
			}
			time.Sleep(time.Minute)
			if w.Exists(path) {
				t.Error("it has come back")
			}
			closed(t, w, n)
		})
	}
}

// The same while the health check fails: the Node is about to remove its znode,
// and finds that somebody else has done so.
func TestYieldWhileIll(t *testing.T) {
	for _, action := range []testutil.Action{testutil.Pass(), testutil.DropBefore(), testutil.DropAfter(), testutil.Fail(testutil.CodeSystemError)} {
		for name, successor := range map[string]bool{"removed": false, "replaced": true} {
			t.Run(name, func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					c, other := w.Connect("ours"), w.ConnectNext()
					var ill atomic.Bool
					n := yielding(t, c, &ill)
					w.ClientNet("ours").Cut()
					awaitState(t, n, presence.Suspended)
					ill.Store(true)
					must(t, other.Delete(t.Context(), path, -1))
					if successor {
						_, err := other.Create(t.Context(), path, nil, zk.FlagEphemeral)
						must(t, err)
					}
					struck := w.Once(testutil.OpExists, path, action)
					time.Sleep(time.Second)
					w.ClientNet("ours").Heal()
					awaitState(t, n, presence.Removed)
					if struck.Load() == 0 {
						t.Error("no look was struck")
					}
					ill.Store(false)
					must(t, other.Close())
					time.Sleep(time.Minute)
					if w.Exists(path) {
						t.Error("it has come back")
					}
					closed(t, w, n)
				})
			})
		}
	}
}

// An operator drains a service, and another session has the name before the
// node looks. The node took that for a name that it has to wait for, and came
// back when the other one went.
func TestYieldToASuccessor(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, w *bubble.World, other *framework.Client){
		"in one transaction": func(t *testing.T, _ *bubble.World, other *framework.Client) {
			_, err := other.Multi(t.Context(), &zk.DeleteRequest{Path: path, Version: -1}, &zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral})
			must(t, err)
		},
		"by a takeover": func(t *testing.T, _ *bubble.World, other *framework.Client) {
			announce(t, other, path, "theirs", presence.WithTakeover(func([]byte) bool { return true }))
		},
		"while suspended": func(t *testing.T, w *bubble.World, other *framework.Client) {
			w.ClientNet("ours").Cut()
			time.Sleep(bubble.Timeout / 2)
			must(t, other.Delete(t.Context(), path, -1))
			announce(t, other, path, "theirs")
			w.ClientNet("ours").Heal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("ours"), w.ConnectNext()
				n := announce(t, c, path, "ours", presence.WithYield())
				replace(t, w, other)
				awaitState(t, n, presence.Removed)
				must(t, other.Close())
				time.Sleep(time.Minute)
				if w.Exists(path) {
					t.Error("it has come back")
				}
				must(t, n.Close(t.Context()))
			})
		})
	}
}

// A create of a node that was closed comes late, when the next node of the
// client has the path.
func TestALateCreateOfTheNodeBefore(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		must(t, c.MakeContainerPath(t.Context(), "/services/billing"))
		release := make(chan struct{})
		held := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: path}, testutil.Hold(release))
		stop := w.ClientNet("ours").Control(held.Control)
		n, err := presence.New(c, path, []byte("first"))
		must(t, err)
		must(t, n.Start())
		<-held.Hit()
		w.ClientNet("ours").Drop()
		must(t, n.Close(t.Context()))
		stop()
		sick := errors.New("not yet")
		var mu sync.Mutex
		m, err := presence.New(c, path, []byte("second"), presence.WithHealthCheck(time.Second, func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			return sick
		}))
		must(t, err)
		must(t, m.Start())
		time.Sleep(time.Second)
		close(release)
		_, err = w.Session(c).Create(t.Context(), path, []byte("first"), zk.FlagEphemeral) // as the late one would
		must(t, err)
		time.Sleep(time.Minute)
		if w.Exists(path) {
			t.Error("it stands though the node is not well")
		}
		mu.Lock()
		sick = nil
		mu.Unlock()
		standing(t, w, c, m, "second")
		closed(t, w, m)
	})
}

// The next node of a path waits until the one before is gone, and writes its
// own data.
func TestANodeAfterAnother(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		n := announce(t, c, path, "a")
		w.ClientNet("ours").Cut()
		awaitState(t, n, presence.Suspended)
		for range 3 { // as a program does that tries again
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := presence.Announce(ctx, c, path, nil); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Error("beside one that stands: ", err)
			}
			if err := n.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			var err error
			if n, err = presence.New(c, path, []byte("b")); err != nil || n.Start() != nil {
				t.Fatal(err)
			}
		}
		w.ClientNet("ours").Heal()
		standing(t, w, c, n, "b")
		closed(t, w, n)
	})
}

// Sets, expiries, disconnects and removals at random; the last Set wins, and
// after Close nothing is left.
func TestSetRacesEverything(t *testing.T) {
	for seed := range bubble.Few[uint64](12, 60) {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			r := rand.New(rand.NewPCG(seed, 1))
			c, other := w.Connect("ours"), w.ConnectNext()
			n := announce(t, c, path, "0")
			var all sync.WaitGroup
			var mu sync.Mutex
			last, accepted := "0", map[string]bool{"0": true}
			for i := range 40 {
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
				switch r.IntN(10) {
				case 0:
					w.ClientNet("ours").Drop()
				case 1:
					if s, err := c.Session(); err == nil {
						_ = w.ExpireSession(s.ID())
					}
				case 2:
					_ = other.Delete(t.Context(), path, -1)
				default:
					mu.Lock()
					last = fmt.Sprint(i)
					data := last
					mu.Unlock()
					set := make(chan struct{})
					all.Go(func() {
						close(set)
						if err := n.Set(t.Context(), []byte(data)); err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						accepted[data] = true
					})
					<-set
					time.Sleep(time.Nanosecond)
				}
			}
			all.Wait()
			time.Sleep(time.Minute)
			standing(t, w, c, n, last)
			// The end comes in the middle of something.
			all.Go(func() {
				if err := n.Set(t.Context(), []byte("end")); err != nil && !errors.Is(err, presence.ErrClosed) {
					t.Error(err)
				}
			})
			switch r.IntN(3) {
			case 0:
				w.ClientNet("ours").Drop()
			case 1:
				_ = w.ExpireSession(w.SessionID(c))
			}
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			closed(t, w, n)
			all.Wait()
			time.Sleep(2 * time.Minute)
			if w.Exists(path) {
				t.Errorf("it came back (seed %d)", seed)
			}
		}, testutil.WithMembers(1+2*int(seed%2)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// Processes restart under one name, each in a session of its own: there is
// never more than one, and the last one has the name in the end.
func TestRestartsUnderOneName(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var before *framework.Client
		for i := range 10 {
			c := w.ConnectNext()
			n, err := presence.New(c, path, fmt.Append(nil, i), presence.WithTakeover(func(old []byte) bool { return string(old) < fmt.Sprint(i) }))
			must(t, err)
			must(t, n.Start())
			standing(t, w, c, n, fmt.Sprint(i))
			if before != nil && i%2 == 0 {
				must(t, before.Close())
			}
			before = c
		}
	})
}

// A write is lost with its connection, and another session has made the znode
// before the next connection comes: the write is not repeated there.
func TestALostWriteIsNotRepeatedOnAForeignZnode(t *testing.T) {
	for op, act := range map[testutil.Op]func(n *presence.Node) error{
		testutil.OpSetData: func(n *presence.Node) error { return n.Set(context.Background(), []byte("mine")) },
		testutil.OpDelete:  func(n *presence.Node) error { return n.Close(context.Background()) },
	} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, other := w.Connect("ours"), w.ConnectNext()
			n := announce(t, c, path, "ours")
			hit := make(chan struct{})
			var once sync.Once
			w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
				if r.Op != op {
					return testutil.Pass()
				}
				action := testutil.Pass()
				once.Do(func() {
					w.ClientNet("ours").Cut()
					close(hit)
					action = testutil.DropBefore()
				})
				return action
			})
			result := make(chan error, 1)
			go func() { result <- act(n) }()
			<-hit
			time.Sleep(5 * time.Second)
			must(t, other.Delete(t.Context(), path, -1))
			theirs := announce(t, other, path, "theirs")
			before, _ := w.Stat(path)
			w.ClientNet("ours").Heal()
			time.Sleep(time.Minute)
			if after, _ := w.Stat(path); after != before {
				t.Errorf("%v: %+v became %+v", op, before, after)
			}
			must(t, theirs.Close(t.Context()))
			if err := bubble.Await(t, "the call", result); err != nil {
				t.Error(err)
			}
		})
	}
}

// Close does not return nil while an earlier session may still make the znode.
func TestCloseWaitsForEarlierSessions(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		n := announce(t, c, path, "a")
		old := w.Session(c)
		must(t, old.Prove(t.Context()))
		_, err := old.Hold(nil)
		must(t, err)
		stop := w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCloseSession && r.Session == old.ID() {
				return testutil.DropBefore()
			}
			return testutil.Pass()
		})
		w.ClientNet("ours").CutOneWay(false)
		<-old.Done()
		w.ClientNet("ours").Heal()
		must(t, c.WaitConnected(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
		for _, s := range w.Sessions() {
			if s.ID == old.ID() {
				t.Error("Close has returned while the earlier session is alive")
			}
		}
		stop()
	})
}

// A node that yields has not stood yet: what goes is another session's znode.
func TestYieldToNobody(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.ConnectNext(), w.ConnectNext()
		theirs := announce(t, other, path, "0")
		n, err := presence.New(c, path, []byte("ours"), presence.WithYield())
		must(t, err)
		must(t, n.Start())
		awaitState(t, n, presence.Taken)
		for i := range 3 {
			must(t, theirs.Set(t.Context(), fmt.Append(nil, i)))
			time.Sleep(time.Second)
		}
		must(t, theirs.Close(t.Context()))
		time.Sleep(time.Second)
		standing(t, w, c, n, "ours")
	})
}

// While a write of the Node is under way, others change its znode or remove it.
// In the end it has the Node's data, and a create is sent only if it is needed.
func TestWritesThatComeLate(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(admin *framework.Client) error
		creates   int
	}{
		"changed": {func(admin *framework.Client) error {
			_, err := admin.Set(context.Background(), path, []byte("theirs"), -1)
			return err
		}, 0},
		"removed": {func(admin *framework.Client) error { return admin.Delete(context.Background(), path, -1) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, admin := w.Connect("ours"), w.ConnectNext()
				n := announce(t, c, path, "one")
				standing(t, w, c, n, "one")
				w.ResetRequests()
				late := testutil.NewFault(testutil.Match{Op: testutil.OpSetData}, testutil.Delay(time.Second))
				defer w.ClientNet("ours").Control(late.Control)()
				set := make(chan error, 1)
				go func() { set <- n.Set(t.Context(), []byte("two")) }()
				bubble.Await(t, "the write", late.Hit())
				must(t, tt.meanwhile(admin))
				must(t, bubble.Await(t, "Set", set))
				standing(t, w, c, n, "two")
				if got := w.Cost()[testutil.OpCreate]; got != tt.creates {
					t.Errorf("%d creates, want %d", got, tt.creates)
				}
			})
		})
	}
}

// A write is lost with its connection, and the data before it are set again,
// which are those of the znode. They are written all the same: otherwise the
// lost write could come after all, and replace them.
func TestAWriteThatIsLostAndComesLate(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, net := w.Connect("ours"), w.ClientNet("ours")
		n := announce(t, c, path, "one")
		standing(t, w, c, n, "one")
		before, _ := w.Stat(path)
		late := testutil.NewFault(testutil.Match{Op: testutil.OpSetData}, testutil.Hold(nil))
		defer net.Control(late.Control)()
		results := make(chan error, 2)
		go func() { results <- n.Set(t.Context(), []byte("two")) }()
		bubble.Await(t, "the write", late.Hit())
		net.Cut()
		go func() { results <- n.Set(t.Context(), []byte("one")) }()
		time.Sleep(time.Second)
		net.Heal()
		for range 2 {
			must(t, bubble.Await(t, "Set", results))
		}
		if _, err := w.Session(c).Set(t.Context(), path, []byte("two"), before.Version); !errors.Is(err, zk.ErrBadVersion) { // as the late one does
			t.Error(err)
		}
		time.Sleep(time.Minute)
		standing(t, w, c, n, "one")
	})
}

// While a takeover is under way its znode goes: the next create makes ours.
func TestATakeoverThatComesLate(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ours, theirs := w.Connect("ours"), w.ConnectNext()
		old := announce(t, theirs, path, "old")
		standing(t, w, theirs, old, "old")
		late := testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.Delay(time.Second))
		defer w.ClientNet("ours").Control(late.Control)()
		n, err := presence.New(ours, path, []byte("new"), presence.WithTakeover(func([]byte) bool { return true }))
		must(t, err)
		must(t, n.Start())
		bubble.Await(t, "the takeover", late.Hit())
		closed(t, w, old)
		before := time.Now()
		standing(t, w, ours, n, "new")
		if took := time.Since(before); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Somebody writes to the znode while a Close is about to delete it: it is
// deleted at the next version, at once, and nobody hears of a difficulty.
func TestCloseOfAZnodeThatIsWritten(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.ConnectNext(), w.ConnectNext()
		n := announce(t, c, path, "a")
		var failed atomic.Int32
		defer n.Listen(func(s presence.Status) {
			if s.Err != nil {
				failed.Add(1)
			}
		})()
		release := make(chan struct{})
		held := w.Once(testutil.OpDelete, path, testutil.Hold(release))
		began, ended := time.Now(), make(chan error, 1)
		go func() { ended <- n.Close(t.Context()) }()
		synctest.Wait()
		_, err := other.Set(t.Context(), path, []byte("b"), -1)
		must(t, err)
		close(release)
		must(t, <-ended)
		synctest.Wait()
		if took := time.Since(began); took > 100*time.Millisecond || held.Load() != 1 || w.Exists(path) || failed.Load() > 0 {
			t.Errorf("it took %v, %d failures", took, failed.Load())
		}
	})
}
