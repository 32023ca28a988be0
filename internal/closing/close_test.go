package closing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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
	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// fake is an ensemble as far as sessions move between its members.
type fake struct {
	members int
	least   time.Duration // that it grants
	alone   int           // the only member that grants no less; 0: all do so
	most    int           // connections of a member; 0: any number
	// answer says how long a member takes for the nth connect of a session, and
	// whether it then answers. Without an answer the connect is executed all the
	// same, if executed says so.
	answer func(member int, session int64, nth int) (after time.Duration, err error)
	back   func(member int) time.Duration // how long its answers take
	dial   func(member int) time.Duration // how long it takes, TLS included
	stale  int                            // a member that leads, and has no quorum; 0: none
	named  bool                           // one name stands for all members
	close  func(session int64, nth int) (executed bool, err error)
	other  bool                                          // it opens another session
	queue  func(member int, session int64) time.Duration // how long requests wait there that it has taken before

	mu     sync.Mutex
	at     map[int64]int // the member of each session
	nth    map[int64]int // connects
	closes map[int64]int
	gone   map[int64]bool
	asked  map[int64][]time.Duration // timeouts
	moved  map[int64]time.Time       // when
	open   map[int]int               // connections of each member
	until  map[int64]time.Time       // when it ends, by the last connect
	by     map[int64]int             // the member of the first close
	queued map[int64]time.Time       // until when writes may be executed at the member where it is
	first  func()                    // before the first close
	began  time.Time
}

func newFake(members int) *fake {
	return &fake{
		members: members, began: time.Now(),
		at: map[int64]int{}, nth: map[int64]int{}, closes: map[int64]int{}, gone: map[int64]bool{}, asked: map[int64][]time.Duration{},
		moved: map[int64]time.Time{}, open: map[int]int{}, until: map[int64]time.Time{}, by: map[int64]int{}, queued: map[int64]time.Time{},
		answer: func(int, int64, int) (time.Duration, error) { return time.Millisecond, nil },
		close:  func(int64, int) (bool, error) { return true, nil },
	}
}

func name(member int) string { return fmt.Sprintf("m%d:2181", member) }

func (f *fake) Find(context.Context, time.Duration) (all []servers.Server) {
	for m := range f.members {
		all = append(all, servers.Server{Name: name(m), Address: name(m)})
		if f.named {
			all[m].Name = "zk:2181"
		}
	}
	return all
}

func (f *fake) Connect(_ context.Context, to servers.Server, limit time.Duration, request func() (*wire.ConnectRequest, error)) (net.Conn, wire.ConnectResponse, error) {
	var member int
	_, _ = fmt.Sscanf(to.Address, "m%d", &member)
	if f.dial != nil {
		dial := f.dial(member)
		if time.Sleep(min(dial, limit)); dial >= limit {
			return nil, wire.ConnectResponse{}, context.DeadlineExceeded
		}
		limit -= dial
	}
	ask, err := request()
	if err != nil {
		return nil, wire.ConnectResponse{}, err
	}
	id := ask.SessionID
	f.mu.Lock()
	f.nth[id]++
	nth := f.nth[id]
	f.asked[id] = append(f.asked[id], time.Duration(ask.Timeout)*time.Millisecond)
	f.mu.Unlock()
	after, err := f.answer(member, id, nth)
	if after > limit {
		time.Sleep(limit)
		go func() { // it reads the connect later
			time.Sleep(after - limit)
			f.mu.Lock()
			f.at[id] = member
			f.mu.Unlock()
		}()
		return nil, wire.ConnectResponse{}, context.DeadlineExceeded
	}
	time.Sleep(after)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || f.gone[id] {
		return nil, wire.ConnectResponse{}, err
	}
	if member == f.stale && member > 0 {
		if id == 20 { // which the next leader has opened
			return nil, wire.ConnectResponse{}, nil
		}
		ours, theirs := net.Pipe()
		f.open[member]++
		go f.serve(theirs, member, id, time.Time{})
		return ours, wire.ConnectResponse{SessionID: id, Timeout: ask.Timeout}, nil
	}
	granted := ask.Timeout
	if f.alone == 0 || f.alone == member {
		granted = max(granted, int32(f.least.Milliseconds()))
	}
	if id == 0 { // a session that is opened
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			if _, err := wire.ReadFrame(theirs, 100, nil); err == nil {
				_, _ = theirs.Write(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: closeXid, Zxid: 1}))
				f.mu.Lock()
				f.closes[0]++
				f.mu.Unlock()
			}
		}()
		return ours, wire.ConnectResponse{SessionID: 1000 + int64(nth), Timeout: granted}, nil
	}
	if f.most > 0 && f.open[member] >= f.most {
		return nil, wire.ConnectResponse{}, io.EOF
	}
	f.open[member]++
	f.until[id] = time.Now().Add(time.Duration(granted) * time.Millisecond)
	f.at[id], f.moved[id] = member, time.Now()
	if f.queue != nil {
		f.queued[id] = time.Now().Add(f.queue(member, id))
	}
	queued := f.queued[id]
	if f.back != nil {
		f.mu.Unlock()
		time.Sleep(f.back(member))
		f.mu.Lock()
	}
	ours, theirs := net.Pipe()
	go f.serve(theirs, member, id, queued)
	if f.other {
		id++
	}
	return ours, wire.ConnectResponse{SessionID: id, Timeout: granted}, nil
}

