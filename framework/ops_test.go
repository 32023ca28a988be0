package framework_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func refuse(string, string, time.Duration) (net.Conn, error) { return nil, os.ErrDeadlineExceeded }

// once applies an action to the first request of a kind.
func once(ens *testutil.Embedded, op testutil.Op, action testutil.Action) (stop func()) {
	var done atomic.Bool
	return ens.Control(func(r testutil.Request) testutil.Action {
		if r.Op == op && done.CompareAndSwap(false, true) {
			return action
		}
		return testutil.Pass()
	})
}

// The paths in the results of a multi are not changed, neither if it fails nor
// for a delete. A known failure elsewhere: go-zookeeper.
func TestOperations(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		ctx := t.Context()
		path, err := c.Create(ctx, "/a", []byte("1"), zk.FlagPersistent)
		if err != nil || path != "/a" {
			t.Fatalf("Create: %q, %v", path, err)
		}
		data, stat, err := c.Get(ctx, "/a")
		if err != nil || string(data) != "1" || stat.Version != 0 {
			t.Fatalf("Get: %q, %+v, %v", data, stat, err)
		}
		if _, err := c.Set(ctx, "/a", []byte("2"), 7); !errors.Is(err, zk.ErrBadVersion) || framework.MaybeApplied(err) {
			t.Errorf("Set with another version: %v", err)
		}
		if stat, err = c.Set(ctx, "/a", []byte("2"), 0); err != nil || stat.Version != 1 {
			t.Errorf("Set: %+v, %v", stat, err)
		}
		if path, err = c.Create(ctx, "/a/s-", nil, zk.FlagEphemeral|zk.FlagSequence); err != nil || path != "/a/s-0000000000" {
			t.Errorf("sequential Create: %q, %v", path, err)
		}
		names, stat, err := c.Children(ctx, "/a")
		if err != nil || !slices.Equal(names, []string{"s-0000000000"}) || stat.NumChildren != 1 {
			t.Errorf("Children: %v, %+v, %v", names, stat, err)
		}
		if found, _, err := c.Exists(ctx, "/b"); found || err != nil {
			t.Errorf("Exists: %v, %v", found, err)
		}
		must(t, c.Sync(ctx, "/a"))
		if err := c.Delete(ctx, "/a", -1); !errors.Is(err, zk.ErrNotEmpty) {
			t.Errorf("Delete of a parent: %v", err)
		}
		if err := c.Delete(ctx, "/b", -1); !errors.Is(err, zk.ErrNoNode) {
			t.Errorf("Delete of nothing: %v", err)
		}
		responses, err := c.Multi(ctx, &zk.DeleteRequest{Path: path, Version: -1}, &zk.DeleteRequest{Path: "/a", Version: -1},
			&zk.CreateRequest{Path: "/c", Data: []byte("x")})
		if err != nil || len(responses) != 3 || responses[2].String != "/c" {
			t.Errorf("Multi: %+v, %v", responses, err)
		}
		responses, err = c.Multi(ctx, &zk.CreateRequest{Path: "/d"}, &zk.CheckVersionRequest{Path: "/nothing", Version: -1})
		if !errors.Is(err, zk.ErrNoNode) || ens.Exists("/d") || len(responses) != 2 {
			t.Errorf("a Multi that fails: %+v, %v", responses, err)
		}
		for i, r := range responses {
			if r.String != "" {
				t.Errorf("response %d of a Multi that creates nothing has the path %q", i, r.String)
			}
		}
		if _, err := c.Multi(ctx, "what"); err == nil {
			t.Error("a Multi of nonsense was accepted")
		}
		acl, _, err := c.GetACL(ctx, "/c")
		if err != nil || len(acl) != 1 || acl[0].Scheme != "world" {
			t.Errorf("GetACL: %+v, %v", acl, err)
		}
		if got, want := errorText(c.Delete(ctx, "/b", -1)), "delete /b: zk: node does not exist"; got != want {
			t.Errorf("error %q, want %q", got, want)
		}
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Under a chroot and a namespace every operation uses the paths of the
// namespace. The chroot and the server list survive an expiry. An empty list is
// an error. Known failures elsewhere: CURATOR-455, -593, -583.
func TestChrootAndNamespace(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("chrooted")
		root, err := framework.New(ens.Servers()+"/apps/one", framework.WithDialer(network.Dial), framework.WithCreateChroot())
		must(t, err)
		defer root.Close()
		c, err := root.Namespace("locks")
		must(t, err)
		ctx := t.Context()
		must(t, c.MakeContainerPath(ctx, "/a/b"))
		if !ens.Exists("/apps/one/locks/a/b") {
			t.Fatalf("tree:\n%s", ens.Tree())
		}
		if path, err := c.Create(ctx, "/a/b/s-", nil, zk.FlagSequence); err != nil || path != "/a/b/s-0000000000" {
			t.Errorf("Create: %q, %v", path, err)
		}
		if path, err := root.Create(ctx, "/locks/x", nil, 0); err != nil || path != "/locks/x" {
			t.Errorf("Create: %q, %v", path, err)
		}
		ops := []any{&zk.CreateRequest{Path: "/y"}}
		for range 2 { // the caller's ops stay as they are
			if r, err := c.Multi(ctx, ops...); err == nil && r[0].String != "/y" || err != nil && !errors.Is(err, zk.ErrNodeExists) {
				t.Errorf("Multi: %+v, %v", r, err)
			}
		}
		s := session(t, c)
		made, err := s.CreateProtected(ctx, "/a/b", "lock-", nil, zk.FlagEphemeral|zk.FlagSequence)
		if err != nil || !ens.Exists("/apps/one/locks"+made.Path) || len(made.Children) != 2 {
			t.Errorf("CreateProtected: %+v, %v", made, err)
		}
		values, err := c.WatchData(ctx, "/y")
		must(t, err)
		<-values
		if _, err := c.Set(ctx, "/y", []byte("new"), -1); err != nil {
			t.Error(err)
		}
		if v := <-values; string(v.Data) != "new" {
			t.Errorf("watched %+v", v)
		}
		if got := c.Resolve("/y"); got != "/apps/one/locks/y" {
			t.Errorf("Resolve: %s", got)
		}
		if names, _, err := c.Children(ctx, "/"); err != nil || len(names) != 3 {
			t.Errorf("Children of the root: %v, %v", names, err)
		}
		// The next session has the same chroot, and the same servers to go to.
		must(t, ens.ExpireSession(s.ID()))
		<-s.Done()
		must(t, c.WaitConnected(ctx))
		must(t, ens.Stop(memberOf(t, ens, session(t, c).ID())))
		if path, err := c.Create(ctx, "/later", nil, 0); err != nil || path != "/later" || !ens.Exists("/apps/one/locks/later") {
			t.Errorf("Create in the next session: %q, %v", path, err)
		}
	})
}

