package managed_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// New needs no server, and the client connects when there is one.
func TestConnectsWhenAServerComes(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		must(t, ens.Stop(0))
		c, _ := start(t, ens)
		states := record(c)
		if err := c.WaitConnected(within(t, time.Minute)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("connected to nothing: %v", err)
		}
		if _, err := c.Session(); !errors.Is(err, framework.ErrNoSession) {
			t.Errorf("Session() without one: %v", err)
		}
		must(t, ens.Restart(0))
		if err := c.WaitConnected(within(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		if got, want := states.states(), "CONNECTING CONNECTED "; got != want {
			t.Errorf("states %s, want %s", got, want)
		}
	})
}

// One client is cut off while it holds something. In quiet times the deadline
// is at least T/2 ahead. The state is Suspended once a heartbeat is not
// answered, and Lost exactly at the deadline, whatever the ensemble knows. Then
// a new session begins, with LOST before CONNECTED. Known failures elsewhere:
// CURATOR-561, -627, -405.
func TestCutOffAlone(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		states := record(c)
		s := session(t, c)
		_, err := s.Hold(nil)
		must(t, err)
		time.Sleep(time.Minute + 700*time.Millisecond) // between two heartbeats
		if left := time.Until(s.Deadline()); left < timeout/2 || left > timeout {
			t.Fatalf("%v until the deadline in quiet times, want at least %v", left, timeout/2)
		}
		network.Cut()
		deadline := s.Deadline()
		<-s.Done()
		if !near(time.Now(), deadline) {
			t.Errorf("lost %v from the deadline", time.Since(deadline))
		}
		if err := s.Err(); !errors.Is(err, framework.ErrSessionLost) {
			t.Errorf("the session's error: %v", err)
		}
		if _, _, err := s.Get(t.Context(), "/"); !errors.Is(err, framework.ErrSessionLost) {
			t.Errorf("an operation of a lost session: %v", err)
		}
		time.Sleep(time.Minute)
		network.Heal()
		must(t, c.WaitConnected(within(t, time.Minute)))
		if session(t, c).ID() == s.ID() {
			t.Error("the lost session came back")
		}
		if got, want := states.states(), "CONNECTED SUSPENDED LOST CONNECTED "; got != want {
			t.Errorf("states %s, want %s", got, want)
		}
	})
}

// While there are keepers the deadline is T/2 ahead at all times.
func TestKeptSessionHasHalfItsTimeoutAhead(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		release := s.Keep()
		time.Sleep(2*timeout + 300*time.Millisecond) // between two heartbeats
		for range 2000 {
			time.Sleep(7 * time.Millisecond)
			if left := time.Until(s.Deadline()); left < timeout/2-time.Millisecond {
				t.Fatalf("%v until the deadline, want at least %v", left, timeout/2)
			}
		}
		release()
	})
}

// The cost of a quiet hour: no heartbeat while the session is idle, and one
// every T/6 with keepers, which is two syncs. The wire client's pings come
// anyway.
func TestHeartbeatsAreCounted(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		count := func() int { return ens.Requests()[testutil.OpSync] }
		before := count()
		span := bubble.Few(10*time.Minute, time.Hour)
		time.Sleep(span)
		if got := count() - before; got != 0 {
			t.Errorf("%d heartbeats in %v of quiet, want none", got, span)
		}
		release := s.Keep()
		before = count()
		time.Sleep(span)
		if got, want := count()-before, 2*int(span/(timeout/6)); got < want-2 || got > want+2 {
			t.Errorf("%d heartbeats in %v while kept, want about %d", got, span, want)
		}
		release()
	})
}

// The ensemble expires the session while the client is connected. The member
// closes the connection, and the next connect answer says that the session is
// gone. Known failures elsewhere: CURATOR-367, -220, -134, -247.
func TestExpiredByTheEnsemble(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		states := record(c)
		s := session(t, c)
		lost := make(chan error, 1)
		if _, err := s.Hold(func(err error) { lost <- err }); err != nil {
			t.Fatal(err)
		}
		must(t, ens.ExpireSession(s.ID()))
		if err := <-lost; !errors.Is(err, framework.ErrSessionLost) {
			t.Errorf("the hold was told %v", err)
		}
		time.Sleep(5 * time.Second)
		if got, want := states.states(), "CONNECTED SUSPENDED LOST CONNECTED "; got != want {
			t.Errorf("states %s, want %s", got, want)
		}
		all := states.all()
		if all[0].From != framework.Connected || all[0].Session != s.ID() || all[2].Session != s.ID() || all[3].Session == s.ID() || all[3].Reconnected() {
			t.Errorf("the changes name the wrong sessions: %+v", all)
		}
	})
}

