package guard

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/closing"
	"github.com/zkrecipes/zkrecipes/internal/escape"
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

// How many processes may have their sessions closed at the same time in an
// ensemble: servers limit the connections of a host.
const (
	mostClosing        = 16
	mostClosingOfAUser = 12
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

	mostFiles int // descriptors of a user

	mu        sync.Mutex    // guards what follows
	ran       time.Duration // when it ran last, on the clock of bootTime
	stopped   time.Duration // when it ran last before it was stopped
	resumed   time.Duration // when it ran again
	users     map[int]*user
	processes map[*served]struct{}
}

func newGuardian(cfg Config, kills bool) (g *Guardian, stop func()) {
	g = &Guardian{
		cfg: cfg, kills: kills,
		mostFiles: mostFilesOfAUser(), users: map[int]*user{}, processes: map[*served]struct{}{},
	}
	for _, e := range cfg.Ensembles {
		g.servers = append(g.servers, e.Servers)
		g.closing = append(g.closing, make(chan struct{}, mostClosing))
	}
	g.cfg.Log = func(text string) { // which may be of a process
		if cfg.Log != nil {
			cfg.Log(escape.Text(strings.ReplaceAll(text[:min(len(text), longestText)], "\n", "; ")))
		}
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
	return g.acceptAll(ctx, l.AcceptUnix, func(conn *net.UnixConn) {
		if err := g.serve(conn); err != nil {
			g.cfg.Log(err.Error())
		}
	})
}

// Pauses behind an error of accept, and between two log lines of them.
const (
	shortestPause    = 10 * time.Millisecond
	longestPause     = time.Second
	shortestLogPause = time.Second
	longestLogPause  = time.Hour
)

// acceptAll serves each connection on a goroutine of its own, until ctx ends or
// the listener is closed. No other error ends it: descriptors or memory may be
// short for a moment, and a process may have given up. It logs the first one,
// and later ones ever more rarely.
func (g *Guardian) acceptAll(ctx context.Context, accept func() (*net.UnixConn, error), serve func(*net.UnixConn)) error {
	var logged time.Time
	pause, logPause := shortestPause, shortestLogPause
	for {
		conn, err := accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err == nil:
			pause = shortestPause
			go serve(conn)
			continue
		}
		if logged.IsZero() {
			g.cfg.Log(err.Error())
			logged = time.Now()
		} else if time.Since(logged) >= logPause {
			g.cfg.Log(err.Error())
			logged, logPause = time.Now(), min(2*logPause, longestLogPause)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestPause)
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