// Parents are containers, and persistent znodes if the ensemble has no
// containers. They are created from the lower end, so that no permission for an
// existing ancestor is needed.
func TestMakeContainerPath(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		ctx := t.Context()
		if _, err := c.Create(ctx, "/top", nil, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Create(ctx, "/top/app", nil, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := c.SetACL(ctx, "/top", zk.WorldACL(0), -1); err != nil {
			t.Fatal(err)
		}
		must(t, c.MakeContainerPath(ctx, "/top/app/x/y"))
		must(t, c.MakeContainerPath(ctx, "/top/app/x/y"))
		if got := ens.Requests()[testutil.OpCreateContainer]; got != 3+1 {
			t.Errorf("%d requests for two levels missing, and then none; want 3+1", got)
		}
		// The server asks for the permission to create before it looks what is
		// there.
		must(t, c.MakeContainerPath(ctx, "/top/app"))
		if err := c.MakeContainerPath(ctx, "/top/other"); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("below what is closed: %v", err)
		}
		time.Sleep(10 * time.Minute)
		if !ens.Exists("/top/app/x/y") {
			t.Error("a container that was never used is gone")
		}
		var asked atomic.Int32
		stop := ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCreateContainer {
				asked.Add(1)
				return testutil.Fail(testutil.CodeUnimplemented)
			}
			return testutil.Pass()
		})
		defer stop()
		must(t, c.MakeContainerPath(ctx, "/old/server"))
		must(t, c.MakeContainerPath(ctx, "/old/server/still"))
		if got := asked.Load(); got != 1 {
			t.Errorf("the ensemble was asked %d times for what it does not have", got)
		}
		if !ens.Exists("/old/server/still") {
			t.Errorf("tree:\n%s", ens.Tree())
		}
	})
}

