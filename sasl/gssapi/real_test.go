package gssapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/sasl/gssapi"
	"github.com/zkrecipes/zkrecipes/sasl/gssapi/internal/kdctest"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

var clients atomic.Int32 // each has a network of its own

// open returns a client that authenticates as zookeeper/localhost's client. It
// is closed with the test.
func (k kdc) open(t *testing.T, ens *apache.Ensemble, m framework.SASL, more ...framework.Option) (*framework.Client, *testutil.ClientNet) {
	t.Helper()
	relay := ens.ClientNet(fmt.Sprint(t.Name(), "/", clients.Add(1)))
	opts := []framework.Option{framework.WithSessionTimeout(4 * time.Second), framework.WithDialer(relay.Dial), framework.WithSASL(m)}
	c, err := framework.New(ens.Servers(), append(opts, more...)...)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() }) // a test looks at its own Close
	return c, relay
}

func (k kdc) server() gssapi.Option { return gssapi.WithServerPrincipal("zookeeper/localhost") }

// Kerberos on a real member that requires it: each source of credentials is
// accepted, over disconnects, and is the same user. Close leaves nothing.
func TestKerberosOnTheRealServer(t *testing.T) {
	t.Parallel()
	k := startKDC(t)
	ens := k.Ensemble()
	k.Kinit()
	observer, _ := k.open(t, ens, k.mechanism(k.keytab(), k.server()))
	for name, source := range map[string]gssapi.Option{
		"keytab":   k.keytab(),
		"password": gssapi.WithPassword("app@"+realm, "secret"),
		"ccache":   gssapi.WithCCache(k.Path("ccache")),
	} {
		t.Run(name, func(t *testing.T) {
			c, relay := k.open(t, ens, k.mechanism(source, k.server()))
			_, err := c.Create(within(t, time.Minute), "/"+name, nil, zk.FlagEphemeral, zk.ACL{Perms: zk.PermAll, Scheme: "auth"})
			must(t, err)
			acl, _, err := c.GetACL(within(t, time.Minute), "/"+name)
			if err != nil || len(acl) != 1 || acl[0].Scheme != "sasl" || acl[0].ID != "app@"+realm {
				t.Errorf("the ACL is %v, %v", acl, err)
			}
			s, err := c.Session()
			must(t, err)
			for range 3 {
				relay.Drop()
				_, _, err := c.Get(within(t, time.Minute), "/"+name)
				must(t, err)
			}
			if now, err := c.Session(); err != nil || now.ID() != s.ID() {
				t.Errorf("another session: %v", err)
			}
			relay.Drop()
			must(t, c.Close()) // on a connection of its own, which authenticates
			if found, _, err := observer.Exists(within(t, time.Minute), "/"+name); err != nil || found {
				judge.Errorf(t, "after Close it stands: %v, %v", found, err)
			}
		})
	}
}

