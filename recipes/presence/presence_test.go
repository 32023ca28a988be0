package presence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const path = "/services/billing/a"

// announce announces a node, and fails the test if it does not stand.
func announce(t *testing.T, c *framework.Client, path, data string, opts ...presence.Option) *presence.Node {
	t.Helper()
	n, err := presence.Announce(t.Context(), c, path, []byte(data), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// standing waits until the znode stands, and checks whose it is.
func standing(t *testing.T, w *bubble.World, c *framework.Client, n *presence.Node, data string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := n.Standing(ctx); err != nil {
		t.Fatal(err)
	}
	stat, ok := w.Stat(n.Path())
	if got, _ := w.Data(n.Path()); !ok || stat.EphemeralOwner != w.SessionID(c) || string(got) != data {
		t.Fatalf("%s: %t, of session %#x, data %q", n.Path(), ok, stat.EphemeralOwner, got)
	}
}

func awaitState(t *testing.T, n *presence.Node, want presence.State) presence.Status {
	t.Helper()
	bubble.AwaitTrue(t, want.String(), func() bool { return n.Status().State == want })
	return n.Status()
}

// expire ends the session of nodes, and waits until they know. They may have
// made their znodes in the next one already.
func expire(t *testing.T, w *bubble.World, c *framework.Client, nodes ...*presence.Node) {
	t.Helper()
	old := w.SessionID(c)
	w.Expire(c)
	for _, n := range nodes {
		bubble.AwaitTrue(t, "the end of the session", func() bool {
			s := n.Status()
			return s.State == presence.Pending || s.State == presence.Standing && s.Session != old
		})
	}
}

func closed(t *testing.T, w *bubble.World, n *presence.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
	if w.Exists(path) {
		t.Error("the znode stands after Close")
	}
	if s := n.Status().State; s != presence.Closed {
		t.Errorf("%v after Close", s)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestANodeStandsInEverySession(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		n := announce(t, c, path, "one")
		standing(t, w, c, n, "one")
		for range 3 {
			expire(t, w, c, n)
			standing(t, w, c, n, "one")
		}
		must(t, n.Set(t.Context(), []byte("two")))
		standing(t, w, c, n, "two")
		expire(t, w, c, n)
		standing(t, w, c, n, "two")
		closed(t, w, n)
		closed(t, w, n)
	})
}

// A reconnect costs a node nothing but the looks that are due anyway, and no
// line of the log, and what happened meanwhile is seen.
func TestAReconnectCostsNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		core, logged := observer.New(zap.DebugLevel)
		c, other := w.Connect("ours", framework.WithLogger(zap.New(core))), w.ConnectNext()
		var nodes []*presence.Node
		for i := range 20 {
			nodes = append(nodes, announce(t, c, fmt.Sprint("/services/billing/", i), ""))
		}
		time.Sleep(time.Second)
		logged.TakeAll()
		began, looks := time.Now(), 0
		for range 3 {
			w.ResetRequests()
			w.ClientNet("ours").Cut()
			awaitState(t, nodes[0], presence.Suspended)
			w.ClientNet("ours").Heal()
			awaitState(t, nodes[0], presence.Standing)
			time.Sleep(time.Second)
			synctest.Wait()
			for op, n := range w.Cost() {
				switch op {
				case testutil.OpSetWatches, testutil.OpPing, testutil.OpCreateSession: // the reconnect itself
				case testutil.OpExists:
					looks += n
				default:
					t.Errorf("%d %v for a reconnect", n, op)
				}
			}
		}
		if lines := logged.FilterMessage("presence changed").Len(); lines > 0 {
			t.Errorf("%d lines for the reconnects", lines)
		}
		every := bubble.Timeout * 20 / 16 * 3 / 4 // one of these nodes, at most
		if most := len(nodes) * (1 + int(time.Since(began)/every)); looks > most {
			t.Errorf("%d looks in %v, want at most %d", looks, time.Since(began), most)
		}
		w.ClientNet("ours").Cut()
		awaitState(t, nodes[0], presence.Suspended)
		must(t, other.Delete(t.Context(), nodes[7].Path(), -1))
		w.ClientNet("ours").Heal()
		awaitState(t, nodes[0], presence.Standing)
		time.Sleep(time.Second)
		synctest.Wait()
		standing(t, w, c, nodes[7], "")
	})
}

