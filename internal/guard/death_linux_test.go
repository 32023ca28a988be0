package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// kernels runs a test with the present kernel, and with older ones, which
// refuse a signal to the group of a pidfd in different ways.
func kernels(t *testing.T, test func(t *testing.T, env []string)) {
	for name, number := range map[string]string{
		"as it is": "", "before 6.9": strconv.Itoa(int(syscall.EINVAL)),
		"before 5.1": strconv.Itoa(int(syscall.ENOSYS)), "in a container": strconv.Itoa(int(syscall.EPERM)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, []string{"GUARD_REFUSE=" + number})
		})
	}
}

// kernelsOf is kernels for one case of a test.
func kernelsOf(t *testing.T, name string, test func(t *testing.T, env []string)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		kernels(t, test)
	})
}

// TestDeath: after a death of any kind the group is killed, and gone, before
// anything is attached, and all sessions are closed; then the guardian ends.
func TestDeath(t *testing.T) {
	bubble.Whole(t)
	kernels(t, func(t *testing.T, env []string) {
		r, more := newRecord(t)
		w := startWard(t, append(env, more...)...)
		guardian := w.guardian()
		w.do("guard 10 10s m:2181")
		w.do("guard 20 10s m:2181")
		w.do("guard 30 10s m:2181")
		w.do("over 30 true")
		group := w.run("1")
		if text := r.String(); text != "begun\n" {
			t.Errorf("before the death: %q", text)
		}
		w.signal(syscall.SIGKILL)
		await(t, "attached", func() bool { return strings.Contains(r.String(), "connect") })
		if n := running(group); n > 0 {
			t.Errorf("%d processes of the group run when a session is attached", n)
		}
		await(t, "the guardian has ended", func() bool { return ended(guardian) })
		text := r.String()
		if !r.closed(10) || !r.closed(20) || strings.Contains(text, "connect 30") || strings.LastIndex(text, "connect") > strings.Index(text, "close") {
			t.Errorf("%q", text)
		}
	})
}

// TestAfter: nothing is attached before that time has passed behind the end of
// the group.
func TestAfter(t *testing.T) {
	bubble.Whole(t)
	kernels(t, func(t *testing.T, env []string) {
		r, more := newRecord(t)
		w := startWard(t, append(append(env, more...), "GUARD_AFTER=700ms")...)
		guardian := w.guardian()
		w.do("guard 10 10s m:2181")
		group := w.run("1")
		died := time.Now()
		w.signal(syscall.SIGKILL)
		await(t, "the group is gone", func() bool { return running(group) == 0 })
		await(t, "attached", func() bool { return strings.Contains(r.String(), "connect") })
		if took := time.Since(died); took < 700*time.Millisecond {
			t.Errorf("attached after %v", took)
		}
		await(t, "closed", func() bool { return r.closed(10) })
		await(t, "the guardian has ended", func() bool { return ended(guardian) })
	})
}

// TestWhatIsNotAttached: the session of a process that dies while it starts a
// command is left to its timeout, and so is one that was given up. With no
// session left nothing is killed.
func TestWhatIsNotAttached(t *testing.T) {
	bubble.Whole(t)
	for name, test := range map[string]struct {
		last   func(w *ward)
		lives  bool
		closed bool
	}{
		"a command is being started":        {last: func(w *ward) { w.do("starting 2") }},
		"one was, and has failed":           {last: func(w *ward) { w.do("starting 2"); w.do("ended 2") }, closed: true},
		"the guardian was given up":         {last: func(w *ward) { w.do("close") }, lives: true},
		"no session is left":                {last: func(w *ward) { w.do("over 10 true") }, lives: true},
		"the command has ended":             {last: func(w *ward) { w.do("ended 1") }, lives: true, closed: true},
		"the session was left not long ago": {last: func(w *ward) { w.do("over 10 false"); time.Sleep(time.Second) }, closed: true},
		"the session was left three timeouts ago": {last: func(w *ward) {
			w.do("guard 10 100ms m:2181")
			w.do("over 10 false")
			time.Sleep(1500 * time.Millisecond)
		}, lives: true},
	} {
		kernelsOf(t, name, func(t *testing.T, env []string) {
			r, more := newRecord(t)
			w := startWard(t, append(env, more...)...)
			guardian := w.guardian()
			w.do("guard 10 3s m:2181")
			group := w.run("1")
			w.do("welcomed")
			test.last(w)
			w.signal(syscall.SIGKILL)
			await(t, "the guardian has ended", func() bool { return ended(guardian) })
			if r.closed(10) != test.closed {
				t.Errorf("closed: %v; %q", r.closed(10), r)
			}
			// The command itself dies with its parent.
			if test.lives && running(group) == 0 {
				t.Error("the group is killed")
			} else if !test.lives {
				await(t, "the group is killed", func() bool { return running(group) == 0 })
			}
		})
	}
}

