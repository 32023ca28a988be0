//go:build unix

package acceptance_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// Of every recipe there is a process that holds and one that waits, and what is
// done to the first is done to all of them at once, for each takes a session
// time-out.
type duo struct {
	*stage
	k             kind
	ledger        ledger
	first, second *process
	token         string // of the first
}

// The first one's session is to end by the clock, and not before it is struck; the
// second one's not at all, however busy the machine is.
const (
	firstSession  = 6 * time.Second
	secondSession = 30 * time.Second
)

func duos(t *testing.T, ens testutil.Ensemble) []*duo {
	t.Helper()
	watcher := client(t, ens)
	var all []*duo
	for _, k := range kinds {
		name := strings.ReplaceAll(k.name, " ", "_")
		s := &duo{stage: &stage{ens, "/suite/duo/" + name, watcher}, k: k, ledger: ledger(filepath.Join(t.TempDir(), name))}
		if _, err := watcher.Create(t.Context(), resource(s.path), nil, 0); err != nil {
			t.Fatal(err)
		}
		s.first = s.holder(t, firstSession)
		s.token, _, _ = strings.Cut(s.first.expect(t, "held"), " ")
		s.second = s.holder(t, secondSession)
		k.standing(t, s.stage, 1, 1)
		all = append(all, s)
	}
	return all
}

func (s *duo) holder(t *testing.T, session time.Duration) *process {
	t.Helper()
	return start(t, "holder", s.Servers(), session.String(), s.k.name, s.path, string(s.ledger))
}

// gone notes in the ledger that the first counts no more.
func (s *duo) gone(t *testing.T) {
	t.Helper()
	if err := s.ledger.append("gone %d", s.first.Pid); err != nil {
		t.Error(err)
	}
}

// succeeded waits until the second holds, tells late since when, and has it leave.
// Its token, if tokens order the grants, is greater, and what the resource has at
// the end is its own.
func (s *duo) succeeded(t *testing.T, late func(since time.Time)) {
	t.Helper()
	token, at, _ := strings.Cut(s.second.expect(t, "held"), " ")
	since, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if s.k.tokens && token <= s.token {
		t.Errorf("%s: token %s after %s", s.k.name, token, s.token)
	}
	late(time.UnixMilli(since))
	fmt.Fprintln(s.second.say, "leave")
	s.second.expect(t, "done")
	data, _, err := s.watcher.Get(t.Context(), resource(s.path))
	if err != nil || string(data) != token {
		t.Errorf("%s: the resource has %q, %v; its last holder %q", s.k.name, data, err, token)
	}
	s.k.standing(t, s.stage, 0, 0)
	text, err := s.ledger.read()
	if err != nil {
		t.Fatal(err)
	}
	if grants, err := judge(string(text), 1); err != nil || grants != 2 {
		t.Errorf("%s: %d grants, %v", s.k.name, grants, err)
	}
}

// A process that is killed while it holds is succeeded by another within its
// session time-out, and the ticks by which a server expires sessions.
func TestAProcessIsKilled(t *testing.T) {
	parallel(t)
	onBoth(t, 1, func(t *testing.T, ens testutil.Ensemble) {
		all := duos(t, ens)
		began := time.Now()
		for _, s := range all {
			if err := s.first.Kill(); err != nil {
				t.Fatal(err)
			}
			s.gone(t)
		}
		for _, s := range all {
			s.succeeded(t, func(since time.Time) {
				const tick, slack = 200 * time.Millisecond, firstSession / 2 // a machine may be busy
				took := since.Sub(began)
				if took > firstSession+2*tick+slack {
					t.Errorf("%s: succeeded after %v, the session time-out is %v", s.k.name, took, firstSession)
				}
				t.Logf("%s: succeeded after %v", s.k.name, took)
			})
		}
	})
}

// A process that stands still past its session time-out, in the middle of its
// guarded writes, and then goes on: it finds its lease lost, and neither the write
// that it was about to make nor any later one is executed.
func TestAProcessStandsStill(t *testing.T) {
	parallel(t)
	onBoth(t, 1, func(t *testing.T, ens testutil.Ensemble) {
		all := duos(t, ens)
		for _, s := range all {
			if err := s.first.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			s.gone(t)
		}
		for _, s := range all {
			s.succeeded(t, func(time.Time) {
				if err := s.first.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				if why := s.first.expect(t, "lost"); why == "" {
					t.Errorf("%s: lost for no reason", s.k.name)
				}
				refused, why, _ := strings.Cut(s.first.expect(t, "late"), " ")
				if ok, err := strconv.ParseBool(refused); err != nil || !ok {
					t.Errorf("%s: a late write: %s", s.k.name, why)
				}
				s.first.expect(t, "done")
			})
		}
	})
}