// An event is lost, and connections break more often than a node looks for
// that. A reconnect that changes nothing does not put the look off: setWatches
// does not tell of what has changed before a later node was read.
func TestReconnectsDoNotPutALookOff(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("ours"), w.ConnectNext()
		n := announce(t, c, path, "")
		time.Sleep(time.Second)
		w.ClientNet("ours").LoseEvents(true)
		_, err := other.Multi(t.Context(), &zk.DeleteRequest{Path: path, Version: -1}, &zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral})
		must(t, err)
		time.Sleep(time.Second)
		w.ClientNet("ours").LoseEvents(false)
		announce(t, c, "/services/billing/b", "")
		for range 4 {
			w.ClientNet("ours").Drop()
			time.Sleep(bubble.Timeout / 2)
		}
		if s := n.Status(); s.State != presence.Taken || s.Session != w.SessionID(other) {
			t.Errorf("%+v", s)
		}
	})
}

// Curator's PersistentNode overwrites the znode of another process, reports
// success, and deletes it at its end.
func TestANameThatAnotherSessionHas(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		theirs, ours := w.ConnectNext(), w.ConnectNext()
		must(t, theirs.MakeContainerPath(t.Context(), "/services/billing"))
		_, err := theirs.Create(t.Context(), path, []byte("theirs"), zk.FlagEphemeral)
		must(t, err)
		before, _ := w.Stat(path)
		n, err := presence.New(ours, path, []byte("ours"))
		must(t, err)
		must(t, n.Start())
		s := awaitState(t, n, presence.Taken)
		if s.Session != w.SessionID(theirs) || string(s.Data) != "theirs" {
			t.Errorf("%+v", s)
		}
		time.Sleep(5 * time.Minute)
		if after, _ := w.Stat(path); after != before {
			t.Errorf("%+v became %+v", before, after)
		}
		must(t, theirs.Close())
		began := time.Now()
		standing(t, w, ours, n, "ours")
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("ours after %v", took)
		}
		closed(t, w, n)
	})
}

// Close of a node whose name another session has leaves that one alone.
func TestCloseWhileTaken(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		theirs, ours := w.ConnectNext(), w.ConnectNext()
		m := announce(t, theirs, path, "theirs")
		n, err := presence.New(ours, path, []byte("ours"))
		must(t, err)
		must(t, n.Start())
		awaitState(t, n, presence.Taken)
		must(t, n.Close(t.Context()))
		standing(t, w, theirs, m, "theirs")
	})
}

func TestAPersistentZnodeInTheWay(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		must(t, c.MakePersistentPath(t.Context(), path))
		n, err := presence.New(c, path, []byte("ours"), presence.WithTakeover(func([]byte) bool { return true }))
		must(t, err)
		must(t, n.Start())
		if s := awaitState(t, n, presence.Taken); s.Session != 0 {
			t.Errorf("%+v", s)
		}
		must(t, c.Delete(t.Context(), path, -1))
		standing(t, w, c, n, "ours")
	})
}

