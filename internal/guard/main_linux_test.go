package guard

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed/servers"
	"github.com/zkrecipes/zkrecipes/internal/test/seccomp"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// The test binary is also the processes of the tests.
func TestMain(m *testing.M) {
	switch role := os.Getenv("GUARD_ROLE"); role {
	case "ward":
		beWard()
	case "guardian":
		beGuardian()
	case "daemon":
		beDaemon()
	case "writer":
		beWriter()
	case "headless":
		beHeadless()
	case "killer":
		beKiller()
	case "init":
		beInit()
	case "sleeper":
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

const patience = 20 * time.Second

// self returns a command that is this binary in a role.
func self(role string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "GUARD_ROLE="+role), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// record is an ensemble that notes what it is asked, in a file: two processes
// may share it.
type record struct{ file string }

var recording sync.Mutex

func (r record) note(format string, args ...any) {
	recording.Lock()
	defer recording.Unlock()
	f, err := os.OpenFile(r.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err == nil {
		fmt.Fprintf(f, format+"\n", args...)
		f.Close()
	}
}

func (r record) String() string {
	text, _ := os.ReadFile(r.file)
	return string(text)
}

func (r record) closed(id int64) bool {
	return strings.Contains(r.String(), fmt.Sprintf("close %d\n", id))
}

func (r record) Names() []string { return []string{"m:2181"} }

func (r record) Find(context.Context, time.Duration) []servers.Server {
	return []servers.Server{{Name: "m:2181", Address: "m:2181"}}
}

func (r record) Connect(_ context.Context, _ servers.Server, _ time.Duration, ask func() (*wire.ConnectRequest, error)) (net.Conn, wire.ConnectResponse, error) {
	asked, err := ask()
	if err != nil {
		return nil, wire.ConnectResponse{}, err
	}
	session := asked.SessionID
	if session != 0 { // otherwise a new one, to learn what is granted: a death that is noticed late
		r.note("connect %d", session)
	}
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		for {
			frame, err := wire.ReadFrame(theirs, 100, nil)
			var ask wire.RequestHeader
			if err != nil || wire.Unmarshal(frame, &ask) != nil {
				return
			}
			if ask.Op == wire.OpCloseSession && session != 0 {
				r.note("close %d", session)
			}
			_, _ = theirs.Write(wire.AppendFrame(nil, &wire.ReplyHeader{Xid: ask.Xid, Zxid: 1}))
		}
	}()
	return ours, wire.ConnectResponse{SessionID: session, Timeout: asked.Timeout}, nil
}

func (r record) config(after time.Duration) Config {
	return Config{Ensembles: []Ensemble{{"m:2181", r}}, After: after}
}

// beGuardian is a child guardian.
func beGuardian() {
	refuse()
	if uid, _ := strconv.Atoi(os.Getenv("GUARD_UID")); uid != 0 {
		if err := syscall.Setuid(uid); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		const setDumpable = 4 // otherwise /proc/self is root's
		_, _, _ = syscall.Syscall6(syscall.SYS_PRCTL, setDumpable, 1, 0, 0, 0, 0)
	}
	file := os.NewFile(3, "ward")
	conn, err := net.FileConn(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = file.Close()
	after, _ := time.ParseDuration(os.Getenv("GUARD_AFTER"))
	r := record{os.Getenv("GUARD_RECORD")}
	cfg := r.config(after)
	cfg.Log = func(text string) { r.note("log %s", text) }
	if err := Serve(conn.(*net.UnixConn), cfg); err != nil {
		r.note("error %v", err)
	}
	r.note("over")
	os.Exit(0)
}

// beDaemon is a daemon that has few descriptors, and does not limit its users.
func beDaemon() {
	cfg := record{os.Getenv("GUARD_RECORD")}.config(0)
	cfg.Log = func(text string) { fmt.Println(text) }
	l, err := Listen(os.Getenv("GUARD_SOCKET"), -1)
	g, _ := newGuardian(cfg, false)
	if err == nil {
		err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 60, Max: 60})
	}
	if err == nil {
		fmt.Println("listens")
		err = g.acceptAll(context.Background(), l.AcceptUnix, func(conn *net.UnixConn) { _ = g.serve(conn) })
	}
	fmt.Println("ended:", err)
	os.Exit(1)
}

// beWriter writes lines until it is killed. With an argument it has children
// that do so.
func beWriter() {
	f, err := os.OpenFile(os.Getenv("GUARD_LEDGER"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		os.Exit(1)
	}
	if os.Getenv("GUARD_CHILDREN") != "" {
		os.Setenv("GUARD_CHILDREN", "")
		for range 2 {
			if err := self("writer").Start(); err != nil {
				os.Exit(1)
			}
		}
	}
	for range 60_000 { // a minute at most
		fmt.Fprintf(f, "%d\n", os.Getpid())
		time.Sleep(time.Millisecond)
	}
}

// beKiller looks at a process group, and kills it, as its stdin says. In a
// namespace of mounts it may have another /proc.
func beKiller() {
	refuse()
	if options := os.Getenv("GUARD_HIDE"); options != "" { // a mount of its own: the other one is not changed
		if err := syscall.Mount("proc", "/proc", "proc", 0, options); err != nil {
			fmt.Println("mount", err)
		}
	}
	group, _ := strconv.Atoi(os.Getenv("GUARD_GROUP"))
	pidfd, err := openPidfd(group)
	run := &command{group: group, start: startOf(group), pidfd: pidfd}
	fmt.Println("begun", err)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == "kill" {
			run.kill()
		}
		fmt.Printf("%s readable %v, gone %v\n", lines.Text(), isReadable(pidfd), run.isGone())
	}
	os.Exit(0)
}

// beInit is process 1 of a namespace with a ward in it. It reaps what ends.
func beInit() {
	w := self("ward")
	w.Stdin, w.Stdout = os.Stdin, os.Stdout
	if err := w.Start(); err != nil {
		os.Exit(1)
	}
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err == syscall.ECHILD {
			os.Exit(0)
		}
	}
}

