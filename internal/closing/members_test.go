package closing

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// TestAServerThatResumesNone: the session that it opens instead is closed, and
// the servers are not asked again.
func TestAServerThatResumesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		f.other = true
		errs := Close(t.Context(), f.sessions(1, 10*time.Second), f.began)
		if synctest.Wait(); !errors.Is(errs[0], errAnother) || f.nth[10] != 1 || f.closes[10] != 1 {
			t.Errorf("%v, %d connects, closes %v", errs, f.nth[10], f.closes)
		}
	})
}

// TestThroughAnElection: while there is no leader members refuse at once. The
// session is closed within a pause after that.
func TestThroughAnElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(3)
		over := f.began.Add(800 * time.Millisecond)
		f.answer = func(int, int64, int) (time.Duration, error) {
			if time.Now().Before(over) {
				return time.Millisecond, errors.New("hung up")
			}
			return time.Millisecond, nil
		}
		errs := Close(t.Context(), f.sessions(1, 10*time.Second), f.began)
		if late := time.Since(over); errs[0] != nil || late > longestPause+10*time.Millisecond {
			t.Errorf("%v, %v after the election", errs[0], late)
		}
		if f.nth[10] > 60 {
			t.Errorf("%d connects", f.nth[10])
		}
	})
}

// TestASilentMember does not keep the others from being asked again, for as
// long as it may take itself. It has one connect at a time.
func TestASilentMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(3)
		over := f.began.Add(10 * time.Second)
		var silent atomic.Int32
		f.answer = func(member int, _ int64, _ int) (time.Duration, error) {
			switch {
			case member == 0:
				silent.Add(1)
				return time.Hour, nil
			case time.Now().Before(over):
				return time.Millisecond, errors.New("hung up")
			}
			return time.Millisecond, nil
		}
		errs := Close(t.Context(), f.sessions(1, 60*time.Second), f.began)
		if late := time.Since(over); errs[0] != nil || late > longestPause+10*time.Millisecond || silent.Load() > 4 {
			t.Errorf("%v, %v after the others were to be had; the silent one was asked %d times", errs[0], late, silent.Load())
		}
		time.Sleep(2 * time.Hour)
	})
}

// TestADialThatTakesLong: what another member has answered is not asked for any
// more, since no round of attaches would come behind that.
func TestADialThatTakesLong(t *testing.T) {
	for try := range 20 { // the order of the members is random
		synctest.Test(t, func(t *testing.T) {
			f := newFake(3)
			f.twice = try%2 == 1
			f.dial = func(member int) time.Duration {
				if member == 0 {
					return 300 * time.Millisecond
				}
				return 0
			}
			f.answer = func(member int, session int64, _ int) (time.Duration, error) {
				if member == 0 && session != 0 {
					t.Errorf("session %d is asked for %v after the death; named twice: %t", session, time.Since(f.began), f.twice)
				}
				return time.Millisecond, nil
			}
			f.close = func(session int64, nth int) (bool, error) {
				return session == 10 || time.Since(f.began) > time.Second, nil // the first one is not executed
			}
			if errs := Close(t.Context(), f.sessions(2, 10*time.Second), f.began); errors.Join(errs...) != nil {
				t.Error(errs)
			}
			time.Sleep(time.Minute)
		})
	}
}

// halfSecured is an ensemble of which member 0 is called by TLS.
type halfSecured struct {
	*fake
	secured Ensemble
}

func (h halfSecured) Connect(ctx context.Context, to servers.Server, limit time.Duration, ask func() (*wire.ConnectRequest, error)) (net.Conn, wire.ConnectResponse, error) {
	if to.Address == name(0) {
		return h.secured.Connect(ctx, to, limit, ask)
	}
	return h.fake.Connect(ctx, to, limit, ask)
}

// TestAHandshakeThatIsNotNeeded ends when another member has answered: the
// silent one was not asked for the session yet.
func TestAHandshakeThatIsNotNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(3)
		var began, ended atomic.Int32
		secured, err := Open(name(0), framework.WithTLS(&tls.Config{}), framework.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
			ours, theirs := net.Pipe()
			began.Add(1)
			go func() { // ends with the handshake
				_, _ = io.Copy(io.Discard, theirs)
				ended.Add(1)
			}()
			return ours, nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		all := f.sessions(2, 60*time.Second)
		for i := range all {
			all[i].Ensemble = halfSecured{f, secured}
		}
		f.first = func() {
			if began.Load() != 2 || ended.Load() != 2 {
				t.Errorf("of %d handshakes %d have ended when a session is closed", began.Load(), ended.Load())
			}
		}
		errs := Close(t.Context(), all, f.began)
		if took := time.Since(f.began); errors.Join(errs...) != nil || took > 100*time.Millisecond {
			t.Errorf("%v, after %v", errs, took)
		}
		time.Sleep(time.Minute)
	})
}