// The old znode goes and the new one comes in one transaction.
func TestTakeover(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		theirs, ours := w.ConnectNext(), w.ConnectNext()
		old := announce(t, theirs, path, "host-1")
		w.ResetRequests()
		var asked atomic.Int32
		n, err := presence.Announce(t.Context(), ours, path, []byte("host-1 again"), presence.WithTakeover(func(data []byte) bool {
			asked.Add(1)
			return string(data) == "host-1"
		}))
		must(t, err)
		if cost := w.Requests(); cost[testutil.OpMulti] != 1 || cost[testutil.OpCreate] != 1 || cost[testutil.OpDelete] != 0 { // the create is refused
			t.Errorf("requests %v", cost)
		}
		standing(t, w, ours, n, "host-1 again")
		if s := awaitState(t, old, presence.Taken); s.Session != w.SessionID(ours) {
			t.Errorf("%+v", s)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// The session is lost by the client's clock while the ensemble has it: only
// that session's end removes the znode. KAFKA-14845: a broker took such a znode
// for another broker's, and did not start.
func TestAZnodeOfAnEarlierSession(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		n := announce(t, c, path, "a")
		old := w.Session(c)
		must(t, old.Prove(t.Context()))
		_, err := old.Hold(nil)
		must(t, err)
		var refused atomic.Int32
		stop := w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCloseSession && refused.Add(1) <= 3 {
				return testutil.DropBefore()
			}
			if r.Op == testutil.OpDelete {
				t.Error("a delete of", r.Path)
			}
			return testutil.Pass()
		})
		w.ClientNet("ours").CutOneWay(true)
		<-old.Done()
		w.ClientNet("ours").Heal()
		awaitState(t, n, presence.Pending)
		standing(t, w, c, n, "a")
		stop()
		if refused.Load() < 3 {
			t.Errorf("%d tries to close the session", refused.Load())
		}
	})
}

// The create itself was never confirmed, and its session is lost by the
// client's clock: the same.
func TestACreateOfAnEarlierSessionWasNotConfirmed(t *testing.T) {
	for name, action := range map[string]func() testutil.Action{
		"its answer was lost": func() testutil.Action { return testutil.HoldReply(nil) },
		"it comes late":       func() testutil.Action { return testutil.Delay(bubble.Timeout / 3) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.Connect("ours")
				must(t, c.MakePersistentPath(t.Context(), "/services/billing"))
				old := w.Session(c)
				must(t, old.Prove(t.Context()))
				_, err := old.Hold(nil)
				must(t, err)
				unclear := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: path}, action())
				defer w.ClientNet("ours").Control(unclear.Control)()
				n, err := presence.New(c, path, []byte("a"))
				must(t, err)
				must(t, n.Start())
				bubble.Await(t, "the create", unclear.Hit())
				w.ClientNet("ours").CutOneWay(true)
				<-old.Done()
				if !w.Exists(path) {
					t.Error("the earlier session has made no znode")
				}
				w.ClientNet("ours").Heal()
				standing(t, w, c, n, "a")
				if n := w.Requests()[testutil.OpDelete]; n > 0 {
					t.Errorf("%d deletes", n)
				}
				closed(t, w, n)
			})
		})
	}
}

func TestSomebodyDeletesIt(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.ConnectNext(), w.ConnectNext()
		n := announce(t, c, path, "a")
		time.Sleep(2 * time.Minute)
		must(t, other.Delete(t.Context(), path, -1))
		time.Sleep(100 * time.Millisecond)
		standing(t, w, c, n, "a")
		deletes := 0
		for began := time.Now(); time.Since(began) < bubble.Few(4*time.Minute, 10*time.Minute); time.Sleep(50 * time.Millisecond) {
			if other.Delete(t.Context(), path, -1) == nil {
				deletes++
			}
		}
		if deletes < 10 || deletes > 200 {
			t.Errorf("made %d times", deletes)
		}
		closed(t, w, n)
	})
}

// Only a removal by somebody counts, and not the end of the session.
func TestYield(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.ConnectNext(), w.ConnectNext()
		n := announce(t, c, path, "a", presence.WithYield())
		expire(t, w, c, n)
		standing(t, w, c, n, "a")
		must(t, other.Delete(t.Context(), path, -1))
		awaitState(t, n, presence.Removed)
		w.Expire(c)
		time.Sleep(time.Minute)
		if w.Exists(path) {
			t.Error("it has come back")
		}
		if err := n.Standing(t.Context()); !errors.Is(err, presence.ErrRemoved) {
			t.Error(err)
		}
		closed(t, w, n)
	})
}

