package guard

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

// TestAGuardianThatWasStopped: it resumes after the time by which a healthy
// process has told a later one, and kills nothing; nor does one that was given
// up in that time, even if the process dies then.
func TestAGuardianThatWasStopped(t *testing.T) {
	bubble.Whole(t)
	for name, test := range map[string]struct {
		meanwhile func(w *ward)
		lives     bool
	}{
		"the process is healthy": {func(w *ward) {
			for range 20 {
				w.do("until 1 400ms")
				time.Sleep(30 * time.Millisecond)
			}
			w.do("until 1 1m")
		}, true},
		"it has ended the command": {func(w *ward) { time.Sleep(600 * time.Millisecond); w.do("ended 1") }, true},
		"it has given it up":       {func(w *ward) { w.do("close"); time.Sleep(600 * time.Millisecond) }, true},
		"it is stopped":            {func(w *ward) { w.signal(syscall.SIGSTOP); time.Sleep(600 * time.Millisecond) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, env := newRecord(t)
			w := startWard(t, env...)
			guardian := w.guardian()
			w.do("guard 10 10s m:2181")
			w.do("until 1 400ms")
			group := w.run("1")
			w.do("until 1 400ms")
			_ = syscall.Kill(guardian, syscall.SIGSTOP)
			test.meanwhile(w)
			_ = syscall.Kill(guardian, syscall.SIGCONT)
			if test.lives {
				time.Sleep(200 * time.Millisecond)
				if n := running(group); n != 3 {
					t.Errorf("%d processes of the group run", n)
				}
			} else {
				await(t, "the group is killed", func() bool { return running(group) == 0 })
			}
			if strings.Contains(r.String(), "connect") {
				t.Errorf("%q", r)
			}
		})
	}
}

// TestKilledInTime: the group of a process that is stopped is killed when its
// time is over, not earlier, and no session is closed: the process is alive.
func TestKilledInTime(t *testing.T) {
	bubble.Whole(t)
	kernels(t, func(t *testing.T, env []string) {
		r, more := newRecord(t)
		w := startWard(t, append(env, more...)...)
		w.guardian()
		w.do("guard 10 10s m:2181")
		group := w.run("1")
		began := time.Now()
		w.do("until 1 500ms")
		w.signal(syscall.SIGSTOP)
		await(t, "the group is killed", func() bool { return running(group) == 0 })
		if took := time.Since(began); took < 500*time.Millisecond {
			t.Errorf("killed after %v", took)
		}
		time.Sleep(50 * time.Millisecond)
		if strings.Contains(r.String(), "connect") {
			t.Errorf("%q", r)
		}
		w.signal(syscall.SIGCONT)
		w.do("ended 1")
		w.signal(syscall.SIGKILL)
		await(t, "closed", func() bool { return r.closed(10) })
	})
}

// TestAGuardianThatFails: one that is killed, does not read, or has ended costs
// the process a moment, is lost with a reason, and does nothing.
func TestAGuardianThatFails(t *testing.T) {
	bubble.Whole(t)
	for name, test := range map[string]struct {
		fail func(w *ward, guardian int)
		want string
	}{
		"killed": {func(_ *ward, guardian int) { _ = syscall.Kill(guardian, syscall.SIGKILL) }, "killed"},
		"stopped": {func(w *ward, guardian int) {
			_ = syscall.Kill(guardian, syscall.SIGSTOP)
			slowest := time.Duration(0)
			for range 2000 {
				began := time.Now()
				w.do("guard 10 10s m:2181")
				slowest = max(slowest, time.Since(began))
			}
			if slowest < 15*time.Millisecond {
				w.t.Errorf("the slowest of 2000 messages took %v: it was not full", slowest)
			}
		}, "has not read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, env := newRecord(t)
			w := startWard(t, env...)
			guardian := w.guardian()
			w.do("guard 10 10s m:2181")
			test.fail(w, guardian)
			await(t, "it is lost", func() bool { return w.do("lost") != "no" })
			if why := w.do("lost"); !strings.Contains(why, test.want) {
				t.Errorf("%s, want %q", why, test.want)
			}
			await(t, "the guardian has ended", func() bool { return ended(guardian) })
			w.signal(syscall.SIGKILL)
			time.Sleep(50 * time.Millisecond)
			if strings.Contains(r.String(), "connect") {
				t.Errorf("%q", r)
			}
		})
	}
}

// TestNoticed: a death that is noticed after a stop may have been at any time
// in it, also if the guardian's own clock was served first.
func TestNoticed(t *testing.T) {
	bubble.Whole(t)
	g, stop := newGuardian(Config{}, true)
	stop()
	if since := time.Since(g.noticed()); since > 100*time.Millisecond {
		t.Errorf("without a stop: %v", since)
	}
	for _, served := range []bool{false, true} {
		g.mu.Lock()
		now := bootTime()
		g.ran, g.resumed = now-5*time.Second, 0
		if served {
			g.runs(now)
		}
		g.mu.Unlock()
		if since := time.Since(g.noticed()); since < 5*time.Second || since > 6*time.Second {
			t.Errorf("after a stop of 5s, served %v: %v", served, since)
		}
	}
}
