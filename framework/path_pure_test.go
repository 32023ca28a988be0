package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// A chroot behind each server of the list is refused, with the right form in
// the error.
func TestParseServers(t *testing.T) {
	for _, tt := range []struct {
		in     string
		addrs  string
		chroot string
		errHas string
	}{
		{in: "a", addrs: "a:2181"},
		{in: "a:2182", addrs: "a:2182"},
		{in: "a:1,b,c:3", addrs: "a:1 b:2181 c:3"},
		{in: " a:1 , b:2 ", addrs: "a:1 b:2"},
		{in: "a/app", addrs: "a:2181", chroot: "/app"},
		{in: "a:1,b:2/app/x", addrs: "a:1 b:2", chroot: "/app/x"},
		{in: "a/", addrs: "a:2181"},
		{in: "[::1]", addrs: "[::1]:2181"},
		{in: "[::1]:99", addrs: "[::1]:99"},
		{in: "", errHas: "no server"},
		{in: ",,", errHas: "no server"},
		{in: "/app", errHas: "no server"},
		{in: "::1", errHas: "::1"},
		{in: "a:", errHas: "port"},
		{in: ":2181", errHas: "no host"},
		{in: "a:1,b:65535", addrs: "a:1 b:65535"},
		{in: "a:0", errHas: "port"},
		{in: "a:65536", errHas: "port"},
		{in: "a:http", errHas: "port"},
		{in: "a:+80", addrs: "a:80"},
		{in: "[fe80::1%eth0]:7", addrs: "[fe80::1%eth0]:7"},
		{in: "0]0", errHas: "host name"}, // it became an address that cannot be dialed
		{in: "[::1%0]0", errHas: "port"}, // so did this
		{in: "[::1%[]", errHas: "host name"},
		{in: "[a", errHas: "host name"},
		{in: "[]", errHas: "no host"},
		{in: "http://a", errHas: "port"},
		{in: "user@a", errHas: "host name"},
		{in: "a b", errHas: "host name"},
		{in: "\xff", errHas: "host name"},
		{in: "[a:b]:1", errHas: "a:b"},
		{in: "a/app/", errHas: "slash"},
		{in: "a/app//x", errHas: "empty name"},
		{in: "a/../x", errHas: "relative"},
		{in: "h1:2181/a,h2:2181/a", errHas: `behind the last server, as in "h1:2181,h2:2181/a"`}, // it was one server, with the chroot /a,h2:2181/a
		{in: "h1/a/b, h2/a/b", errHas: `as in "h1,h2/a/b"`},
		{in: "h1/a,h2", errHas: `as in "h1,h2/a"`},
		{in: "h1,h2/a,", errHas: `as in "h1,h2/a"`},
	} {
		addrs, chroot, err := parseServers(tt.in)
		if tt.errHas != "" {
			if err == nil || !strings.Contains(err.Error(), tt.errHas) || !strings.Contains(err.Error(), fmt.Sprintf("%q", tt.in)) {
				t.Errorf("parseServers(%q): error %v, want one that names it and has %q", tt.in, err, tt.errHas)
			}
			continue
		}
		if got := strings.Join(addrs, " "); err != nil || got != tt.addrs || chroot != tt.chroot {
			t.Errorf("parseServers(%q) = %q, %q, %v; want %q, %q", tt.in, got, chroot, err, tt.addrs, tt.chroot)
		}
	}
}

// FuzzParseServers checks that an accepted list can be written down again and
// means the same.
func FuzzParseServers(f *testing.F) {
	for _, servers := range []string{"a", "a:1,b,c:3/app", " a:1 , b:2 /x", "[::1]:2181,[fe80::1%eth0]/a/b", "[::0%0]0", "a:00080", ",a,", "a//", "a/\x00", "\xff", "a/x,b/x"} {
		f.Add(servers)
	}
	f.Fuzz(func(t *testing.T, servers string) {
		addrs, chroot, err := parseServers(servers)
		if err != nil {
			if len(addrs) > 0 || chroot != "" {
				t.Errorf("%q: %v, with %q and %q", servers, err, addrs, chroot)
			}
			return
		}
		if chroot != "" && (chroot == "/" || strings.Contains(chroot, ",") || ValidatePath(chroot) != nil) {
			t.Errorf("%q has the chroot %q", servers, chroot)
		}
		again, chrootAgain, err := parseServers(strings.Join(addrs, ",") + chroot)
		if err != nil || !slices.Equal(addrs, again) || chroot != chrootAgain {
			t.Errorf("%q is %q and %q, and that is %q and %q, %v", servers, addrs, chroot, again, chrootAgain, err)
		}
	})
}

