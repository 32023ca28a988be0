package guard

import (
	"fmt"
	"strconv"
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
		kernelsOf(t, name, func(t *testing.T, env []string) {
			r, more := newRecord(t)
			w := startWard(t, append(env, more...)...)
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

// TestTheCommandOfAStoppedProcessEnds: what it leaves in its group is killed
// when the time is over, as a command that runs is. The process could not say
// that it has ended, nor give its lease back.
func TestTheCommandOfAStoppedProcessEnds(t *testing.T) {
	bubble.Whole(t)
	kernels(t, func(t *testing.T, env []string) {
		r, more := newRecord(t)
		w := startWard(t, append(env, more...)...)
		w.guardian()
		w.do("guard 10 10s m:2181")
		w.do("until 1 1m")
		ends, runs := w.run("1"), w.run("2")
		w.do("until 1 500ms")
		w.signal(syscall.SIGSTOP)
		_ = syscall.Kill(ends, syscall.SIGKILL)
		await(t, "both are killed", func() bool { return running(runs)+running(ends) == 0 })
		for _, group := range []int{ends, runs} {
			await(t, "the log has it", func() bool { return strings.Contains(r.String(), fmt.Sprint("group ", group)) })
		}
	})
}

// TestStoppedBeforeItHasTold: a process that is stopped when it has started a
// command, and has not said which group that leads, is found by the guardian
// when its time is over. No other child of the process is killed. If there are
// others that may be it, none is.
func TestStoppedBeforeItHasTold(t *testing.T) {
	bubble.Whole(t)
	kernels(t, func(t *testing.T, env []string) {
		for name, others := range map[string]bool{"alone": false, "beside another one": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r, more := newRecord(t)
				w := startWard(t, append(env, more...)...)
				w.guardian()
				w.do("guard 10 10s m:2181")
				earlier := w.start("fork 0")
				known := w.run("1")
				w.do("ended 1")
				time.Sleep(2 * procTick)
				var began time.Time
				until := func() { began = time.Now(); w.do("until 1 700ms") }
				if !others {
					until() // first, as zkr does
				}
				w.do("starting 2")
				group, _ := strconv.Atoi(w.do("fork 2"))
				t.Cleanup(func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
				none := w.start("fork 2 none")
				if others {
					w.start("fork 0")
					until()
				}
				w.signal(syscall.SIGSTOP)
				if others {
					time.Sleep(time.Second)
					if running(group) == 0 {
						t.Error("it is killed, and which one it is was not certain")
					}
				} else {
					await(t, "the group is killed", func() bool { return running(group) == 0 })
				}
				if took := time.Since(began); took < 700*time.Millisecond {
					t.Errorf("killed after %v", took)
				}
				time.Sleep(50 * time.Millisecond)
				if running(earlier) != 3 || running(known) != 3 || ended(none) || strings.Contains(r.String(), "connect") {
					t.Errorf("another child is killed, or %q", r)
				}
				w.signal(syscall.SIGCONT)
				w.do("told %d 2", group)
				await(t, "the group is killed once it is known", func() bool { return running(group) == 0 })
				w.do("ended 2")
				w.signal(syscall.SIGKILL)
				await(t, "closed", func() bool { return r.closed(10) })
			})
		}
	})
}

// TestStoppedBeforeItHasStarted: a command that is started when the time is
// over is killed as soon as its group is known, unless a later time was told
// before.
func TestStoppedBeforeItHasStarted(t *testing.T) {
	bubble.Whole(t)
	for name, later := range map[string]bool{"it goes on": false, "it tells a later time": true} {
		kernelsOf(t, name, func(t *testing.T, env []string) {
			_, more := newRecord(t)
			w := startWard(t, append(env, more...)...)
			w.guardian()
			w.do("guard 10 10s m:2181")
			w.do("until 1 200ms")
			w.do("starting 1")
			w.signal(syscall.SIGSTOP)
			time.Sleep(400 * time.Millisecond)
			w.signal(syscall.SIGCONT)
			if later {
				w.do("until 1 1m")
			}
			group, _ := strconv.Atoi(w.do("run 1"))
			t.Cleanup(func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
			if later {
				await(t, "three processes of the group run", func() bool { return running(group) == 3 })
				time.Sleep(100 * time.Millisecond)
			} else {
				await(t, "it is killed", func() bool { return running(group) == 0 })
			}
			if n := running(group); n != 3 && later {
				t.Errorf("%d processes of the group run", n)
			}
		})
	}
}

// TestAGuardianThatFails: one that is killed, does not read, or has ended costs
// the process one short wait at most, is lost with a reason, and does nothing.
func TestAGuardianThatFails(t *testing.T) {
	bubble.Whole(t)
	for name, test := range map[string]struct {
		fail func(w *ward, guardian int)
		want string
	}{
		"killed": {func(_ *ward, guardian int) { _ = syscall.Kill(guardian, syscall.SIGKILL) }, "killed"},
		"stopped": {func(w *ward, guardian int) {
			_ = syscall.Kill(guardian, syscall.SIGSTOP)
			for range 2000 {
				w.do("guard 10 10s m:2181")
			}
			var slow int
			var slowest string
			_, _ = fmt.Sscan(w.do("slow"), &slow, &slowest)
			if took, err := time.ParseDuration(slowest); slow != 1 || err != nil || took > 100*time.Millisecond {
				w.t.Errorf("%d messages took long, the slowest %s: want one, by which it is lost", slow, slowest)
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

// TestPidfdOpenIsRefused: without a pidfd of the process there is no guardian,
// and the error says why. Without one of a command the guardian is lost: it
// kills and closes nothing, and the command runs.
func TestPidfdOpenIsRefused(t *testing.T) {
	bubble.Whole(t)
	for _, number := range []syscall.Errno{syscall.EPERM, syscall.ENOSYS} {
		want := "pidfd_open: " + number.Error()
		t.Run(number.Error(), func(t *testing.T) {
			t.Parallel()
			r, env := newRecord(t)
			socket := serveHere(t, r)
			never := fmt.Sprintf("GUARD_REFUSE_OPEN=%d", number)
			for kind, more := range map[string]string{"a child": "GUARD_SOCKET=", "a daemon": "GUARD_SOCKET=" + socket} {
				if w := startWard(t, append(env, never, more)...); !strings.HasSuffix(w.begun, want) {
					t.Errorf("%s: %s", kind, w.begun)
				}
			}
			if status, err := Ask(socket); err != nil || status.Processes > 0 {
				t.Errorf("the daemon guards %+v, %v", status, err)
			}
			w := startWard(t, env...)
			guardian := w.guardian()
			w.do("guard 10 10s m:2181")
			w.do("refuse %d", number)
			group := w.run("1")
			if why := w.do("lost"); !strings.HasSuffix(why, want) {
				t.Errorf("lost: %s", why)
			}
			await(t, "the guardian has ended", func() bool { return ended(guardian) })
			w.signal(syscall.SIGKILL)
			time.Sleep(50 * time.Millisecond)
			if n := running(group); n != 2 || strings.Contains(r.String(), "connect") { // the command itself dies with its parent
				t.Errorf("%d processes of the group run, %q", n, r)
			}
		})
	}
}
