package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

// serveHere runs a daemon in this process, and returns its socket.
func serveHere(t *testing.T, r record) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	serveAt(t, r, socket)
	return socket
}

func serveAt(t *testing.T, r record, socket string) {
	t.Helper()
	l, err := Listen(socket, -1)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	cfg := r.config(0)
	cfg.Log = func(text string) { r.note("log %s", text) }
	go func() { ended <- ServeAll(t.Context(), l, cfg) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(socket); err == nil {
			t.Error("the socket is left")
		}
	})
}

// TestADaemonThatStartsLater: a process that is started together with its
// guardian finds it.
func TestADaemonThatStartsLater(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	r, _ := newRecord(t)
	socket := filepath.Join(t.TempDir(), "s")
	dialed := make(chan error, 1)
	go func() {
		w, err := Dial(socket)
		if err == nil {
			w.Close()
		}
		dialed <- err
	}()
	time.Sleep(listenTime / 5)
	serveAt(t, r, socket)
	if err := <-dialed; err != nil {
		t.Error(err)
	}
}

// TestADaemonKillsNothing: it waits until the group is gone, which is another
// one's task, and then closes.
func TestADaemonKillsNothing(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	r, env := newRecord(t)
	socket := serveHere(t, r)
	w := startWard(t, append(env, "GUARD_SOCKET="+socket)...)
	w.do("guard 10 10s m:2181")
	group := w.run("1")
	w.do("until 1 1ms")
	w.signal(syscall.SIGKILL)
	time.Sleep(300 * time.Millisecond)
	if n := running(group); n != 2 || strings.Contains(r.String(), "connect") { // the command itself dies with its parent
		t.Errorf("%d processes of the group run; %q", n, r)
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
	await(t, "closed", func() bool { return r.closed(10) })
}

// TestADaemonThatWasGivenUp: it closes nothing, even if it was stopped, or its
// socket is closed, when the process says so and dies. It does close the
// sessions of a process that has only closed its socket, as an exec does.
func TestADaemonThatWasGivenUp(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	r, env := newRecord(t)
	socket := serveHere(t, r)
	env = append(env, "GUARD_SOCKET="+socket)
	given, other := startWard(t, env...), startWard(t, env...)
	given.do("guard 10 10s m:2181")
	other.do("guard 20 10s m:2181")
	given.do("close")
	other.do("shut")
	time.Sleep(50 * time.Millisecond)
	given.kill()
	other.kill()
	await(t, "the other one's is closed", func() bool { return r.closed(20) })
	await(t, "both are done", func() bool { status, err := Ask(socket); return err == nil && status.Processes == 0 })
	if strings.Contains(r.String(), "connect 10") {
		t.Errorf("%q", r)
	}
}

// TestWhoMayConnect: the socket's mode, and what becomes of a second daemon and
// of what a daemon has left behind.
func TestWhoMayConnect(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	l, err := Listen(path, -1)
	if err != nil {
		t.Fatal(err)
	}
	mode := func() os.FileMode {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	if mode() != 0o600 {
		t.Errorf("mode %o", mode())
	}
	if _, err := Listen(path, -1); err == nil || !strings.Contains(err.Error(), "another guardian") {
		t.Errorf("a second one: %v", err)
	}
	go func(l *Listener) {
		if conn, err := l.Accept(); err == nil {
			conn.Close()
		}
	}(l)
	if conn, err := net.Dial("unixpacket", path); err != nil {
		t.Errorf("the first one's socket: %v", err)
	} else {
		conn.Close()
	}
	_ = l.UnixListener.Close()
	_ = l.lock.Close() // as after a kill: the socket is left
	if l, err = Listen(path, os.Getgid()); err != nil {
		t.Fatal(err)
	}
	if mode() != 0o660 {
		t.Errorf("mode %o", mode())
	}
	_ = l.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, -1); err == nil {
		t.Error("a file is replaced")
	}
	if text, _ := os.ReadFile(path); string(text) != "precious" {
		t.Errorf("%q", text)
	}
}

// TestRefusals: what a daemon does not accept it refuses, says so, and logs it.
func TestRefusals(t *testing.T) {
	r, _ := newRecord(t)
	socket := serveHere(t, r)
	for name, ask := range map[string]func(w *Ward){
		"another ensemble": func(w *Ward) {
			w.Guard(framework.DeadSession{ID: 1, Password: make([]byte, 16), Timeout: time.Second, Servers: "m:2181,other:2181"})
		},
		"a password that is none": func(w *Ward) {
			w.Guard(framework.DeadSession{ID: 1, Password: make([]byte, 17), Timeout: time.Second, Servers: "m:2181"})
		},
		"a long message": func(w *Ward) {
			w.Guard(framework.DeadSession{ID: 1, Password: make([]byte, 16), Timeout: time.Second, Servers: strings.Repeat("m:2181,", 2000)})
		},
		"a second hello":       func(w *Ward) { fd, _ := newEvent(); w.tell(message{Op: opHello, Version: Version}, fd, fd) },
		"too many files":       func(w *Ward) { fd, _ := newEvent(); w.tell(message{Op: opUntil}, fd, fd, fd, fd, fd, fd) },
		"what a guardian says": func(w *Ward) { w.tell(message{Op: opWelcome, Version: Version}) },
	} {
		t.Run(name, func(t *testing.T) {
			w, err := Dial(socket)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			ask(w)
			select {
			case <-w.Lost():
			case <-time.After(patience):
				t.Fatal("the process does not learn of it")
			}
			if !strings.Contains(w.Err().Error(), "refused") && !strings.Contains(w.Err().Error(), "broken pipe") && !strings.Contains(w.Err().Error(), "reset") {
				t.Errorf("%v", w.Err())
			}
		})
	}
	await(t, "it is logged", func() bool {
		return strings.Contains(r.String(), "other:2181 is not one that this guardian serves")
	})
	conn, err := net.Dial("unixpacket", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(`{"op":"hello","version":99}`))
	answer := make([]byte, 1000)
	n, err := conn.Read(answer)
	if m, bad := parse(answer[:n], 0); err != nil || bad != nil || m.Op != opRefused || !strings.Contains(m.Text, "version 99") {
		t.Errorf("%q, %v, %v", answer[:n], err, bad)
	}
	await(t, "it guards nobody", func() bool {
		status, err := Ask(socket)
		return err == nil && status.Processes+status.Sessions == 0
	})
}

// TestThePidfdIsThePeers: another process's pidfd is refused if the kernel does
// not name the peer's itself.
func TestThePidfdIsThePeers(t *testing.T) {
	bubble.Whole(t)
	conn, other := socketPair(t)
	defer other.Close()
	defer conn.Close()
	p, err := peerOf(conn)
	if err != nil || p.pid != os.Getpid() || p.uid != os.Getuid() {
		t.Fatalf("%+v, %v", p, err)
	}
	older := func(*net.UnixConn) (int, error) { return -1, syscall.ENOPROTOOPT }
	for pid, ok := range map[int]bool{os.Getpid(): true, os.Getppid(): false} {
		sent, err := openPidfd(pid)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := ownPidfd(conn, sent, p, older)
		if (err == nil) != ok {
			t.Errorf("process %d: %v", pid, err)
		}
		if err == nil {
			_ = syscall.Close(fd)
		}
	}
	dead := exec.Command("true")
	if err := dead.Start(); err != nil {
		t.Fatal(err)
	}
	sentByDead, err := openPidfd(dead.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(sentByDead)
	_ = dead.Wait()
	for pid, ok := range map[int]bool{dead.Process.Pid: true, os.Getpid(): false, 0: false} { // 0: of another namespace
		sent, _ := syscall.Dup(sentByDead)
		fd, err := ownPidfd(conn, sent, peer{pid: pid}, older)
		if (err == nil) != ok {
			t.Errorf("the pidfd of a process that was waited for, sent by process %d: %v", pid, err)
		}
		if err == nil {
			_ = syscall.Close(fd)
		}
	}
	event, _ := newEvent()
	if _, err := ownPidfd(conn, event, p, older); err == nil {
		t.Error("an eventfd is a pidfd")
	}
	sent, _ := openPidfd(os.Getppid())
	fd, err := ownPidfd(conn, sent, p, peerPidfd)
	if err != nil {
		t.Skipf("this kernel does not name the peer: %v", err)
	}
	defer syscall.Close(fd)
	if pid, err := processOf(fd); pid != os.Getpid() || err != nil {
		t.Errorf("the kernel's is of process %d: %v", pid, err)
	}
}

// TestManyConnectAtOnce: a daemon that does not run just now turns none of the
// processes away that are started together.
func TestManyConnectAtOnce(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := Listen(socket, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 500 {
		conn, err := net.Dial("unixpacket", socket)
		if err != nil {
			t.Fatalf("process %d: %v", i+1, err)
		}
		defer conn.Close()
	}
}

// TestAcceptGoesOn: no error of accept ends a daemon, except that its listener
// is closed. It logs the first one, and then ever more rarely.
func TestAcceptGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var logged []time.Duration
		g, stop := newGuardian(Config{Log: func(string) { logged = append(logged, time.Since(began).Round(time.Second)) }}, false)
		defer stop()
		fails := []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM, syscall.EPROTO}
		asked, served := 0, atomic.Int32{}
		err := g.acceptAll(t.Context(), func() (*net.UnixConn, error) {
			asked++
			switch since := time.Since(began); {
			case since > 3*time.Hour:
				return nil, net.ErrClosed
			case asked%10 == 0: // it succeeds now and then
				time.Sleep(time.Millisecond)
				return nil, nil
			}
			return nil, fails[asked%len(fails)]
		}, func(*net.UnixConn) { served.Add(1) })
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		synctest.Wait()
		if most := int(3*time.Hour/shortestPause) / 10; asked > most || int(served.Load()) != (asked-1)/10 {
			t.Errorf("it is asked %d times, and serves %d", asked, served.Load())
		}
		if len(logged) > 15 || len(logged) < 10 || logged[0] != 0 {
			t.Errorf("logged after %v", logged)
		}
	})
	synctest.Test(t, func(t *testing.T) { // it is asked to end while it waits
		g, stop := newGuardian(Config{}, false)
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer cancel()
		began := time.Now()
		err := g.acceptAll(ctx, func() (*net.UnixConn, error) { return nil, syscall.EMFILE }, nil)
		if err != nil || time.Since(began) != 5500*time.Millisecond {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
	})
}

