package framework

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/retry"
)

// standing is a session with a connection on which nothing is ever answered.
// Credentials are not presented on it yet.
func standing() (*session, *link) {
	s := sessionAt(time.Now(), 5*time.Second, 0)
	s.core.cfg.log, s.core.cfg.retry, s.core.cfg.maxRequest = zap.NewNop(), retry.Exponential(time.Hour, time.Hour, 9), defaultMaxRequest
	s.core.supplying, s.core.done = supplied.NewTokens(1, zap.NewNop()), make(chan struct{})
	s.window, s.up, s.id = newWindow(), true, 7
	s.hub.session, s.bundle.session, s.writes.session, s.plain.session = s, s, s, s
	on := &link{
		session: s, sending: make(chan struct{}, 1), presented: make(chan struct{}),
		asked: asked{waiting: make(map[int32]chan reply), ended: make(chan struct{})},
	}
	s.link = on
	return s, on
}

// What waits ends with its context, with the connection and with the session,
// whichever it is, and says so.
func TestWhatEndsAWait(t *testing.T) {
	const path = "/a"
	missed := zk.ErrNoServer // nothing was sent
	body := &wire.PathRequest{Path: path}
	failureIfOurs := func(ours bool, err error) error {
		if !ours {
			return errors.New("not ours")
		}
		return err
	}
	for name, tt := range map[string]struct {
		wait                  func(ctx context.Context, s *session, on *link) error
		byCtx, byLink, bySess error // nil: that does not end it
	}{
		"credentials": {func(ctx context.Context, s *session, on *link) error {
			return failureOf(on.ask(ctx, wire.OpSync, body))
		}, missed, missed, missed},
		"a turn to send": {func(_ context.Context, s *session, on *link) error {
			close(on.presented)
			on.sending <- struct{}{}
			return failureOf(on.ask(context.Background(), wire.OpSync, body))
		}, nil, missed, nil},
		"requests in one piece": {func(_ context.Context, s *session, on *link) (err error) {
			s.askTogether(on, wire.OpSync, []wire.Appender{body}, func(_ int, _ reply, e error) { err = e })
			return err
		}, nil, missed, missed},
		"an answer": {func(_ context.Context, s *session, on *link) error {
			return failureOf(on.await(make(chan reply)))
		}, nil, nil, zk.ErrConnectionClosed},
		"a look": {func(ctx context.Context, s *session, on *link) error {
			w, _ := s.hub.join(watchKey{watchData, path})
			w.lookout.next = &look{ended: make(chan struct{})}
			return w.check(ctx)
		}, context.Canceled, nil, ErrSessionLost},
		"what arms a watch": {func(ctx context.Context, s *session, on *link) error {
			w, _ := s.hub.join(watchKey{watchData, path})
			return w.await(ctx)
		}, context.Canceled, nil, ErrSessionLost},
		"what the server has": {func(ctx context.Context, s *session, on *link) error {
			on.offers.of = map[wire.Op]*offered{wire.OpMultiRead: {began: time.Now(), known: make(chan struct{})}}
			return failureOf(s.offers(ctx, wire.OpMultiRead))
		}, context.Canceled, zk.ErrConnectionClosed, ErrSessionLost},
		"another's tree": {func(ctx context.Context, s *session, on *link) error {
			known := make(chan struct{})
			close(known)
			on.offers.of = map[wire.Op]*offered{wire.OpAddWatch: {known: known, yes: true}}
			s.trees.at = map[string]*tree{path: {path: path, on: on, moved: make(chan struct{})}}
			return failureOf(s.joinTree(ctx, &follower{path: path, on: func(uint64, zk.EventType, string) {}}))
		}, context.Canceled, zk.ErrConnectionClosed, ErrSessionLost},
		"watches beside a tree": {func(_ context.Context, s *session, on *link) error {
			s.trees.beginOneLocked(path)
			return failureOf(s.askAbout(&tree{path: path, on: on}, wire.OpAddWatch, body))
		}, nil, missed, ErrSessionLost},
		"a tree that moves": {func(_ context.Context, s *session, on *link) error {
			s.trees.at = map[string]*tree{path: {path: path, on: on, moved: make(chan struct{})}}
			s.beginOne(path)
			return s.Err()
		}, nil, nil, ErrSessionLost},
		"a removal": {func(_ context.Context, s *session, on *link) error {
			s.trees.beginRemoval(path)
			s.beginOne(path)
			return s.Err()
		}, nil, nil, ErrSessionLost},
		"another's round trip": {func(ctx context.Context, s *session, on *link) error {
			s.proving = make(chan struct{})
			return s.shareRoundTrip(ctx)
		}, context.Canceled, nil, ErrSessionLost},
		"a write": {func(_ context.Context, s *session, on *link) error {
			return failureOf(s.writes.await(newDelete(context.Background(), path)))
		}, nil, nil, zk.ErrConnectionClosed},
		"a create that shares": {func(_ context.Context, s *session, on *link) error {
			s.plain.running = true // by others
			return (&Session{live: s}).createEphemeral(path, nil, nil)
		}, nil, nil, ErrSessionLost},
		"reads that go on": {func(ctx context.Context, s *session, on *link) error {
			close(on.presented)
			on.closeSent = true // each fails
			return failureOf((&Session{live: s}).readAllAndWatch(ctx, path, []request.Read{{Path: path}}))
		}, context.Canceled, zk.ErrNoServer, ErrSessionLost},
		"another's try to close a session": {func(ctx context.Context, s *session, on *link) error {
			s.core.earlier.all = []*earlierSession{{orphan: orphan{id: 9}, asking: make(chan struct{})}}
			return failureIfOurs(s.core.closeEarlier(ctx, 9))
		}, context.Canceled, nil, nil},
		"the end of the client": {func(ctx context.Context, s *session, on *link) error {
			close(s.core.closing)
			return failureIfOurs(s.core.closeEarlier(ctx, 9))
		}, context.Canceled, nil, nil},
	} {
		for by, want := range map[string]error{"its context": tt.byCtx, "the connection": tt.byLink, "the session": tt.bySess} {
			if want == nil {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				s, on := standing()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				errs := make(chan error, 1)
				go func() { errs <- tt.wait(ctx, s, on) }()
				if synctest.Wait(); len(errs) > 0 {
					t.Fatalf("%s: it does not wait: %v", name, <-errs)
				}
				switch by {
				case "its context":
					cancel()
				case "the connection":
					on.asked.end()
				case "the session":
					s.end(ErrSessionLost)
				}
				if synctest.Wait(); len(errs) == 0 {
					t.Errorf("%s: %s has ended, and it goes on", name, by)
				} else if err := <-errs; !errors.Is(err, want) {
					t.Errorf("%s: after the end of %s %v, want %v", name, by, err, want)
				}
				s.end(ErrSessionLost) // and all that is left
				on.asked.end()
				time.Sleep(time.Hour)
			})
		}
	}
}

