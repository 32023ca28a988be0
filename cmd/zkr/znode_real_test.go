//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
)

// TestZnodesOfEachEnsemble: the commands for znodes do the same with zkr server
// and with real servers, also while they print what real servers know.
func TestZnodesOfEachEnsemble(t *testing.T) {
	onEach(t, func(t *testing.T, e target) {
		prints := func(want string, args ...string) string {
			t.Helper()
			p := start(t, e.args(args[0], args[1:]...)...)
			if code := p.wait(t); code != 0 || want != "" && p.text() != want {
				t.Errorf("%q: exit code %d; it printed %q, want %q", args, code, p.text(), want)
			}
			return p.text()
		}
		prints("/z/a/b\n", "create", "--parents", "/z/a/b", "data")
		prints("/z/c\n", "create", "--container", "/z/c")
		if made := prints("", "create", "--sequential", "/z/s-"); !strings.HasPrefix(made, "/z/s-0000000") {
			t.Errorf("a sequential znode is %q", made)
		}
		owned := start(t, e.args("create", "--ephemeral", "--acl", "world:anyone:r", "/z/owned")...)
		owned.prints(t, "/z/owned\n")
		if tree := prints("", "tree", "/z"); !strings.Contains(tree, "│   └── b  (4 B)\n") || !strings.Contains(tree, "├── c\n") ||
			!strings.Contains(tree, "├── owned  (ephemeral 0x") || !strings.Contains(tree, "\nznodes: 6, ephemeral: 1, data: 4 B\n") {
			t.Errorf("the tree is\n%s", tree)
		}
		if stat := prints("", "stat", "--acl", "/z/owned"); !strings.Contains(stat, "world:anyone:r\n") || !strings.Contains(stat, "session 0x") {
			t.Errorf("stat prints\n%s", stat)
		}
		watch := start(t, e.args("watch", "/z/a/b")...)
		watch.prints(t, "exists, version 0: data\n")
		prints("", "set", "--version", "0", "/z/a/b", "more")
		watch.prints(t, "changed, version 1: more\n")
		prints("more", "get", "/z/a/b")
		owned.signal(t, syscall.SIGTERM)
		if code := owned.wait(t); code != 0 {
			t.Errorf("create --ephemeral ends with %d", code)
		}
		if gone := prints("", "rm", "--recursive", "/z"); strings.Count(gone, "deleted /z") != 5 || !strings.HasSuffix(gone, "deleted /z\n") {
			t.Errorf("rm prints\n%s", gone)
		}
		watch.prints(t, "deleted\n")
		watch.signal(t, syscall.SIGTERM)
		if code := watch.wait(t); code != 0 {
			t.Errorf("watch ends with %d", code)
		}
		if inRing3 { // zkr server has no znodes with a time to live, by default
			prints("/timed\n", "create", "--ttl", "1h", "/timed")
			prints("deleted /timed\n", "rm", "/timed")
		}
		prints("zookeeper\n", "ls")
	})
}
