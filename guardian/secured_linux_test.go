package guardian_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/guardian"
	"github.com/zkrecipes/zkrecipes/internal/test/guarding"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
)

// identity is by what a process reaches servers that know their clients: a
// directory with certificates, and user:password of SASL and of the znodes.
type identity struct{ certificates, sasl, digest string }

// env returns the environment by which a process is told its identity, or that
// of its guardian.
func (id identity) env(whose string) []string {
	return []string{whose + "_TLS=" + id.certificates, whose + "_SASL=" + id.sasl, whose + "_DIGEST=" + id.digest}
}

func identityOf(whose string) identity {
	return identity{os.Getenv(whose + "_TLS"), os.Getenv(whose + "_SASL"), os.Getenv(whose + "_DIGEST")}
}

func (id identity) options() (opts []framework.Option) {
	if id.certificates != "" {
		opts = append(opts, framework.WithTLS(certified(id.certificates)))
	}
	if user, password, ok := strings.Cut(id.sasl, ":"); ok {
		opts = append(opts, framework.WithSASL(digestmd5.New(user, password)))
	}
	if user, password, ok := strings.Cut(id.digest, ":"); ok {
		opts = append(opts, framework.WithAuth("digest", []byte(id.digest)), framework.WithACL(zk.DigestACL(zk.PermAll, user, password)...))
	}
	return opts
}

// certified returns what a directory has: an authority, and perhaps a
// certificate.
func certified(dir string) *tls.Config {
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "ensemble.example"}
	text, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	must(err)
	cfg.RootCAs.AppendCertsFromPEM(text)
	if pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "own.pem"), filepath.Join(dir, "own.pem")); err == nil {
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

// TestFailoverOnSecuredServers: servers demand a certificate and SASL, and the
// znodes are those of a user. A guardian that the servers let in closes the
// session of a dead holder long before it could expire; it needs no rights on
// the znodes. One that they do not let in harms nobody: the session ends by its
// timeout.
func TestFailoverOnSecuredServers(t *testing.T) {
	ens := guarding.StartSecured(t, 2*sessionTimeout)
	own, right := identity{ens.Certificates("holder"), "app:secret", "u:p"}, ens.Certificates("guardian")
	const short = 12 * time.Second
	for _, test := range []struct {
		name        string
		guardian    identity
		daemon, let bool
	}{
		{"a child", identity{right, "guardian:other", ""}, false, true},
		{"a daemon", identity{right, "guardian:other", ""}, true, true},
		{"without TLS", identity{"", "guardian:other", ""}, false, true}, // they allow that
		{"another digest user", identity{right, "app:secret", "u:wrong"}, false, true},
		{"another authority", identity{ens.Strange("guardian"), "guardian:other", ""}, false, false},
		{"no certificate", identity{ens.Certificates(""), "guardian:other", ""}, true, false},
		{"a wrong password", identity{right, "guardian:wrong", ""}, false, false},
		{"no SASL", identity{right, "", ""}, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			servers := ens.Servers + "/" + strings.ReplaceAll(test.name, " ", "-")
			mutex, err := locks.NewMutex(connect(t, servers, append(own.options(), framework.WithCreateChroot())...), "/lock")
			if err != nil {
				t.Fatal(err)
			}
			env := append(own.env("HOLDER"), test.guardian.env("GUARDIAN")...)
			if !test.let {
				env = append(env, "HOLDER_TIMEOUT="+short.String())
			}
			if test.daemon {
				env = append(env, guardian.Variable+"="+guarding.Daemon(t, servers, test.guardian.options()...))
			}
			process, _, _ := startHolder(t, servers, env...)
			ctx, cancel := context.WithTimeout(t.Context(), short/10)
			defer cancel()
			if _, err := mutex.Acquire(ctx); err == nil {
				t.Fatal("the process is harmed: its lock is another's")
			}
			_ = process.Process.Kill()
			died := time.Now()
			if _, err := mutex.Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			took := time.Since(died)
			if test.let && took > sessionTimeout/4 || !test.let && (took < short/4 || took > 3*short) {
				t.Errorf("granted %v after the death", took)
			}
			t.Logf("granted %v after the death", took.Round(100*time.Microsecond))
		})
	}
}