// A path that is none, and one that is too long, are refused by each call
// before anything is sent, with an error that names the path.
func TestPathsThatAreRefused(t *testing.T) {
	ctx := context.Background()
	on := func(uint64, zk.EventType, string) {}
	for name, call := range map[string]func(s *Session, path string) error{
		"arm":            func(s *Session, path string) error { return failureOf(s.arm(ctx, []string{"/fine", path})) },
		"events":         func(s *Session, path string) error { return failureOf(s.events(path, on, nil)) },
		"create, shared": func(s *Session, path string) error { return s.createEphemeral(path, nil, nil) },
		"delete, shared": func(s *Session, path string) error { return s.startDelete(ctx, path, false)() },
		"leave":          func(s *Session, path string) error { return s.scope().leave(ctx, path, true, false) },
		"create":         func(s *Session, path string) error { return failureOf(s.Create(ctx, path, nil, 0)) },
		"delete":         func(s *Session, path string) error { return s.Delete(ctx, path, -1) },
		"make a path":    func(s *Session, path string) error { return s.scope().makePath(ctx, path, createPersistent) },
		"read all":       func(s *Session, path string) error { return failureOf(s.ReadAll(ctx, Read{Path: path})) },
		"stats": func(s *Session, path string) error {
			return failureOf(s.scope().statAll(ctx, []request.Read{{Path: "/fine"}, {Path: path}}))
		},
		"reads, watched": func(s *Session, path string) error {
			return failureOf(s.readAllAndWatch(ctx, "/", []request.Read{{Path: path}}))
		},
		"a watch":         func(s *Session, path string) error { return failureOf(s.Watch(ctx, path)) },
		"data of a watch": func(s *Session, path string) error { _, _, _, err := s.GetAndWatch(ctx, path); return err },
		"children":        func(s *Session, path string) error { _, _, err := s.WatchChildren(ctx, path); return err },
		"whether there is one": func(s *Session, path string) error {
			_, _, _, err := s.WatchExists(ctx, path)
			return err
		},
		"a tree": func(s *Session, path string) error { _, _, err := s.watchTree(ctx, path, on); return err },
		"many reads": func(s *Session, path string) error {
			paths := make([]string, many)
			for i := range paths {
				paths[i] = path
			}
			_, _, err := s.live.readMany(paths)
			return err
		},
		"watches again": func(s *Session, path string) error {
			_, _, _, err := s.setWatchesAgain(ctx, 0, []request.Read{{Path: "/fine"}, {Path: path}})
			return err
		},
		"a protected create": func(s *Session, path string) error {
			_, _, err := s.createProtected(ctx, path, "x", nil, 0, nil, nil, "")
			return err
		},
		"a protected batch": func(s *Session, path string) error {
			_, _, err := s.CreateAllProtected(ctx, ProtectedBatch{Dir: path, Name: "x", N: 1})
			return err
		},
		"a multi": func(s *Session, path string) error {
			_, err := s.Multi(ctx, &zk.DeleteRequest{Path: "/fine"}, &zk.DeleteRequest{Path: path})
			return err
		},
	} {
		for _, path := range []string{"none", "/a/", "/" + strings.Repeat("x", leastMaxRequest)} {
			live, _ := standing()
			live.core.cfg.maxRequest, live.core.session, live.core.state = leastMaxRequest, live, Connected
			isLong := len(path) > 100
			if isLong && (name == "events" || name == "watches again" || name == "delete, shared" || name == "leave") {
				continue // its size is not looked at: what made the znode has looked
			}
			err := call(&Session{live: live}, path)
			if errors.Is(err, ErrTooLarge) != isLong || err == nil || !isLong && !strings.Contains(err.Error(), path) || errors.Is(err, zk.ErrNoServer) {
				t.Errorf("%s of %.10s: %.200v", name, path, err)
			}
			if live.ownRequests.Load() > 0 || len(live.writes.queue)+len(live.plain.queue)+len(live.hub.armed)+len(live.trees.told) > 0 {
				t.Errorf("%s of %.10s: something is begun", name, path)
			}
		}
	}
}
