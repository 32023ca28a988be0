package writes

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/ops"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/standing"
)

// A path that is none, and one that is too long, are refused by each write
// before anything is queued, with an error that names the path.
func TestPathsOfWritesThatAreRefused(t *testing.T) {
	ctx := context.Background()
	const most = 16 << 10
	for name, call := range map[string]func(s *Writes, w ops.Scope, path string) error{
		"create, shared": func(s *Writes, w ops.Scope, path string) error { return s.CreateEphemeral(w, path, nil, nil) },
		"delete, shared": func(s *Writes, w ops.Scope, path string) error { return s.StartDelete(ctx, w, path, false)() },
		"leave":          func(s *Writes, w ops.Scope, path string) error { return s.leave(ctx, w, path, true, false) },
		"a protected create": func(s *Writes, w ops.Scope, path string) error {
			_, _, err := s.CreateProtected(ctx, w, Protected{Dir: path, Name: "x"})
			return err
		},
		"a protected batch": func(s *Writes, w ops.Scope, path string) error {
			_, _, err := s.CreateAllProtected(ctx, w, Batch{Dir: path, Name: "x", N: 1}, false)
			return err
		},
	} {
		for _, path := range []string{"none", "/a/", "/" + strings.Repeat("x", most)} {
			s, on := writesInUse("")
			standing.Present(on)
			s.Client.Config.MaxRequest = most
			isLong := len(path) > 100
			if isLong && (name == "delete, shared" || name == "leave") {
				continue // its size is not looked at: what made the znode has looked
			}
			err := call(s, ops.Scope{Client: s.Client, In: s.Session}, path)
			if errors.Is(err, zkerr.TooLarge) != isLong || err == nil || !isLong && !strings.Contains(err.Error(), path) || errors.Is(err, zk.ErrNoServer) {
				t.Errorf("%s of %.10s: %.200v", name, path, err)
			}
			if on.Unanswered() > 1 /* the credentials */ || len(s.queue.queue)+len(s.plain.queue) > 0 {
				t.Errorf("%s of %.10s: something is begun", name, path)
			}
		}
	}
}