// A short disconnect costs nothing: the session is the same, and Reconnected
// says so.
func TestShortDisconnectResumes(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		states := record(c)
		s := session(t, c)
		holdThroughout(t, s)
		for range 20 {
			time.Sleep(3 * time.Second)
			network.Drop()
		}
		time.Sleep(3 * time.Second)
		if session(t, c).ID() != s.ID() || s.Err() != nil {
			t.Error("the session changed")
		}
		resumed := 0
		for _, change := range states.all() {
			if change.Reconnected() {
				resumed++
			}
		}
		if resumed != 20 {
			t.Errorf("resumed %d times, want 20", resumed)
		}
	})
}

// Requests in the wire client's queue when the session expires must never be
// executed in the next session. The wire client alone would open a session and
// do so. Here the queue is filled behind the framework's back, while there is
// no connection. A known failure elsewhere: go-zookeeper.
func TestNothingQueuedRunsInTheNextSession(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		network.Cut()
		network.Drop()
		time.Sleep(10 * time.Millisecond)
		results := make(chan error, 40)
		for range cap(results) {
			go func() {
				_, err := inside(s).Wire().Create("/stale-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
				results <- err
			}()
		}
		synctest.Wait()
		must(t, ens.ExpireSession(s.ID()))
		network.Heal()
		<-s.Done()
		for range cap(results) {
			if err := <-results; err == nil {
				t.Error("a create of the dead session succeeded")
			}
		}
		must(t, c.WaitConnected(within(t, time.Minute)))
		time.Sleep(time.Minute)
		if got := ens.Children("/"); len(got) != 1 {
			t.Errorf("created in the next session: %v", got)
		}
	})
}

// The same by the operations of a session: each says that the session is lost,
// or that the connection was and the operation may have been applied.
func TestSentRequestsOfADeadSessionFail(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		network.Cut()
		results := make(chan error, 40)
		for range cap(results) {
			go func() {
				_, err := s.Create(t.Context(), "/stale-", nil, zk.FlagEphemeral|zk.FlagSequence)
				results <- err
			}()
		}
		synctest.Wait()
		must(t, ens.ExpireSession(s.ID()))
		network.Heal()
		for range cap(results) {
			if err := <-results; !errors.Is(err, framework.ErrSessionLost) && !framework.MaybeApplied(err) {
				t.Errorf("a create of the dead session: %v", err)
			}
		}
		time.Sleep(time.Minute)
		if got := ens.Children("/"); len(got) != 1 {
			t.Errorf("left behind: %v", got)
		}
	})
}

// A session that the client has given up is closed at the ensemble as soon as a
// server can be reached, well before it would expire.
func TestLostSessionIsClosedAtTheEnsemble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithSessionTimeouts(time.Second, time.Hour))
		c, network := connect(t, ens, framework.WithSessionTimeout(time.Minute))
		s := session(t, c)
		holdUntilLost(t, s)
		network.Cut()
		<-s.Done()
		// The ensemble counts from later contact than is proven, so it still
		// has it.
		if !alive(ens, s.ID()) {
			t.Fatal("the ensemble was first")
		}
		network.Heal()
		time.Sleep(10 * time.Second)
		if alive(ens, s.ID()) {
			t.Error("the lost session is left to stand in the way of others")
		}
	})
}

// Under ErrorPolicyConnection a hold ends with the connection.
func TestConnectionPolicyEndsHoldsAtADisconnect(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, framework.WithErrorPolicy(framework.ErrorPolicyConnection))
		s := session(t, c)
		lost := make(chan error, 1)
		if _, err := s.Hold(func(err error) { lost <- err }); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		network.Drop()
		if err := <-lost; !errors.Is(err, framework.ErrSessionLost) || time.Since(began) > time.Second {
			t.Errorf("lost after %v: %v", time.Since(began), err)
		}
		if s.Err() != nil {
			t.Error("the session itself was not to be lost")
		}
	})
}

