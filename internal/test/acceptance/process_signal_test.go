//go:build unix

package acceptance_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Each recipe has a process that holds and one that waits. All first processes
// are struck at once, since each succession takes a session timeout.
type duo struct {
	*stage
	k             kind
	ledger        load.Ledger
	first, second *load.Process
	token         string // of the first process
}

// The first process's session must end by the clock, and not before it is
// struck. The second one's must not end, however busy the machine is.
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
		s := &duo{stage: &stage{ens, "/suite/duo/" + name, watcher}, k: k, ledger: load.Ledger(filepath.Join(t.TempDir(), name))}
		if _, err := watcher.Create(t.Context(), load.Resource(s.path), nil, 0); err != nil {
			t.Fatal(err)
		}
		s.first = s.holder(t, firstSession)
		s.token, _, _ = strings.Cut(s.first.Expect(t, "held"), " ")
		s.second = s.holder(t, secondSession)
		k.standing(t, s.stage, 1, 1)
		all = append(all, s)
	}
	return all
}

func (s *duo) holder(t *testing.T, session time.Duration) *load.Process {
	t.Helper()
	return load.Start(t, "holder", s.Servers(), session.String(), s.k.name, s.path, string(s.ledger))
}

// gone records in the ledger that the first process no longer counts.
func (s *duo) gone(t *testing.T) {
	t.Helper()
	if err := s.ledger.Append("gone %d", s.first.Pid); err != nil {
		t.Error(err)
	}
}

// succeeded waits until the second process holds, passes late the time of that,
// and makes it release. If tokens order the grants, its token must be greater,
// and the resource must have it at the end.
func (s *duo) succeeded(t *testing.T, late func(since time.Time)) {
	t.Helper()
	token, at, _ := strings.Cut(s.second.Expect(t, "held"), " ")
	since, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if s.k.tokens && token <= s.token {
		judge.Errorf(t, "%s: token %s after %s", s.k.name, token, s.token)
	}
	late(time.UnixMilli(since))
	fmt.Fprintln(s.second.Say, "leave")
	s.second.Expect(t, "done")
	data, _, err := s.watcher.Get(t.Context(), load.Resource(s.path))
	if err != nil || string(data) != token {
		judge.Errorf(t, "%s: the resource has %q, %v; its last holder %q", s.k.name, data, err, token)
	}
	s.k.standing(t, s.stage, 0, 0)
	text, err := s.ledger.Read()
	if err != nil {
		t.Fatal(err)
	}
	if grants, err := load.Judge(string(text), 1); err != nil || grants != 2 {
		judge.Errorf(t, "%s: %d grants, %v", s.k.name, grants, err)
	}
}

// A process is killed while it holds. Another succeeds it within its session
// timeout and the ticks by which a server expires sessions. A known failure
// elsewhere: Redis locks.
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
					t.Errorf("%s: succeeded after %v, the session timeout is %v", s.k.name, took, firstSession)
				}
				t.Logf("%s: succeeded after %v", s.k.name, took)
			})
		}
	})
}

// A process is frozen past its session timeout, between guarded writes, and
// then continues. It finds its lease lost, and neither the write that it was
// about to make nor any later one is executed.
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
				if why := s.first.Expect(t, "lost"); why == "" {
					t.Errorf("%s: lost without a reason", s.k.name)
				}
				refused, why, _ := strings.Cut(s.first.Expect(t, "late"), " ")
				if ok, err := strconv.ParseBool(refused); err != nil || !ok {
					judge.Errorf(t, "%s: a late write: %s", s.k.name, why)
				}
				s.first.Expect(t, "done")
			})
		}
	})
}

// A process group is frozen past its session timeouts, with a holder and a
// waiter in it, as a container is. A process of another group gets the lock in
// time. When the group continues, its holder finds the lease lost, and its
// waiter stands behind the other one.
func TestAProcessGroupStandsStill(t *testing.T) {
	parallel(t)
	onBoth(t, 1, func(t *testing.T, ens testutil.Ensemble) {
		watcher := client(t, ens)
		group := 0 // that of the first process
		grouped := func(s *duo) *load.Process {
			p := load.StartWith(t, func(cmd *exec.Cmd) error {
				if cmd.SysProcAttr == nil {
					cmd.SysProcAttr = &syscall.SysProcAttr{}
				}
				cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pgid = true, group
				return nil
			}, "holder", ens.Servers(), firstSession.String(), s.k.name, s.path, string(s.ledger))
			if group == 0 {
				group = p.Pid
			}
			return p
		}
		type trio struct {
			*duo
			other *load.Process
		}
		var all []*trio
		for _, k := range kinds {
			name := strings.ReplaceAll(k.name, " ", "_")
			s := &trio{duo: &duo{stage: &stage{ens, "/suite/group/" + name, watcher}, k: k, ledger: load.Ledger(filepath.Join(t.TempDir(), name))}}
			if _, err := watcher.Create(t.Context(), load.Resource(s.path), nil, 0); err != nil {
				t.Fatal(err)
			}
			s.first = grouped(s.duo)
			s.token, _, _ = strings.Cut(s.first.Expect(t, "held"), " ")
			s.second = grouped(s.duo)
			k.standing(t, s.stage, 1, 1)
			s.other = s.holder(t, secondSession)
			k.standing(t, s.stage, 1, 2)
			all = append(all, s)
		}
		for _, s := range all {
			s.gone(t)
		}
		began := time.Now()
		if err := syscall.Kill(-group, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		tokens := map[*trio]string{}
		for _, s := range all {
			token, at, _ := strings.Cut(s.other.Expect(t, "held"), " ")
			since, err := strconv.ParseInt(at, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.UnixMilli(since).Sub(began); took > 2*firstSession {
				t.Errorf("%s: granted after %v, the session timeout is %v", s.k.name, took, firstSession)
			}
			if s.k.tokens && token <= s.token {
				judge.Errorf(t, "%s: token %s after %s", s.k.name, token, s.token)
			}
			tokens[s] = token
		}
		if err := syscall.Kill(-group, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			s.first.Expect(t, "lost")
			if refused, why, _ := strings.Cut(s.first.Expect(t, "late"), " "); refused != "true" {
				judge.Errorf(t, "%s: a late write: %s", s.k.name, why)
			}
			s.first.Expect(t, "done")
			s.k.standing(t, s.stage, 1, 1)
			fmt.Fprintln(s.other.Say, "leave")
			s.other.Expect(t, "done")
			if token, _, _ := strings.Cut(s.second.Expect(t, "held"), " "); s.k.tokens && token <= tokens[s] {
				judge.Errorf(t, "%s: token %s after %s", s.k.name, token, tokens[s])
			}
			fmt.Fprintln(s.second.Say, "leave")
			s.second.Expect(t, "done")
			s.k.standing(t, s.stage, 0, 0)
			text, err := s.ledger.Read()
			if err != nil {
				t.Fatal(err)
			}
			if grants, err := load.Judge(string(text), 1); err != nil || grants != 3 {
				judge.Errorf(t, "%s: %d grants, %v", s.k.name, grants, err)
			}
		}
	})
}