// TestATimeWithoutSessions: a child does not end because its process has no
// session just now, and guards the next one.
func TestATimeWithoutSessions(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	r, env := newRecord(t)
	w := startWard(t, env...)
	guardian := w.guardian()
	w.do("welcomed")
	time.Sleep(time.Second) // before the first one
	w.do("guard 10 100ms m:2181")
	w.do("over 10 true")
	time.Sleep(time.Second)
	w.do("guard 20 100ms m:2181")
	w.do("over 20 false")
	time.Sleep(time.Second) // more than three timeouts
	w.do("guard 30 10s m:2181")
	group := w.run("1")
	w.signal(syscall.SIGKILL)
	await(t, "the guardian has ended", func() bool { return ended(guardian) })
	if !r.closed(30) || r.closed(10) || r.closed(20) || running(group) > 0 {
		t.Errorf("%d processes run, %q", running(group), r)
	}
}

// TestGivenUpBefore: a guardian that was given up does nothing for a session
// and a command that the process begins later, nor for those that it knew.
func TestGivenUpBefore(t *testing.T) {
	bubble.Whole(t)
	for _, kind := range []string{"a child", "a daemon"} {
		kernelsOf(t, kind, func(t *testing.T, env []string) {
			r, more := newRecord(t)
			socket := ""
			if kind == "a daemon" {
				socket = serveHere(t, r)
			}
			w := startWard(t, append(append(env, more...), "GUARD_SOCKET="+socket)...)
			over := func() bool { st, err := Ask(socket); return err == nil && st.Processes == 0 }
			if kind == "a child" {
				guardian := w.guardian()
				over = func() bool { return ended(guardian) }
			}
			w.do("guard 10 1m m:2181")
			first := w.run("1")
			w.do("close")
			w.do("guard 20 1m m:2181")
			second := w.run("2")
			w.signal(syscall.SIGKILL)
			await(t, "the process is dead", func() bool { return ended(w.cmd.Process.Pid) })
			await(t, "nothing is guarded", over)
			time.Sleep(50 * time.Millisecond)
			if running(first) == 0 || running(second) == 0 || strings.Contains(r.String(), "connect") {
				t.Errorf("%d and %d processes run, %q", running(first), running(second), r)
			}
		})
	}
}

// socketPair returns a connection and its other end.
func socketPair(t *testing.T) (*net.UnixConn, *os.File) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[0]), "socket")
	conn, err := net.FileConn(file)
	_ = file.Close()
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.UnixConn), os.NewFile(uintptr(fds[1]), "other end")
}

// newServed returns a process of a user that is served, and its end of the
// socket.
func newServed(t *testing.T, g *Guardian, uid int) (s *served, process *os.File) {
	t.Helper()
	conn, process := socketPair(t)
	s = &served{g: g, conn: conn, peer: peer{uid: uid}, charge: newCharge(g.servers), later: make(chan struct{}, 1)}
	s.raw, _ = s.conn.SyscallConn()
	if err := g.enter(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Close()
		s.close()
		g.leave(s)
	})
	return s, process
}