// beHeadless is a process whose main thread ends while another one goes on.
func beHeadless() {
	go func() {
		runtime.LockOSThread()
		beWriter()
		os.Exit(0)
	}()
	time.Sleep(20 * time.Millisecond)
	syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
}

func init() {
	if os.Getenv("GUARD_ROLE") == "headless" {
		runtime.LockOSThread() // main runs on the main thread
	}
}

// refuse makes the kernel refuse what older ones do not have: GUARD_REFUSE is
// the number of the error for pidfd_send_signal with a flag.
func refuse() {
	if number, err := strconv.Atoi(os.Getenv("GUARD_REFUSE")); err == nil {
		refuseCall(seccomp.SignalGroup, number)
	}
}

func refuseCall(call seccomp.Call, number int) {
	if err := seccomp.Refuse(call, syscall.Errno(number)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beWard does what its stdin says, a word and arguments a line, and answers
// each.
func beWard() {
	var w *Ward
	var cmd *exec.Cmd
	var err error
	if number, err := strconv.Atoi(os.Getenv("GUARD_REFUSE_OPEN")); err == nil {
		refuseCall(seccomp.Call{Number: sysPidfdOpen}, number)
	}
	if socket := os.Getenv("GUARD_SOCKET"); socket != "" {
		w, err = Dial(socket)
	} else {
		cmd = self("guardian")
		w, err = Start(cmd, nil)
	}
	fmt.Println("begun", err)
	runs, told := map[string]Command{}, make(chan struct{})
	slow, slowest := 0, time.Duration(0)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		f := append(strings.Fields(lines.Text()), "", "", "")
		id, _ := strconv.ParseInt(f[1], 10, 64)
		took, _ := time.ParseDuration(f[2])
		answer := ""
		switch f[0] {
		case "guard":
			before, began := w.Err(), time.Now()
			w.Guard(framework.DeadSession{ID: id, Password: make([]byte, passwordSize), Timeout: took, Servers: f[3], Server: "m:2181"})
			if took := time.Since(began); before == nil && took > 15*time.Millisecond {
				slow, slowest = slow+1, max(slowest, took)
			}
		case "slow": // how many of these took long while there was a guardian
			answer = fmt.Sprint(slow, " ", slowest)
		case "over":
			w.Over(framework.DeadSession{ID: id, Servers: "m:2181"}, f[2] == "true")
		case "until":
			w.Until(time.Now().Add(took))
		case "starting":
			runs[f[1]] = w.Starting()
		case "run", "fork": // the second does not say which group it is
			leads := f[2] == ""
			run := self("writer", "GUARD_CHILDREN="+map[bool]string{true: "1"}[leads])
			run.SysProcAttr = &syscall.SysProcAttr{Setpgid: leads, Pdeathsig: syscall.SIGKILL}
			go func() {
				runtime.LockOSThread()
				_ = run.Start()
				if f[0] == "run" {
					runs[f[1]].Started(run.Process.Pid)
				}
				fmt.Println("started", run.Process.Pid)
				if f[0] == "fork" {
					<-told
				}
				_ = run.Wait()
			}()
			continue
		case "told":
			runs[f[2]].Started(int(id))
			close(told) // once
		case "ended":
			runs[f[1]].Ended()
		case "guardian":
			<-w.started
			answer = strconv.Itoa(cmd.Process.Pid)
		case "welcomed":
			answer = fmt.Sprint(w.Welcomed())
		case "refuse": // pidfd_open from now on
			refuseCall(seccomp.Call{Number: sysPidfdOpen}, int(id))
		case "die":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "shut":
			_ = w.conn.CloseWrite()
		case "close":
			_ = w.Close()
		case "lost":
			select {
			case <-w.Lost():
				answer = w.Err().Error()
			default:
				answer = "no"
			}
		}
		fmt.Println(f[0], answer)
	}
	os.Exit(0)
}

// ward is such a process.
type ward struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner

	begun string // "<nil>", or why it has no guardian
}

