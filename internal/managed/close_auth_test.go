package managed_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// credentials are those that the members of these tests enforce.
func credentials() framework.Option { return framework.WithAuth("digest", []byte("app:pw")) }

// enforcing runs a scenario in virtual time, on members that answer only
// clients with credentials.
func enforcing(t *testing.T, scenario func(t *testing.T, ens *testutil.Embedded)) {
	t.Helper()
	bubble.Run(t, func(t *testing.T, w *bubble.World) { scenario(t, w.Embedded) },
		testutil.WithMembers(3), testutil.WithEnforcedAuth("digest"))
}

// The connection that closes a lost session presented no credentials. Where the
// servers enforce them, they refused it, and the ephemeral znodes stayed.
func TestAnOrphanIsClosedWhereCredentialsAreEnforced(t *testing.T) {
	enforcing(t, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens, framework.WithAuth("ip", nil), credentials())
		s := session(t, c)
		holdUntilLost(t, s)
		defer ens.Control(func(r testutil.Request) testutil.Action {
			switch {
			case s.Err() != nil: // nothing hinders its end, from the moment of the loss on
			case r.Session == s.ID() && r.Op == testutil.OpSync:
				return testutil.DropAfter() // the server hears from the session later than the client from the server
			case r.Session == s.ID() && r.Op == testutil.OpCreateSession:
				return testutil.DropBefore()
			}
			return testutil.Pass()
		})()
		bubble.Await(t, "the session to be lost", s.Done())
		lost := time.Now()
		bubble.AwaitTrue(t, "the session to be gone", func() bool { return !alive(ens, s.ID()) })
		if took := time.Since(lost); took > time.Second {
			t.Errorf("the session stood for %v after it was lost", took)
		}
	})
}

// The same when a client closes that has no connection at that moment.
func TestAClosedClientsSessionIsClosedWhereCredentialsAreEnforced(t *testing.T) {
	enforcing(t, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, credentials())
		s := session(t, c)
		network.Drop()
		must(t, c.Close())
		if alive(ens, s.ID()) {
			t.Error("Close returns nil, and the session is still there")
		}
	})
}

// A client closes while its next connection presents the first of two
// credentials. The wire client leaves out the second one, so the server refuses
// to close the session. That answer counted as a success.
func TestARefusedCloseIsNotConfirmed(t *testing.T) {
	enforcing(t, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, framework.WithAuth("ip", nil), credentials())
		s := session(t, c)
		presented := make(chan struct{}, 1) // the first one, again
		asked := make(chan struct{}, 10)    // to close the session
		defer ens.Control(func(r testutil.Request) testutil.Action {
			switch r.Op {
			case testutil.OpAuth:
				select {
				case presented <- struct{}{}:
					return testutil.DelayReply(time.Second)
				default:
				}
			case testutil.OpCloseSession:
				asked <- struct{}{}
			}
			return testutil.Pass()
		})()
		network.Drop()
		bubble.AwaitTrue(t, "credentials to be presented again", func() bool { return len(presented) == 1 })
		bubble.AwaitTrue(t, "the connection", func() bool { return c.State() == framework.Connected })
		must(t, c.Close())
		if alive(ens, s.ID()) {
			t.Error("Close returns nil, and the session is still there")
		}
		if n := len(asked); n < 2 {
			t.Errorf("%d requests to close the session: the first one was not refused", n)
		}
	})
}

// A server that refuses to close the session leaves it there. Close must say
// so, and why.
func TestCloseSaysThatItWasRefused(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("refused")
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial))
		must(t, err)
		must(t, c.WaitConnected(within(t, time.Minute)))
		s := session(t, c)
		defer ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpCloseSession {
				return testutil.Fail(-124)
			}
			return testutil.Pass()
		})()
		err = c.Close()
		if !alive(ens, s.ID()) {
			t.Fatal("the session is gone")
		}
		if err == nil || !strings.Contains(err.Error(), "sasl required") || !strings.Contains(err.Error(), "until it expires") {
			t.Errorf("the session is still there, and Close returns %v", err)
		}
	})
}

// Credentials that the server rejects keep no session alive: it is closed
// without them.
func TestASessionWithRejectedCredentialsIsClosed(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		network := ens.ClientNet("rejected")
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(timeout), framework.WithDialer(network.Dial),
			framework.WithAuth("nonsense", []byte("x")))
		must(t, err)
		bubble.AwaitTrue(t, "a session", func() bool { return len(ens.Sessions()) == 1 })
		if err := c.WaitConnected(within(t, time.Minute)); err == nil {
			t.Error("connected with credentials that are rejected")
		}
		must(t, c.Close())
		if left := ens.Sessions(); len(left) != 0 {
			judge.Errorf(t, "left behind: %v", left)
		}
	})
}

// The same on the real server, which enforces schemes since 3.7.
func TestClosingWhereARealServerEnforcesCredentials(t *testing.T) {
	ens := apache.Start(t, 1,
		apache.WithProperty("zookeeper.enforce.auth.enabled", "true"), apache.WithProperty("zookeeper.enforce.auth.schemes", "digest"))
	other, err := framework.New(ens.Servers(), credentials())
	must(t, err)
	defer other.Close()
	const longer = 40 * time.Second // than the test waits: a session that expires is not taken for one that was closed
	for _, how := range []string{"connected", "disconnected"} {
		network := ens.ClientNet(how)
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(longer), framework.WithDialer(network.Dial),
			framework.WithAuth("ip", nil), credentials())
		must(t, err)
		must(t, c.WaitConnected(within(t, time.Minute)))
		_, err = c.Create(t.Context(), "/"+how, nil, zk.FlagEphemeral)
		must(t, err)
		if how != "connected" {
			network.Drop()
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		if found, _, err := other.Exists(t.Context(), "/"+how); err != nil || found {
			judge.Errorf(t, "%s: the znode of the closed session stands: %v, %v", how, found, err)
		}
	}
}
