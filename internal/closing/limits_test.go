package closing

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
)

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
