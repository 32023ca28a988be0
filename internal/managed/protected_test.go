package managed_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const sequential = zk.FlagEphemeral | zk.FlagSequence

// contender creates a protected znode below /lock, and the directory if it is
// missing.
func contender(ctx context.Context, s *framework.Session) (framework.Created, error) {
	made, err := s.CreateProtected(ctx, "/lock", "lock-", []byte("me"), sequential)
	if errors.Is(err, zk.ErrNoNode) {
		if err = s.MakeContainerPath(ctx, "/lock"); err == nil {
			made, err = s.CreateProtected(ctx, "/lock", "lock-", []byte("me"), sequential)
		}
	}
	return made, err
}

// The list is sent with the create: two requests, one round trip.
func TestCreateProtectedIsOneRoundTrip(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		ens.Latency(100 * time.Millisecond)
		time.Sleep(time.Second)
		ens.ResetRequests()
		began := time.Now()
		made, err := contender(t.Context(), s)
		must(t, err)
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("took %v, want one round trip of 200ms", took)
		}
		requests := ens.Requests()
		if requests[testutil.OpCreate] != 1 || requests[testutil.OpGetChildren2] != 1 {
			t.Errorf("requests: %v", requests)
		}
		own := strings.TrimPrefix(made.Path, "/lock/")
		if !strings.HasPrefix(own, "_c_") || !strings.HasSuffix(own, "-lock-0000000000") || len(own) != len("_c_-lock-0000000000")+36 {
			t.Errorf("name %s", own)
		}
		if !slices.Equal(made.Children, []string{own}) || made.Stat == nil || made.Stat.Pzxid == 0 {
			t.Errorf("list %v, stat %+v", made.Children, made.Stat)
		}
		if data, _ := ens.Data(made.Path); string(data) != "me" {
			t.Errorf("data %q", data)
		}
	})
}

// If the answer to the list is late, so is the result. If it never comes,
// because the connection ends, the answer to the create still counts, and the
// znode need not be searched.
func TestACreateIsAnsweredThoughItsListIsNot(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		const late = 300 * time.Millisecond
		stop := once(ens, testutil.OpGetChildren2, testutil.DelayReply(late))
		began := time.Now()
		made, err := contender(t.Context(), s)
		must(t, err)
		if took := time.Since(began); took != late || made.Stat == nil {
			t.Errorf("took %v, list %v", took, made.Children)
		}
		stop()
		ens.ResetRequests()
		never := make(chan struct{})
		defer close(never)
		defer once(ens, testutil.OpGetChildren2, testutil.HoldReply(never))()
		time.AfterFunc(late, func() { must(t, ens.DropConnections(s.ID())) })
		began = time.Now()
		made, err = contender(t.Context(), s)
		must(t, err)
		if took := time.Since(began); took != late || made.Path == "" || made.Stat != nil {
			t.Errorf("created %q after %v, with a list: %v", made.Path, took, made.Stat != nil)
		}
		must(t, c.WaitConnected(t.Context()))
		must(t, s.Sync(t.Context(), "/"))
		if requests := ens.Requests(); requests[testutil.OpCreate] != 1 || requests[testutil.OpGetChildren2] != 1 || requests[testutil.OpExists] != 0 {
			t.Errorf("requests %v, want one create and no search", requests)
		}
	})
}

// A create whose answer is lost succeeds: its znode is found by its id, in this
// session, and exists once. Known failures elsewhere: CURATOR-45, -498, -190.
func TestCreateSurvivesALostAnswer(t *testing.T) {
	for name, action := range map[string]testutil.Action{
		"executed":     testutil.DropAfter(),
		"not executed": testutil.DropBefore(),
		"moved":        testutil.Fail(testutil.CodeSessionMoved),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens)
				s := session(t, c)
				must(t, s.MakeContainerPath(t.Context(), "/lock"))
				defer once(ens, testutil.OpCreate, action)()
				made, err := contender(t.Context(), s)
				must(t, err)
				time.Sleep(time.Minute)
				if got := ens.Children("/lock"); len(got) != 1 || "/lock/"+got[0] != made.Path || made.Children == nil && name == "executed" {
					t.Errorf("in line: %v; returned %+v", got, made)
				}
				if session(t, c).ID() != s.ID() {
					t.Error("the session changed")
				}
			})
		})
	}
}