// startDaemon starts a daemon as a process, and returns what it logs.
func startDaemon(t *testing.T, socket string, env ...string) (daemon *exec.Cmd, says func(text string) func() bool) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	daemon = self("daemon", append(env, "GUARD_SOCKET="+socket)...)
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	daemon.Stdout = out
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = daemon.Process.Kill(); _ = daemon.Wait() })
	says = func(text string) func() bool {
		return func() bool { said, _ := os.ReadFile(log); return strings.Contains(string(said), text) }
	}
	await(t, "it listens", says("listens"))
	return daemon, says
}

// TestAStoppedDaemonThatWasGivenUp: a process that finds its socket full gives
// it up, and dies. The daemon goes on after that, reads what is in the socket,
// and closes nothing.
func TestAStoppedDaemonThatWasGivenUp(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	r, env := newRecord(t)
	socket := filepath.Join(t.TempDir(), "s")
	daemon, _ := startDaemon(t, socket, env...)
	w := startWard(t, append(env, "GUARD_SOCKET="+socket)...)
	signal := func(sig syscall.Signal) {
		if err := daemon.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	await(t, "it is given up", func() bool { w.do("guard 10 10s m:2181"); return w.do("lost") != "no" })
	if why := w.do("lost"); !strings.Contains(why, "has not read") {
		t.Errorf("lost: %s", why)
	}
	w.kill()
	signal(syscall.SIGCONT)
	await(t, "it guards nobody", func() bool { status, err := Ask(socket); return err == nil && status.Processes == 0 })
	if strings.Contains(r.String(), "connect") {
		t.Errorf("%q", r)
	}
}

// TestADaemonWithoutDescriptors guards again once it has some.
func TestADaemonWithoutDescriptors(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	_, says := startDaemon(t, socket)
	var all []net.Conn
	for range 100 {
		conn, err := net.Dial("unixpacket", socket)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, conn)
	}
	await(t, "descriptors are short", says("too many open files"))
	for _, conn := range all {
		_ = conn.Close()
	}
	await(t, "it guards", func() bool {
		w, err := Dial(socket)
		if err == nil {
			_ = w.Close()
		}
		return err == nil
	})
}

