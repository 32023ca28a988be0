package managed_test

import (
	"context"
	"errors"
	"fmt"
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
		made    *zk.Stat
	}
	for op, do := range map[string]func(ctx context.Context, w world) error{
		"get":           func(ctx context.Context, w world) error { return second(w.s.Get(ctx, "/")) },
		"of the client": func(ctx context.Context, w world) error { return second(w.c.Get(ctx, "/")) },
		"delete":        func(ctx context.Context, w world) error { return w.s.DeleteCreated(ctx, "/a", w.made) },
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
						w := world{c, session(t, c), ens.ClientNet("pausing"), cancel, nil}
						defer w.network.Heal()
						holdUntilLost(t, w.s)
						_, err = c.Create(ctx, "/a", nil, 0)
						must(t, err)
						w.made = created(t, ens, "/a")
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
// operation of the client is made in the next one. For one of the session no
// retry is reported.
func TestAnAnswerThatTheSessionHasExpired(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		var retries atomic.Int32
		c, _ := connect(t, ens, framework.WithObserver(framework.Observer{
			Retried: func(context.Context, framework.Retry) { retries.Add(1) },
		}))
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
			synctest.Wait()
			if n := retries.Load(); n != 1 {
				t.Errorf("of the %s: %d retries in all", of, n)
			}
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
