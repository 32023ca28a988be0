package cli

import (
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestMissingPath: a mistyped path must not look like unused locks. That it
// does not exist is no error, because the ensemble deletes unused directories.
func TestMissingPath(t *testing.T) {
	e := testutil.Start(t)
	const missing = "/nope: does not exist (the ensemble deletes the directories of unused locks)\n"
	const object = `{"path":"/nope","exists":false,"holders":[],"waiting":[]}` + "\n"
	for _, test := range []struct{ args, out, errs string }{
		{"inspect /nope", missing, ""},
		{"inspect --tree /nope", missing, ""},
		{"inspect --tree --json /nope", object, ""},
		{"top --once /nope", missing, ""},
		{"top --once --json /nope", `{"path":"/nope","exists":false,"lines":0}` + "\n", "zkr: " + missing},
	} {
		args := strings.Fields(test.args)
		if code, out, errs := zkrtest.Apart(e.Servers(), args...); code != 0 || out != test.out || errs != test.errs {
			t.Errorf("%s: exit code %d; it printed %q and %q", test.args, code, out, errs)
		}
		code, out, errs := zkrtest.Apart(e.Servers()+"/app", args...)
		if code != ExitFailed || out != "" || !strings.Contains(errs, "chroot /app does not exist") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s below a chroot that does not exist: exit code %d; it printed %q and %q", test.args, code, out, errs)
		}
	}
	code, out, errs := zkrtest.Apart(e.Servers()+"/app", "observe", "/nope")
	if code != ExitFailed || out != "" || !strings.Contains(errs, "chroot /app does not exist") {
		t.Errorf("observe: exit code %d; it printed %q and %q", code, out, errs)
	}
}

// TestForbidden: znodes that may not be read must not look like unused locks.
func TestForbidden(t *testing.T) {
	e := testutil.Start(t)
	c := zkrtest.Dial(t, e)
	for _, at := range []string{"/app", "/app/a", "/app/b"} {
		acl := zk.WorldACL(zk.PermAll)
		if at != "/app" {
			acl = zk.DigestACL(zk.PermAll, "user", "password")
		}
		if _, err := c.Create(t.Context(), at, nil, 0, acl...); err != nil {
			t.Fatal(err)
		}
	}
	const forbidden = "zkr: read /app/a, /app/b: not allowed by the ACL; at "
	for _, test := range []struct{ args, out string }{
		{"inspect --tree /app", ""},
		{"inspect --tree --json /app", ""},
		{"top --once --interval 10ms /app", "0 lines below /app, 0 waiting, 2 znodes may not be read\n"},
		{"top --once --interval 10ms --json /app", `{"path":"/app","exists":true,"lines":0,"unreadable":2}` + "\n"},
	} {
		code, out, errs := zkrtest.Apart(e.Servers(), strings.Fields(test.args)...)
		if first, _, _ := strings.Cut(out, "LOCK"); code != ExitFailed || first != test.out || !strings.HasPrefix(errs, forbidden) {
			t.Errorf("%s: exit code %d; it printed %q and %q", test.args, code, out, errs)
		}
	}
	code, out, errs := zkrtest.Apart(e.Servers(), "rm", "--recursive", "--dry-run", "/app")
	if code != ExitFailed || !strings.Contains(out, "would delete /app\n") || !strings.Contains(errs, "/app/b: not allowed by the ACL") {
		t.Errorf("rm: exit code %d; it printed %q and %q", code, out, errs)
	}
}
