package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/sasl/gssapi/internal/kdctest"
)

// zkr on a real member that requires Kerberos, with each source of credentials.
// What is refused ends it at once, and what cannot work before it dials.
func TestKerberos(t *testing.T) {
	k := kdctest.New(t)
	t.Setenv("KRB5_CONFIG", k.Path("krb5.conf"))
	t.Setenv("KRB5CCNAME", k.Path("none"))
	t.Setenv("ZKR_SASL", "gssapi")
	t.Setenv("ZKR_CONNECT_TIMEOUT", "1m") // nothing here may wait for its end
	k.Kinit()
	k.ExpiredCCache("expired")
	k.Admin("addprinc -pw secret moved", "ktadd -norandkey -k "+k.Path("old.keytab")+" moved", "cpw -pw other moved")
	public := k.Write("public.keytab", "")
	if err := os.Chmod(public, 0o644); err != nil {
		t.Fatal(err)
	}
	const app = "app@" + kdctest.Realm
	ens := k.Ensemble()
	keytab := "--sasl-user " + app + " --sasl-keytab " + k.Path("app.keytab")
	const server = " --sasl-server-principal zookeeper/localhost"
	zkr := func(flags string, args ...string) (int, string) {
		code, out, errs := zkrtest.Apart(ens.Servers(), append(append(args[:1:1], strings.Fields(flags)...), args[1:]...)...)
		return code, out + errs
	}
	if code, text := zkr(keytab+server, "create", "--acl", "sasl:"+app+":cdrwa", "/own", "for the app alone"); code != 0 {
		t.Fatalf("exit code %d: %s", code, text)
	}
	for name, flags := range map[string]string{
		"keytab":        keytab,
		"ccache":        "--sasl-ccache FILE:" + k.Path("ccache"),
		"password file": "--sasl-user " + app + " --sasl-password-file " + k.Write("password", "secret\n"),
	} {
		if code, text := zkr(flags+server, "lock", "/lock", "--", "sh", "-c", "exit 7"); code != 7 {
			t.Errorf("%s: lock: exit code %d: %s", name, code, text)
		}
		if code, text := zkr(flags+server, "get", "/own"); code != 0 || text != "for the app alone" {
			t.Errorf("%s: get: exit code %d: %s", name, code, text)
		}
	}
	for name, test := range map[string]struct {
		flags string
		code  int
		want  string
	}{
		"an old key":                {"--sasl-user moved@" + kdctest.Realm + " --sasl-keytab " + k.Path("old.keytab") + server, cli.ExitFailed, "authentication"},
		"an unknown server":         {keytab + " --sasl-server-principal zookeeper/nowhere", cli.ExitFailed, "zookeeper/nowhere"},
		"another realm":             {keytab + " --sasl-server-principal zookeeper/a@ELSEWHERE", cli.ExitFailed, "ELSEWHERE"},
		"an expired ccache":         {"--sasl-ccache " + k.Path("expired") + server, cli.ExitFailed, "run kinit"},
		"nothing, and no ccache":    {server, cli.ExitFailed, "run kinit"},
		"a principal without realm": {"--sasl-user app --sasl-keytab " + k.Path("app.keytab"), cli.ExitUsage, "no realm"},
		"a keytab without the key":  {"--sasl-user moved@" + kdctest.Realm + " --sasl-keytab " + k.Path("app.keytab"), cli.ExitUsage, "has no key of moved@"},
		"a public keytab":           {"--sasl-user " + app + " --sasl-keytab " + public, cli.ExitUsage, "chmod 600"},
		"a cache that is no file":   {"--sasl-ccache KEYRING:persistent:0", cli.ExitUsage, "only FILE"},
	} {
		began := time.Now()
		code, text := zkr(test.flags, "lock", "/lock", "--", "true")
		if took := time.Since(began); code != test.code || !strings.Contains(text, test.want) || took > 30*time.Second {
			t.Errorf("%s: exit code %d after %v: %s", name, code, took, text)
		}
	}
	k.Stop()
	if code, text := zkr(keytab+server, "get", "--connect-timeout", "5s", "/own"); code != cli.ExitNoEnsemble || !strings.Contains(text, "for zookeeper/localhost:") || !strings.Contains(text, "and a KDC") {
		t.Errorf("without a KDC: exit code %d: %s", code, text)
	}
}
