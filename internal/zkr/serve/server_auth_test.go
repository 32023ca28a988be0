//go:build unix

package serve

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/tlstest"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// TestServerAuthenticates: zkr server knows its users, requires them, and takes
// certificates for who they say.
func TestServerAuthenticates(t *testing.T) {
	zkrtest.Parallel(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	file := func(name, text string) string {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	authority := tlstest.NewAuthority(t)
	authority.Write(at("ca"))
	tlstest.WritePair(t, authority.Issue("ensemble.example", time.Hour), at("cert"), at("key"))
	tlstest.WritePair(t, authority.Issue("app", time.Hour), at("app.cert"), at("app.key"))
	users := file("users", "app:secret\nother:pass:word\r\n")
	over := fmt.Sprintf("--tls-ca %s --tls-server-name ensemble.example", at("ca"))
	members := fmt.Sprintf("--tls-cert %s --tls-key %s", at("cert"), at("key"))
	sasl := "--sasl digest-md5 --sasl-user %s --sasl-password-file " + file("password", "secret")
	for _, test := range []struct {
		flags, client string
		code          int
		says          string
	}{
		{"--sasl-users " + users + " --enforce-auth sasl", fmt.Sprintf(sasl, "app"), 0, "sasl:app:cdrwa"},
		{"--sasl-users " + users + " --enforce-auth sasl", fmt.Sprintf(sasl, "other"), cli.ExitFailed, "authentication"},
		{"--sasl-users " + users + " --enforce-auth sasl", "", cli.ExitFailed, "authentication"},
		{"--sasl-users " + users + " --enforce-auth sasl " + members, over + " " + fmt.Sprintf(sasl, "app"), 0, "sasl:app:cdrwa"},
		{"--enforce-auth x509 --tls-ca " + at("ca") + " " + members, fmt.Sprintf("%s --tls-cert %s --tls-key %s", over, at("app.cert"), at("app.key")), 0, "x509:CN=app,O=shop:cdrwa"},
		{"--enforce-auth x509 --tls-ca " + at("ca") + " " + members, over, cli.ExitFailed, "authentication"},
	} {
		p := zkrtest.Start(t, append([]string{"server", "--listen", "127.0.0.1:0"}, strings.Fields(test.flags)...)...)
		p.Prints(t, "(in memory, for development)\n")
		servers := zkrtest.Serving.FindStringSubmatch(p.Text())[1]
		client := strings.Fields(test.client)
		code, out, errs := zkrtest.Apart(servers, append([]string{"create", "--acl", "auth::cdrwa", "/mine"}, client...)...)
		if code == 0 {
			code, out, errs = zkrtest.Apart(servers, append([]string{"stat", "--acl", "/mine"}, client...)...)
		}
		if code != test.code || !strings.Contains(out+errs, test.says) {
			t.Errorf("server %s, client %s: exit code %d, %s%s", test.flags, test.client, code, out, errs)
		}
		p.Signal(t, syscall.SIGTERM)
		if code := p.Wait(t); code != 0 {
			t.Errorf("server %s: exit code %d: %s", test.flags, code, p.Text())
		}
	}
	public := file("public", "app:secret\n")
	if err := os.Chmod(public, 0o644); err != nil {
		t.Fatal(err)
	}
	for flags, says := range map[string]string{
		"--sasl-users " + at("none"):                         "no such file",
		"--sasl-users " + public:                             "chmod 600",
		"--sasl-users " + file("a", "app:secret\napp:other"): "a:2: want user:password",
		"--sasl-users " + file("b", "secret\n"):              "b:1: want user:password",
		"--sasl-users " + file("c", ""):                      "c:1: want user:password",
		"--enforce-auth kerberos":                            "want digest, sasl or x509",
		"--enforce-auth sasl":                                "--sasl-users",
		"--enforce-auth x509":                                "--tls-ca",
		"--tls-cert " + at("cert"):                           "together",
		"--tls-ca " + at("ca"):                               "together",
		"--tls-cert " + at("cert") + " --tls-key " + users:   "--tls-key",
		members + " --tls-ca " + users:                       "no certificate",
	} {
		var out bytes.Buffer
		if code := zkrtest.Run(append([]string{"server", "--listen", "127.0.0.1:0"}, strings.Fields(flags)...), &out, &out); code != cli.ExitUsage || !strings.Contains(out.String(), says) || strings.Contains(out.String(), "secret") {
			t.Errorf("server %s: exit code %d: %s", flags, code, out.String())
		}
	}
}
