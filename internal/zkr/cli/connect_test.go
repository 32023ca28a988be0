//go:build unix

package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

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
	if p := lock(); p.Wait(t) != ExitFailed || !strings.Contains(p.Text(), "not authenticated") {
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

// TestTLS: the client shows its certificate and checks the servers'.
func TestTLS(t *testing.T) {
	zkrtest.Parallel(t)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	zkrtest.SelfSigned(t, cert, key, "ensemble.example")
	e := testutil.Start(t)
	front := zkrtest.TerminateTLS(t, cert, key, e)
	for _, test := range []struct {
		name  string
		flags []string
		want  int
		says  string
	}{
		{"all as it should be", []string{"--tls-ca", cert, "--tls-cert", cert, "--tls-key", key, "--tls-server-name", "ensemble.example"}, 0, ""},
		{"another name", []string{"--tls-ca", cert, "--tls-cert", cert, "--tls-key", key}, ExitNoEnsemble, "certificate"},
		{"not trusted", []string{"--tls", "--tls-cert", cert, "--tls-key", key, "--tls-server-name", "ensemble.example"}, ExitNoEnsemble, "certificate"},
		{"without a certificate of our own", []string{"--tls-ca", cert, "--tls-server-name", "ensemble.example"}, ExitNoEnsemble, ""},
		{"without TLS", nil, ExitNoEnsemble, ""},
		{"no such file", []string{"--tls-ca", cert + ".missing"}, ExitUsage, "--tls-ca"},
		{"a file without certificates", []string{"--tls-ca", key}, ExitUsage, "no certificate"},
		{"a key that is none", []string{"--tls-cert", cert, "--tls-key", cert}, ExitUsage, "--tls-key"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			patient := "500ms"
			switch {
			case test.want == 0:
				patient = "20s"
			case test.says != "": // the error must be reported within the time limit, on a slow machine too
				patient = "5s"
			}
			args := append([]string{"lock", "--servers", front, "--connect-timeout", patient}, test.flags...)
			p := zkrtest.Start(t, append(args, "/tls", "--", "true")...)
			if code := p.Wait(t); code != test.want || !strings.Contains(p.Text(), test.says) {
				t.Errorf("exit code %d, want %d; it printed %q, want %q in it", code, test.want, p.Text(), test.says)
			}
		})
	}
}
