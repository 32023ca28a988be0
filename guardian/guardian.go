// Package guardian closes the sessions of a process as soon as the process is
// dead: killed, by a panic, or by os.Exit. The next in line gets what it held
// in milliseconds, instead of after a session timeout.
//
// A guardian is another process on the same host. There are two kinds:
//
//   - a daemon, for all processes of a host or a pod: zkr guard --listen
//     SOCKET. [Find] and [Dial] register this process. The daemon survives a
//     process 1 of a container, and a cgroup that is killed.
//   - a child of this process: [Start]. It can also run commands, whose process
//     groups are killed before any session is closed: [Guardian.Command].
//
// Pass it to the clients of this process:
//
//	g, err := guardian.Find() // $ZKR_GUARDIAN
//	if err != nil {
//		log.Print(err) // the process works without one
//	}
//	opts := g.Options() // none if g is nil
//	client, err := framework.New(servers, opts...)
//
// # What is promised
//
// Nothing is closed before the kernel says that no thread of the process is
// left. A session is closed by the request by which the ensemble would expire
// it, only earlier. So no write of it is executed afterwards, and tokens grow.
// All sessions of the process are taken away from it before any is closed.
//
// The time is not promised. If the guardian is killed, stopped, or cannot reach
// the servers, sessions end by their timeouts. Lost says when that is known.
//
// # What it takes away
//
// The session timeout has given requests of the dead process to others, such as
// a database, time to end. With a guardian they may still run when the next
// holder begins: use tokens, or --after of zkr guard. The same is true of
// children that the process has started without Command. A process that comes
// back from a snapshot of itself must not have a guardian.
//
// A guardian needs Linux 5.3 or later: see [Supported]. Who may connect to its
// socket may end the sessions of every process of its ensembles.
package guardian

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closing"
	"github.com/zkrecipes/zkrecipes/internal/guard"
	"github.com/zkrecipes/zkrecipes/internal/supplied"
)

// Variable is the environment variable that Find reads.
const Variable = "ZKR_GUARDIAN"

// ErrNotAChild is returned by Command of a daemon's Guardian: only a child
// kills process groups.
var ErrNotAChild = errors.New("guardian: only one that Start has started can run commands")

// Supported reports whether guardians work on this operating system.
func Supported() bool { return guard.Supported() }

// Guardian is a guardian of this process. It implements framework.Guardian. All
// methods may be called by several goroutines. A nil Guardian guards nothing:
// of its methods only Options and Close may be called.
type Guardian struct {
	ward    *guard.Ward
	isChild bool
}

// Dial registers this process at the daemon that listens on a socket. It waits
// a second for the socket, and two for the answer. It fails without a daemon,
// and if that refuses the process.
func Dial(socket string) (*Guardian, error) {
	ward, err := guard.Dial(socket)
	if err != nil {
		return nil, err
	}
	return &Guardian{ward: ward}, nil
}

// Find dials the socket that $ZKR_GUARDIAN names. It returns nil and no error
// if the variable is not set, or is "off" or "child". Neither of these changes
// zkr, which has a child for each command.
func Find() (*Guardian, error) {
	switch socket := os.Getenv(Variable); socket {
	case "", "off", "child":
		return nil, nil
	default:
		return Dial(socket)
	}
}

// Start starts a guardian of this process alone: cmd is "zkr guard --fd 3" with
// flags that name the ensembles, or a program that calls Serve. Its socket is
// appended to cmd.ExtraFiles, so it is descriptor 3 if there are no others.
// Start waits for its answer, for five seconds at most. The guardian is in a
// session of its own, so signals of a terminal do not reach it. It ends when
// this process has died and its sessions are closed, or by Close.
func Start(cmd *exec.Cmd) (*Guardian, error) {
	ward, err := guard.Start(cmd, nil)
	if err == nil {
		err = ward.Welcomed()
	}
	if err != nil {
		return nil, fmt.Errorf("guardian: %w", err)
	}
	return &Guardian{ward: ward, isChild: true}, nil
}