func TestHealth(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		var bad atomic.Int32
		hang := make(chan struct{})
		n := announce(t, c, path, "a", presence.WithHealthCheck(time.Second, func(context.Context) error {
			switch bad.Load() {
			case 1:
				return errors.New("ill")
			case 2:
				panic("ill")
			case 3:
				<-hang
			}
			return nil
		}))
		for kind := range int32(4) {
			bad.Store(kind)
			if kind > 0 {
				if s := awaitState(t, n, presence.Pending); !errors.Is(s.Err, presence.ErrUnhealthy) {
					t.Errorf("%+v", s)
				}
				time.Sleep(100 * time.Millisecond)
				if w.Exists(path) {
					t.Error("it stands")
				}
			}
			if bad.Store(0); kind == 3 {
				close(hang)
			}
			standing(t, w, c, n, "a")
		}
		closed(t, w, n)
	})
}

func TestTwoNodesOfOneClientAndPath(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		n := announce(t, c, path, "a")
		below, err := c.Namespace("services")
		must(t, err)
		if _, err := presence.Announce(t.Context(), below, "/billing/a", nil); err == nil {
			t.Error("the second one stands")
		}
		closed(t, w, n)
		n = announce(t, c, path, "b")
		standing(t, w, c, n, "b")
	})
}

// All views of a client have one Node at a path, and the next one takes its
// place when it closes.
func TestOneNodeInTwoViews(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		view, err := c.Namespace("services")
		must(t, err)
		n := announce(t, c, path, "a")
		next, err := presence.New(view, "/billing/a", []byte("b"))
		must(t, err)
		if err := next.Start(); err == nil || !strings.Contains(err.Error(), "start /billing/a: this client has another node at the path") {
			t.Error(err)
		}
		standing(t, w, c, n, "a")
		closed(t, w, n)
		n = announce(t, view, "/billing/a", "b")
		if data, _ := w.Data(path); string(data) != "b" {
			t.Errorf("%q", data)
		}
		must(t, n.Close(t.Context()))
	})
}

// Nodes in two views make their directory together. The error of each names it
// as its own view does.
func TestErrorsOfADirectoryInTwoViews(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers) // waits for the end of a container
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		below, err := c.Namespace("services")
		must(t, err)
		w.Latency(10 * time.Millisecond)
		stop := w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreateContainer {
				return testutil.Fail(testutil.CodeNoAuth)
			}
			return testutil.Pass()
		})
		var nodes []*presence.Node
		for i, in := range []*framework.Client{c, below} {
			n, err := presence.New(in, []string{path, "/billing/b"}[i], nil)
			must(t, err)
			must(t, n.Start())
			nodes = append(nodes, n)
		}
		for i, n := range nodes {
			want := []string{" /services/billing:", " /billing:"}[i]
			bubble.AwaitTrue(t, "an error", func() bool { return n.Status().Err != nil })
			if err := n.Status().Err; !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not name%s", err, want)
			}
		}
		stop()
		time.Sleep(time.Minute)
		closed(t, w, nodes[0])
		must(t, nodes[1].Close(t.Context()))
	})
}

func TestSequential(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		n := announce(t, c, path, "a", presence.WithSequential())
		m := announce(t, c, path, "b", presence.WithSequential())
		standing(t, w, c, n, "a")
		expire(t, w, c, n, m)
		standing(t, w, c, n, "a")
		standing(t, w, c, m, "b")
		if names := w.Children("/services/billing"); len(names) != 2 {
			t.Error(names)
		}
		closed(t, w, n)
		closed(t, w, m)
		w.Empty("/services/billing")
	})
}