func startWard(t *testing.T, env ...string) *ward {
	t.Helper()
	return begin(t, self("ward", env...))
}

func begin(t *testing.T, cmd *exec.Cmd) *ward {
	t.Helper()
	w := &ward{t: t, cmd: cmd}
	in, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.cmd.Stdin, w.in = in, theirs
	out, err := w.cmd.StdoutPipe()
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	w.out = bufio.NewScanner(out)
	t.Cleanup(w.kill)
	w.begun = w.answer("begun")
	return w
}

// answer returns what follows a word in the next line.
func (w *ward) answer(word string) string {
	w.t.Helper()
	late := time.AfterFunc(patience, func() { _ = w.cmd.Process.Kill() })
	defer late.Stop()
	if !w.out.Scan() {
		w.t.Fatalf("%q: the process has ended", word)
	}
	got, rest, _ := strings.Cut(w.out.Text(), " ")
	if got != word {
		w.t.Fatalf("%q, want %q", w.out.Text(), word)
	}
	return rest
}

// do lets it do something, and returns its answer.
func (w *ward) do(format string, args ...any) string {
	w.t.Helper()
	line := fmt.Sprintf(format, args...)
	fmt.Fprintln(w.in, line)
	word, _, _ := strings.Cut(line, " ")
	if word == "run" || word == "fork" {
		word = "started"
	}
	return w.answer(word)
}

// run runs a command with children, and returns its group.
func (w *ward) run(ref string) (group int) {
	w.t.Helper()
	w.do("starting %s", ref)
	return w.start("run %s", ref)
}

// start starts such a process, and returns its group, or without one itself.
func (w *ward) start(format string, args ...any) (pid int) {
	w.t.Helper()
	pid, _ = strconv.Atoi(w.do(format, args...))
	w.t.Cleanup(func() { _ = syscall.Kill(-pid, syscall.SIGKILL); _ = syscall.Kill(pid, syscall.SIGKILL) })
	if s, err := readStat(strconv.Itoa(pid)); err == nil && s.group == pid {
		await(w.t, "three processes of the group run", func() bool { return running(pid) == 3 })
	}
	return pid
}

func (w *ward) guardian() int {
	w.t.Helper()
	pid, err := strconv.Atoi(w.do("guardian"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return pid
}

func (w *ward) signal(sig syscall.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(sig); err != nil {
		w.t.Fatal(err)
	}
}

func (w *ward) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
	_ = w.in.Close()
}

// running counts the processes of a group that are no zombies.
func running(group int) (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range all {
		if s, err := readStat(filepath.Base(name)); err == nil && s.group == group && s.state != 'Z' && s.state != 'X' {
			n++
		}
	}
	return n
}

// ended reports whether a process is gone, or a zombie.
func ended(pid int) bool {
	s, err := readStat(strconv.Itoa(pid))
	return err != nil || s.state == 'Z'
}

// needRoot skips a test for another user, but never in CI.
func needRoot(t *testing.T, why string) {
	t.Helper()
	if os.Getuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("in CI nothing is skipped: it needs root, " + why)
	}
	t.Skip("needs root, " + why)
}

// newRecord returns a record, and the environment by which a child uses it.
func newRecord(t *testing.T) (r record, env []string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "guard") //nolint:usetesting // another user has to get there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	_ = os.Chmod(dir, 0o777)
	r = record{filepath.Join(dir, "record")}
	r.note("begun")
	_ = os.Chmod(r.file, 0o666)
	return r, []string{"GUARD_RECORD=" + r.file, "GUARD_LEDGER=" + filepath.Join(dir, "ledger")}
}