// MakePersistentPath creates znodes that stay, where containers would be
// removed with their last child.
func TestMakePersistentPath(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		ctx := t.Context()
		must(t, c.MakePersistentPath(ctx, "/data/a/b"))
		must(t, session(t, c).MakePersistentPath(ctx, "/data/a/b"))
		must(t, session(t, c).MakeContainerPath(ctx, "/locks/a/b"))
		if got := ens.Requests(); got[testutil.OpCreate] != 5+1 || got[testutil.OpCreateContainer] != 5 {
			t.Errorf("%d creates and %d of containers for three levels missing; want 5+1 and 5", got[testutil.OpCreate], got[testutil.OpCreateContainer])
		}
		for _, dir := range []string{"/data/a", "/locks/a"} {
			must(t, c.Delete(ctx, dir+"/b", -1))
		}
		time.Sleep(10 * time.Minute)
		if !ens.Exists("/data/a") || ens.Exists("/locks/a") {
			t.Errorf("empty directories that are left:\n%s", ens.Tree())
		}
		if err := c.MakePersistentPath(ctx, "relative"); err == nil {
			t.Error("a relative path was made")
		}
	})
}

// One budget bounds an operation while no server answers, and ctx bounds it,
// too. The retries of an operation share one budget, and run before the
// operation returns. No queue grows without bound. Known failures elsewhere:
// CURATOR-559, CURATOR-599, Spring Integration #1863, CURATOR-52, -66.
func TestOperationsAreBounded(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		must(t, ens.Stop(0))
		c, _ := start(t, ens, framework.WithRetry(retry.NTimes(5, time.Second)))
		for name, op := range map[string]func(ctx context.Context) error{
			"get":  func(ctx context.Context) error { return second(c.Get(ctx, "/")) },
			"make": func(ctx context.Context) error { return c.MakeContainerPath(ctx, "/a/b/c/d") },
			"wait": func(ctx context.Context) error { _, err := c.AwaitSession(ctx); return err },
		} {
			began := time.Now()
			if err := op(t.Context()); !errors.Is(err, zk.ErrNoServer) {
				t.Errorf("%s without a server: %v", name, err)
			}
			if took := time.Since(began); took != 5*time.Second {
				t.Errorf("%s: a budget of 5 pauses of 1s lasted %v", name, took)
			}
			began = time.Now()
			ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, errors.New("the user went away"))
			err := op(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, context.Cause(ctx)) {
				t.Errorf("%s: %v, want the context's error and its cause", name, err)
			}
			if took := time.Since(began); took != 2*time.Second {
				t.Errorf("%s: a context of 2s lasted %v", name, took)
			}
			cancel()
		}
	})
}