// TestAHelloThatFails: the socket to a guardian that has ended before the hello
// is closed.
func TestAHelloThatFails(t *testing.T) {
	conn, guardian := socketPair(t)
	defer conn.Close()
	_ = guardian.Close()
	if w, err := newWard(conn, nil, nil); w != nil || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("%v, %v", w, err)
	}
	if _, err := conn.Write([]byte("more")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket is open: %v", err)
	}
}

// TestAReset: what a process has sent is read, although it has ended before it
// had read all, which resets its connection.
func TestAReset(t *testing.T) {
	g, stop := newGuardian(Config{Ensembles: []Ensemble{{Servers: "m:2181"}}}, true)
	defer stop()
	s, process := newServed(t, g, 0)
	s.charge.hello = true
	_ = s.say(message{Op: opWelcome, Version: Version})
	for _, m := range []message{guardOf(10), {Op: opStarting, Ref: 1}} {
		if _, err := process.Write(m.packet()); err != nil {
			t.Fatal(err)
		}
	}
	_ = process.Close()
	s.drain()
	if len(s.charge.sessions) != 1 || len(s.charge.commands) != 1 || !s.ended || s.wrong != nil {
		t.Errorf("%+v, ended %v, %v", s.charge, s.ended, s.wrong)
	}
}

// silent is an ensemble that does not answer.
type silent struct{ record }

func (silent) Connect(_ context.Context, _ servers.Server, limit time.Duration, _ func() (*wire.ConnectRequest, error)) (net.Conn, wire.ConnectResponse, error) {
	time.Sleep(limit)
	return nil, wire.ConnectResponse{}, os.ErrDeadlineExceeded
}

// die is the death of a process of a user, which has sent the message.
func die(t *testing.T, g *Guardian, uid int, m message) error {
	s, _ := newServed(t, g, uid)
	event, _ := newEvent()
	_, err := s.charge.on(message{Op: opHello, Version: Version}, []int{event}, bootTime())
	if err == nil {
		_, err = s.charge.on(m, nil, bootTime())
	}
	if err != nil {
		t.Error(err)
	}
	return s.onDeath(time.Now(), event)
}

// TestAnEnsembleThatIsDown does not keep sessions of another one open.
func TestAnEnsembleThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record{filepath.Join(t.TempDir(), "record")}
		g, stop := newGuardian(Config{Ensembles: []Ensemble{{"down:2181", silent{r}}, {"m:2181", r}}}, false)
		defer stop()
		down := guardOf(10)
		down.Servers, down.Timeout = "down:2181", 10*time.Second
		var all sync.WaitGroup
		for range mostClosing {
			all.Go(func() {
				if die(t, g, 0, down) == nil {
					t.Error("closed")
				}
			})
		}
		time.Sleep(time.Second)
		began := time.Now()
		if err := die(t, g, 0, guardOf(20)); err != nil || !r.closed(20) || time.Since(began) > 100*time.Millisecond {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
		all.Wait()
		time.Sleep(time.Minute) // until the last connects have ended
	})
}

