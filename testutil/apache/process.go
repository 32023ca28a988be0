package apache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/child"
)

// process is one member: a JVM, running or not.
type process struct {
	index   int
	address string // of its client port
	dir     string
	java    string
	args    []string
	network Network

	mu     sync.Mutex // guards what follows
	run    *run       // nil while it is not running
	paused bool
}

// run is one run of a member's process.
type run struct {
	process *os.Process
	ended   chan struct{} // closed when the process has ended and was waited for
	result  string        // how it ended, such as "exit status 1"; read after ended
}

var (
	errStopped = errors.New("not running")
	errRunning = errors.New("already running")
)

func newProcess(cfg config, dir string, index, clientPort int, more []string) (*process, error) {
	data := dataDir(dir)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(data, "myid"), []byte(strconv.Itoa(index+1)), 0o600); err != nil {
		return nil, err
	}
	least, most := cfg.minSession, cfg.maxSession
	if b, ok := cfg.bounds[index]; ok {
		least, most = b[0], b[1]
	}
	settings := fmt.Sprintf(`tickTime=%d
initLimit=50
syncLimit=25
dataDir=%s
clientPort=%d
clientPortAddress=%s
maxClientCnxns=0
minSessionTimeout=%d
maxSessionTimeout=%d
admin.enableServer=false
4lw.commands.whitelist=*
%s`, cfg.tick.Milliseconds(), filepath.ToSlash(data), clientPort, cfg.network.Host(index), least.Milliseconds(), most.Milliseconds(), strings.Join(more, "\n"))
	file := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	properties := cfg.properties
	if cfg.jaas != "" {
		file := filepath.Join(dir, "jaas.conf")
		if err := os.WriteFile(file, []byte(cfg.jaas), 0o600); err != nil {
			return nil, err
		}
		properties = slices.Concat([]string{
			"-Djava.security.auth.login.config=" + file,
			"-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
			"-Dfile.encoding=UTF-8", // of passwords
		}, properties)
	}
	return &process{
		index:   index,
		address: net.JoinHostPort(cfg.network.Host(index), strconv.Itoa(clientPort)),
		dir:     dir,
		java:    cfg.java,
		network: cfg.network,
		args: slices.Concat([]string{
			"-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", // small, and fast to start
			"-Dzookeeper.forceSync=no", // a test's data need not survive a power cut
			"-Dzookeeper.extendedTypesEnabled=true",
			"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		}, properties, []string{
			"-cp", cfg.classPath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", file,
		}),
	}, nil
}

func dataDir(dir string) string { return filepath.Join(dir, "data") }

func (p *process) dataDir() string { return dataDir(p.dir) }

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil {
		return errRunning
	}
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.java, p.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	child.DieWithParent(cmd)
	if err := p.network.Enter(p.index, cmd); err != nil {
		return err
	}

	r := &run{ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() { // ends with the process, which stop kills
		// Linux treats the end of the thread that started a child as
		// the parent's death, so keep the thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		r.process = cmd.Process
		started <- nil
		if err := cmd.Wait(); err != nil {
			r.result = err.Error()
		}
		close(r.ended)
	}()
	if err := <-started; err != nil {
		return err
	}
	p.run, p.paused = r, false
	return nil
}

func (p *process) stop() error {
	p.mu.Lock()
	r := p.run
	p.run, p.paused = nil, false
	p.mu.Unlock()
	if r == nil {
		return errStopped
	}
	if err := r.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-r.ended
	return nil
}

func (p *process) pause() error  { return p.freeze(true) }
func (p *process) resume() error { return p.freeze(false) }

func (p *process) freeze(frozen bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return errStopped
	}
	if err := freeze(p.run.process, frozen); err != nil {
		return err
	}
	p.paused = frozen
	return nil
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return 0
	}
	return p.run.process.Pid
}

// answering returns the current run, or nil if the member is stopped or paused.
func (p *process) answering() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused {
		return nil
	}
	return p.run
}

// mode returns "standalone", "leader", "follower", "observer" or "read-only",
// and "" while the member does not serve.
func (p *process) mode() string {
	if p.answering() == nil {
		return ""
	}
	answer, err := p.ask("srvr")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(answer) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode)
		}
	}
	return ""
}

func (p *process) serves() bool { return p.mode() != "" }

func (p *process) waitServing(ctx context.Context) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		r := p.answering()
		if r == nil || p.serves() {
			return nil
		}
		select {
		case <-poll.C:
		case <-r.ended:
			if p.answering() != r {
				continue // stop has ended it
			}
			return fmt.Errorf("its process ended: %s\n%s", r.result, p.logged())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ask sends a four-letter word and returns the answer. It does not wait for a
// member that is stopped or paused.
func (p *process) ask(word string) (string, error) {
	conn, err := talkTo(p.address, 10*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// talkTo opens a connection to a member, for a short talk. Neither it nor the
// talk takes longer than patience.
func talkTo(address string, patience time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		_ = conn.Close() // it is of no use
		return nil, err
	}
	return conn, nil
}

func (p *process) logFile() string { return filepath.Join(p.dir, "log") }

// logged returns the last lines of the member's log, without the stack traces
// that ZooKeeper logs for every connection that ends.
func (p *process) logged() string {
	const enough = 30 // lines
	log, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(log)), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "\tat ")
	})
	return strings.Join(lines[max(0, len(lines)-enough):], "\n")
}

// findJava returns the path of java.
func findJava() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		return exec.LookPath(filepath.Join(home, "bin", "java"))
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("apache: needs Java: %w", err)
	}
	return java, nil
}

// findServer returns the class path of the server.
func findServer() (string, error) {
	separator := string(os.PathListSeparator)
	if home := os.Getenv("ZOOKEEPER_HOME"); home != "" {
		if jars, err := filepath.Glob(filepath.Join(home, "lib", "zookeeper-*.jar")); err != nil || len(jars) == 0 {
			return "", fmt.Errorf("apache: no lib/zookeeper-*.jar in ZOOKEEPER_HOME %s", home)
		}
		return filepath.Join(home, "lib", "*"), nil
	}
	const debian = "/usr/share/java/"
	if _, err := os.Stat(debian + "zookeeper.jar"); err != nil {
		return "", fmt.Errorf("apache: needs ZOOKEEPER_HOME or Debian's package zookeeper: %w", err)
	}
	return strings.Join([]string{
		debian + "zookeeper.jar", debian + "slf4j-simple.jar",
		debian + "netty-codec.jar", debian + "netty-resolver.jar", // for TLS: zookeeper.jar does not name them
	}, separator), nil
}