// serve answers a ping behind what was queued, and a close.
func (f *fake) serve(conn net.Conn, member int, id int64, queued time.Time) {
	defer func() {
		_ = conn.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open[member]--
	}()
	for {
		frame, err := wire.ReadFrame(conn, 100, nil)
		var ask wire.RequestHeader
		if err != nil || wire.Unmarshal(frame, &ask) != nil {
			return
		}
		if ask.Op != wire.OpPing {
			break
		}
		time.Sleep(time.Until(queued))
		if _, err := conn.Write(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: wire.XidPing, Zxid: 1})); err != nil {
			return
		}
	}
	f.mu.Lock()
	if f.first != nil {
		f.first()
		f.first = nil
	}
	if f.closes[id]++; f.closes[id] == 1 {
		f.by[id] = member
	}
	executed, err := f.close(id, f.closes[id])
	f.gone[id] = f.gone[id] || executed
	f.mu.Unlock()
	if err == nil {
		_, _ = conn.Write(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: closeXid, Zxid: 1}))
	}
}

// sessions returns n sessions that were at member 0.
func (f *fake) sessions(n int, timeout time.Duration) (all []Session) {
	for i := range n {
		id := int64(i+1) * 10
		f.at[id] = 0
		all = append(all, Session{DeadSession: framework.DeadSession{ID: id, Timeout: timeout, Server: name(0)}, Ensemble: f})
	}
	return all
}

// TestNoneIsClosedWhileAnotherIsAtItsOldMember: whatever the members' delays
// are, no session is closed while another one of the process is where its old
// writes may be queued, unless a connect is answered later than that.
func TestNoneIsClosedWhileAnotherIsAtItsOldMember(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(member int, session int64, nth int) (time.Duration, error)
		back   func(member int) time.Duration
		within time.Duration
	}{
		"its answer comes late, and it has the session before the other one is attached": {
			answer: func(member int, session int64, _ int) (time.Duration, error) {
				switch {
				case member == 0 && session == 10:
					return 55 * time.Millisecond, nil
				case member > 0 && session == 20:
					return 30 * time.Millisecond, nil
				case member == 0:
					return 10 * time.Second, nil
				}
				return time.Millisecond, nil
			},
			back: func(member int) time.Duration {
				if member == 0 {
					return time.Second
				}
				return 0
			},
			within: 300 * time.Millisecond,
		},
		"a member is slow, and answers before the other session is attached": {
			answer: func(member int, session int64, nth int) (time.Duration, error) {
				switch {
				case member == 0 && session == 10 && nth == 1:
					return 60 * time.Millisecond, nil
				case member > 0 && session == 20:
					return 30 * time.Millisecond, nil
				case member == 0:
					return 10 * time.Second, nil
				}
				return time.Millisecond, nil
			},
			within: 300 * time.Millisecond,
		},
		"it answers while the other members are asked again": {
			answer: func(member int, session int64, nth int) (time.Duration, error) {
				switch {
				case member == 0 && session == 10:
					return 66 * time.Millisecond, nil
				case member == 0:
					return 10 * time.Second, nil
				}
				return 5 * time.Millisecond, nil
			},
			within: 150 * time.Millisecond,
		},
		"it never answers": {
			answer: func(member int, _ int64, _ int) (time.Duration, error) {
				if member == 0 {
					return 10 * time.Second, nil
				}
				return time.Millisecond, nil
			},
			within: 100 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer random.None()()
				f := newFake(3)
				f.answer, f.back = test.answer, test.back
				all := f.sessions(2, 10*time.Second)
				f.first = func() {
					for _, s := range all {
						if f.at[s.ID] == 0 {
							t.Errorf("session %d is at its old member when another one is closed, after %v", s.ID, time.Since(f.began))
						}
					}
				}
				errs := Close(t.Context(), all, f.began)
				if errors.Join(errs...) != nil || len(f.gone) != 2 || time.Since(f.began) > test.within {
					t.Errorf("%v, gone %v, after %v", errs, f.gone, time.Since(f.began))
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestWhatAMemberHasTaken: a member may answer a connect at once, and execute
// writes of the session later that it has taken before, from the process. No
// session is closed while that is so of another one.
func TestWhatAMemberHasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(3)
		f.queue = func(member int, session int64) time.Duration {
			if member == 0 && session == 20 {
				return 30 * time.Millisecond
			}
			return 0
		}
		all := f.sessions(2, 10*time.Second)
		f.first = func() {
			if left := time.Until(f.queued[20]); left > 0 {
				t.Errorf("session 10 is closed, and writes of the other one are executed for %v", left)
			}
		}
		errs := Close(t.Context(), all, f.began)
		if errors.Join(errs...) != nil || len(f.gone) != 2 || time.Since(f.began) > 50*time.Millisecond {
			t.Errorf("%v, gone %v, after %v", errs, f.gone, time.Since(f.began))
		}
	})
}

