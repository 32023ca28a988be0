package guard

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/closing"
)

// This file is one guardian: for whom it works, and since when it has run.

// Ensemble is one that a guardian serves.
type Ensemble struct {
	Servers string // "h1:2181,h2:2181", a chroot does not matter
	Closing closing.Ensemble
}

// Config is how a guardian works. Nothing changes it.
type Config struct {
	Ensembles []Ensemble
	After     time.Duration     // from the end of all that the process has left until its sessions are closed
	Log       func(text string) // what it has done; it must not block
}

// Limits of a daemon.
const (
	mostProcesses = 4096 // of all users
	mostOfAUser   = 1024
	mostClosing   = 16 // processes whose sessions are closed at the same time in an ensemble: servers limit the connections of a host
)

// tick is how often a guardian notes that it runs. A death that it notices
// after it was stopped may have been at any time since.
const tick = 500 * time.Millisecond

// Guardian is one side of all sockets of a guardian.
type Guardian struct {
	cfg     Config
	servers []string
	kills   bool
	closing []chan struct{} // of each ensemble, has room for mostClosing

	mu        sync.Mutex    // guards what follows
	ran       time.Duration // when it ran last, on the clock of bootTime
	stopped   time.Duration // when it ran last before it was stopped
	resumed   time.Duration // when it ran again
	users     map[int]int
	processes map[*served]struct{}
}

func newGuardian(cfg Config, kills bool) (g *Guardian, stop func()) {
	g = &Guardian{
		cfg: cfg, kills: kills,
		users: map[int]int{}, processes: map[*served]struct{}{},
	}
	for _, e := range cfg.Ensembles {
		g.servers = append(g.servers, e.Servers)
		g.closing = append(g.closing, make(chan struct{}, mostClosing))
	}
	if g.cfg.Log == nil {
		g.cfg.Log = func(string) {}
	}
	g.ran = bootTime()
	over := make(chan struct{})
	ticks := time.NewTicker(tick)
	go func() { // ends with stop
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				g.mu.Lock()
				g.runs(bootTime())
				g.mu.Unlock()
			case <-over:
				return
			}
		}
	}()
	return g, sync.OnceFunc(func() { close(over) })
}

// runs notes that the guardian runs now. The caller holds mu.
func (g *Guardian) runs(now time.Duration) {
	if now-g.ran > 2*tick {
		g.stopped, g.resumed = g.ran, now
	}
	g.ran = now
}

// noticed returns when a death was that is noticed now: at the earliest when
// this guardian ran last, if it was stopped until now.
func (g *Guardian) noticed() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := bootTime()
	g.runs(now)
	if now-g.resumed < 2*tick && g.resumed != 0 {
		return time.Now().Add(g.stopped - now)
	}
	return time.Now()
}

// Serve guards the process at the other end of conn, whose child this process
// is. It returns once that one has died and its sessions are closed or left to
// their timeouts, or once it has given this guardian up. It closes conn.
func Serve(conn *net.UnixConn, cfg Config) error {
	g, stop := newGuardian(cfg, true)
	defer stop()
	return g.serve(conn)
}

// ServeAll guards each process that connects to l, until ctx ends. It closes l.
func ServeAll(ctx context.Context, l *Listener, cfg Config) error {
	g, stop := newGuardian(cfg, false)
	defer stop()
	closed := sync.OnceFunc(func() { _ = l.Close() })
	defer closed()
	defer context.AfterFunc(ctx, closed)()
	for {
		conn, err := l.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED) {
			g.cfg.Log(err.Error())
			time.Sleep(tick)
			continue
		}
		if err != nil {
			return err
		}
		go func() {
			if err := g.serve(conn); err != nil {
				g.cfg.Log(err.Error())
			}
		}()
	}
}

// enter counts a process, within the limits.
func (g *Guardian) enter(s *served) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.processes) >= mostProcesses || g.users[s.peer.uid] >= mostOfAUser {
		return errors.New("too many processes")
	}
	g.processes[s] = struct{}{}
	g.users[s.peer.uid]++
	return nil
}

func (g *Guardian) leave(s *served) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.processes, s)
	if g.users[s.peer.uid]--; g.users[s.peer.uid] == 0 {
		delete(g.users, s.peer.uid)
	}
}

// status counts those that have said hello.
func (g *Guardian) status() *Status {
	g.mu.Lock()
	all := make([]*served, 0, len(g.processes))
	for s := range g.processes {
		all = append(all, s)
	}
	g.mu.Unlock()
	st := &Status{After: g.cfg.After}
	size := 0
	for _, servers := range g.servers {
		if size += len(servers); size <= longestServers {
			st.Ensembles = append(st.Ensembles, servers)
		}
	}
	for _, s := range all {
		s.mu.Lock()
		if s.charge.hello {
			st.Processes++
			st.Sessions += len(s.charge.sessions)
		}
		s.mu.Unlock()
	}
	return st
}
