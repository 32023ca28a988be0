package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// apart runs a subcommand and returns what it prints to stdout and to stderr.
func apart(servers string, args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = run(append([]string{args[0], "--servers", servers}, args[1:]...), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// TestMissingPath: a mistyped path must not look like unused locks. That it does
// not exist is no error, because the ensemble deletes unused directories.
func TestMissingPath(t *testing.T) {
	e := testutil.Start(t)
	const missing = "/nope: does not exist (the ensemble deletes the directories of unused locks)\n"
	const object = `{"path":"/nope","exists":false,"holders":[],"waiting":[]}` + "\n"
	for _, test := range []struct{ args, out, errs string }{
		{"inspect /nope", missing, ""},
		{"inspect --tree /nope", missing, ""},
		{"inspect --tree --json /nope", object, ""},
		{"top --once /nope", missing, ""},
		{"top --once --json /nope", "", "zkr: " + missing},
	} {
		args := strings.Fields(test.args)
		if code, out, errs := apart(e.Servers(), args...); code != 0 || out != test.out || errs != test.errs {
			t.Errorf("%s: exit code %d; it printed %q and %q", test.args, code, out, errs)
		}
		code, out, errs := apart(e.Servers()+"/app", args...)
		if code != exitFailed || out != "" || !strings.Contains(errs, "chroot /app does not exist") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s below a chroot that does not exist: exit code %d; it printed %q and %q", test.args, code, out, errs)
		}
	}
	code, out, errs := apart(e.Servers()+"/app", "observe", "/nope")
	if code != exitFailed || out != "" || !strings.Contains(errs, "chroot /app does not exist") {
		t.Errorf("observe: exit code %d; it printed %q and %q", code, out, errs)
	}
}

// TestForbidden: znodes that may not be read must not look like unused locks.
func TestForbidden(t *testing.T) {
	e := testutil.Start(t)
	c := dial(t, e)
	for _, at := range []string{"/app", "/app/a", "/app/b"} {
		acl := zk.WorldACL(zk.PermAll)
		if at != "/app" {
			acl = zk.DigestACL(zk.PermAll, "user", "password")
		}
		if _, err := c.Create(t.Context(), at, nil, 0, acl...); err != nil {
			t.Fatal(err)
		}
	}
	const forbidden = "zkr: not allowed to read /app/a, /app/b: give credentials with --auth-file\n"
	for _, args := range []string{"inspect --tree /app", "inspect --tree --json /app", "top --once /app", "top --once --json /app"} {
		if code, out, errs := apart(e.Servers(), strings.Fields(args)...); code != exitFailed || out != "" || errs != forbidden {
			t.Errorf("%s: exit code %d; it printed %q and %q", args, code, out, errs)
		}
	}
	code, out, errs := apart(e.Servers(), "rm", "--recursive", "--dry-run", "/app")
	if code != exitFailed || !strings.Contains(out, "would delete /app\n") || !strings.Contains(errs, "/app/b: not authenticated") {
		t.Errorf("rm: exit code %d; it printed %q and %q", code, out, errs)
	}
}
