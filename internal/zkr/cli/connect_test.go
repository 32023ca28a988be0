//go:build unix

package cli

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/tlstest"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestAuth: credentials from the flag or the environment give access to
// protected znodes.
func TestAuth(t *testing.T) {
	e := testutil.Start(t)
	if _, err := zkrtest.Dial(t, e).Create(t.Context(), "/closed", nil, 0, zk.DigestACL(zk.PermAll, "user", "pass:word")...); err != nil {
		t.Fatal(err)
	}
	lock := func(flags ...string) *zkrtest.Process {
		return zkrtest.Start(t, append(append([]string{"lock", "--servers", e.Servers()}, flags...), "/closed", "--", "true")...)
	}
	if p := lock(); p.Wait(t) != ExitFailed || !strings.Contains(p.Text(), "not allowed by the ACL") {
		t.Errorf("without credentials: exit code %d; it printed %q", p.Code, p.Text())
	}
	if p := lock("--auth", "digest:user:pass:word"); p.Wait(t) != 0 {
		t.Errorf("with --auth: exit code %d", p.Code)
	}
	t.Setenv("ZKR_AUTH", "digest:user:pass:word")
	if p := lock(); p.Wait(t) != 0 {
		t.Errorf("with ZKR_AUTH: exit code %d", p.Code)
	}
	if p := lock("--auth", "digest:nobody:wrong"); p.Wait(t) != ExitFailed {
		t.Errorf("the flag counts, not the environment: exit code %d", p.Code)
	}
}

// TestTLS: the client shows its certificate and checks the servers'. What is
// wrong is said.
func TestTLS(t *testing.T) {
	zkrtest.Parallel(t)
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	authority := tlstest.NewAuthority(t)
	authority.Write(ca)
	pair := authority.Issue("ensemble.example", time.Hour)
	tlstest.WritePair(t, pair, cert, key)
	e := testutil.Start(t)
	front := tlstest.NewFront(t, e.Servers(), requiring(authority, pair)).Address
	for _, test := range []struct {
		name    string
		servers string
		flags   []string
		want    int
		says    string
	}{
		{"all as it should be", front, []string{"--tls-ca", ca, "--tls-cert", cert, "--tls-key", key, "--tls-server-name", "ensemble.example"}, 0, ""},
		{"another name", front, []string{"--tls-ca", ca, "--tls-cert", cert, "--tls-key", key}, ExitNoEnsemble, "certificate"},
		{"not trusted", front, []string{"--tls", "--tls-cert", cert, "--tls-key", key, "--tls-server-name", "ensemble.example"}, ExitNoEnsemble, "certificate"},
		{"without a certificate of our own", front, []string{"--tls-ca", ca, "--tls-server-name", "ensemble.example"}, ExitNoEnsemble, "certificate"},
		{"without TLS", front, nil, ExitNoEnsemble, "expects TLS"},
		{"a server without TLS", e.Servers(), []string{"--tls-ca", ca}, ExitNoEnsemble, "may not expect TLS"},
		{"no such file", front, []string{"--tls-ca", ca + ".missing"}, ExitUsage, "--tls-ca"},
		{"a file without certificates", front, []string{"--tls-ca", key}, ExitUsage, "no certificate"},
		{"a key that is none", front, []string{"--tls-cert", cert, "--tls-key", cert}, ExitUsage, "--tls-key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			patient := "5s" // the error must be reported within the time limit, on a slow machine too
			if test.want == 0 {
				patient = "20s"
			}
			args := append([]string{"lock", "--servers", test.servers, "--connect-timeout", patient}, test.flags...)
			p := zkrtest.Start(t, append(args, "/tls", "--", "true")...)
			if code := p.Wait(t); code != test.want || !strings.Contains(p.Text(), test.says) {
				t.Errorf("exit code %d, want %d; it printed %q, want %q in it", code, test.want, p.Text(), test.says)
			}
		})
	}
}

// requiring is the configuration of a server that requires certificates.
func requiring(authority *tlstest.Authority, pair tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: authority.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}
}

// TestTLSFilesAreReplaced: the authority and all certificates are replaced, one
// file after the other, while a lock is held. The lock stays held over the
// reconnects, and half of a pair is said and not used.
func TestTLSFilesAreReplaced(t *testing.T) {
	zkrtest.Parallel(t)
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	first := tlstest.NewAuthority(t)
	first.Write(ca)
	tlstest.WritePair(t, first.Issue("app", time.Hour), cert, key)
	e := testutil.Start(t)
	front := tlstest.NewFront(t, e.Servers(), requiring(first, first.Issue("ensemble.example", time.Hour)))
	p := zkrtest.Start(t, "lock", "--servers", front.Address, "--session-timeout", "30s", "--tls-ca", ca, "--tls-cert", cert, "--tls-key", key,
		"--tls-server-name", "ensemble.example", "/lock", "--", zkrtest.Self(t))
	p.Prints(t, "ready")
	session := e.Sessions()[0].ID
	again := func() {
		before := front.Accepted()
		front.Drop()
		for limit := time.Now().Add(zkrtest.Patience); front.Accepted() == before || e.Sessions()[0].Owner < 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatal("it does not connect again")
			}
		}
		if got := e.Sessions()[0].ID; got != session {
			t.Errorf("session %#x, then %#x", session, got)
		}
	}
	second := tlstest.NewAuthority(t)
	tlstest.WritePair(t, second.Issue("app", time.Hour), cert, filepath.Join(dir, "later"))
	again() // the key does not fit the certificate: the pair before it is used
	p.Prints(t, "what was read before is used")
	if err := os.Rename(filepath.Join(dir, "later"), key); err != nil {
		t.Fatal(err)
	}
	second.Write(ca)
	front.Configure(requiring(second, second.Issue("ensemble.example", time.Hour)))
	again()
	if n := strings.Count(p.Text(), "what was read before is used"); n != 1 {
		t.Errorf("it was said %d times: %q", n, p.Text())
	}
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t); code != 3 {
		t.Errorf("exit code %d; it printed %q", code, p.Text())
	}
}

// TestNoContainers: with the flag no directory is a container.
func TestNoContainers(t *testing.T) {
	for _, flag := range []string{"--no-containers", "--no-containers=false"} {
		e := testutil.Start(t)
		p := zkrtest.Start(t, "lock", "--servers", e.Servers(), flag, "/dirs/lock", "--", "true")
		if code := p.Wait(t); code != 0 {
			t.Errorf("%s: exit code %d", flag, code)
		}
		if n := e.Requests()[testutil.OpCreateContainer]; (n > 0) != (flag != "--no-containers") || !e.Exists("/dirs/lock") {
			t.Errorf("%s: %d containers were asked for", flag, n)
		}
	}
}