// An operation that pauses between two tries, or waits for a connection, ends
// at once with its context, with its session, and with the client.
func TestAPauseEndsEarly(t *testing.T) {
	type world struct {
		c       *framework.Client
		s       *framework.Session
		network *testutil.ClientNet
		cancel  func()
	}
	for op, do := range map[string]func(ctx context.Context, w world) error{
		"get":           func(ctx context.Context, w world) error { return second(w.s.Get(ctx, "/")) },
		"of the client": func(ctx context.Context, w world) error { return second(w.c.Get(ctx, "/")) },
		"delete":        func(ctx context.Context, w world) error { return w.s.DeleteCreated(ctx, "/a", 2) },
	} {
		for name, end := range map[string]struct {
			end   func(w world)
			ended func(ctx context.Context, w world) <-chan struct{}
			want  error
		}{
			"context": {func(w world) { w.cancel() }, func(ctx context.Context, _ world) <-chan struct{} { return ctx.Done() }, context.Canceled},
			"session": {func(world) {}, func(_ context.Context, w world) <-chan struct{} { return w.s.Done() }, framework.ErrSessionLost},
			"client":  {func(w world) { go w.c.Close() }, func(_ context.Context, w world) <-chan struct{} { return w.c.Done() }, framework.ErrClosed},
		} {
			for _, connected := range []bool{true, false} {
				if name == "session" && op == "of the client" {
					continue // the next session serves it
				}
				t.Run(fmt.Sprintf("%s ends with its %s, connected %t", op, name, connected), func(t *testing.T) {
					inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
						c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithRetry(retry.NTimes(3, time.Hour)),
							framework.WithDialer(ens.ClientNet("pausing").Dial))
						must(t, err)
						defer c.Close()
						must(t, c.WaitConnected(t.Context()))
						ctx, cancel := context.WithCancel(t.Context())
						w := world{c, session(t, c), ens.ClientNet("pausing"), cancel}
						defer w.network.Heal()
						holdUntilLost(t, w.s)
						_, err = c.Create(ctx, "/a", nil, 0)
						must(t, err)
						if !connected {
							w.network.Cut()
							w.network.Drop()
							synctest.Wait()
						}
						defer ens.Control(func(r testutil.Request) testutil.Action {
							switch r.Op {
							case testutil.OpGetData:
								return testutil.Fail(testutil.CodeThrottled)
							case testutil.OpDelete:
								return testutil.DropAfter()
							}
							return testutil.Pass()
						})()
						done := make(chan error, 1)
						go func() { done <- do(ctx, w) }()
						time.Sleep(time.Second)
						end.end(w)
						if name == "session" && connected {
							must(t, ens.ExpireSession(w.s.ID()))
						}
						bubble.Await(t, "the end", end.ended(ctx, w))
						synctest.Wait()
						select {
						case err := <-done:
							if !errors.Is(err, end.want) || framework.MaybeApplied(err) != (op == "delete" && connected) {
								t.Errorf("got %v, want %v; it may have been applied: %t", err, end.want, framework.MaybeApplied(err))
							}
						default:
							t.Error("it goes on")
							<-done
						}
					})
				})
			}
		}
	}
}

// An answer says that the session has expired. It is over then, for all, and an
// operation of the client is made in the next one.
func TestAnAnswerThatTheSessionHasExpired(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		for _, of := range []string{"client", "session"} {
			s := session(t, c)
			stop := once(ens, testutil.OpGetData, testutil.Fail(testutil.CodeSessionExpired))
			var err, want error
			if of == "client" {
				_, _, err = c.Get(t.Context(), "/")
			} else {
				_, _, err = s.Get(t.Context(), "/")
				want = framework.ErrSessionLost
			}
			stop()
			if !errors.Is(err, want) || framework.MaybeApplied(err) || !errors.Is(s.Err(), framework.ErrSessionLost) {
				t.Errorf("of the %s: %v; session: %v", of, err, s.Err())
			}
			must(t, c.WaitConnected(within(t, timeout)))
		}
	})
}

// An operation returns at once when its context ends, although the wire
// client's call goes on.
func TestContextEndsAnOperationUnderWay(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		release := make(chan struct{})
		defer once(ens, testutil.OpCreate, testutil.Hold(release))()
		began := time.Now()
		_, err := c.Create(within(t, time.Second), "/late", nil, 0)
		if !errors.Is(err, context.DeadlineExceeded) || !framework.MaybeApplied(err) || time.Since(began) != time.Second {
			t.Errorf("after %v: %v, maybe applied: %v", time.Since(began), err, framework.MaybeApplied(err))
		}
		close(release)
		time.Sleep(time.Second)
		if !ens.Exists("/late") {
			t.Error("and so it was, for instance; it just was not known")
		}
	})
}