// A request that is refused is told, and tried again until it is allowed.
func TestRefused(t *testing.T) {
	for _, code := range []testutil.Code{testutil.CodeNoAuth, testutil.CodeQuotaExceeded, -108} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			core, logged := observer.New(zap.InfoLevel)
			c := w.Connect("ours", framework.WithLogger(zap.New(core)))
			must(t, c.MakeContainerPath(t.Context(), "/services/billing"))
			n, err := presence.New(c, path, []byte("a"))
			must(t, err)
			var tries atomic.Int32
			stop := w.Control(func(r testutil.Request) testutil.Action {
				if r.Op == testutil.OpCreate && r.Path == path {
					tries.Add(1)
					return testutil.Fail(code)
				}
				return testutil.Pass()
			})
			must(t, n.Start())
			time.Sleep(time.Minute)
			if s := n.Status(); s.State != presence.Pending || s.Err == nil {
				t.Errorf("%+v", s)
			}
			tries.Store(0)
			time.Sleep(time.Hour)
			if n := tries.Load(); n < 90 || n > 360 { // the pauses have grown
				t.Errorf("%d creates in an hour", n)
			}
			stop()
			standing(t, w, c, n, "a")
			expire(t, w, c, n)
			standing(t, w, c, n, "a")
			for _, line := range logged.FilterMessage("presence changed").All() {
				if err, _ := line.ContextMap()["error"].(string); (line.Level == zap.WarnLevel) != strings.Contains(err, "create") {
					t.Errorf("%v: %v", line.Level, line.ContextMap())
				}
			}
		})
	}
}

// Every request of a run loses its answer, or is lost itself, once.
func TestEveryAnswerLost(t *testing.T) {
	for _, sequential := range []bool{false, true} {
		for _, action := range []testutil.Action{testutil.DropBefore(), testutil.DropAfter()} {
			for at := int32(0); ; at++ {
				struck := false
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					var opts []presence.Option
					if sequential {
						opts = append(opts, presence.WithSequential())
					}
					c := w.Connect("ours")
					var count atomic.Int32
					w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
						if r.Op == testutil.OpPing || count.Add(1) != at+1 {
							return testutil.Pass()
						}
						struck = true
						return action
					})
					n := announce(t, c, path, "one", opts...)
					standing(t, w, c, n, "one")
					must(t, n.Set(t.Context(), []byte("two")))
					standing(t, w, c, n, "two")
					expire(t, w, c, n)
					standing(t, w, c, n, "two")
					if names := w.Children("/services/billing"); len(names) != 1 {
						t.Errorf("%v at request %d", names, at)
					}
					must(t, n.Close(t.Context()))
					time.Sleep(time.Minute)
					if names := w.Children("/services/billing"); len(names) != 0 {
						t.Errorf("%v after Close, at request %d", names, at)
					}
				})
				if !struck || t.Failed() {
					break
				}
			}
		}
	}
}

// Close comes at each request, as it arrives at the ensemble or as its answer
// is lost.
func TestCloseAtEveryStep(t *testing.T) {
	for _, action := range []testutil.Action{testutil.Pass(), testutil.DropBefore(), testutil.DropAfter(), testutil.Delay(time.Second), testutil.DelayReply(time.Second)} {
		for at := int32(0); ; at++ {
			var struck atomic.Bool
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.Connect("ours")
				n, err := presence.New(c, path, []byte("one"))
				must(t, err)
				var count atomic.Int32
				ended := make(chan error, 1)
				w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
					if r.Op == testutil.OpPing || count.Add(1) != at+1 {
						return testutil.Pass()
					}
					struck.Store(true)
					go func() { ended <- n.Close(context.Background()) }()
					return action
				})
				must(t, n.Start())
				if n.Standing(t.Context()) == nil && n.Set(t.Context(), []byte("two")) == nil {
					w.Expire(c)
				}
				time.Sleep(10 * time.Second)
				if struck.Load() {
					<-ended
				}
				closed(t, w, n)
				time.Sleep(time.Minute)
				if w.Exists(path) {
					t.Errorf("it came back, at request %d", at)
				}
			})
			if !struck.Load() || t.Failed() {
				break
			}
		}
	}
}