// TestWhatIsLogged is one line, whatever a process says.
func TestWhatIsLogged(t *testing.T) {
	var logged string
	g, stop := newGuardian(Config{Ensembles: []Ensemble{{Servers: "m:2181"}}, Log: func(text string) { logged = text }}, false)
	defer stop()
	s, process := newServed(t, g, 0)
	s.charge.hello = true
	m := guardOf(1)
	m.Servers = "a\n\x1b[2Jb," + strings.Repeat("x", longestServers-20)
	_, _ = process.Write(m.packet())
	s.drain()
	if g.cfg.Log(s.wrong.Error()); s.wrong == nil || strings.ContainsAny(logged, "\n\x1b") || len(logged) > longestText+10 {
		t.Errorf("%q", logged)
	}
}

// TestACommandInAnotherNamespace: a daemon cannot know when its group is gone:
// the number of it means another group here, or none. So the session is left to
// its timeout. The log says at the connect that this would be so.
func TestACommandInAnotherNamespace(t *testing.T) {
	bubble.Whole(t)
	needRoot(t, "to make a namespace")
	t.Parallel()
	r, env := newRecord(t)
	socket := serveHere(t, r)
	cmd := self("init", append(env, "GUARD_SOCKET="+socket)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	w := begin(t, cmd) // kills all that is in it at the end
	await(t, "the daemon says so", func() bool { return strings.Contains(r.String(), "is in another namespace of processes: if it dies") })
	w.do("guard 10 10s m:2181")
	w.do("starting 1")
	w.do("run 1")
	ledger := filepath.Join(filepath.Dir(r.file), "ledger")
	size := func() int64 {
		info, err := os.Stat(ledger)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	await(t, "the command has children", func() bool {
		text, _ := os.ReadFile(ledger)
		writers := map[string]bool{}
		for line := range strings.Lines(string(text)) {
			writers[line] = true
		}
		return len(writers) == 3
	})
	fmt.Fprintln(w.in, "die")
	await(t, "the daemon has noticed the death", func() bool { return strings.Contains(r.String(), "died") || r.closed(10) })
	before := size()
	await(t, "the children write", func() bool { return size() > before+100 })
	if text := r.String(); strings.Contains(text, "connect") || !strings.Contains(text, "its command may be in another namespace") {
		t.Errorf("%q", text)
	}
}