// What a lost answer means depends on the operation.
func TestLostAnswers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		op     testutil.Op
		action testutil.Action
		do     func(ctx context.Context, c *framework.Client) error
		want   error
		maybe  bool
		tree   string
	}{
		{"a read is repeated", testutil.OpGetData, testutil.DropAfter(), func(ctx context.Context, c *framework.Client) error {
			return second(c.Get(ctx, "/a"))
		}, nil, false, "/a\n"},
		{"a delete that finds nothing has succeeded", testutil.OpDelete, testutil.DropAfter(), func(ctx context.Context, c *framework.Client) error {
			return c.Delete(ctx, "/a", -1)
		}, nil, false, ""},
		{"a delete that was not executed is repeated", testutil.OpDelete, testutil.DropBefore(), func(ctx context.Context, c *framework.Client) error {
			return c.Delete(ctx, "/a", 0)
		}, nil, false, ""},
		{"a versioned set that meets another version is ambiguous", testutil.OpSetData, testutil.DropAfter(), func(ctx context.Context, c *framework.Client) error {
			_, err := c.Set(ctx, "/a", nil, 0)
			return err
		}, zk.ErrBadVersion, true, "/a\n"},
		{"a create that finds its znode is ambiguous", testutil.OpCreate, testutil.DropAfter(), func(ctx context.Context, c *framework.Client) error {
			_, err := c.Create(ctx, "/b", nil, 0)
			return err
		}, zk.ErrNodeExists, true, "/a\n/b\n"},
		{"a sequential create is not repeated", testutil.OpCreate, testutil.DropAfter(), func(ctx context.Context, c *framework.Client) error {
			_, err := c.Create(ctx, "/s-", nil, zk.FlagSequence)
			return err
		}, zk.ErrConnectionClosed, true, "/a\n/s-0000000001\n"},
		{"a multi is not repeated", testutil.OpMulti, testutil.DropBefore(), func(ctx context.Context, c *framework.Client) error {
			_, err := c.Multi(ctx, &zk.CreateRequest{Path: "/b"})
			return err
		}, zk.ErrConnectionClosed, true, "/a\n"},
		{"an answer that is no answer is repeated", testutil.OpDelete, testutil.Fail(testutil.CodeThrottled), func(ctx context.Context, c *framework.Client) error {
			return c.Delete(ctx, "/a", -1)
		}, nil, false, ""},
		{"so is one whose session has moved", testutil.OpDelete, testutil.Fail(testutil.CodeSessionMoved), func(ctx context.Context, c *framework.Client) error {
			return c.Delete(ctx, "/a", -1)
		}, nil, false, ""},
		{"and one that timed out", testutil.OpDelete, testutil.Fail(testutil.CodeOperationTimeout), func(ctx context.Context, c *framework.Client) error {
			return c.Delete(ctx, "/a", -1)
		}, nil, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens)
				_, err := c.Create(t.Context(), "/a", nil, 0)
				must(t, err)
				defer once(ens, tt.op, tt.action)()
				err = tt.do(t.Context(), c)
				if !errors.Is(err, tt.want) || framework.MaybeApplied(err) != tt.maybe {
					t.Errorf("error %v, maybe applied %v; want %v, %v", err, framework.MaybeApplied(err), tt.want, tt.maybe)
				}
				if got := ens.Tree(); got != tt.tree {
					t.Errorf("tree %q, want %q", got, tt.tree)
				}
			})
		})
	}
}

// The dialer gets names, not addresses, at every attempt. A known failure
// elsewhere: CURATOR-229.
func TestDialerGetsNamesEachTime(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var dialed atomic.Int32
		c, _ := connect(t, ens, framework.WithDialer(func(network, address string, limit time.Duration) (net.Conn, error) {
			if address != "member0:2181" || limit <= 0 || limit > timeout/3 {
				t.Errorf("dialed %s within %v", address, limit)
			}
			dialed.Add(1)
			return ens.Dial(network, address, limit)
		}))
		for range 5 {
			must(t, ens.DropConnections(session(t, c).ID()))
			time.Sleep(3 * time.Second)
		}
		if got := dialed.Load(); got != 6 {
			t.Errorf("dialed %d times, want 6", got)
		}
	})
}

// The observer gets requests, retries and states.
func TestObserver(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var requests, retried, states atomic.Int32
		c, _ := connect(t, ens, framework.WithObserver(framework.Observer{
			RequestEnd: func(_ context.Context, r framework.Request, _ framework.RequestResult) {
				if r.Op == "get" {
					requests.Add(1)
				}
			},
			Retried:      func(context.Context, framework.Retry) { retried.Add(1) },
			StateChanged: func(framework.StateChange) { states.Add(1) },
		}))
		defer once(ens, testutil.OpGetData, testutil.DropBefore())()
		if _, _, err := c.Get(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the state is set before anybody is told
		if requests.Load() != 2 || retried.Load() != 1 || states.Load() != 3 {
			t.Errorf("%d requests, %d retries, %d states; want 2, 1, 3", requests.Load(), retried.Load(), states.Load())
		}
	})
}