// A create that its member executes after Close has returned does not stay. The
// ensemble refuses it as a rule, since the session has moved; so the session
// also creates the znode itself, as the late create would.
func TestACreateAfterClose(t *testing.T) {
	for _, members := range []int{1, 3} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c := w.Connect("ours")
			must(t, c.MakePersistentPath(t.Context(), "/services/billing"))
			release := make(chan struct{})
			held := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: path}, testutil.Hold(release))
			defer w.ClientNet("ours").Control(held.Control)()
			n, err := presence.New(c, path, []byte("one"))
			must(t, err)
			must(t, n.Start())
			<-held.Hit()
			w.ClientNet("ours").Drop()
			must(t, n.Close(t.Context()))
			close(release)
			for range 3 {
				time.Sleep(20 * time.Second)
				_, err = w.Session(c).Create(t.Context(), path, nil, zk.FlagEphemeral)
				must(t, err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if w.Exists(path) {
				t.Error("it stands after Close")
			}
		}, testutil.WithMembers(members))
	}
}

// Such a znode may not be deleted at first. It goes later, and the client does
// not try without a pause.
func TestACreateAfterCloseThatMayNotBeDeleted(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		must(t, c.MakePersistentPath(t.Context(), "/services/billing"))
		network, release := w.ClientNet("ours"), make(chan struct{})
		held := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: path}, testutil.Hold(release))
		defer network.Control(held.Control)()
		n, err := presence.New(c, path, nil)
		must(t, err)
		must(t, n.Start())
		<-held.Hit()
		network.Drop()
		must(t, n.Close(t.Context()))
		close(release)
		var tries atomic.Int64
		refuse := network.Control(func(r testutil.Request) testutil.Action {
			if r.Op != testutil.OpDelete {
				return testutil.Pass()
			}
			tries.Add(1)
			return testutil.Fail(testutil.CodeNoAuth)
		})
		_, err = w.Session(c).Create(t.Context(), path, nil, zk.FlagEphemeral)
		must(t, err)
		time.Sleep(20 * bubble.Timeout)
		if n := tries.Load(); n < 3 || n > 7 {
			t.Errorf("tried %d times in 20 session timeouts", n)
		}
		refuse()
		time.Sleep(20 * bubble.Timeout)
		if w.Exists(path) {
			t.Error("it stands after Close")
		}
	})
}

func TestCloseWhileSuspended(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		n := announce(t, c, path, "a")
		w.ClientNet("ours").Cut()
		awaitState(t, n, presence.Suspended)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := n.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.ClientNet("ours").Heal()
		closed(t, w, n)
	})
}

func TestTheClientCloses(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		n := announce(t, c, path, "a")
		var last presence.Status
		n.Listen(func(s presence.Status) { last = s })
		must(t, c.Close())
		closed(t, w, n)
		synctest.Wait()
		if last.State != presence.Closed {
			t.Errorf("%+v", last)
		}
		if _, err := presence.Announce(t.Context(), c, path, nil); !errors.Is(err, framework.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestSetWhileSuspended(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		n := announce(t, c, path, "0")
		w.ClientNet("ours").Cut()
		awaitState(t, n, presence.Suspended)
		var sets sync.WaitGroup
		for i := range 10 {
			sets.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if err := n.Set(t.Context(), []byte(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		w.ClientNet("ours").Heal()
		sets.Wait()
		standing(t, w, c, n, "9")
	})
}

// A caller of Set leaves: the data are set all the same.
func TestTheCallerOfSetLeaves(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		n := announce(t, c, path, "one")
		w.ClientNet("ours").Cut()
		awaitState(t, n, presence.Suspended)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := n.Set(ctx, []byte("two")); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.ClientNet("ours").Heal()
		time.Sleep(time.Second)
		standing(t, w, c, n, "two")
	})
}

// Who waits in vain for an ensemble that does not answer hears why.
func TestAWaitForNoEnsemble(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.ClientNet("ours").Cut()
		c, err := w.OpenTo("ours", w.Servers())
		must(t, err)
		defer c.Close()
		n, err := presence.New(c, path, nil)
		must(t, err)
		must(t, n.Start())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, err := range []error{n.Standing(ctx), n.Set(ctx, nil), n.Close(ctx)} {
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), path+": ") || !strings.Contains(err.Error(), "connect to "+w.Servers()) {
				t.Error(err)
			}
		}
	})
}