// TestMoreSessionsThanConnections: a process has more sessions than servers
// allow a host connections. They are attached in turns, and stay so. None is
// closed before all are, and then each where it is.
func TestMoreSessionsThanConnections(t *testing.T) {
	for name, test := range map[string]struct {
		sessions int
		answer   func(member int, session int64, nth int) (time.Duration, error)
		queue    time.Duration // of each session at its old member
		within   time.Duration
	}{
		"one more":                        {sessions: 17, within: 100 * time.Millisecond},
		"many":                            {sessions: 500, within: 500 * time.Millisecond},
		"with writes that wait":           {sessions: 100, queue: 30 * time.Millisecond, within: time.Second},
		"the old member does not answer":  {sessions: 100, answer: silentMember(0), within: 5 * time.Second},
		"the old member answers late":     {sessions: 100, answer: lateMember(60 * time.Millisecond), within: 2 * time.Second},
		"the old member answers too late": {sessions: 100, answer: lateMember(160 * time.Millisecond), within: 4 * time.Second},
		"the others are slow when they are to close": {sessions: 20, within: 3 * time.Second, answer: func(member int, _ int64, nth int) (time.Duration, error) {
			switch {
			case member == 0 && nth == 1:
				return 20 * time.Second, nil
			case member > 0 && nth > 3: // one behind the first, and once more since that is not answered
				return 160 * time.Millisecond, nil
			}
			return time.Millisecond, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(3)
				f.most = 20
				if test.answer != nil {
					f.answer = test.answer
				}
				if test.queue > 0 {
					f.queue = func(int, int64) time.Duration { return test.queue }
				}
				all := f.sessions(test.sessions, 10*time.Second)
				at := map[int64]int{}
				f.first = func() {
					for _, s := range all {
						if f.moved[s.ID].IsZero() || time.Until(f.queued[s.ID]) > 0 {
							t.Errorf("session %d is not attached when another one is closed", s.ID)
						}
						at[s.ID] = f.at[s.ID]
					}
				}
				errs := Close(t.Context(), all, f.began)
				took := time.Since(f.began)
				time.Sleep(time.Minute) // until the last connects have ended
				f.mu.Lock()
				defer f.mu.Unlock()
				if err := errors.Join(errs...); err != nil || len(f.gone) != test.sessions || took > test.within {
					t.Errorf("%v, %d gone, after %v", err, len(f.gone), took)
				}
				for id, member := range at {
					if f.by[id] != member {
						t.Errorf("session %d is at member %d, and closed at %d", id, member, f.by[id])
					}
				}
			})
		})
	}
}