func TestAttach(t *testing.T) {
	c, err := framework.New("127.0.0.1:1", framework.WithDialer(refuse))
	must(t, err)
	defer c.Close()
	view, err := c.Namespace("a")
	must(t, err)
	type key struct{}
	made := 0
	for _, c := range []*framework.Client{c, view, c} {
		if got := c.Attach(key{}, func() any { made++; return made }); got != 1 {
			t.Errorf("attached %v", got)
		}
	}
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}

// Servers with localSessionsEnabled, and without upgrading, refuse ephemeral
// znodes. The error only said "unknown".
func TestEphemeralsOnALocalSession(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		defer once(ens, testutil.OpCreate, testutil.Fail(-120))()
		_, err := c.Create(t.Context(), "/a", nil, zk.FlagEphemeral)
		if err == nil || !strings.Contains(err.Error(), "localSessionsEnabled=true") ||
			!strings.Contains(err.Error(), "set localSessionsUpgradingEnabled=true") || framework.MaybeApplied(err) {
			t.Errorf("create: %v", err)
		}
	})
}

// If the chroot was missing, the error named the znode below it, and users
// looked for its parent.
func TestAMissingChrootIsNamed(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("below a chroot")
		root, err := framework.New(ens.Servers()+"/app", framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial))
		must(t, err)
		defer root.Close()
		all, _ := connect(t, ens)
		ns, err := root.Namespace("ns")
		must(t, err)
		ops := map[string]func(c *framework.Client) error{
			"create": func(c *framework.Client) error { _, err := c.Create(t.Context(), "/a", nil, 0); return err },
			"get":    func(c *framework.Client) error { return second(c.Get(t.Context(), "/a")) },
			"set":    func(c *framework.Client) error { _, err := c.Set(t.Context(), "/a", nil, -1); return err },
			"delete": func(c *framework.Client) error { return c.Delete(t.Context(), "/a", -1) },
			"list":   func(c *framework.Client) error { return second(c.Children(t.Context(), "/a")) },
			"multi": func(c *framework.Client) error {
				_, err := c.Multi(t.Context(), &zk.CreateRequest{Path: "/a"})
				return err
			},
		}
		named := func(c *framework.Client, text string) {
			t.Helper()
			for op, do := range ops {
				err := do(c)
				prefix := op + " /a: "
				if op == "multi" {
					prefix = "multi: create /a: "
				}
				if !errors.Is(err, zk.ErrNoNode) || !strings.HasPrefix(err.Error(), prefix+text) || framework.MaybeApplied(err) ||
					text == "" && err.Error() != prefix+zk.ErrNoNode.Error() {
					t.Errorf("%s: %v, want %q in it", op, err, text)
				}
			}
		}
		const missing = "chroot /app does not exist, and the client was made without WithCreateChroot: "
		named(root, missing)
		named(ns, missing)
		_, err = all.Create(t.Context(), "/app", nil, 0)
		must(t, err)
		delete(ops, "create")
		delete(ops, "multi")
		named(root, "")
		named(ns, "namespace /app/ns does not exist")
		must(t, ns.MakeContainerPath(t.Context(), "/"))
		named(ns, "")
		ens.ResetRequests()
		named(ns, "")
		if n := ens.Requests()[testutil.OpExists]; n != 0 {
			t.Errorf("%d more requests to look for what is known", n)
		}
	})
}