// The whole ensemble is away for longer than the session timeout. A client
// without leases loses no znode.
func TestAnOutageOfTheEnsemble(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		n := announce(t, c, path, "a")
		before, _ := w.Stat(path)
		for m := range w.Members() {
			must(t, w.Stop(m))
		}
		awaitState(t, n, presence.Suspended)
		time.Sleep(time.Minute)
		for m := range w.Members() {
			must(t, w.Restart(m))
		}
		standing(t, w, c, n, "a")
		if after, _ := w.Stat(path); after.Czxid != before.Czxid {
			t.Error("it was made again")
		}
	}, testutil.WithMembers(3))
}

// A thousand nodes of a client come back after an expiry. Ten names are taken,
// and one is refused. A few requests look for what is there, and arm the
// watches, which tell each node of its own znode.
func TestAThousandNodesShareRequests(t *testing.T) {
	bubble.Usual(t, bubble.SmallRequest, bubble.NoBatching, bubble.OneShot) // makes large requests; counts shared requests; needs multiRead, or recursive watches
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		const all = 1000
		c, other := w.Connect("ours"), w.ConnectNext()
		name := func(i int) string { return fmt.Sprintf("/services/billing/%04d", i) }
		nodes := make([]*presence.Node, all)
		for i := range nodes {
			n, err := presence.New(c, name(i), nil)
			must(t, err)
			must(t, n.Start())
			nodes[i] = n
		}
		for _, n := range nodes {
			must(t, n.Standing(t.Context()))
		}
		var transactions, refused atomic.Int32
		refusing := true
		w.ClientNet("ours").Control(func(r testutil.Request) testutil.Action {
			switch r.Op {
			case testutil.OpCreate, testutil.OpMulti, testutil.OpCreateContainer, testutil.OpSetData, testutil.OpDelete:
				transactions.Add(1)
			}
			if i := slices.IndexFunc(r.Operations, func(o testutil.Operation) bool { return o.Path == name(500) }); i >= 0 && r.Op == testutil.OpMulti && refusing {
				refused.Add(1)
				return testutil.FailOperation(i, testutil.CodeNoAuth)
			}
			return testutil.Pass()
		})
		w.ClientNet("ours").Cut()
		w.Expire(c)
		for i := range 10 {
			_, err := other.Create(t.Context(), name(37+93*i), nil, zk.FlagEphemeral)
			must(t, err)
		}
		w.ClientNet("ours").Heal()
		awaitState(t, nodes[0], presence.Pending)
		w.ResetRequests()
		must(t, nodes[0].Standing(t.Context()))
		bubble.AwaitTrue(t, "all", func() bool {
			stand, taken := 0, 0
			for _, n := range nodes {
				switch n.Status().State {
				case presence.Standing:
					stand++
				case presence.Taken:
					taken++
				}
			}
			return stand >= all-11 && taken == 10
		})
		t.Logf("%d transactions, %d of them refused for one, requests %v", transactions.Load(), refused.Load(), w.Cost())
		if n := transactions.Load(); n > 8 {
			t.Errorf("%d transactions, want 8 at most", n)
		}
		time.Sleep(time.Second)
		if n := w.Total(); n > 50 {
			t.Errorf("%d requests, want 50 at most: %v", n, w.Cost())
		}
		must(t, other.Delete(t.Context(), name(37), -1)) // was taken
		must(t, other.Delete(t.Context(), name(38), -1))
		for _, i := range []int{37, 38} {
			time.Sleep(time.Second)
			if stat, ok := w.Stat(name(i)); !ok || stat.EphemeralOwner != w.SessionID(c) {
				t.Errorf("%s was not made again", name(i))
			}
		}
		refusing = false
		must(t, nodes[500].Standing(t.Context()))
	})
}
