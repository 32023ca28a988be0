package guarding

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/tlstest"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// Secured is a real server that demands SASL by DIGEST-MD5, of the users
// app:secret and guardian:other, and of those who use TLS a certificate.
type Secured struct {
	Servers          string
	t                *testing.T
	authority, other *tlstest.Authority
}

// StartSecured starts one that grants a session timeout of a second to most.
func StartSecured(t *testing.T, most time.Duration) *Secured {
	t.Helper()
	s := &Secured{t: t, authority: tlstest.NewAuthority(t), other: tlstest.NewAuthority(t)}
	own := s.Certificates("ensemble.example")
	s.Servers = apache.Start(t, 1, apache.WithSessionTimeouts(time.Second, most),
		apache.WithProperty("zookeeper.serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory"),
		apache.WithProperty("zookeeper.client.portUnification", "true"),
		apache.WithProperty("zookeeper.ssl.keyStore.location", filepath.Join(own, "own.pem")),
		apache.WithProperty("zookeeper.ssl.keyStore.type", "PEM"),
		apache.WithProperty("zookeeper.ssl.trustStore.location", filepath.Join(own, "ca.pem")),
		apache.WithProperty("zookeeper.ssl.trustStore.type", "PEM"),
		apache.WithProperty("zookeeper.ssl.clientAuth", "need"),
		apache.WithProperty("zookeeper.authProvider.2", "org.apache.zookeeper.server.auth.X509AuthenticationProvider"),
		apache.WithProperty("zookeeper.sessionRequireClientSASLAuth", "true"),
		apache.WithJAAS(`Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_app="secret" user_guardian="other"; };`)).Servers()
	return s
}

// Certificates returns a directory with what a client needs: ca.pem, the
// server's authority, and own.pem, a certificate of the client with its key,
// unless name is empty. The server is ensemble.example.
func (s *Secured) Certificates(name string) (dir string) { return s.directory(s.authority, name) }

// Strange is Certificates with an authority that the server is not of.
func (s *Secured) Strange(name string) (dir string) { return s.directory(s.other, name) }

func (s *Secured) directory(authority *tlstest.Authority, name string) (dir string) {
	s.t.Helper()
	dir = s.t.TempDir()
	authority.Write(filepath.Join(dir, "ca.pem"))
	if name != "" {
		own := filepath.Join(dir, "own.pem")
		tlstest.WritePair(s.t, s.authority.Issue(name, time.Hour), own, own)
	}
	return dir
}
