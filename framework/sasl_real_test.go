package framework_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
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
				t.Errorf("after Close it stands: %v, %v", found, err)
			}
			must(t, latin.Close())
		})
	}
}
