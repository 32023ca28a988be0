package watches

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/link"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	life "github.com/zkrecipes/zkrecipes/internal/managed/session"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/test/standing"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// What waits ends with its context, with the connection and with the session,
// whichever it is, and says so.
func TestWhatEndsTheWaitForAWatch(t *testing.T) {
	const path = "/a"
	missed := zk.ErrNoServer // nothing was sent
	body := &wire.PathRequest{Path: path}
	for name, tt := range map[string]struct {
		wait    func(ctx context.Context, s *Watches, on *link.Link) error
		ends    standing.Ends
		version string // of the server; empty: it does not say it
	}{
		"a look": {func(ctx context.Context, s *Watches, _ *link.Link) error {
			w, _ := s.hub.join(watchKey{Data, path})
			w.lookout.next = &look{ended: make(chan struct{})}
			return w.check(ctx)
		}, standing.Ends{ByContext: context.Canceled, BySession: zkerr.SessionLost}, ""},
		"what arms a watch": {func(ctx context.Context, s *Watches, _ *link.Link) error {
			w, _ := s.hub.join(watchKey{Data, path})
			return w.await(ctx)
		}, standing.Ends{ByContext: context.Canceled, BySession: zkerr.SessionLost}, ""},
		"another's tree": {func(ctx context.Context, s *Watches, on *link.Link) error {
			s.trees.at = map[string]*tree{path: {path: path, on: on, moved: make(chan struct{})}}
			return failure(s.joinTree(ctx, &follower{path: path, on: func(uint64, zk.EventType, string) {}}))
		}, standing.Ends{ByContext: context.Canceled, ByLink: zk.ErrConnectionClosed, BySession: zkerr.SessionLost}, "3.6.0"},
		"watches beside a tree": {func(_ context.Context, s *Watches, on *link.Link) error {
			s.trees.beginOneLocked(path)
			return failure(s.askAbout(&tree{path: path, on: on}, wire.OpAddWatch, body))
		}, standing.Ends{ByLink: missed, BySession: zkerr.SessionLost}, ""},
		"a tree that moves": {func(_ context.Context, s *Watches, on *link.Link) error {
			s.trees.at = map[string]*tree{path: {path: path, on: on, moved: make(chan struct{})}}
			s.beginOne(path)
			return s.Err()
		}, standing.Ends{BySession: zkerr.SessionLost}, ""},
		"a removal": {func(_ context.Context, s *Watches, on *link.Link) error {
			s.trees.beginRemoval(path)
			s.beginOne(path)
			return s.Err()
		}, standing.Ends{BySession: zkerr.SessionLost}, ""},
		"reads that go on": {func(ctx context.Context, s *Watches, on *link.Link) error {
			standing.Present(on)
			standing.CloseOn(on) // each fails
			return failure(s.ReadAllAndWatch(ctx, scopeIn(s), path, []request.Read{{Path: path}}...))
		}, standing.Ends{ByContext: context.Canceled, ByLink: zk.ErrNoServer, BySession: zkerr.SessionLost}, ""},
	} {
		tt.ends.Check(t, name, func() (*life.Session, *link.Link, func(context.Context) error) {
			s, on := watchesInUse(tt.version)
			return s.Session.Session, on, func(ctx context.Context) error { return tt.wait(ctx, s, on) }
		})
	}
}