// What a real member refuses is ErrAuthFailed, whether it requires SASL or not:
// a ticket for another server, or another mechanism than its own. One without
// SASL is not trusted either.
func TestTheRealServerRefuses(t *testing.T) {
	t.Parallel()
	k := startKDC(t)
	k.Admin("addprinc -randkey zookeeper/other")
	right, other := k.server(), gssapi.WithServerPrincipal("zookeeper/other")
	required, not := k.Ensemble(), k.Ensemble(apache.WithProperty("zookeeper.sessionRequireClientSASLAuth", "false"))
	none := apache.Start(t, 1)
	digest := apache.Start(t, 1, apache.WithJAAS(`Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_app="secret"; };`))
	kerberos := func(server gssapi.Option) framework.SASL { return k.mechanism(k.keytab(), server) }
	plain, err := framework.New(not.Servers())
	must(t, err)
	t.Cleanup(func() { must(t, plain.Close()) })
	_, _, err = plain.Get(within(t, time.Minute), "/") // it is not required
	must(t, err)
	for name, test := range map[string]struct {
		ens       *apache.Ensemble
		mechanism framework.SASL
		refused   bool
	}{
		"required":                       {required, kerberos(right), false},
		"required, other":                {required, kerberos(other), true},
		"required, DIGEST-MD5":           {required, digestmd5.New("app", "secret"), true},
		"not required":                   {not, kerberos(right), false},
		"not required, other":            {not, kerberos(other), true},
		"not required, DIGEST-MD5":       {not, digestmd5.New("app", "secret"), true},
		"none":                           {none, kerberos(right), true},
		"DIGEST-MD5 alone, and Kerberos": {digest, kerberos(right), true},
	} {
		c, _ := k.open(t, test.ens, test.mechanism)
		_, _, err := c.Get(within(t, time.Minute), "/")
		// 3.4 ends the connection in answer to an empty token. That may mean
		// anything.
		ended := err != nil && strings.HasSuffix(name, "DIGEST-MD5") && strings.Contains(err.Error(), "SASL with") && strings.Contains(err.Error(), "EOF")
		if errors.Is(err, framework.ErrAuthFailed) != test.refused && !ended || !test.refused && err != nil {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// A server whose key was changed: the ticket that is kept is of no use, and is
// replaced.
func TestTheServersKeyIsChanged(t *testing.T) {
	t.Parallel()
	k := startKDC(t)
	ens := k.Ensemble()
	m := k.mechanism(k.keytab(), k.server())
	c, _ := k.open(t, ens, m)
	must(t, c.WaitConnected(within(t, time.Minute)))
	must(t, ens.Stop(0))
	k.Run("rm", k.Path("zookeeper.keytab"))
	k.Admin("ktadd -k " + k.Path("zookeeper.keytab") + " zookeeper/localhost") // another key, and no old one
	must(t, ens.Restart(0))
	must(t, ens.WaitServing(within(t, time.Minute)))
	for {
		_, _, err := c.Get(within(t, time.Minute), "/")
		if err == nil {
			break
		}
		if !errors.Is(err, framework.ErrAuthFailed) && !errors.Is(err, framework.ErrSessionLost) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// The clock of the server is ten minutes off: it refuses, and says so only in
// its log. When the clock is right again it accepts.
func TestTheServersClockIsOff(t *testing.T) {
	for _, skew := range []string{"+10m", "-10m"} {
		t.Run(skew, func(t *testing.T) {
			k := startKDC(t)
			t.Setenv("LD_PRELOAD", kdctest.Faketime(t))
			t.Setenv("FAKETIME", skew)
			t.Setenv("DONT_FAKE_MONOTONIC", "1")
			t.Setenv("FAKETIME_FORCE_MONOTONIC_FIX", "0") // the JVM starts in 1s then, not in 20s
			ens := k.Ensemble()
			t.Setenv("LD_PRELOAD", "")
			c, _ := k.open(t, ens, k.mechanism(k.keytab(), k.server()))
			if _, _, err := c.Get(within(t, time.Minute), "/"); !errors.Is(err, framework.ErrAuthFailed) {
				t.Errorf("error %v", err)
			}
			must(t, ens.Stop(0))
			must(t, ens.Restart(0))
			awaitConnected(t, c)
		})
	}
}

// A wrong key, until the keytab is replaced: the client is then connected soon.
func TestAKeytabIsMended(t *testing.T) {
	t.Parallel()
	k := startKDC(t)
	ens := k.Ensemble()
	k.Admin("cpw -pw other app", "ktadd -norandkey -k "+k.Path("new.keytab")+" app")
	c, _ := k.open(t, ens, k.mechanism(k.keytab(), k.server()))
	if err := c.WaitConnected(within(t, time.Minute)); !errors.Is(err, framework.ErrAuthFailed) {
		t.Fatalf("error %v", err)
	}
	time.Sleep(5 * time.Second) // the pauses are long by now
	k.Run("mv", k.Path("new.keytab"), k.Path("app.keytab"))
	began := time.Now()
	awaitConnected(t, c)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("connected after %v", took)
	}
}

// awaitConnected is WaitConnected for a client that was refused before.
func awaitConnected(t *testing.T, c *framework.Client) {
	t.Helper()
	for ctx := within(t, 2*time.Minute); c.State() != framework.Connected; time.Sleep(10 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("state %v", c.State())
		}
	}
}
