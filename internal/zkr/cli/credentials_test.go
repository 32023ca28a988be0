package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestAuthFile(t *testing.T) {
	const good = "# the services' user\n\ndigest:user:pass:word\r\nip:127.0.0.1\n"
	for _, test := range []struct {
		name, text string
		mode       os.FileMode
		want       []credential
		says       string
	}{
		{"the owner's", good, 0o600, []credential{{"digest", "user:pass:word"}, {"ip", "127.0.0.1"}}, ""},
		{"the group may read it", good, 0o640, []credential{{"digest", "user:pass:word"}, {"ip", "127.0.0.1"}}, ""},
		{"all may read it", good, 0o644, nil, "chmod 600"},
		{"the group may change it", good, 0o660, nil, "chmod 600"},
		{"all may run it", good, 0o601, nil, "chmod 600"},
		{"spaces belong to the password", "digest:user: pass word ", 0o600, []credential{{"digest", "user: pass word "}}, ""},
		{"a line without a scheme", "digest:user:x\nsecret", 0o600, nil, "line 2: want scheme:credentials"},
		{"an empty scheme", ":secret", 0o600, nil, "line 1"},
		{"nothing", "# none\n", 0o600, nil, "no credentials"},
		{"too long", strings.Repeat("digest:secret\n", longestAuthFile/10), 0o600, nil, "longer than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && test.says == "chmod 600" {
				t.Skip("Windows has no such bits")
			}
			name := filepath.Join(t.TempDir(), "auth")
			if err := os.WriteFile(name, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(name, test.mode); err != nil { // whatever the umask is
				t.Fatal(err)
			}
			got, err := readAuthFile(name)
			if test.says == "" {
				if err != nil || len(got) != len(test.want) {
					t.Fatalf("%v, %v", got, err)
				}
				for i := range got {
					if got[i] != test.want[i] {
						t.Errorf("%d: %q, want %q", i, got[i], test.want[i])
					}
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "secret") {
				t.Errorf("the error is %v, want %q in it, and no credentials", err, test.says)
			}
		})
	}
	if _, err := readAuthFile(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a missing file is no error")
	}
}

// TestAuthFileOpensZnodes: the credentials of a file are presented, by the flag
// and by its variable, beside those of --auth.
func TestAuthFileOpensZnodes(t *testing.T) {
	e := testutil.Start(t)
	acl := append(zk.DigestACL(zk.PermRead, "reader", "one"), zk.DigestACL(zk.PermWrite, "writer", "two")...)
	if _, err := zkrtest.Dial(t, e).Create(t.Context(), "/closed", nil, 0, acl...); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(file, []byte("digest:nobody:none\ndigest:reader:one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, text := zkrtest.Zkr(e, "inspect", "/closed"); code != ExitFailed || !strings.Contains(text, "not allowed by the ACL") || !strings.Contains(text, "has no identity: give credentials with --auth-file or --sasl") {
		t.Errorf("without credentials: exit code %d; it printed %q", code, text)
	}
	if code, text := zkrtest.Zkr(e, "inspect", "--auth-file", file, "/closed"); code != 0 {
		t.Errorf("with --auth-file: exit code %d: %s", code, text)
	}
	if code, text := zkrtest.Zkr(e, "inspect", "--auth-file", file+".missing", "/closed"); code != ExitUsage || !strings.Contains(text, "--auth-file") {
		t.Errorf("with a missing file: exit code %d: %s", code, text)
	}
	t.Setenv("ZKR_AUTH_FILE", file)
	if code, text := zkrtest.Zkr(e, "inspect", "--auth", "digest:writer:two", "/closed"); code != 0 {
		t.Errorf("with both: exit code %d: %s", code, text)
	}
}