// Options returns what New has to get. It is empty for a nil Guardian.
func (g *Guardian) Options() []framework.Option {
	if g == nil {
		return nil
	}
	return []framework.Option{framework.WithGuardian(g)}
}

// Guard implements framework.Guardian. It takes 20ms at most: a guardian that
// does not read is lost.
func (g *Guardian) Guard(s framework.DeadSession) { g.ward.Guard(s) }

// Over implements framework.Guardian.
func (g *Guardian) Over(s framework.DeadSession, closed bool) { g.ward.Over(s, closed) }

// Command starts cmd in a process group of its own. If this process dies, the
// group is killed, and gone, before any session is closed. Once this process
// has seen the command end, what that has left in the group is not killed. The
// caller waits for cmd as ever. On Linux the kernel also kills the command if
// the thread that has started it ends first: see Pdeathsig of package syscall,
// which Command does not set.
//
// It fails with ErrNotAChild, or as cmd.Start does. If the guardian is lost,
// the command runs without one.
func (g *Guardian) Command(cmd *exec.Cmd) error {
	if !g.isChild {
		return ErrNotAChild
	}
	return g.command(cmd)
}

// Until says when all commands must be dead, unless it is called with a later
// time before. The guardian kills their groups then: this process is stopped,
// or they do not end. Pass lease.Deadline, less a margin, again with every few
// percent of the session timeout. The zero time ends the limit. It costs a
// write to a socket.
func (g *Guardian) Until(deadline time.Time) {
	if deadline.IsZero() {
		g.ward.Unlimited()
	} else {
		g.ward.Until(deadline)
	}
}

// Lost returns a channel that is closed when there is no guardian any more.
// From then on the sessions of this process end by their timeouts if it dies.
func (g *Guardian) Lost() <-chan struct{} { return g.ward.Lost() }

// Err returns why the guardian was lost, nil while it is not.
func (g *Guardian) Err() error { return g.ward.Err() }

// Close gives the guardian up, and kills it if it is a child. It then does
// nothing if this process dies. Sessions and commands are not touched. Close
// the clients first, so that their sessions are guarded until they are closed.
// A process that ends need not call it.
func (g *Guardian) Close() error {
	if g == nil {
		return nil
	}
	return g.ward.Close()
}

// Ensemble is one whose sessions a guardian closes.
type Ensemble struct {
	// Servers are all of its servers, "h1:2181,h2:2181". A process that names
	// another server is refused.
	Servers string
	// Options say how to connect: by which dialer, with which TLS or SASL.
	// Credentials of framework.WithAuth are not sent: a close needs none.
	Options []framework.Option
}

// Serve is the guardian's side of Start, for a program that is its own
// guardian. conn is the socket that it has inherited. It returns once the other
// process has died and its sessions are closed or left to their timeouts, or
// once that process has given the guardian up. after is how long it waits
// behind the death, and the end of the commands, until it closes sessions. log
// may be nil. The program should ignore SIGTERM, SIGINT, SIGHUP and SIGQUIT,
// and close the descriptors that it has inherited, as zkr guard does.
func Serve(conn *net.UnixConn, ensembles []Ensemble, after time.Duration, log *zap.Logger) error {
	cfg := guard.Config{After: after}
	if after < 0 {
		return fmt.Errorf("guardian: after %v: must not be negative", after)
	}
	if log != nil {
		quick, lines := supplied.Logger(log)
		defer lines.Flush(time.After(time.Second))
		cfg.Log = func(text string) { quick.Info(text) }
	}
	for _, e := range ensembles {
		servers, err := closing.Open(e.Servers, e.Options...)
		if err != nil {
			return fmt.Errorf("guardian: %w", err)
		}
		cfg.Ensembles = append(cfg.Ensembles, guard.Ensemble{Servers: e.Servers, Closing: servers})
	}
	if len(cfg.Ensembles) == 0 {
		return errors.New("guardian: no ensemble")
	}
	return guard.Serve(conn, cfg)
}
