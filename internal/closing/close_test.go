package closing

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/random"
)

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
