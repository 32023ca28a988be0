package managed_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// DIGEST-MD5 on real members, where it is required and where it is not: who is
// accepted and refused, over disconnects and at the close of an orphan.
func TestSASLOnTheRealServer(t *testing.T) {
	jaas := apache.WithJAAS(`Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required
  user_app="secret" user_latin="grün" user_greek="Ωmega" user_quote="a\"b\\c";
};
`)
	for _, required := range []string{"true", "false"} {
		t.Run("required "+required, func(t *testing.T) {
			t.Parallel()
			ens := apache.Start(t, 1, jaas, apache.WithProperty("zookeeper.sessionRequireClientSASLAuth", required))
			open := func(user, password string) (*framework.Client, *testutil.ClientNet) {
				relay := ens.ClientNet(user + password)
				c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(4*time.Second), framework.WithDialer(relay.Dial),
					framework.WithSASL(digestmd5.New(user, password)))
				must(t, err)
				return c, relay
			}
			for _, one := range [][2]string{{"latin", "grün"}, {"greek", "Ωmega"}, {"quote", `a"b\c`}} {
				c, _ := open(one[0], one[1])
				_, _, err := c.Children(within(t, time.Minute), "/")
				if err != nil {
					t.Errorf("%s: %v", one[0], err)
				}
				must(t, c.Close())
			}
			// An unknown user with the password of the one before is let in
			// before 3.9.3 (ZOOKEEPER-4839).
			for _, one := range [][2]string{{"app", "wrong"}, {"nobody", "nothing"}} {
				c, _ := open(one[0], one[1])
				_, _, err := c.Children(within(t, time.Minute), "/")
				if !errors.Is(err, framework.ErrAuthFailed) {
					t.Errorf("%s with password %s: %v", one[0], one[1], err)
				}
				must(t, c.Close())
			}
			c, relay := open("app", "secret")
			_, err := c.Create(within(t, time.Minute), "/mine", nil, zk.FlagEphemeral, zk.ACL{Perms: zk.PermAll, Scheme: "auth"})
			must(t, err)
			s := session(t, c)
			for range 3 {
				relay.Drop()
				_, _, err := c.Get(within(t, time.Minute), "/mine")
				must(t, err)
			}
			if session(t, c).ID() != s.ID() {
				t.Error("another session")
			}
			latin, _ := open("latin", "grün")
			if _, _, err := latin.Get(within(t, time.Minute), "/mine"); !errors.Is(err, zk.ErrNoAuth) {
				t.Errorf("another user reads it: %v", err)
			}
			relay.Drop()
			must(t, c.Close())
			if found, _, err := latin.Exists(within(t, time.Minute), "/mine"); err != nil || found {
				judge.Errorf(t, "after Close it stands: %v, %v", found, err)
			}
			must(t, latin.Close())
		})
	}
}

// Sessions that end on a real member: one that expires is followed by another,
// which is authenticated, and one that is over by the client's own clock is
// closed on a connection that authenticates, long before it would expire.
func TestSessionsEndWithSASLOnTheRealServer(t *testing.T) {
	jaas := apache.WithJAAS(`Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_app="secret"; };`)
	for _, required := range []string{"true", "false"} {
		t.Run("required "+required, func(t *testing.T) {
			ens := apache.Start(t, 1, jaas, apache.WithProperty("zookeeper.sessionRequireClientSASLAuth", required))
			open := func(name string, long time.Duration) (*framework.Client, *testutil.ClientNet) {
				relay := ens.ClientNet(name)
				c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(long), framework.WithDialer(relay.Dial),
					framework.WithSASL(digestmd5.New("app", "secret")))
				must(t, err)
				return c, relay
			}
			gone := func(c *framework.Client, path string, limit time.Duration) {
				t.Helper()
				for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
					found, _, err := c.Exists(within(t, time.Minute), path)
					must(t, err)
					if !found {
						return
					}
					if time.Since(began) > limit {
						judge.Fatalf(t, "%s stands after %v", path, limit)
					}
				}
			}
			own := zk.ACL{Perms: zk.PermAll, Scheme: "auth"}
			observer, _ := open("observer", 20*time.Second)
			c, relay := open("expires", 4*time.Second)
			_, err := c.Create(within(t, time.Minute), "/own", nil, 0, own)
			must(t, err)
			_, err = c.Create(within(t, time.Minute), "/expires", nil, zk.FlagEphemeral, own)
			must(t, err)
			first := session(t, c)
			relay.Cut()
			gone(observer, "/expires", time.Minute)
			relay.Heal()
			_, err = c.Set(within(t, time.Minute), "/own", []byte("x"), -1)
			must(t, err)
			if session(t, c).ID() == first.ID() {
				t.Error("the same session")
			}
			must(t, c.Close())

			c, _ = open("dies", 40*time.Second)
			_, err = c.Create(within(t, time.Minute), "/dies", nil, zk.FlagEphemeral, own)
			must(t, err)
			dies := session(t, c)
			holdUntilLost(t, dies)
			t.Cleanup(clock.Reset)
			clock.Jump(time.Minute)
			select {
			case <-dies.Done():
			case <-within(t, time.Minute).Done():
				t.Fatal("the session is not over")
			}
			gone(observer, "/dies", 20*time.Second)
			must(t, c.Close())
			must(t, observer.Close())
			clock.Reset()
		})
	}
}
