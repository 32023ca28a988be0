package framework

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// A path that is none, and one that is too long, are refused by each call
// before anything is sent, with an error that names the path.
func TestPathsThatAreRefused(t *testing.T) {
	ctx := context.Background()
	on := func(uint64, zk.EventType, string) {}
	for name, call := range map[string]func(s *Session, path string) error{
		"arm":            func(s *Session, path string) error { return failureOf(s.arm(ctx, []string{"/fine", path})) },
		"events":         func(s *Session, path string) error { return failureOf(s.events(path, on)) },
		"create, shared": func(s *Session, path string) error { return s.createEphemeral(path, nil, nil) },
		"delete, shared": func(s *Session, path string) error { return s.startDelete(ctx, path, false)() },
		"leave":          func(s *Session, path string) error { return s.scope().leave(ctx, path, true, false) },
		"create":         func(s *Session, path string) error { return failureOf(s.Create(ctx, path, nil, 0)) },
		"delete":         func(s *Session, path string) error { return s.Delete(ctx, path, -1) },
		"make a path":    func(s *Session, path string) error { return s.scope().makePath(ctx, path, createPersistent) },
		"read all":       func(s *Session, path string) error { return failureOf(s.ReadAll(ctx, Read{Path: path})) },
		"stats": func(s *Session, path string) error {
			return failureOf(s.scope().statAll(ctx, []Read{{Path: "/fine"}, {Path: path}}))
		},
		"reads, watched": func(s *Session, path string) error {
			return failureOf(s.readAllAndWatch(ctx, "/", []Read{{Path: path}}))
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
			_, _, _, err := s.setWatchesAgain(ctx, 0, []Read{{Path: "/fine"}, {Path: path}})
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

// An answer that cannot be decoded is one that makes no sense.
func TestNodesThatCannotBeDecoded(t *testing.T) {
	stat := wire.Stat{Mzxid: 3}
	for kind, body := range map[watchKind][]byte{
		watchData:     (&wire.DataResponse{Data: []byte("a"), Stat: stat}).Append(nil),
		watchChildren: (&wire.ChildrenResponse{HasStat: true, Children: []string{"a"}, Stat: stat}).Append(nil),
	} {
		n, err := nodeIn(kind, body)
		if err != nil || n.stat.Mzxid != 3 || string(n.data)+strings.Join(n.children, "") != "a" {
			t.Errorf("%+v, %v", n, err)
		}
		if n, err = nodeIn(kind, body[:len(body)-1]); !errors.Is(err, errMalformed) || !errors.Is(err, zk.ErrConnectionClosed) || n.stat != nil {
			t.Errorf("cut off: %+v, %v", n, err)
		}
	}
}
