//go:build linux

package run

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/guarding"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
)

// TestAGuardianOfSecuredServers: the guardian of a zkr that is killed reaches a
// server that demands a certificate and SASL as that zkr did, whose znodes are
// those of a user.
func TestAGuardianOfSecuredServers(t *testing.T) {
	const timeout = 2 * time.Minute
	ens := guarding.StartSecured(t, timeout)
	dir := ens.Certificates("zkr")
	for name, text := range map[string]string{"password": "secret\n", "auth": "digest:u:p\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := func(more ...string) []string {
		file := func(name string) string { return filepath.Join(dir, name) }
		return append([]string{
			"lock", "--servers", ens.Servers, "--session-timeout", timeout.String(), "--connect-timeout", "1m", "--guardian=child",
			"--tls-ca", file("ca.pem"), "--tls-cert", file("own.pem"), "--tls-key", file("own.pem"), "--tls-server-name", "ensemble.example",
			"--sasl", "digest-md5", "--sasl-user", "app", "--sasl-password-file", file("password"),
			"--auth-file", file("auth"), "--acl", "auth::cdrwa", "/lock", "--",
		}, more...)
	}
	p := zkrtest.Start(t, args(zkrtest.Self(t))...)
	p.Prints(t, "ready\n")
	next := zkrtest.Start(t, args("true")...)
	time.Sleep(300 * time.Millisecond) // until it waits
	killed := time.Now()
	_ = p.Cmd.Process.Kill()
	if code := next.WaitFor(t, timeout); code != 0 {
		t.Errorf("the next one: %d, %s", code, next.Text())
	}
	took := time.Since(killed)
	if took > timeout/3 {
		t.Errorf("the next one has ended %v after the death", took)
	}
	t.Logf("the next one has ended %v after the death", took.Round(100*time.Microsecond))
}
