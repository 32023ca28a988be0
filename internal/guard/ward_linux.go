package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/child"
)

const (
	// welcomeTime is how long a guardian may take to answer at the beginning, and
	// startTime how long one that has to start first, on a busy machine.
	welcomeTime = 2 * time.Second
	startTime   = 5 * time.Second
	// listenTime is how long a daemon may take to listen that is started together
	// with the process.
	listenTime = time.Second
	// writeTime bounds a write to a guardian that does not read. It is the last
	// one.
	writeTime = 20 * time.Millisecond
)

// Ward is the side of the process that is guarded. It is a framework.Guardian.
// All methods may be called at any time, by several goroutines.
type Ward struct {
	conn    *net.UnixConn
	event   int           // an eventfd, -1 without one; readable: the guardian was given up
	child   *exec.Cmd     // nil: a daemon
	started chan struct{} // closed: the child was executed, or there is none
	turn    chan struct{} // holds a token while a message is written, for writeTime at most
	refs    atomic.Uint64
	log     func(text string)

	open     map[key]bool  // sessions that may be there; guarded by turn
	welcome  chan struct{} // closed: the guardian has answered
	answer   message       // read after welcome
	lost     chan struct{} // closed: there is no guardian any more
	loseOnce sync.Once
	err      error // why; read after lost
}

var errEnded = errors.New("the guardian has ended")

// Dial registers this process at the daemon that listens on a socket. It waits
// for the socket for a second, and for the answer for 2s at most.
func Dial(socket string) (*Ward, error) {
	conn, err := dial(socket)
	for end := time.Now().Add(listenTime); isUnheard(err) && time.Now().Before(end); conn, err = dial(socket) {
		time.Sleep(listenTime / 50)
	}
	if err != nil {
		return nil, fmt.Errorf("guardian: %w", err)
	}
	w, err := newWard(conn, nil, nil)
	if err == nil {
		err = w.Welcomed()
	}
	if err != nil {
		return nil, fmt.Errorf("guardian %s: %w", socket, err)
	}
	return w, nil
}

func dial(socket string) (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
}