// With a heartbeat that writes, the quorum is proven as well.
func TestProofByWrites(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens, framework.WithProof(framework.ProofWrite))
		s := session(t, c)
		release := s.Keep()
		defer release()
		time.Sleep(time.Minute)
		if left := time.Until(s.Deadline()); left < timeout/2-time.Millisecond {
			t.Errorf("%v until the deadline", left)
		}
		if ens.Requests()[testutil.OpMulti] < 50 {
			t.Errorf("requests: %v", ens.Requests())
		}
	})
}

// A proof by writes goes on after a refusal, which comes from the leader as
// well, but not after an error that says nothing of it.
func TestProofByWritesThatAreRefused(t *testing.T) {
	for code, want := range map[testutil.Code]error{testutil.CodeNoAuth: nil, testutil.CodeBadVersion: zk.ErrBadVersion} {
		inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
			c, network := connect(t, ens, framework.WithProof(framework.ProofWrite))
			s := session(t, c)
			time.Sleep(timeout)
			defer network.Control(func(r testutil.Request) testutil.Action {
				if r.Op == testutil.OpMulti {
					return testutil.FailOperation(0, code)
				}
				return testutil.Pass()
			})()
			if err := s.Prove(t.Context()); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
}

// Close is idempotent, removes ephemeral znodes at once, and ends all calls
// that wait. Known failures elsewhere: CURATOR-720, -673, -677, CURATOR-126,
// -121, -408, -710, -729, -654.
func TestClose(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		states := record(c)
		if _, err := s.Create(t.Context(), "/e", nil, zk.FlagEphemeral); err != nil {
			t.Fatal(err)
		}
		lost := make(chan error, 1)
		if _, err := s.Hold(func(err error) { lost <- err }); err != nil {
			t.Fatal(err)
		}
		values, err := c.WatchData(t.Context(), "/e")
		if err != nil {
			t.Fatal(err)
		}
		<-values
		began := time.Now()
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := <-lost; !errors.Is(err, framework.ErrClosed) {
			t.Errorf("the hold was told %v", err)
		}
		if ens.Exists("/e") || len(ens.Sessions()) != 0 {
			t.Error("the session is still there")
		}
		if v, ok := <-values; ok && !errors.Is(v.Err, framework.ErrClosed) {
			t.Errorf("the watch ended with %+v", v)
		}
		for name, err := range map[string]error{
			"Get":           second(c.Exists(t.Context(), "/")),
			"WaitConnected": c.WaitConnected(t.Context()),
			"session Get":   second(s.Exists(t.Context(), "/")),
			"Session":       func() error { _, err := c.Session(); return err }(),
		} {
			if !errors.Is(err, framework.ErrClosed) {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
		if got, want := states.states(), "CONNECTED CLOSED "; got != want {
			t.Errorf("states %s, want %s", got, want)
		}
		_ = network
	})
}

// Close ends although no server answers, and says what it leaves.
func TestCloseWithoutAServerIsBounded(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("alone")
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial))
		must(t, err)
		must(t, c.WaitConnected(t.Context()))
		s := session(t, c)
		waiting := make(chan error, 1)
		go func() {
			network.Cut()
			_, _, err := c.Get(t.Context(), "/")
			waiting <- err
		}()
		time.Sleep(time.Second)
		began := time.Now()
		if err := c.Close(); err == nil {
			t.Error("Close must say that the session is left to expire")
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := <-waiting; !errors.Is(err, framework.ErrClosed) {
			t.Errorf("what waited ended with %v", err)
		}
		if !alive(ens, s.ID()) {
			t.Error("how could the session be gone?")
		}
	})
}

// holdThroughout registers a hold that must not be lost before the client
// closes.
func holdThroughout(t *testing.T, s *framework.Session) {
	t.Helper()
	_, err := s.Hold(func(err error) {
		if !errors.Is(err, framework.ErrClosed) {
			t.Errorf("the hold was lost: %v", err)
		}
	})
	must(t, err)
}

func second[A, B any](_ A, _ B, err error) error { return err }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// memberOf returns the member that a session is connected to.
func memberOf(t *testing.T, ens *testutil.Embedded, id int64) int {
	t.Helper()
	for _, s := range ens.Sessions() {
		if s.ID == id {
			return s.Owner
		}
	}
	t.Fatalf("the ensemble has no session %#x", id)
	return -1
}

// alive reports whether the ensemble has the session.
func alive(ens *testutil.Embedded, id int64) bool {
	return slices.ContainsFunc(ens.Sessions(), func(s testutil.SessionInfo) bool { return s.ID == id })
}