// TestAnAnswerThatIsNotNeeded: a member says what it grants when another one
// has answered. It is not dialed again.
func TestAnAnswerThatIsNotNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(3)
		var dials atomic.Int32
		f.dial = func(member int) time.Duration {
			if member == 0 {
				dials.Add(1)
			}
			return 0
		}
		f.answer = func(member int, _ int64, _ int) (time.Duration, error) {
			if member == 0 {
				return 70 * time.Millisecond, nil
			}
			return time.Millisecond, nil
		}
		all := f.sessions(1, 10*time.Second)
		time.Sleep(time.Second) // so that the servers are asked
		if errs := Close(t.Context(), all, f.began); errs[0] != nil {
			t.Error(errs[0])
		}
		if time.Sleep(time.Minute); dials.Load() != 1 {
			t.Errorf("%d dials", dials.Load())
		}
	})
}

// TestALeaderWithoutAQuorum says that sessions are attached, or over, and the
// ensemble does not know. It is not believed.
func TestALeaderWithoutAQuorum(t *testing.T) {
	for i := range 40 {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(3)
			f.stale, f.named = 1, i%2 == 1
			f.answer = func(member int, session int64, _ int) (time.Duration, error) {
				switch {
				case member == 0: // the old one is slow, so that the others are asked
					return 500 * time.Millisecond, nil
				case member == f.stale && session == 0:
					return time.Hour, nil // it cannot open one
				}
				return 5 * time.Millisecond, nil
			}
			f.first = func() {
				if f.at[10]*f.at[20] == 0 {
					t.Errorf("a session is closed, and they are at %v", f.at)
				}
			}
			errs := Close(t.Context(), f.sessions(2, 10*time.Second), f.began)
			if took := time.Since(f.began); errors.Join(errs...) != nil || !f.gone[10] || !f.gone[20] || took > 200*time.Millisecond {
				t.Errorf("%v, gone %v, after %v", errs, f.gone, took)
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// TestTheSecondConnectIsNotSent: the first one has moved the session all the
// same.
func TestTheSecondConnectIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dials := newFake(2), 0
		f.dial = func(int) time.Duration {
			if dials++; dials == 3 { // behind the first one, and the session that is opened
				return time.Hour
			}
			return 0
		}
		session := newTarget(f.sessions(1, 10*time.Second)[0], f.began)
		r := session.try(t.Context(), &attempt{}, f.Find(t.Context(), 0)[1], time.Second, 0)
		if r.err == nil || r.unsent || f.at[10] != 1 {
			t.Errorf("%v, unsent %t, it is at member %d", r.err, r.unsent, f.at[10])
		}
	})
}

// TestOrderOfTheMembers: the member that the session was connected to is first.
func TestOrderOfTheMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(5)
		all := f.sessions(1, 10*time.Second)
		all[0].Server = name(3)
		var mu sync.Mutex
		var asked []string
		f.answer = func(member int, _ int64, _ int) (time.Duration, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, name(member))
			return time.Millisecond, errors.New("refused")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Millisecond)
		defer cancel()
		Close(ctx, all, f.began)
		time.Sleep(time.Second)
		if slices.Sort(asked[1:]); asked[0] != name(3) || strings.Join(asked[1:], " ") != "m0:2181 m1:2181 m2:2181 m4:2181" {
			t.Errorf("%v", asked)
		}
	})
}

// TestALookupThatHangs does not keep the members waiting that are known.
func TestALookupThatHangs(t *testing.T) {
	hangs := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	e, err := Open("127.0.0.1:2181,hangs.invalid:2181", framework.WithResolver(hangs))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	found := e.Find(t.Context(), 5*time.Second)
	if took := time.Since(began); len(found) != 1 || found[0].Address != "127.0.0.1:2181" || took > 4*time.Second {
		t.Errorf("%v, after %v", found, took)
	}
}