// Without a connection, or a session, nothing is begun.
func TestNothingIsBegunWithoutAConnection(t *testing.T) {
	const path = "/a"
	reads := []request.Read{{Path: path}}
	for name, call := range map[string]func(s *Watches, on *link.Link) error{
		"what the server has": func(s *Watches, _ *link.Link) error {
			return failure(s.Offers(context.Background(), wire.OpMultiRead))
		},
		"events": func(s *Watches, _ *link.Link) error {
			return failure(s.Events(scopeIn(s), path, func(uint64, zk.EventType, string) {}, nil))
		},
		"reads under watches": func(s *Watches, _ *link.Link) error {
			return failure(s.ReadAllAndWatch(context.Background(), scopeIn(s), path, reads...))
		},
		"watches again": func(s *Watches, _ *link.Link) error {
			_, _, _, err := s.SetWatches(context.Background(), scopeIn(s), 0, reads...)
			return err
		},
		"a tree": func(s *Watches, _ *link.Link) error {
			_, _, err := s.WatchTree(context.Background(), scopeIn(s), path, func(uint64, zk.EventType, string) {})
			return err
		},
		"a request": func(s *Watches, on *link.Link) error {
			return failure(s.Chain().Ask(context.Background(), on, wire.OpSync, &wire.PathRequest{Path: path}, 0))
		},
		"requests": func(s *Watches, on *link.Link) (err error) {
			n := 0
			s.Chain().AskTogether(on, wire.OpSync, make([]wire.Appender, 3), func(i int, _ link.Reply, e error) {
				if err = e; i != n {
					t.Errorf("request %d is %d", n, i)
				}
				n++
			})
			if n != 3 {
				t.Errorf("%d of 3 have failed", n)
			}
			return err
		},
	} {
		for why, of := range map[string]func() (*Watches, *link.Link){
			"not connected": unreadyWatches,
			"an end is unseen": func() (*Watches, *link.Link) {
				s, on := watchesInUse("")
				s.OnEvent(zk.Event{Type: zk.EventSession, State: zk.StateDisconnected})
				return s, on
			},
			"the session is over": func() (*Watches, *link.Link) {
				s, on := watchesInUse("")
				s.End(zkerr.SessionLost)
				return s, on
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				s, on := of()
				standing.Present(on)
				err := call(s, on)
				if !errors.Is(err, zk.ErrNoServer) && !(s.Err() != nil && (errors.Is(err, zkerr.SessionLost) || errors.Is(err, zk.ErrConnectionClosed))) {
					t.Errorf("%s, %s: %v", name, why, err)
				}
				if on.Unanswered() > 1 || len(s.trees.told) > 0 { // to the credentials
					t.Errorf("%s, %s: something is left", name, why)
				}
			})
		}
	}
	// Afterwards nobody would tell who follows of the end.
	s, on := watchesInUse("")
	on.End()
	if err := s.follow(&follower{path: path}); !errors.Is(err, zk.ErrConnectionClosed) || len(s.trees.told) > 0 {
		t.Errorf("a follower on a connection that has ended: %v", err)
	}
}

// What is to be armed waits for others that are due at the same time.
func TestWatchesAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := unreadyWatches()
		for range 2 { // the second time for those that come later
			began := time.Now()
			w, _ := s.hub.join(watchKey{Data, "/a"})
			s.bundle.add(w)
			time.Sleep(collecting - 1)
			another, _ := s.hub.join(watchKey{Data, "/b"})
			s.bundle.add(another)
			<-w.ready
			<-another.ready
			if took := time.Since(began); took != collecting || !errors.Is(w.err, zk.ErrNoServer) {
				t.Errorf("%v after %v", w.err, took)
			}
		}
	})
}

// Reads that fail are tried again as long as the policy has pauses.
func TestReadsEndWithThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, on := watchesInUse("")
		standing.Present(on)
		standing.CloseOn(on) // each fails
		pauses := []time.Duration{time.Second, 2 * time.Second, backoff.Stop}
		s.Client.Config.Retry = func() backoff.BackOff { return &listed{pauses: pauses} }
		began := time.Now()
		if _, err := s.ReadAllAndWatch(t.Context(), scopeIn(s), "/a", []request.Read{{Path: "/a"}}...); !errors.Is(err, zk.ErrNoServer) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// listed is a policy of some pauses. It fails if it is asked after the last.
type listed struct {
	pauses []time.Duration
	next   int
}

func (*listed) Reset() {}
func (l *listed) NextBackOff() time.Duration {
	l.next++
	return l.pauses[l.next-1]
}

// Without an answer that arms watches again, what is not armed is still in some
// order: 0 would be none.
func TestTheOrderOfWatchesThatAreNotArmed(t *testing.T) {
	s, _ := watchesInUse("")
	s.Client.Config.MaxRequest = 10 // not even one path fits
	zxid, order, unset, err := s.SetWatches(t.Context(), scopeIn(s), 1, []request.Read{{Path: "/a"}}...)
	if zxid != 0 || order != 1 || len(unset) != 1 || err != nil {
		t.Errorf("as of %d, order %d, unset %v, %v", zxid, order, unset, err)
	}
}
