package managed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// seats creates two znodes /dir/seat- in one batch, behind a check of /ticket.
func seats(ctx context.Context, s *framework.Session, flags int32) (paths []string, failed int, err error) {
	return s.CreateAllProtected(ctx, framework.ProtectedBatch{
		Before: []any{&zk.CheckVersionRequest{Path: "/ticket", Version: -1}}, Dir: "/dir", Name: "seat-", N: 2, Flags: flags,
		After: []any{&zk.SetDataRequest{Path: "/ticket", Data: []byte("used"), Version: -1}},
	})
}

// A batch whose answer is lost is found by the ids in its names if all of its
// znodes are there and belong to this session. Otherwise it is made again, and
// what is there of the first try is removed.
func TestABatchWhoseAnswerIsLost(t *testing.T) {
	for name, tt := range map[string]struct {
		action    testutil.Action
		flags     int32
		meanwhile func(t *testing.T, other *framework.Client, made []string) // before the search
		between   func(t *testing.T, other *framework.Client, made []string) // the search and the check of the owner
		multis    int                                                        // that are executed
		want      error
	}{
		"answered":               {testutil.Pass(), sequential, nil, nil, 1, nil},
		"executed":               {testutil.DropAfter(), sequential, nil, nil, 1, nil},
		"executed, persistent":   {testutil.DropAfter(), zk.FlagSequence, nil, nil, 1, nil},
		"not executed":           {testutil.DropBefore(), sequential, nil, nil, 1, nil},
		"one of them is gone":    {testutil.DropAfter(), sequential, remove(1), nil, 2, nil},
		"all of them are gone":   {testutil.DropAfter(), sequential, remove(2), nil, 2, nil},
		"they vanish meanwhile":  {testutil.DropAfter(), sequential, nil, remove(2), 2, nil},
		"they are another's now": {testutil.DropAfter(), sequential, replace, nil, 1, framework.ErrSessionLost},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens)
				other, _ := connect(t, ens)
				s := session(t, c)
				for _, path := range []string{"/dir", "/ticket"} {
					_, err := other.Create(t.Context(), path, nil, 0)
					must(t, err)
				}
				ens.ResetRequests()
				defer once(ens, testutil.OpMulti, tt.action)()
				free := make(chan struct{})
				stages := map[testutil.Op]func(*testing.T, *framework.Client, []string){testutil.OpSync: tt.meanwhile, testutil.OpExists: tt.between}
				for op, stage := range stages {
					if stage == nil {
						continue
					}
					held := testutil.NewFault(testutil.Match{Op: op}, testutil.Hold(free))
					defer ens.Control(held.Control)()
					go func() {
						defer close(free)
						<-held.Hit()
						var made []string
						for _, name := range ens.Children("/dir") {
							made = append(made, "/dir/"+name)
						}
						stage(t, other, made)
					}()
				}
				paths, failed, err := seats(t.Context(), s, tt.flags)
				if !errors.Is(err, tt.want) || failed != -1 || (len(paths) == 2) != (tt.want == nil) {
					t.Fatalf("%q, operation %d, %v", paths, failed, err)
				}
				if n := ens.Requests()[testutil.OpMulti]; n != tt.multis {
					t.Errorf("%d multis, want %d", n, tt.multis)
				}
				time.Sleep(time.Second)
				var left []string
				for _, name := range ens.Children("/dir") {
					left = append(left, "/dir/"+name)
				}
				slices.Sort(left)
				if slices.Sort(paths); !slices.Equal(left, paths) {
					t.Errorf("there are %q, want %q", left, paths)
				}
			})
		})
	}
}

// remove removes the first n.
func remove(n int) func(t *testing.T, other *framework.Client, made []string) {
	return func(t *testing.T, other *framework.Client, made []string) {
		for _, path := range made[:n] {
			if err := other.Delete(t.Context(), path, -1); err != nil {
				t.Error(err)
			}
		}
	}
}

// replace makes the znodes those of another session.
func replace(t *testing.T, other *framework.Client, made []string) {
	remove(len(made))(t, other, made)
	for _, path := range made {
		if _, err := other.Create(t.Context(), path, nil, zk.FlagEphemeral); err != nil {
			t.Error(err)
		}
	}
}

