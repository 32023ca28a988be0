//go:build unix

package znode

import (
	"strings"
	"syscall"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
)

// TestZnodesOfEachEnsemble: the commands for znodes do the same with zkr server
// and with real servers, also while they print what real servers know.
func TestZnodesOfEachEnsemble(t *testing.T) {
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		prints := func(want string, args ...string) string {
			t.Helper()
			p := zkrtest.Start(t, e.Args(args[0], args[1:]...)...)
			if code := p.Wait(t); code != 0 || want != "" && p.Text() != want {
				t.Errorf("%q: exit code %d; it printed %q, want %q", args, code, p.Text(), want)
			}
			return p.Text()
		}
		prints("/z/a/b\n", "create", "--parents", "/z/a/b", "data")
		prints("/z/c\n", "create", "--container", "/z/c")
		if made := prints("", "create", "--sequential", "/z/s-"); !strings.HasPrefix(made, "/z/s-0000000") {
			t.Errorf("a sequential znode is %q", made)
		}
		owned := zkrtest.Start(t, e.Args("create", "--ephemeral", "--acl", "world:anyone:r", "/z/owned")...)
		owned.Prints(t, "/z/owned\n")
		if tree := prints("", "tree", "/z"); !strings.Contains(tree, "│   └── b  (4 B)\n") || !strings.Contains(tree, "├── c\n") ||
			!strings.Contains(tree, "├── owned  (ephemeral 0x") || !strings.Contains(tree, "\nznodes: 6, ephemeral: 1, data: 4 B\n") {
			t.Errorf("the tree is\n%s", tree)
		}
		if stat := prints("", "stat", "--acl", "/z/owned"); !strings.Contains(stat, "world:anyone:r\n") || !strings.Contains(stat, "session 0x") {
			t.Errorf("stat prints\n%s", stat)
		}
		watch := zkrtest.Start(t, e.Args("watch", "/z/a/b")...)
		watch.Prints(t, "exists, version 0: data\n")
		prints("", "set", "--version", "0", "/z/a/b", "more")
		watch.Prints(t, "changed, version 1: more\n")
		prints("more", "get", "/z/a/b")
		owned.Signal(t, syscall.SIGTERM)
		if code := owned.Wait(t); code != 0 {
			t.Errorf("create --ephemeral ends with %d", code)
		}
		if gone := prints("", "rm", "--recursive", "/z"); strings.Count(gone, "deleted /z") != 5 || !strings.HasSuffix(gone, "deleted /z\n") {
			t.Errorf("rm prints\n%s", gone)
		}
		watch.Prints(t, "deleted\n")
		watch.Signal(t, syscall.SIGTERM)
		if code := watch.Wait(t); code != 0 {
			t.Errorf("watch ends with %d", code)
		}
		if zkrtest.InRing3 { // zkr server has no znodes with a time to live, by default
			prints("/timed\n", "create", "--ttl", "1h", "/timed")
			prints("deleted /timed\n", "rm", "/timed")
			if left := prints("", "ls"); left != "" { // its chroot is empty again
				t.Errorf("ls prints %q", left)
			}
		} else {
			prints("zookeeper\n", "ls")
		}
	})
}
