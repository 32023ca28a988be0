package managed_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A Delete whose answer was lost was retried, and deleted the znode that the
// next holder had created at the same path, without an error. DeleteCreated
// deletes only the znode that it is asked for.
func TestDeleteCreatedSparesASuccessor(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		other, _ := connect(t, ens)
		create := func() *zk.Stat {
			_, err := c.Create(t.Context(), "/lock", nil, 0)
			must(t, err)
			return created(t, ens, "/lock")
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
			mine := create()
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
			err := session(t, c).DeleteCreated(t.Context(), "/lock", mine)
			<-made
			stop()
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if now, exists := ens.Stat("/lock"); exists != tt.successor || exists && now.Czxid == mine.Czxid {
				t.Errorf("%s: exists %t", name, exists)
			}
			if tt.successor {
				if err := c.DeleteCreated(t.Context(), "/lock", mine); !errors.Is(err, zk.ErrNoNode) {
					t.Errorf("%s: deleting what is gone: %v", name, err)
				}
				must(t, c.Delete(t.Context(), "/lock", -1))
			}
			if err := c.DeleteCreated(t.Context(), "/lock", mine); !errors.Is(err, zk.ErrNoNode) {
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
			err = c.DeleteCreated(t.Context(), "/a", created(t, ens, "/a"))
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
		mine := created(t, ens, "/a")
		defer once(ens, testutil.OpDelete, testutil.DropAfter())()
		done := make(chan error)
		go func() { done <- s.DeleteCreated(within(t, timeout/2), "/a", mine) }()
		synctest.Wait()
		network.Cut()
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) || !framework.MaybeApplied(err) {
			t.Errorf("without a server: %v", err)
		}
		if err := s.DeleteCreated(t.Context(), "/a", mine); !errors.Is(err, framework.ErrSessionLost) || framework.MaybeApplied(err) {
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

func created(t *testing.T, ens *testutil.Embedded, path string) *zk.Stat {
	t.Helper()
	of := zk.Stat(stat(t, ens, path))
	return &of
}

// DeleteCreated does not wait for its pause to pass when the client closes.
func TestDeleteCreatedEndsWithTheClient(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial), framework.WithRetry(retry.NTimes(3, time.Hour)))
		must(t, err)
		_, err = c.Create(t.Context(), "/a", nil, 0)
		must(t, err)
		mine := created(t, ens, "/a")
		defer once(ens, testutil.OpDelete, testutil.DropAfter())()
		done := make(chan error, 1)
		go func() { done <- c.DeleteCreated(t.Context(), "/a", mine) }()
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
		err := c.DeleteCreated(t.Context(), "/a", created(t, ens, "/a"))
		if !errors.Is(err, zk.ErrConnectionClosed) || !framework.MaybeApplied(err) || lost.Count() != 1 {
			t.Errorf("%v after %d tries", err, lost.Count())
		}
	})
}

// Another znode can have the same czxid: the ensemble was rebuilt.
func TestDeleteCreatedSparesTheZnodeOfARebuiltEnsemble(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, failure(c.Create(t.Context(), "/a", nil, 0)))
		before := created(t, ens, "/a")
		before.Ctime--
		if err := c.DeleteCreated(t.Context(), "/a", before); !errors.Is(err, zk.ErrNoNode) || !ens.Exists("/a") {
			t.Errorf("%v, and the znode exists: %t", err, ens.Exists("/a"))
		}
		if err := c.DeleteCreated(t.Context(), "/a", nil); err == nil || !ens.Exists("/a") {
			t.Errorf("without a stat: %v, and the znode exists: %t", err, ens.Exists("/a"))
		}
	})
}
