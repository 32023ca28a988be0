package managed

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/writes"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/standing"
)

// A path that is none, and one that is too long, are refused by each call
// before anything is sent, with an error that names the path.
func TestPathsThatAreRefused(t *testing.T) {
	ctx := context.Background()
	on := func(uint64, zk.EventType, string) {}
	for name, call := range map[string]func(s *Session, path string) error{
		"arm":            func(s *Session, path string) error { return failureOf(s.Arm(ctx, "/fine", path)) },
		"events":         func(s *Session, path string) error { return failureOf(s.Events(path, on, nil)) },
		"create, shared": func(s *Session, path string) error { return s.CreateEphemeral(path, nil, nil) },
		"delete, shared": func(s *Session, path string) error { return s.StartDelete(ctx, path, false)() },
		"create":         func(s *Session, path string) error { return failureOf(s.Create(ctx, path, nil, 0)) },
		"delete":         func(s *Session, path string) error { return s.Delete(ctx, path, -1) },
		"make a path":    func(s *Session, path string) error { return s.scope().MakePersistentPath(ctx, path) },
		"read all":       func(s *Session, path string) error { return failureOf(s.ReadAll(ctx, request.Read{Path: path})) },
		"stats": func(s *Session, path string) error {
			return failureOf(s.scope().StatAll(ctx, []request.Read{{Path: "/fine"}, {Path: path}}))
		},
		"reads, watched": func(s *Session, path string) error {
			return failureOf(s.ReadAllAndWatch(ctx, "/", []request.Read{{Path: path}}...))
		},
		"a watch":         func(s *Session, path string) error { return failureOf(s.Watch(ctx, path)) },
		"data of a watch": func(s *Session, path string) error { _, _, _, err := s.GetAndWatch(ctx, path); return err },
		"children":        func(s *Session, path string) error { _, _, err := s.WatchChildren(ctx, path); return err },
		"whether there is one": func(s *Session, path string) error {
			_, _, _, err := s.WatchExists(ctx, path)
			return err
		},
		"a tree": func(s *Session, path string) error { _, _, err := s.WatchTree(ctx, path, on); return err },
		"many reads": func(s *Session, path string) error {
			paths := make([]string, ops.Many)
			for i := range paths {
				paths[i] = path
			}
			_, _, err := s.live.ReadMany(paths)
			return err
		},
		"watches again": func(s *Session, path string) error {
			_, _, _, err := s.SetWatches(ctx, 0, []request.Read{{Path: "/fine"}, {Path: path}}...)
			return err
		},
		"a protected create": func(s *Session, path string) error {
			_, _, err := s.createProtected(ctx, writes.Protected{Dir: path, Name: "x"})
			return err
		},
		"a protected batch": func(s *Session, path string) error {
			_, _, err := s.CreateAllProtected(ctx, writes.Batch{Dir: path, Name: "x", N: 1})
			return err
		},
		"a multi": func(s *Session, path string) error {
			_, err := s.Multi(ctx, &zk.DeleteRequest{Path: "/fine"}, &zk.DeleteRequest{Path: path})
			return err
		},
	} {
		for _, path := range []string{"none", "/a/", "/" + strings.Repeat("x", leastMaxRequest)} {
			live, on := inUse()
			standing.Present(on)
			live.Client.Config.MaxRequest, live.core.session, live.core.state = leastMaxRequest, live, Connected
			isLong := len(path) > 100
			if isLong && (name == "events" || name == "watches again" || name == "delete, shared") {
				continue // its size is not looked at: what made the znode has looked
			}
			err := call(&Session{live: live}, path)
			if errors.Is(err, zkerr.TooLarge) != isLong || err == nil || !isLong && !strings.Contains(err.Error(), path) || errors.Is(err, zk.ErrNoServer) {
				t.Errorf("%s of %.10s: %.200v", name, path, err)
			}
			if on.Unanswered() > 1 /* the credentials */ {
				t.Errorf("%s of %.10s: something is begun", name, path)
			}
		}
	}
}