// A znode that is found by its id, but belongs to another session, is not used.
// The lock would be lost with that session. A known failure elsewhere:
// CURATOR-498.
func TestAZnodeFoundAgainMustBeTheSessionsOwn(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		other, _ := connect(t, ens)
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		defer once(ens, testutil.OpCreate, testutil.DropAfter())()
		found := make(chan struct{})
		searching := testutil.NewFault(testutil.Match{Op: testutil.OpSync, Path: "/lock"}, testutil.Hold(found))
		defer ens.Control(searching.Control)()
		outcome := make(chan error)
		go func() {
			_, err := contender(t.Context(), s)
			outcome <- err
		}()
		<-searching.Hit()
		name := ens.Children("/lock")[0]
		must(t, other.Delete(t.Context(), "/lock/"+name, -1))
		_, err := other.Create(t.Context(), "/lock/"+name, nil, zk.FlagEphemeral)
		must(t, err)
		close(found)
		if err := <-outcome; !errors.Is(err, framework.ErrSessionLost) {
			t.Errorf("error %v: another session's znode was taken for its own", err)
		}
	})
}

// The znode is found by its id, and the connection ends before its owner is
// known. It used to be given up then, and another one created: a member of a
// double barrier whose round was opened meanwhile waited for the next one.
// Found by the simulator.
func TestAZnodeThatWasFoundIsNotGivenUp(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		ens.ResetRequests()
		defer once(ens, testutil.OpCreate, testutil.DropAfter())()
		defer once(ens, testutil.OpExists, testutil.DropAfter())()
		made, err := contender(t.Context(), s)
		must(t, err)
		requests := ens.Requests()
		if requests[testutil.OpCreate] != 1 || requests[testutil.OpExists] != 2 {
			t.Errorf("requests %v, want one create, and its znode looked at twice", requests)
		}
		time.Sleep(time.Minute)
		if got := ens.Children("/lock"); len(got) != 1 || "/lock/"+got[0] != made.Path {
			t.Errorf("in line: %v; returned %+v", got, made)
		}
	})
}

// A znode that is found by its id, and deleted before its owner is known, is
// created again.
func TestAZnodeThatVanishesIsCreatedAgain(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		other, _ := connect(t, ens)
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		defer once(ens, testutil.OpCreate, testutil.DropAfter())()
		free := make(chan struct{})
		looked := testutil.NewFault(testutil.Match{Op: testutil.OpExists}, testutil.Hold(free))
		defer ens.Control(looked.Control)()
		go func() {
			defer close(free)
			<-looked.Hit()
			if err := other.Delete(t.Context(), "/lock/"+ens.Children("/lock")[0], -1); err != nil {
				t.Error(err)
			}
		}()
		made, err := s.CreateProtected(t.Context(), "/lock", "lock-", nil, sequential)
		must(t, err)
		if got := ens.Children("/lock"); len(got) != 1 || "/lock/"+got[0] != made.Path {
			t.Errorf("in line: %v; returned %+v", got, made)
		}
	})
}

// The answer is lost and no server comes back in time. The error is that of the
// search for the znode, but the create may have been executed, which the error
// used to deny. And the search, if it began before the loss of the connection
// was known, waited in the wire client for the next connection, whatever its
// budget. A known failure elsewhere: go-zookeeper.
func TestCreateThatCannotBeLookedForMayBeApplied(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, framework.WithRetry(retry.NTimes(3, 100*time.Millisecond)))
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		var sent atomic.Bool
		defer ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op != testutil.OpCreate || !sent.CompareAndSwap(false, true) {
				return testutil.Pass()
			}
			network.Cut() // for longer than the budget lasts
			return testutil.DropAfter()
		})()
		go func() {
			time.Sleep(time.Millisecond)
			network.Drop()
		}()
		began := time.Now()
		_, err := contender(t.Context(), s)
		if !framework.MaybeApplied(err) || len(ens.Children("/lock")) != 1 {
			t.Errorf("error %v, maybe applied %v, in line %v", err, framework.MaybeApplied(err), ens.Children("/lock"))
		}
		if took := time.Since(began); took > 301*time.Millisecond {
			t.Errorf("create and search together took %v, want one budget of three pauses of 100ms", took)
		}
		network.Heal()
		time.Sleep(2 * time.Minute)
		if got := ens.Children("/lock"); len(got) != 0 {
			t.Errorf("left in line: %v", got)
		}
	})
}

// Only the answer to the list is lost. The create has succeeded, and says that
// the directory must be listed again.
func TestListThatIsLostIsNoError(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		defer once(ens, testutil.OpGetChildren2, testutil.Fail(testutil.CodeOperationTimeout))()
		made, err := contender(t.Context(), s)
		must(t, err)
		if made.Children != nil || made.Stat != nil || !ens.Exists(made.Path) {
			t.Errorf("returned %+v", made)
		}
	})
}