// TestItReadsBeforeItActs: what the process has said last counts, although the
// guardian has not read it yet when a time is over, or a death is noticed; and
// so does that it was given up.
func TestItReadsBeforeItActs(t *testing.T) {
	session := func(id int64) message { m := guardOf(id); m.Timeout = time.Minute; return m }
	past := func(s *served, event int) { s.killLate(event) }
	death := func(s *served, event int) { _ = s.onDeath(time.Now(), event) }
	for name, test := range map[string]struct {
		act   func(s *served, event int)
		said  []message
		give  bool
		reset bool   // the process has ended before it has read all: its connection is reset
		want  string // what happens
	}{
		"the time is over":                {act: past, want: "killed"},
		"a later time was told":           {act: past, said: []message{{Op: opUntil, Until: bootTime() + time.Hour}}},
		"the command has ended":           {act: past, said: []message{{Op: opEnded, Ref: 1}}},
		"it was given up":                 {act: past, give: true},
		"it says what it must not":        {act: past, said: []message{{Op: opHello, Version: Version}}},
		"it has died":                     {act: death, want: "killed, closed 10"},
		"it has died, another session":    {act: death, said: []message{session(20)}, want: "killed, closed 10, closed 20"},
		"it has died without a session":   {act: death, said: []message{{Op: opOver, ID: 10, Servers: "m:2181", Closed: true}}},
		"it has died without a command":   {act: death, said: []message{{Op: opEnded, Ref: 1}}, want: "closed 10"},
		"it has died and was given up":    {act: death, give: true},
		"it has died, starting a command": {act: death, said: []message{{Op: opStarting, Ref: 2}}, want: "killed"},
		"the same, with a reset":          {act: death, said: []message{{Op: opStarting, Ref: 2}}, reset: true, want: "killed"},
		"another session, with a reset":   {act: death, said: []message{session(20)}, reset: true, want: "killed, closed 10, closed 20"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newRecord(t)
			g, stop := newGuardian(r.config(0), true)
			defer stop()
			s, process := newServed(t, g, 0)
			run := self("sleeper")
			run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := run.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- run.Wait() }()
			defer func() { _ = run.Process.Kill() }()
			group := run.Process.Pid
			event, _ := newEvent()
			own, _ := openPidfd(os.Getpid())
			leader, err := openPidfd(group)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range []struct {
				message
				files []int
			}{
				{message{Op: opHello, Version: Version}, []int{own, event}},
				{session(10), nil},
				{message{Op: opStarting, Ref: 1}, nil},
				{message{Op: opGroup, Ref: 1, Group: group, Start: startOf(group)}, []int{leader}},
				{message{Op: opUntil, Until: 1}, nil},
			} {
				if _, err := s.charge.on(m.message, m.files, bootTime()); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range test.said {
				if _, err := process.Write(m.packet()); err != nil {
					t.Fatal(err)
				}
			}
			if test.reset {
				_ = s.say(message{Op: opWelcome, Version: Version})
				_ = process.Close()
			}
			if test.give {
				setEvent(event)
			}
			test.act(s, event)
			var got []string
			select {
			case <-ended:
				got = append(got, "killed")
			case <-time.After(map[bool]time.Duration{true: patience, false: 20 * time.Millisecond}[strings.Contains(test.want, "killed")]):
			}
			for _, id := range []int64{10, 20} {
				if r.closed(id) {
					got = append(got, fmt.Sprint("closed ", id))
				}
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// asked is an ensemble that notes which timeouts it is asked for.
type asked struct {
	record
	timeouts chan time.Duration
}

func (a asked) Connect(ctx context.Context, to servers.Server, limit time.Duration, ask func() (*wire.ConnectRequest, error)) (net.Conn, wire.ConnectResponse, error) {
	if asked, err := ask(); err == nil {
		a.timeouts <- time.Duration(asked.Timeout) * time.Millisecond
	}
	return a.record.Connect(ctx, to, limit, ask)
}

// TestALeftSessionIsNotExtended: a session in which nothing was sent for a
// while before the death is asked for only as long as it has left.
func TestALeftSessionIsNotExtended(t *testing.T) {
	a := asked{record{filepath.Join(t.TempDir(), "record")}, make(chan time.Duration, 10)}
	g, stop := newGuardian(Config{Ensembles: []Ensemble{{"m:2181", a}}}, false)
	defer stop()
	s, _ := newServed(t, g, 0)
	event, _ := newEvent()
	s.charge.hello, s.charge.files = true, []int{event}
	m, now := guardOf(10), bootTime()
	m.Timeout = 10 * time.Second
	for _, each := range []message{m, {Op: opOver, ID: 10, Servers: "m:2181"}} {
		if _, err := s.charge.on(each, nil, now-6*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.onDeath(time.Now(), event); err != nil || !a.closed(10) {
		t.Error(err)
	}
	if got := <-a.timeouts; got > 4*time.Second || got < 2*time.Second {
		t.Errorf("asked for %v", got)
	}
}