// Without a connection, or a session, nothing is begun.
func TestNothingIsBegunWithoutAConnection(t *testing.T) {
	const path = "/a"
	reads := []request.Read{{Path: path}}
	for name, call := range map[string]func(s *session, on *link) error{
		"what the server has": func(s *session, _ *link) error { return failureOf(s.offers(context.Background(), wire.OpMultiRead)) },
		"events": func(s *session, _ *link) error {
			return failureOf((&Session{live: s}).events(path, func(uint64, zk.EventType, string) {}, nil))
		},
		"reads under watches": func(s *session, _ *link) error {
			return failureOf((&Session{live: s}).readAllAndWatch(context.Background(), path, reads))
		},
		"watches again": func(s *session, _ *link) error {
			_, _, _, err := (&Session{live: s}).setWatchesAgain(context.Background(), 0, reads)
			return err
		},
		"a tree": func(s *session, _ *link) error {
			_, _, err := (&Session{live: s}).watchTree(context.Background(), path, func(uint64, zk.EventType, string) {})
			return err
		},
		"a request": func(s *session, on *link) error {
			return failureOf(s.ask(context.Background(), on, wire.OpSync, &wire.PathRequest{Path: path}, 0))
		},
		"requests": func(s *session, on *link) (err error) {
			n := 0
			s.askTogether(on, wire.OpSync, make([]wire.Appender, 3), func(i int, _ reply, e error) {
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
		"a write": func(s *session, _ *link) error {
			w := newDelete(context.Background(), path)
			s.writes.enqueue(w, false)
			return failureOf(s.writes.await(w))
		},
		"a write alone": func(s *session, _ *link) error {
			w := newDelete(context.Background(), path)
			s.writes.enqueue(w, true)
			return failureOf(s.writes.await(w))
		},
	} {
		for why, end := range map[string]func(s *session){
			"not connected":       func(s *session) { s.up = false },
			"an end is unseen":    func(s *session) { s.unseenEnds = 1 },
			"the session is over": func(s *session) { s.end(ErrSessionLost) },
		} {
			synctest.Test(t, func(t *testing.T) {
				s, on := standing()
				close(on.presented)
				end(s)
				err := call(s, on)
				if !errors.Is(err, zk.ErrNoServer) && !(s.err != nil && (errors.Is(err, ErrSessionLost) || errors.Is(err, zk.ErrConnectionClosed))) {
					t.Errorf("%s, %s: %v", name, why, err)
				}
				if len(on.asked.waiting) > 0 || len(s.trees.told) > 0 {
					t.Errorf("%s, %s: something is left", name, why)
				}
			})
		}
	}
	// Afterwards nobody would tell who follows of the end.
	s, on := standing()
	on.asked.end()
	if err := s.follow(&follower{path: path}); !errors.Is(err, zk.ErrConnectionClosed) || len(s.trees.told) > 0 {
		t.Errorf("a follower on a connection that has ended: %v", err)
	}
}

func failureOf[T any](_ T, err error) error { return err }

// recorder is a connection that notes what is written to it.
type recorder struct {
	net.Conn
	written []byte
	closed  bool
}

func (r *recorder) Write(p []byte) (int, error) {
	r.written = append(r.written, p...)
	return len(p), nil
}
func (r *recorder) Close() error         { r.closed = true; return nil }
func (r *recorder) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// Nothing is sent on a connection that is severed, or behind the request that
// closes the session.
func TestNothingIsSentBehindTheEnd(t *testing.T) {
	frame := wire.AppendFrame(nil, &wire.RequestHeader{Xid: 5, Op: wire.OpDelete}, &wire.PathRequest{Path: "/a"})
	sync := &wire.PathRequest{Path: "/a"}
	for name, end := range map[string]func(s *session, on *link){
		"severed": func(s *session, _ *link) { s.sever() },
		"closed":  func(_ *session, on *link) { on.closeSent = true },
	} {
		s, on := standing()
		conn := &recorder{}
		on.Conn, on.connectSent, on.connectTimer = conn, true, time.NewTimer(time.Hour)
		close(on.presented)
		end(s, on)
		if _, err := on.ask(t.Context(), wire.OpSync, sync); !errors.Is(err, zk.ErrNoServer) {
			t.Errorf("%s: a request of ours: %v", name, err)
		}
		for _, p := range [][]byte{frame, frame[:6]} {
			if n, err := on.Write(p); n != len(p) || err != nil {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		}
		if len(conn.written) > 0 || s.evidence.Unanswered() > 0 || conn.closed != (name == "severed") {
			t.Errorf("%s: %q is written, closed %t", name, conn.written, conn.closed)
		}
	}
	// It is severed between a frame and what was to follow it.
	s, on := standing()
	on.sendBehind(wire.OpSync, sync)
	on.sendBehind(wire.OpSync, sync)
	s.sever()
	if got := on.withBehind(frame); !slices.Equal(got, frame) || len(on.behind) > 0 {
		t.Errorf("behind a frame: %q", got[len(frame):])
	}
	on.asked.end()
	if on.sendBehind(wire.OpSync, sync) != nil || len(on.behind) > 0 {
		t.Error("something is to be sent that nobody will answer")
	}
}

// What is to be armed waits for others that are due at the same time.
func TestWatchesAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := standing()
		s.up = false
		for range 2 { // the second time for those that come later
			began := time.Now()
			w, _ := s.hub.join(watchKey{watchData, "/a"})
			s.bundle.add(w)
			time.Sleep(collecting - 1)
			another, _ := s.hub.join(watchKey{watchData, "/b"})
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
		s, on := standing()
		close(on.presented)
		on.closeSent = true // each fails
		pauses := []time.Duration{time.Second, 2 * time.Second, backoff.Stop}
		s.core.cfg.retry = func() backoff.BackOff { return &listed{pauses: pauses} }
		began := time.Now()
		if _, err := (&Session{live: s}).readAllAndWatch(t.Context(), "/a", []request.Read{{Path: "/a"}}); !errors.Is(err, zk.ErrNoServer) || time.Since(began) != 3*time.Second {
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

// A server that has opened another session has a step's time to close it.
func TestTheTimeToCloseAnotherSession(t *testing.T) {
	for _, limit := range []time.Duration{time.Second, maxCloseStep, 2 * maxCloseStep} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := standing()
			conn, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			on := newLink(conn, s, server{}, nil, limit)
			on.connectTimer.Stop()
			began := time.Now()
			if err := on.closeAnother(); !errors.Is(err, zkerr.AnotherSession) || time.Since(began) != min(limit, maxCloseStep) || !s.isSevered() {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			_ = theirs.Close()
		})
	}
}

// Requests in one piece have their place in the window until all are answered.
func TestRequestsInOnePieceTakePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, on := standing()
		close(on.presented)
		on.Conn = discard{}
		bodies := slices.Repeat([]wire.Appender{&wire.PathRequest{Path: "/a"}}, 3)
		go s.askTogether(on, wire.OpSync, bodies, func(int, reply, error) {
			if n := len(s.window.places); n != len(bodies) {
				t.Errorf("%d places at the end of one", n)
			}
		})
		synctest.Wait()
		if n := len(s.window.places); n != len(bodies) {
			t.Errorf("%d places", n)
		}
		on.asked.end()
		synctest.Wait()
		if n := len(s.window.places); n != 0 {
			t.Errorf("%d places are taken for good", n)
		}
	})
}

// Without an answer that arms watches again, what is not armed is still in some
// order: 0 would be none.
func TestTheOrderOfWatchesThatAreNotArmed(t *testing.T) {
	s, _ := standing()
	s.core.cfg.maxRequest = 10 // not even one path fits
	zxid, order, unset, err := (&Session{live: s}).setWatchesAgain(t.Context(), 1, []request.Read{{Path: "/a"}})
	if zxid != 0 || order != 1 || len(unset) != 1 || err != nil {
		t.Errorf("as of %d, order %d, unset %v, %v", zxid, order, unset, err)
	}
}