// silentMember and lateMember answer for a member of which one does not, or
// member 0 does so late.
func silentMember(silent int) func(member int, session int64, nth int) (time.Duration, error) {
	return func(member int, _ int64, _ int) (time.Duration, error) {
		if member == silent {
			return 20 * time.Second, nil
		}
		return time.Millisecond, nil
	}
}

func lateMember(after time.Duration) func(member int, session int64, nth int) (time.Duration, error) {
	return func(member int, _ int64, nth int) (time.Duration, error) {
		if member == 0 && nth == 1 {
			return after, nil
		}
		return time.Millisecond, nil
	}
}

// TestTheOldMemberIsAskedLastAgain: once another session may be closed, one
// whose close was not answered does not go back to the member where its old
// writes may be queued, if any other one has it.
func TestTheOldMemberIsAskedLastAgain(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(3)
			f.answer = func(member int, _ int64, nth int) (time.Duration, error) {
				if member == 0 && nth == 1 {
					return time.Minute, nil // until it is asked again
				}
				return time.Millisecond, nil
			}
			f.close = func(session int64, nth int) (bool, error) {
				if session == 20 && nth == 1 {
					return false, errors.New("no answer")
				}
				return true, nil
			}
			errs := Close(t.Context(), f.sessions(2, 10*time.Second), f.began)
			took := time.Since(f.began)
			f.mu.Lock()
			at := f.at[20]
			f.mu.Unlock()
			if errors.Join(errs...) != nil || at == 0 || took > 200*time.Millisecond {
				t.Errorf("%v, at member %d, after %v", errs, at, took)
			}
			time.Sleep(2 * time.Minute)
		})
	}
}

// TestAtRandomDelays: the same with members that answer after delays, or
// refuse, at random: when the first session is closed each is where its own
// close is sent to.
func TestAtRandomDelays(t *testing.T) {
	waited := 0
	for seed := range 1000 {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(3)
			draw := rand.New(rand.NewPCG(1, uint64(seed)))
			var mu sync.Mutex // guards draw
			f.answer = func(int, int64, int) (time.Duration, error) {
				mu.Lock()
				defer mu.Unlock()
				after := time.Duration(draw.IntN(140)) * time.Millisecond
				if draw.IntN(4) == 0 {
					return after, errors.New("refused")
				}
				return after, nil
			}
			all := f.sessions(3, 10*time.Second)
			at := map[int64]int{}
			f.first = func() {
				for id, member := range f.at {
					if !f.moved[id].Equal(time.Now()) { // otherwise it is later
						at[id] = member
					}
				}
			}
			errs := Close(t.Context(), all, f.began)
			took := time.Since(f.began)
			time.Sleep(time.Minute) // until the last connects have ended
			f.mu.Lock()
			defer f.mu.Unlock()
			if err := errors.Join(errs...); err != nil || len(f.gone) != 3 || took > 8*time.Second {
				t.Errorf("seed %d: %v, gone %v after %v", seed, err, f.gone, took)
			}
			for id, member := range at {
				if by, closed := f.by[id]; closed && by != member {
					t.Errorf("seed %d: session %d is at member %d, and closed at %d", seed, id, member, by)
				}
			}
			for _, n := range f.nth {
				if n > 2 {
					waited++
				}
			}
		})
	}
	if waited < 500 {
		t.Errorf("only %d sessions needed more than two connects: nothing was tried", waited)
	}
}

// TestAllOrNone: a session that cannot be attached, and is not known to be
// over, keeps the others open until their timeouts.
func TestAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(3)
		f.answer = func(_ int, session int64, _ int) (time.Duration, error) {
			if session == 20 {
				return time.Millisecond, errors.New("refused")
			}
			return time.Millisecond, nil
		}
		all := f.sessions(3, 4*time.Second)
		f.gone[30] = true
		errs := Close(t.Context(), all, f.began)
		if !errors.Is(errs[0], ErrNoneClosed) || !errors.Is(errs[1], ErrNoneClosed) || errs[2] != nil {
			t.Errorf("%v", errs)
		}
		if took := time.Since(f.began); f.closes[10]+f.closes[20] > 0 || f.closes[0] > 3 || took > 4*time.Second+longestPause {
			t.Errorf("closes %v, after %v", f.closes, took)
		}
	})
}

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

