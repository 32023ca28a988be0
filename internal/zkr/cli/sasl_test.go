package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Who is authenticated and may not read a znode was told to be "not
// authenticated". Now zkr says who it is, by each way to authenticate.
func TestForbiddenToSomebody(t *testing.T) {
	e := testutil.Start(t, testutil.WithSASL(map[string]string{"ops": "secret"}))
	if _, err := zkrtest.Dial(t, e).Create(t.Context(), "/closed", nil, 0, zk.DigestACL(zk.PermAll, "owner", "secret")...); err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	sasl := "--sasl digest-md5 --sasl-user ops --sasl-password-file " + password
	for args, want := range map[string]string{
		"":                               "this client has no identity: give credentials with --auth-file or --sasl\n",
		sasl:                             "this client is sasl:ops\n",
		"--auth digest:app:pass":         "this client is digest:app\n",
		sasl + " --auth digest:app:pass": "this client is digest:app, sasl:ops\n",
	} {
		code, text := zkrtest.Zkr(e, "get", append(strings.Fields(args), "/closed")...)
		if want = "zkr: get /closed: not allowed by the ACL; at " + e.Servers() + " " + want; code != ExitFailed || text != want {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, text, want)
		}
	}
}

// zkr authenticates with the password in a file. What it is refused is said at
// once, and wrong flags before anything is dialed.
func TestSASL(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	right, wrong := file("right", "secret\n", 0o600), file("wrong", "other", 0o600)
	e := testutil.Start(t, testutil.WithSASL(map[string]string{"app": "secret"}), testutil.WithEnforcedAuth("sasl"))
	for _, test := range []struct {
		name, args string
		code       int
		want       string
	}{
		{"right", "--sasl digest-md5 --sasl-user app --sasl-password-file " + right, 0, "zookeeper"},
		{"wrong password", "--sasl digest-md5 --sasl-user app --sasl-password-file " + wrong, ExitFailed, "authentication"},
		{"none", "", ExitFailed, "authentication"},
		{"no mechanism", "--sasl-user app", ExitUsage, "need --sasl"},
		{"no mechanism for Kerberos", "--sasl-ccache " + right, ExitUsage, "need --sasl"},
		{"another mechanism", "--sasl plain --sasl-user app", ExitUsage, "want digest-md5 or gssapi"},
		{"of Kerberos", "--sasl digest-md5 --sasl-user app --sasl-keytab " + right, ExitUsage, "are for --sasl gssapi"},
		{"Kerberos in the zkr without it", "--sasl gssapi", ExitUsage, "install github.com/zkrecipes/zkrecipes/sasl/gssapi/cmd/zkr"},
		{"no file", "--sasl digest-md5 --sasl-user app", ExitUsage, "needs --sasl-user and --sasl-password-file"},
		{"a missing file", "--sasl digest-md5 --sasl-user app --sasl-password-file " + filepath.Join(dir, "none"), ExitUsage, "no such file"},
		{"two lines", "--sasl digest-md5 --sasl-user app --sasl-password-file " + file("two", "a\nb\n", 0o600), ExitUsage, "want one line"},
		{"an empty file", "--sasl digest-md5 --sasl-user app --sasl-password-file " + file("empty", "\n", 0o600), ExitUsage, "want one line"},
		{"a public file", "--sasl digest-md5 --sasl-user app --sasl-password-file " + file("public", "secret\n", 0o644), ExitUsage, "chmod 600"},
	} {
		code, text := zkrtest.Zkr(e, "ls", append(strings.Fields(test.args), "/")...)
		if code != test.code || !strings.Contains(text, test.want) {
			t.Errorf("%s: exit code %d, %s", test.name, code, text)
		}
	}
}
