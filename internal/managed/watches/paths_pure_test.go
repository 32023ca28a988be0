package watches

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/standing"
)

// A path that is none, and one that is too long, are refused by each call
// before anything is armed, with an error that names the path.
func TestPathsOfWatchesThatAreRefused(t *testing.T) {
	ctx := context.Background()
	on := func(uint64, zk.EventType, string) {}
	const most = 16 << 10
	for name, call := range map[string]func(s *Watches, w ops.Scope, path string) error{
		"arm": func(s *Watches, w ops.Scope, path string) error {
			return failure(s.Arm(ctx, w, "/fine", path))
		},
		"events": func(s *Watches, w ops.Scope, path string) error { return failure(s.Events(w, path, on, nil)) },
		"reads, watched": func(s *Watches, w ops.Scope, path string) error {
			return failure(s.ReadAllAndWatch(ctx, w, "/", request.Read{Path: path}))
		},
		"a watch": func(s *Watches, w ops.Scope, path string) error {
			return failure(Scope{Scope: w, Of: s}.Watch(ctx, Data, path, false))
		},
		"children": func(s *Watches, w ops.Scope, path string) error {
			return failure(Scope{Scope: w, Of: s}.Watch(ctx, Children, path, false))
		},
		"whether there is one": func(s *Watches, w ops.Scope, path string) error {
			_, _, err := Scope{Scope: w, Of: s}.ReadAndWatch(ctx, Data, path, false)
			return err
		},
		"to resume": func(s *Watches, w ops.Scope, path string) error {
			_, _, _, _, err := s.WatchAndResume(w, path)
			return err
		},
		"a tree": func(s *Watches, w ops.Scope, path string) error {
			_, _, err := s.WatchTree(ctx, w, path, on)
			return err
		},
		"watches again": func(s *Watches, w ops.Scope, path string) error {
			_, _, _, err := s.SetWatches(ctx, w, 0, []request.Read{{Path: "/fine"}, {Path: path}}...)
			return err
		},
	} {
		for _, path := range []string{"none", "/a/", "/" + strings.Repeat("x", most)} {
			s, on := watchesInUse("")
			standing.Present(on)
			s.Client.Config.MaxRequest = most
			isLong := len(path) > 100
			if isLong && (name == "events" || name == "watches again") {
				continue // its size is not looked at: what has read the znode has looked
			}
			err := call(s, scopeIn(s), path)
			if errors.Is(err, zkerr.TooLarge) != isLong || err == nil || !isLong && !strings.Contains(err.Error(), path) || errors.Is(err, zk.ErrNoServer) {
				t.Errorf("%s of %.10s: %.200v", name, path, err)
			}
			if on.Unanswered() > 1 /* the credentials */ || len(s.hub.armed)+len(s.trees.told) > 0 {
				t.Errorf("%s of %.10s: something is begun", name, path)
			}
		}
	}
}