// TestNoSessionIsExtended: each connect asks for what is left of the session,
// and there is none when a server would grant more than that.
func TestNoSessionIsExtended(t *testing.T) {
	const timeout = 10 * time.Second
	for name, test := range map[string]struct {
		noticed time.Duration // behind the death
		least   time.Duration // that the servers grant
		most    int           // connects to the session; 0: there must be none
		probes  int           // sessions that are opened to learn what is granted
	}{
		"at once":                           {least: 4 * time.Second, most: 60, probes: 2},
		"at once, and no less is granted":   {noticed: timeout / 20, least: timeout, most: 1, probes: 1},
		"it comes late":                     {noticed: 3 * time.Second, least: 4 * time.Second, most: 60, probes: 2},
		"late, and no less is granted":      {noticed: time.Second, least: timeout, probes: 1},
		"with less left than is granted":    {noticed: 7 * time.Second, least: 4 * time.Second, probes: 1},
		"with as much left as is granted":   {noticed: 5900 * time.Millisecond, least: 4 * time.Second, most: 5, probes: 2},
		"with nothing left":                 {noticed: timeout, least: time.Second},
		"with little left, and less needed": {noticed: timeout - time.Second, least: 10 * time.Millisecond, most: 20, probes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(2)
				f.least = test.least
				f.close = func(int64, int) (bool, error) { return false, errors.New("no answer") }
				all := f.sessions(1, timeout)
				time.Sleep(test.noticed)
				if errs := Close(t.Context(), all, f.began); errs[0] == nil {
					t.Fatal("it is closed")
				}
				time.Sleep(time.Second) // until the last connects have ended
				f.mu.Lock()
				defer f.mu.Unlock()
				asked, last := f.asked[10], f.began.Add(timeout)
				if test.noticed <= timeout/unknownLeast && test.least == timeout {
					last = last.Add(timeout / unknownLeast)
				}
				if late := f.until[10].Sub(last); late > 2*time.Millisecond { // a connect takes one
					t.Errorf("the session ends %v later", late)
				}
				if len(asked) > test.most || len(asked) == 0 && test.most > 0 {
					t.Errorf("%d connects", len(asked))
				}
				if len(asked) > 0 && asked[0] < timeout-test.noticed-10*time.Millisecond {
					t.Errorf("it asks for %v", asked[0])
				}
				if len(f.asked[0]) > test.probes || f.closes[0] != len(f.asked[0]) || len(f.asked[0]) == 0 && test.probes > 0 {
					t.Errorf("%d sessions are opened, and %d closed", len(f.asked[0]), f.closes[0])
				}
			})
		})
	}
}

// TestTooLateForOneServer: another one, which is slow, grants less.
func TestTooLateForOneServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(2)
		f.least, f.alone = 9*time.Second, 1
		f.answer = func(member int, _ int64, _ int) (time.Duration, error) {
			return time.Duration(1-member) * time.Second, nil
		}
		all := f.sessions(1, 10*time.Second)
		time.Sleep(3 * time.Second)
		if errs := Close(t.Context(), all, f.began); errs[0] != nil || !f.gone[10] {
			t.Errorf("%v", errs[0])
		}
	})
}

// TestACloseEndsInTime: it waits for no answer for longer than it may take.
func TestACloseEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		f.close = func(int64, int) (bool, error) {
			f.mu.Unlock()
			time.Sleep(time.Hour)
			f.mu.Lock()
			return false, io.EOF
		}
		const timeout = 30 * time.Second
		all := f.sessions(1, timeout)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if errs := Close(ctx, all, f.began); errs[0] == nil || time.Since(f.began) > time.Second {
			t.Errorf("%v, after %v", errs[0], time.Since(f.began))
		}
		time.Sleep(2 * time.Hour)
	})
}

// TestASessionThatWasGivenUp ends a timeout after that, as far as it is up to
// connects. Since it is probably over, it keeps no other one open.
func TestASessionThatWasGivenUp(t *testing.T) {
	const timeout = 10 * time.Second
	for before, most := range map[time.Duration]time.Duration{4 * time.Second: 6 * time.Second, 9 * time.Second: time.Second, 25 * time.Second: time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(1)
			f.least = 2 * time.Second
			all := f.sessions(2, timeout)
			all[0].Left = f.began.Add(-before)
			f.gone[10] = before > 2*timeout
			errs := Close(t.Context(), all, f.began)
			if errors.Join(errs...) != nil || len(f.gone) != 2 || f.asked[10][0] != most || f.asked[20][0] != timeout || len(f.asked[0]) > 0 {
				t.Errorf("given up %v before the death: %v, gone %v, asked for %v", before, errs, f.gone, f.asked)
			}
		})
	}
}

