package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/child"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// errMissing says that a peer is not installed.
var errMissing = errors.New("not installed")

// patience is how long servers have to start.
const patience = 30 * time.Second

// site is where the servers run. Each starts when the first peer needs it.
type site struct {
	dir     string
	sync    bool // ZooKeeper waits for its disk
	members int  // of ZooKeeper
	more    []apache.Option
	zk      *apache.Ensemble
	running map[string]*server // by name
	others  []*process
	paths   int
}

// newSite returns a site with a directory below the one of the options.
func (o *options) newSite(members int) (*site, error) {
	dir, err := os.MkdirTemp(o.dir, "zkr-bench-")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	return &site{dir: dir, sync: o.sync, members: members, running: map[string]*server{}}, nil
}

// close stops the servers and removes their data.
func (s *site) close() error {
	var errs []error
	if s.zk != nil {
		errs = append(errs, s.zk.Close())
	}
	for _, p := range s.others {
		p.kill()
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// place returns where a peer may work that uses a server.
func (s *site) place(on *server) place {
	s.paths++
	return place{on.address, fmt.Sprintf("/bench-%d", s.paths), s.dir}
}

// zookeeper returns the ensemble. Its address is that of one member, so that
// all peers have the same way to the leader: of a follower, if there are
// several members.
func (s *site) zookeeper(ctx context.Context) (*server, error) {
	if on := s.running["zookeeper"]; on != nil {
		return on, nil
	}
	opts := []apache.Option{
		apache.WithTick(2 * time.Second), apache.WithSessionTimeouts(4*time.Second, 40*time.Second),
		// Directories that are empty stay, or their deletion would count as
		// a cost of the peer that runs then.
		apache.WithProperty("znode.container.checkIntervalMs", "3600000"),
	}
	opts = append(opts, s.more...)
	if s.sync {
		opts = append(opts, apache.WithForceSync())
	}
	var err error
	if s.zk, err = apache.New(ctx, filepath.Join(s.dir, "zookeeper"), s.members, opts...); err != nil {
		return nil, err
	}
	follower := (s.zk.Leader() + 1) % s.members
	on := &server{address: strings.Split(s.zk.Servers(), ",")[follower], zxid: s.zxid}
	for i := range s.members {
		on.pids = append(on.pids, s.zk.PID(i))
	}
	s.running["zookeeper"] = on
	return on, nil
}

func (s *site) etcd(ctx context.Context) (*server, error) {
	client, err := freeAddress()
	if err != nil {
		return nil, err
	}
	between, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return s.serve(ctx, client, "etcd", "--data-dir", filepath.Join(s.dir, "etcd"), "--logger", "zap", "--log-level", "error",
		"--listen-client-urls", "http://"+client, "--advertise-client-urls", "http://"+client,
		"--listen-peer-urls", "http://"+between, "--initial-advertise-peer-urls", "http://"+between, "--initial-cluster", "default=http://"+between)
}

func (s *site) redis(ctx context.Context) (*server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return s.serve(ctx, address, "redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "always")
}

// serve starts a server, unless it runs, and returns when it accepts
// connections.
func (s *site) serve(ctx context.Context, address, program string, args ...string) (*server, error) {
	if on := s.running[program]; on != nil {
		return on, nil
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", errMissing, program)
	}
	cmd := exec.Command(path, args...)
	var said bytes.Buffer // read once it has ended
	cmd.Stdout, cmd.Stderr = &said, &said
	p, err := startProcess(cmd)
	if err != nil {
		return nil, err
	}
	s.others = append(s.others, p)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			s.running[program] = &server{address: address, pids: []int{cmd.Process.Pid}}
			return s.running[program], conn.Close()
		}
		select {
		case <-p.ended:
			return nil, fmt.Errorf("%s has ended: %s", program, strings.TrimSpace(said.String()))
		case <-ctx.Done():
			return nil, fmt.Errorf("%s does not accept connections at %s: %w", program, address, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// process is a child process that ends with this process.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	child.DieWithParent(cmd)
	p := &process{cmd, make(chan struct{})}
	started := make(chan error, 1)
	go func() { // ends with the process
		// Linux takes the end of the thread that started a child for the end of
		// the parent, so keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended shows in its output
			close(p.ended)
		}
	}()
	return p, <-started
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}