// isUnheard reports whether nobody listens on a socket, or there is none.
func isUnheard(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// Start starts a guardian of this process alone. It waits neither until that is
// executed nor for its answer: see Welcomed. The socket is behind the files of
// cmd.ExtraFiles. log gets what the guardian has to say; it must not block, and
// may be nil.
func Start(cmd *exec.Cmd, log func(text string)) (*Ward, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("guardian: socketpair", err)
	}
	mine, theirs := os.NewFile(uintptr(fds[0]), "guardian"), os.NewFile(uintptr(fds[1]), "ward")
	conn, err := net.FileConn(mine)
	_ = mine.Close()
	if err != nil {
		_ = theirs.Close()
		return nil, fmt.Errorf("guardian: %w", err)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true // no signal of a terminal, or to our group, reaches it
	w, err := newWard(conn.(*net.UnixConn), cmd, log)
	if err != nil {
		_ = theirs.Close()
		return nil, fmt.Errorf("guardian: %w", err)
	}
	go w.runChild(theirs)
	return w, nil
}

// runChild starts the child, and waits for its end.
func (w *Ward) runChild(theirs *os.File) {
	err := child.Start(w.child)
	_ = theirs.Close()
	if err != nil {
		w.lose(err)
		return
	}
	close(w.started)
	select {
	case <-w.lost: // before it could be killed
		_ = w.child.Process.Kill()
	default:
	}
	err = reapChild(w.child)
	w.lose(fmt.Errorf("%w: %w", errEnded, err))
}

func reapChild(cmd *exec.Cmd) error {
	err := cmd.Wait()
	child.Ended(cmd.Process.Pid)
	if err == nil {
		err = errors.New(cmd.ProcessState.String())
	}
	return err
}

// newWard says hello. The pidfd goes with it: what was sent is there even if
// this process dies before the guardian reads it.
func newWard(conn *net.UnixConn, cmd *exec.Cmd, log func(string)) (*Ward, error) {
	w := &Ward{
		conn: conn, event: -1, child: cmd, log: log, turn: make(chan struct{}, 1), open: map[key]bool{},
		started: make(chan struct{}), welcome: make(chan struct{}), lost: make(chan struct{}),
	}
	if cmd == nil {
		close(w.started)
	}
	pidfd, err := openPidfd(os.Getpid())
	if err == nil {
		defer syscall.Close(pidfd)
		if w.event, err = newEvent(); err == nil {
			err = w.write(message{Op: opHello, Version: Version}, pidfd, w.event)
		}
	}
	if err != nil {
		w.lose(err)
		return nil, err
	}
	go w.read()
	return w, nil
}

// Welcomed waits until the guardian has answered, for 2s at most, and for 5s
// if Start has started it. After an error there is none.
func (w *Ward) Welcomed() error {
	limit := welcomeTime
	if w.child != nil {
		limit = startTime
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-w.welcome:
		return nil
	case <-w.lost:
	case <-late.C:
		w.lose(errors.New("no answer"))
	}
	<-w.lost
	return w.err
}

// Status returns what the guardian has said of itself. The process was
// Welcomed.
func (w *Ward) Status() Status {
	<-w.welcome
	if w.answer.Status == nil {
		return Status{}
	}
	return *w.answer.Status
}

// read reads what the guardian says, until it has ended.
func (w *Ward) read() {
	packet := make([]byte, longestMessage+1)
	for {
		n, err := w.conn.Read(packet)
		if errors.Is(err, syscall.ECONNRESET) { // it has not read all: what it said before comes behind this error
			n, err = w.conn.Read(packet)
		}
		if err == nil && n == 0 {
			err = errEnded
		}
		var m message
		if err == nil {
			m, err = parse(packet[:n], 0)
		}
		if err != nil {
			if w.child != nil { // that it was started, and how it has ended, says more
				time.Sleep(writeTime)
			}
			w.lose(fmt.Errorf("%w: %w", errEnded, err))
			return
		}
		switch {
		case m.Op == opWelcome && w.answer.Op == "":
			w.answer = m
			close(w.welcome)
		case m.Op == opRefused:
			w.lose(fmt.Errorf("refused: %s", m.Text))
			return
		case m.Op == opLog && w.log != nil:
			w.log(m.Text)
		}
	}
}

// lose ends the use of the guardian. It says so to the guardian in a way that
// cannot block, so that it does not act on what it knows.
func (w *Ward) lose(why error) {
	w.loseOnce.Do(func() {
		if w.event >= 0 {
			setEvent(w.event)
			_ = syscall.Close(w.event)
		}
		_ = w.conn.Close()
		w.err = why
		close(w.lost)
		select {
		case <-w.started:
			if w.child != nil {
				_ = w.child.Process.Kill()
			}
		default: // runChild does it
		}
	})
}

// write writes a message with files.
func (w *Ward) write(m message, files ...int) error {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	switch {
	case m.Op == opGuard:
		w.open[m.key()] = true
	case m.Op == opOver && m.Closed:
		delete(w.open, m.key())
	}
	var rights []byte
	if len(files) > 0 {
		rights = syscall.UnixRights(files...)
	}
	// First without a deadline: it could pass before the write begins, if this
	// process is stopped for a moment.
	raw, err := w.conn.SyscallConn()
	if err != nil {
		return err
	}
	var full error
	if err := raw.Control(func(fd uintptr) {
		full = syscall.Sendmsg(int(fd), m.packet(), rights, nil, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
	}); err != nil {
		return err
	}
	if full == nil {
		return nil
	}
	if err := w.conn.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	_, _, err = w.conn.WriteMsgUnix(m.packet(), rights, nil)
	return err
}

// tell writes a message, or gives the guardian up.
func (w *Ward) tell(m message, files ...int) {
	select {
	case <-w.lost:
		return
	default:
	}
	if err := w.write(m, files...); errors.Is(err, os.ErrDeadlineExceeded) {
		w.lose(fmt.Errorf("it has not read for %v", writeTime))
	} else if err != nil {
		w.lose(err)
	}
}

// Guard implements framework.Guardian. It does not wait for a child that is
// being started, which would use up a short --wait: what is in its socket is
// there when it comes to read it, also if this process has died meanwhile.
func (w *Ward) Guard(s framework.DeadSession) {
	w.tell(message{Op: opGuard, ID: s.ID, Password: s.Password, Timeout: s.Timeout, Servers: s.Servers, Server: s.Server})
}

// Over implements framework.Guardian.
func (w *Ward) Over(s framework.DeadSession, closed bool) {
	w.tell(message{Op: opOver, ID: s.ID, Servers: s.Servers, Closed: closed})
}

// Lost implements framework.Guardian.
func (w *Ward) Lost() <-chan struct{} { return w.lost }

// Err implements framework.Guardian.
func (w *Ward) Err() error {
	select {
	case <-w.lost:
		return w.err
	default:
		return nil
	}
}

// Until says when the commands must be dead, unless a later time comes before.
// Only a child kills them then. The clock of both sides is read first: a stop
// in between makes the time earlier. While a machine is suspended only the wall
// clock goes on.
func (w *Ward) Until(deadline time.Time) {
	both, now := bootTime(), time.Now()
	left := min(deadline.Sub(now), deadline.Round(0).Sub(now.Round(0)))
	w.tell(message{Op: opUntil, Until: max(1, both+left)})
}

// Unlimited ends the effect of Until.
func (w *Ward) Unlimited() { w.tell(message{Op: opUntil}) }

// Command is a command of the process. Its group is killed, or awaited, before
// any session is closed.
type Command struct {
	ward *Ward
	ref  uint64
}

// Starting says that a command is about to be started, which will lead a
// process group. If the process dies before it has called Started, its sessions
// are left to their timeouts. If it is stopped before that, a child finds the
// group: it is the only one that the process has started since.
func (w *Ward) Starting() Command {
	c := Command{w, w.refs.Add(1)}
	w.tell(message{Op: opStarting, Ref: c.ref, Start: uint64(bootTime() / procTick)})
	return c
}

// Started says that the command leads the process group pid. The caller has not
// waited for it: its number cannot be another's.
func (c Command) Started(pid int) {
	pidfd, err := openPidfd(pid)
	if err != nil { // the guardian cannot know when its group is gone
		c.ward.lose(err)
		return
	}
	defer syscall.Close(pidfd)
	c.ward.tell(message{Op: opGroup, Ref: c.ref, Group: pid, Start: startOf(pid)}, pidfd)
}

// Ended says that the command has ended, or was not started. What it has left
// in its group is not killed any more.
func (c Command) Ended() { c.ward.tell(message{Op: opEnded, Ref: c.ref}) }

// Close gives the guardian up. A child of ours is killed.
func (w *Ward) Close() error {
	w.lose(ErrClosed)
	return nil
}

// CloseIfIdle is Close, unless a session may still be there. Then the guardian
// closes it once this process has ended.
func (w *Ward) CloseIfIdle() {
	w.turn <- struct{}{}
	idle := len(w.open) == 0
	<-w.turn
	if idle {
		w.lose(ErrClosed)
	}
}

// Ask returns the status of the daemon that listens on a socket.
func Ask(socket string) (Status, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return Status{}, fmt.Errorf("guardian: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(welcomeTime))
	packet := make([]byte, longestMessage+1)
	n := 0
	if _, err = conn.Write(message{Op: opStatus, Version: Version}.packet()); err == nil {
		n, err = conn.Read(packet)
	}
	if err != nil {
		return Status{}, fmt.Errorf("guardian %s: %w", socket, err)
	}
	m, err := parse(packet[:n], 0)
	if err == nil && m.Op == opRefused {
		err = errors.New(m.Text)
	}
	if err != nil || m.Status == nil {
		return Status{}, fmt.Errorf("guardian %s: %w", socket, errors.Join(err, errMessage))
	}
	return *m.Status, nil
}

// AwaitEnd returns a channel that is closed once a child of this process, for
// which nobody has waited yet, has ended. If that cannot be known, it never is.
func AwaitEnd(pid int) <-chan struct{} {
	pidfd, err := openPidfd(pid)
	if err != nil {
		return nil
	}
	_ = syscall.SetNonblock(pidfd, true)
	file := os.NewFile(uintptr(pidfd), "command")
	ended := make(chan struct{})
	go func() {
		defer file.Close()
		<-awaitReadable(file)
		close(ended)
	}()
	return ended
}