// TestTheAnswerToACloseIsLost: the session is asked for again, and is gone.
func TestTheAnswerToACloseIsLost(t *testing.T) {
	for _, executed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(3)
			f.close = func(_ int64, nth int) (bool, error) {
				if nth == 1 {
					return executed, errors.New("no answer")
				}
				return true, nil
			}
			errs := Close(t.Context(), f.sessions(2, 10*time.Second), f.began)
			if errors.Join(errs...) != nil || !f.gone[10] || !f.gone[20] || time.Since(f.began) > 100*time.Millisecond {
				t.Errorf("executed %v: %v, gone %v, after %v", executed, errs, f.gone, time.Since(f.began))
			}
		})
	}
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

// TestMembersThatTakeLong: whatever a member needs for a connect, up to the
// time that the process had for it, a session is closed, and never extended.
func TestMembersThatTakeLong(t *testing.T) {
	const timeout = 60 * time.Second
	for name, test := range map[string]struct {
		dial, answer time.Duration
		least        time.Duration
		closes       bool
		within       time.Duration
	}{
		"the dial":         {dial: 3 * time.Second, closes: true, within: 25 * time.Second},
		"the answer":       {answer: 3 * time.Second, closes: true, within: 20 * time.Second},
		"both":             {dial: 4 * time.Second, answer: 4 * time.Second, closes: true, within: 50 * time.Second},
		"longer than that": {dial: timeout/3 + time.Millisecond, within: timeout + time.Second},
		"the dial, when no less is granted than was left before it": {dial: 3 * time.Second, least: timeout - 5*time.Second, within: timeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(2)
				f.dial, f.least = func(int) time.Duration { return test.dial }, test.least
				f.answer = func(int, int64, int) (time.Duration, error) { return test.answer, nil }
				errs := Close(t.Context(), f.sessions(2, timeout), f.began)
				took := time.Since(f.began)
				if err := errors.Join(errs...); (err == nil) != test.closes || took > test.within {
					t.Errorf("%v, after %v", err, took)
				}
				time.Sleep(timeout) // until the last connects have ended
				for id, until := range f.until {
					if late := until.Sub(f.began.Add(timeout)); late > test.answer+time.Millisecond {
						t.Errorf("session %d ends %v later", id, late)
					}
				}
			})
		})
	}
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
	synctest.Test(t, func(t *testing.T) {
		f := newFake(3)
		f.dial = func(member int) time.Duration {
			if member == 0 {
				return 300 * time.Millisecond
			}
			return 0
		}
		f.answer = func(member int, session int64, _ int) (time.Duration, error) {
			if member == 0 && session != 0 {
				t.Errorf("session %d is asked for %v after the death", session, time.Since(f.began))
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
		r := session.try(t.Context(), f.Find(t.Context(), 0)[1], time.Second, 0, func() bool { return true })
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

// TestADialAsLongAsItsLimit: a session that may last long is dialed for as long
// as its process would, whatever the options of the guardian are.
func TestADialAsLongAsItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lasted []time.Duration
		e, err := Open("127.0.0.1:2181", framework.WithSessionTimeout(4*time.Second), framework.WithDialer(func(_, _ string, limit time.Duration) (net.Conn, error) {
			lasted = append(lasted, limit)
			time.Sleep(limit)
			return nil, context.DeadlineExceeded
		}))
		if err != nil {
			t.Fatal(err)
		}
		dead := framework.DeadSession{ID: 10, Password: make([]byte, 16), Timeout: 60 * time.Second, Servers: "127.0.0.1:2181"}
		errs := Close(t.Context(), []Session{{DeadSession: dead, Ensemble: e}}, time.Now())
		time.Sleep(time.Minute) // until the last one has ended
		synctest.Wait()
		if !errors.Is(errs[0], ErrNoneClosed) || len(lasted) < 4 || lasted[0] != firstLimit || slices.Max(lasted) != 20*time.Second {
			t.Errorf("%v: dials lasted %v", errs[0], lasted)
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