// A Delete whose answer was lost was retried, and deleted the znode that the
// next holder had created at the same path, without an error. DeleteCreated
// deletes only the znode with the given czxid.
func TestDeleteCreatedSparesASuccessor(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		other, _ := connect(t, ens)
		create := func() int64 {
			_, err := c.Create(t.Context(), "/lock", nil, 0)
			must(t, err)
			return stat(t, ens, "/lock").Czxid
		}
		for name, tt := range map[string]struct {
			action    testutil.Action
			successor bool
		}{
			"answered":                       {testutil.Pass(), false},
			"lost":                           {testutil.DropBefore(), false},
			"answer lost":                    {testutil.DropAfter(), false},
			"answer lost, a successor there": {testutil.DropAfter(), true},
			"throttled":                      {testutil.Fail(testutil.CodeThrottled), false},
			"timed out":                      {testutil.Fail(testutil.CodeRequestTimeout), false},
		} {
			czxid := create()
			made := make(chan struct{})
			struck := testutil.NewFault(testutil.Match{Op: testutil.OpDelete, Path: "/lock"}, tt.action)
			stop := ens.Control(struck.Control)
			go func() {
				defer close(made)
				<-struck.Hit()
				for tt.successor {
					if _, err := other.Create(t.Context(), "/lock", nil, 0); !errors.Is(err, zk.ErrNodeExists) {
						return
					}
				}
			}()
			err := session(t, c).DeleteCreated(t.Context(), "/lock", czxid)
			<-made
			stop()
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if now, exists := ens.Stat("/lock"); exists != tt.successor || exists && now.Czxid == czxid {
				t.Errorf("%s: exists %t", name, exists)
			}
			if tt.successor {
				if err := c.DeleteCreated(t.Context(), "/lock", czxid); !errors.Is(err, zk.ErrNoNode) {
					t.Errorf("%s: deleting what is gone: %v", name, err)
				}
				must(t, c.Delete(t.Context(), "/lock", -1))
			}
			if err := c.DeleteCreated(t.Context(), "/lock", czxid); !errors.Is(err, zk.ErrNoNode) {
				t.Errorf("%s: deleting nothing: %v", name, err)
			}
		}
	})
}

// Between the read and the delete another client writes the znode, or deletes
// it.
func TestDeleteCreatedLooksAgain(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		other, _ := connect(t, ens)
		for name, tt := range map[string]struct {
			meanwhile func() error
			want      error
		}{
			"written": {func() error {
				_, err := other.Set(t.Context(), "/a", []byte("x"), -1)
				return err
			}, nil},
			"removed": {func() error { return other.Delete(t.Context(), "/a", -1) }, zk.ErrNoNode},
			"has a child": {func() error {
				_, err := other.Create(t.Context(), "/a/b", nil, zk.FlagEphemeral)
				return err
			}, zk.ErrNotEmpty},
		} {
			_, err := c.Create(t.Context(), "/a", nil, 0)
			must(t, err)
			late := make(chan struct{})
			held := testutil.NewFault(testutil.Match{Op: testutil.OpDelete, Path: "/a"}, testutil.Hold(late))
			stop := ens.Control(func(r testutil.Request) testutil.Action {
				if r.Session == session(t, c).ID() {
					return held.Control(r)
				}
				return testutil.Pass()
			})
			go func() {
				defer close(late)
				<-held.Hit()
				if err := tt.meanwhile(); err != nil {
					t.Error(err)
				}
			}()
			err = c.DeleteCreated(t.Context(), "/a", stat(t, ens, "/a").Czxid)
			stop()
			if !errors.Is(err, tt.want) || framework.MaybeApplied(err) {
				t.Errorf("%s: %v, want %v", name, err, tt.want)
			}
			_ = other.Delete(t.Context(), "/a/b", -1)
			_ = other.Delete(t.Context(), "/a", -1)
		}
	})
}

// DeleteCreated ends with its context and with the session, and says that it
// may have been applied.
func TestDeleteCreatedEnds(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		holdUntilLost(t, s)
		_, err := c.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		czxid := stat(t, ens, "/a").Czxid
		defer once(ens, testutil.OpDelete, testutil.DropAfter())()
		done := make(chan error)
		go func() { done <- s.DeleteCreated(within(t, timeout/2), "/a", czxid) }()
		synctest.Wait()
		network.Cut()
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) || !framework.MaybeApplied(err) {
			t.Errorf("without a server: %v", err)
		}
		if err := s.DeleteCreated(t.Context(), "/a", czxid); !errors.Is(err, framework.ErrSessionLost) || framework.MaybeApplied(err) {
			t.Errorf("in a session that ends: %v", err)
		}
		network.Heal()
	})
}

