package acceptance_test

import (
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/tlstest"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// Locks whose znodes have ACLs of each scheme of a server. Those who have the
// right contend as ever. Others can neither read nor delete a znode, nor get in
// line, and what they try costs nobody the lease.
func TestACLsOfEachScheme(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, both := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "both.pem")
	authority := tlstest.NewAuthority(t)
	authority.Write(ca)
	tlstest.WritePair(t, authority.Issue("ensemble.example", time.Hour), both, both)
	ens := apache.Start(t, 1,
		apache.WithProperty("zookeeper.serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory"),
		apache.WithProperty("zookeeper.client.portUnification", "true"), // with and without TLS
		apache.WithProperty("zookeeper.ssl.keyStore.location", both), apache.WithProperty("zookeeper.ssl.keyStore.type", "PEM"),
		apache.WithProperty("zookeeper.ssl.trustStore.location", ca), apache.WithProperty("zookeeper.ssl.trustStore.type", "PEM"),
		apache.WithProperty("zookeeper.ssl.clientAuth", "need"),
		apache.WithProperty("zookeeper.authProvider.2", "org.apache.zookeeper.server.auth.X509AuthenticationProvider"),
		apache.WithJAAS(`Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_app="secret" user_other="secret"; };`))

	digest := func(who string) framework.Option { return framework.WithAuth("digest", []byte(who+":secret")) }
	sasl := func(who string) framework.Option { return framework.WithSASL(digestmd5.New(who, "secret")) }
	x509 := func(who string) framework.Option {
		return framework.WithTLS(&tls.Config{RootCAs: authority.Pool(), ServerName: "ensemble.example", Certificates: []tls.Certificate{authority.Issue(who, time.Hour)}})
	}
	from := func(host string) framework.Option {
		return framework.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			dialer := net.Dialer{Timeout: timeout, LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
			return dialer.Dial(network, address)
		})
	}
	acl := func(scheme, id string) zk.ACL { return zk.ACL{Perms: zk.PermAll, Scheme: scheme, ID: id} }
	ofDigest := zk.DigestACL(zk.PermAll, "app", "secret")[0]
	for _, test := range []struct {
		name    string
		acl     []zk.ACL
		who     []framework.Option // the identity of each client, in turn
		shows   string             // the scheme that the znodes show
		strange framework.Option
	}{
		{"world", zk.WorldACL(zk.PermAll), []framework.Option{sasl("app"), digest("app"), x509("app")}, "world", nil},
		{"auth", []zk.ACL{acl("auth", "")}, []framework.Option{digest("app")}, "digest", digest("other")},
		{"digest", []zk.ACL{ofDigest}, []framework.Option{digest("app")}, "digest", digest("other")},
		{"ip", []zk.ACL{acl("ip", "127.0.0.1")}, []framework.Option{from("127.0.0.1")}, "ip", from("127.0.0.2")},
		{"sasl", []zk.ACL{forUser("app")}, []framework.Option{sasl("app")}, "sasl", sasl("other")},
		{"x509", []zk.ACL{acl("x509", "CN=app,O=shop")}, []framework.Option{x509("app")}, "x509", x509("other")},
		{"several", []zk.ACL{forUser("app"), ofDigest, acl("x509", "CN=app,O=shop")}, []framework.Option{sasl("app"), digest("app"), x509("app")}, "sasl", digest("other")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			open := func(opts ...framework.Option) *framework.Client {
				c, err := framework.New(ens.Servers(), append(opts, framework.WithSessionTimeout(enduring))...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			s := &stage{ens, "/acl-" + test.name, open(test.who[0], framework.WithACL(test.acl...))}
			c := musterOf(t, s, ens.Servers(), enduring, func(i int) []framework.Option {
				return []framework.Option{framework.WithDialer(ens.Dial), test.who[i%len(test.who)], framework.WithACL(test.acl...)} // TLS through no ClientNet
			})
			for _, h := range c.held {
				path := h.lease.Path()
				for _, znode := range []string{h.at.path, path} {
					got, _, err := s.watcher.GetACL(t.Context(), znode)
					if err != nil || len(got) != len(test.acl) || got[0].Scheme != test.shows || got[0].Perms != zk.PermAll ||
						test.shows == test.acl[0].Scheme && !slices.Equal(got, test.acl) {
						t.Errorf("%s: ACL %v, %v", znode, got, err)
					}
				}
				if test.strange == nil {
					continue
				}
				stranger := open(test.strange)
				if _, _, err := stranger.Get(t.Context(), path); !errors.Is(err, zk.ErrNoAuth) {
					t.Errorf("a stranger reads %s: %v", path, err)
				}
				if err := stranger.Delete(t.Context(), path, -1); !errors.Is(err, zk.ErrNoAuth) {
					t.Errorf("a stranger deletes %s: %v", path, err)
				}
				lock := h.of(t, stranger, h.at.path)
				if _, err := lock.Acquire(t.Context()); !errors.Is(err, zk.ErrNoAuth) {
					t.Errorf("%s: a stranger in line: %v", h.name, err)
				}
				if _, err := lock.TryAcquire(t.Context()); !errors.Is(err, zk.ErrNoAuth) {
					t.Errorf("%s: a stranger tries: %v", h.name, err)
				}
			}
			for _, p := range c.peers {
				session, err := p.Session()
				if err == nil {
					err = ens.DropConnections(session.ID())
				}
				if err != nil {
					t.Error(err)
				}
			}
			c.goesOn(t)
			c.keeps(t)
			c.handsOver(t)
			c.disband(t)
		})
	}
}