// The ensemble refuses a batch: the error is that of the operation that it
// names, counted over all of them. Nothing of the batch exists then.
func TestABatchThatIsRefused(t *testing.T) {
	for _, at := range []int{0, 1, 2, 3, -1} { // -1: none is named
		inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
			c, _ := connect(t, ens)
			_, err := c.Create(t.Context(), "/dir", nil, 0)
			must(t, err)
			_, err = c.Create(t.Context(), "/ticket", nil, 0)
			must(t, err)
			action := testutil.Fail(testutil.CodeNoAuth)
			if at >= 0 {
				action = testutil.FailOperation(at, testutil.CodeNoAuth)
			}
			defer once(ens, testutil.OpMulti, action)()
			paths, failed, err := seats(t.Context(), session(t, c), sequential)
			if !errors.Is(err, zk.ErrNoAuth) || failed != at || paths != nil || framework.MaybeApplied(err) || !strings.HasPrefix(err.Error(), "multi /dir: ") {
				t.Errorf("operation %d refused: %q, %d, %v", at, paths, failed, err)
			}
			if data, _ := ens.Data("/ticket"); len(ens.Children("/dir")) != 0 || len(data) > 0 {
				t.Errorf("operation %d refused, but there is\n%s", at, ens.Tree())
			}
		})
	}
}

// The caller of a batch has returned when it is executed, or its outcome is
// known never. Its znodes are removed, and the session lives.
func TestABatchThatIsGivenUpLeavesNothing(t *testing.T) {
	for name, action := range map[string]testutil.Action{
		"answered late":          testutil.DelayReply(timeout / 6),
		"executed late":          testutil.Delay(timeout / 6),
		"the connection ends":    testutil.Delay(timeout),
		"with the answer's loss": testutil.DropAfter(),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				s := session(t, c)
				for _, path := range []string{"/dir", "/ticket"} {
					_, err := c.Create(t.Context(), path, nil, 0)
					must(t, err)
				}
				defer once(ens, testutil.OpMulti, action)()
				defer network.Control(func(r testutil.Request) testutil.Action { // none is made before the caller leaves
					if r.Op == testutil.OpCreateSession {
						return testutil.Delay(timeout / 30)
					}
					return testutil.Pass()
				})()
				_, failed, err := seats(within(t, timeout/60), s, sequential)
				if !errors.Is(err, context.DeadlineExceeded) || failed != -1 || !framework.MaybeApplied(err) {
					t.Errorf("operation %d, %v", failed, err)
				}
				if name == "the connection ends" {
					network.Drop()
				}
				bubble.AwaitTrue(t, "the batch to be executed", func() bool { data, _ := ens.Data("/ticket"); return string(data) == "used" })
				time.Sleep(timeout)
				if left := ens.Children("/dir"); len(left) != 0 || s.Err() != nil {
					t.Errorf("left: %q; session: %v", left, s.Err())
				}
			})
		})
	}
}

// A batch of an unhurried session gets its answer although the caller's context
// has ended.
func TestAnUnhurriedBatchGetsItsAnswer(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := (*framework.Session)(inside(session(t, c)).Unhurried())
		for _, path := range []string{"/dir", "/ticket"} {
			_, err := c.Create(t.Context(), path, nil, 0)
			must(t, err)
		}
		defer once(ens, testutil.OpMulti, testutil.DelayReply(timeout/6))()
		paths, _, err := seats(within(t, timeout/60), s, sequential)
		if err != nil || len(paths) != 2 {
			t.Errorf("%q, %v", paths, err)
		}
	})
}

// A batch of no znodes is a multi that is made again after a lost answer. The
// paths of a batch are in the client's namespace, and a bad one is an error.
func TestWhatABatchIsMadeOf(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, c.MakePersistentPath(t.Context(), "/ns/dir"))
		ns, err := c.Namespace("ns")
		must(t, err)
		s := session(t, ns)
		stop := once(ens, testutil.OpMulti, testutil.DropAfter())
		paths, failed, err := s.CreateAllProtected(t.Context(), framework.ProtectedBatch{
			Dir: "/dir", Name: "none", After: []any{&zk.SetDataRequest{Path: "/dir", Version: -1}},
		})
		if err != nil || failed != -1 || len(paths) != 0 || stat(t, ens, "/ns/dir").Version != 2 {
			t.Errorf("%q, %d, %v, version %d", paths, failed, err, stat(t, ens, "/ns/dir").Version)
		}
		stop()
		paths, _, err = s.CreateAllProtected(t.Context(), framework.ProtectedBatch{Dir: "/dir", Name: "x-", N: 3, Data: []byte("me")})
		must(t, err)
		for _, path := range paths {
			if data, _ := ens.Data("/ns" + path); len(paths) != 3 || !strings.HasPrefix(path, "/dir/_c_") || string(data) != "me" {
				t.Errorf("%q has %q", path, data)
			}
		}
		for _, b := range []framework.ProtectedBatch{{Dir: "dir", Name: "a"}, {Dir: "/dir", Name: "a/"}, {Dir: "/dir", Name: "a", Before: []any{1}}} {
			if _, failed, err := s.CreateAllProtected(t.Context(), b); err == nil || failed != -1 || !strings.HasPrefix(err.Error(), "multi "+fmt.Sprint(b.Dir)) {
				t.Errorf("%+v: operation %d, %v", b, failed, err)
			}
		}
	})
}