func stat(t *testing.T, ens *testutil.Embedded, path string) testutil.Stat {
	t.Helper()
	found, ok := ens.Stat(path)
	if !ok {
		t.Fatalf("%s does not exist", path)
	}
	return found
}

// DeleteCreated does not wait for its pause to pass when the client closes.
func TestDeleteCreatedEndsWithTheClient(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial), framework.WithRetry(retry.NTimes(3, time.Hour)))
		must(t, err)
		_, err = c.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		czxid := stat(t, ens, "/a").Czxid
		defer once(ens, testutil.OpDelete, testutil.DropAfter())()
		done := make(chan error, 1)
		go func() { done <- c.DeleteCreated(t.Context(), "/a", czxid) }()
		time.Sleep(time.Minute)
		must(t, c.Close())
		select {
		case err := <-done:
			if !framework.MaybeApplied(err) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("it goes on after Close")
			<-done
		}
	})
}

// Without retries, a delete whose answer is lost is not made again, and the
// error says that it may have been applied.
func TestDeleteCreatedWithoutRetries(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens, framework.WithRetry(retry.Never()))
		must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
		lost := testutil.NewFault(testutil.Match{Op: testutil.OpDelete, Times: 9}, testutil.DropAfter())
		defer ens.Control(lost.Control)()
		err := c.DeleteCreated(t.Context(), "/a", stat(t, ens, "/a").Czxid)
		if !errors.Is(err, zk.ErrConnectionClosed) || !framework.MaybeApplied(err) || lost.Count() != 1 {
			t.Errorf("%v after %d tries", err, lost.Count())
		}
	})
}

// Directories that may not be created, and may not be looked at, are made again
// within the budget where the connection was at fault. A refusal stands.
func TestMakePathLooksWhatIsThere(t *testing.T) {
	for name, tt := range map[string]struct {
		chroot string
		action testutil.Action // of the look
		want   error
	}{
		"there":                    {"", testutil.Pass(), nil},
		"the look is lost":         {"", testutil.DropBefore(), nil},
		"the look is refused":      {"", testutil.Fail(-8), zk.ErrBadArguments},
		"the chroot":               {"/top/app", testutil.Pass(), nil},
		"the look at it is lost":   {"/top/app", testutil.DropBefore(), nil},
		"that is refused":          {"/top/app", testutil.Fail(-8), zk.ErrBadArguments},
		"it is there, but private": {"/top/app", testutil.Fail(testutil.CodeNoAuth), nil},
	} {
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, _ := connect(t, ens)
			must(t, c.MakePersistentPath(t.Context(), "/top/app"))
			must(t, failure(c.SetACL(t.Context(), "/top", zk.WorldACL(0), -1)))
			looked := testutil.NewFault(testutil.Match{Op: testutil.OpExists, Path: "/top/app", Times: 1}, tt.action)
			defer ens.Control(looked.Control)()
			path := "/top/app"
			if tt.chroot != "" {
				c, path = below(t, ens, tt.chroot), "/"
			}
			err := c.MakePersistentPath(t.Context(), path)
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || looked.Count() != 1 {
				t.Errorf("%s: %v after %d looks", name, err, looked.Count())
			}
		})
	}
}

// A server that refuses a request for the moment, on a connection that lasts:
// the retry policy ends that.
func TestRetriesEndOnAConnectionThatLasts(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, net := connect(t, ens, framework.WithRetry(retry.NTimes(3, 100*time.Millisecond)))
		refused := testutil.NewFault(testutil.Match{Op: testutil.OpExists, Times: 10}, testutil.Fail(testutil.CodeThrottled))
		defer net.Control(refused.Control)()
		began := time.Now()
		_, _, err := c.Exists(t.Context(), "/")
		if code := framework.ErrorCode(err); code != "THROTTLEDOP" || refused.Count() != 4 || time.Since(began) != 300*time.Millisecond {
			t.Errorf("%v (%s) after %d tries and %v", err, code, refused.Count(), time.Since(began))
		}
	})
}
