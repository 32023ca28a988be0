package managed_test

import (
	"crypto/tls"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/tlstest"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// A real member that requires certificates: a client is who its certificate
// says, over disconnects and to close its session. What it refuses is told.
func TestX509OnTheRealServer(t *testing.T) {
	dir := t.TempDir()
	ca, both := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "both.pem")
	authority := tlstest.NewAuthority(t)
	authority.Write(ca)
	tlstest.WritePair(t, authority.Issue("ensemble.example", time.Hour), both, both)
	ens := apache.Start(t, 1,
		apache.WithProperty("zookeeper.serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory"),
		apache.WithProperty("zookeeper.client.portUnification", "true"),
		apache.WithProperty("zookeeper.ssl.keyStore.location", both), apache.WithProperty("zookeeper.ssl.keyStore.type", "PEM"),
		apache.WithProperty("zookeeper.ssl.trustStore.location", ca), apache.WithProperty("zookeeper.ssl.trustStore.type", "PEM"),
		apache.WithProperty("zookeeper.ssl.clientAuth", "need"),
		apache.WithProperty("zookeeper.authProvider.1", "org.apache.zookeeper.server.auth.X509AuthenticationProvider"))
	var asked atomic.Int32
	open := func(pairs ...tls.Certificate) *framework.Client {
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(4*time.Second), framework.WithTLSFunc(func() (*tls.Config, error) {
			asked.Add(1)
			return &tls.Config{RootCAs: authority.Pool(), ServerName: "ensemble.example", Certificates: pairs}, nil
		}))
		must(t, err)
		return c
	}
	app, other := open(authority.Issue("app", time.Hour)), open(authority.Issue("other", time.Hour))
	_, err := app.Create(within(t, time.Minute), "/mine", nil, zk.FlagEphemeral, zk.ACL{Perms: zk.PermAll, Scheme: "auth"})
	must(t, err)
	acl, _, err := app.GetACL(within(t, time.Minute), "/mine")
	must(t, err)
	if len(acl) != 1 || acl[0].Scheme != "x509" || !strings.Contains(acl[0].ID, "CN=app") {
		t.Errorf("ACL %v", acl)
	}
	if _, _, err := other.Get(within(t, time.Minute), "/mine"); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("another reads it: %v", err)
	}
	s, before := session(t, app), asked.Load()
	must(t, ens.Stop(0))
	must(t, ens.Restart(0))
	_, _, err = app.Get(within(t, time.Minute), "/mine")
	must(t, err)
	if session(t, app).ID() != s.ID() || asked.Load() == before {
		t.Errorf("session %#x, then %#x; asked %d times", s.ID(), session(t, app).ID(), asked.Load()-before)
	}
	must(t, app.Close())
	if found, _, err := other.Exists(within(t, time.Minute), "/mine"); err != nil || found {
		judge.Errorf(t, "after Close it stands: %v, %v", found, err)
	}
	must(t, other.Close())
	nobody := open()
	if err := nobody.WaitConnected(within(t, 2*time.Second)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without a certificate: %v", err)
	}
	must(t, nobody.Close())
}

// A real member that has as many connections from this address as it allows
// closes the next one without a word. The client says what is possible, and
// connects when there is room.
func TestAFullRealServer(t *testing.T) {
	ens := apache.Start(t, 1, apache.WithSetting("maxClientCnxns=1"))
	open := func() *framework.Client {
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(4*time.Second))
		must(t, err)
		return c
	}
	first := open()
	must(t, first.WaitConnected(within(t, time.Minute)))
	second := open()
	bubble.AwaitTrue(t, "an error that names the limit and the server", func() bool {
		err := second.WaitConnected(within(t, time.Second))
		if err == nil {
			t.Fatal("connected")
		}
		return strings.Contains(err.Error(), "maxClientCnxns") && strings.Contains(err.Error(), ens.Servers())
	})
	must(t, first.Close())
	must(t, second.WaitConnected(within(t, time.Minute)))
	must(t, second.Close())
}
