package acceptance_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/child"
	"github.com/zkrecipes/zkrecipes/internal/test/tlstest"
	"github.com/zkrecipes/zkrecipes/internal/zkr"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// TestSecurityIsSwitchedOn does on three real members what docs/deploy.md says,
// with its settings and its script: TLS, then SASL, then ACLs, in an estate
// whose clients contend for one lock and hold another one all the time. No
// lease is lost, nobody gets a lock that another client holds, and in the end
// nobody gets in without TLS and a password. The guardian of the host gets the
// new environment before the clients do, and after each step the lock of a
// program that is killed is free long before its session could expire.
func TestSecurityIsSwitchedOn(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	for range 3 {
		e.start(outfit{})
	}
	e.held = e.acquire(e.client(outfit{}), nil)
	e.guard(outfit{})
	e.failsOver("before all", outfit{})

	e.roll("offer TLS", func(m *secured) { m.add(e.settings[0]) })
	e.isRefused(outfit{tls: true})
	e.guard(outfit{tls: true})
	e.change("TLS", outfit{tls: true}, func(m *secured) string { return e.run("plain", m.plain) })
	e.failsOver("TLS", outfit{tls: true})
	e.roll("plain goes off", func(m *secured) { m.remove("clientPort"); m.closed = true })
	for _, m := range e.members {
		if conn, err := net.DialTimeout("tcp", m.plain, time.Second); err == nil {
			_ = conn.Close()
			t.Errorf("%s still listens without TLS", m.plain)
		}
	}

	e.flags.set("-Djava.security.auth.login.config=" + e.jaas)
	e.roll("offer SASL", func(m *secured) { m.add(e.settings[1]) })
	e.guard(outfit{tls: true, user: "app"})
	e.change("SASL", outfit{tls: true, user: "app"}, func(m *secured) string { return e.run("sasl", m.secure, m.log(), e.ca) })
	e.roll("require SASL", func(m *secured) { m.add(e.settings[2]) })
	e.failsOver("SASL", outfit{tls: true, user: "app"})

	e.change("ACLs", outfit{tls: true, user: "app", acl: true}, nil)
	var text strings.Builder
	code := zkr.Main(append(e.setACLs, "--servers", e.servers(true)+"/app", // as ZKR_SERVERS on the page
		"--tls-ca", e.ca, "--tls-server-name", "ensemble.example", "--sasl", "digest-md5", "--sasl-user", "app", "--sasl-password-file", e.password,
	), io.Discard, &text)
	if code != 0 {
		t.Fatalf("zkr set exits with %d: %s", code, text.String())
	}
	e.works("after all")
	e.failsOver("after all", outfit{tls: true, user: "app", acl: true})
	acl, _, err := e.held.client.GetACL(t.Context(), e.held.lease.Path())
	parent, _, parentErr := e.held.client.GetACL(t.Context(), "/")
	if err != nil || parentErr != nil || !slices.Equal(acl, []zk.ACL{forUser("app")}) || !slices.Equal(parent, acl) {
		t.Errorf("ACLs %v and %v, %v, %v", acl, parent, err, parentErr)
	}

	for name, o := range map[string]outfit{"without TLS": {}, "without SASL": {tls: true}} {
		c := e.client(o)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		if _, _, err := c.Get(ctx, "/locks"); err == nil {
			t.Errorf("a client %s gets in", name)
		}
		cancel()
	}
	if _, _, err := e.client(outfit{tls: true, user: "other"}).Children(t.Context(), "/locks"); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("another user reads the locks: %v", err)
	}
	e.end()
}

// outfit is what a client has of security.
type outfit struct {
	tls  bool
	user string
	acl  bool
}

// secured is a member, and its configuration.
type secured struct {
	index         int
	dir           string
	plain, secure string // addresses
	closed        bool   // it has no plain one
	edit          func(old string) string
}

func (m *secured) log() string { return filepath.Join(m.dir, "log") }

// add adds lines to the configuration.
func (m *secured) add(lines string) {
	_, port, _ := net.SplitHostPort(m.secure)
	lines = strings.NewReplacer("2281", port, "/etc/zookeeper/", filepath.Dir(m.dir)+"/").Replace(lines)
	m.edit = func(old string) string { return old + "\n" + lines + "secureClientPortAddress=127.0.0.1\n" }
}

// remove removes a line from it.
func (m *secured) remove(name string) {
	line := regexp.MustCompile(`(?m)^` + name + `(Address)?=.*\n`)
	m.edit = func(old string) string { return line.ReplaceAllString(old, "") }
}

// jvmFlags is loopback, with one more argument for each JVM that starts.
type jvmFlags struct{ more atomic.Pointer[string] }

func (f *jvmFlags) set(flag string) { f.more.Store(&flag) }

func (*jvmFlags) Host(int) string { return "127.0.0.1" }

func (*jvmFlags) Address(_, _ int, address string) (string, error) { return address, nil }

func (f *jvmFlags) Enter(_ int, cmd *exec.Cmd) error {
	if more := f.more.Load(); more != nil {
		cmd.Args = slices.Insert(cmd.Args, 1, *more)
	}
	return nil
}

// estate is an ensemble in use.
type estate struct {
	t         *testing.T
	ens       *apache.Ensemble
	flags     *jvmFlags
	members   []*secured
	settings  []string // those of the page
	setACLs   []string // the arguments of zkr of the page
	srvr      string   // the page's command that asks a member by TLS
	authority *tlstest.Authority
	ca, jaas  string // files
	password  string // a file
	zkr       string // the program
	socket    string // of the guardian
	guardian  *process
	held      heldLock
	workers   []*contending
	inside    atomic.Int32 // clients that have the contended lock
	turns     atomic.Int64
}

// heldLock is a lease of the lock that is held all the time.
type heldLock struct {
	client *framework.Client
	lease  *recipes.Lease
}

// contending is a client that takes the contended lock again and again.
type contending struct {
	client *framework.Client
	outfit outfit
	stop   chan struct{} // closed to end it after its turn
	ended  chan struct{}
}

func newEstate(t *testing.T) *estate {
	page, err := os.ReadFile("../../../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	e := &estate{t: t, flags: new(jvmFlags), authority: tlstest.NewAuthority(t)}
	for _, m := range regexp.MustCompile("(?ms)^ *```properties\n(.*?)^ *```$").FindAllStringSubmatch(string(page), -1) {
		e.settings = append(e.settings, strings.ReplaceAll(m[1], "   ", ""))
	}
	if len(e.settings) != 3 {
		t.Fatalf("docs/deploy.md has %d blocks of properties", len(e.settings))
	}
	command := regexp.MustCompile("`zkr (set --acl [^`]*)`").FindSubmatch(page)
	if command == nil {
		t.Fatal("docs/deploy.md does not say how ACLs are changed")
	}
	e.setACLs = strings.Fields(string(command[1]))
	srvr := regexp.MustCompile("`(printf srvr \\|\\sopenssl\\s[^`]*)`").FindSubmatch(page)
	if srvr == nil {
		t.Fatal("docs/deploy.md does not say how a member is asked by TLS")
	}
	e.srvr = strings.ReplaceAll(string(srvr[1]), "\n", " ")
	e.ens = apache.Start(t, 3, apache.WithNetwork(e.flags), apache.WithProperty("org.slf4j.simpleLogger.log.org.apache.zookeeper.server.ZooKeeperServer", "info"))
	for i, plain := range strings.Split(e.ens.Servers(), ",") {
		e.members = append(e.members, &secured{index: i, dir: filepath.Dir(e.ens.DataDir(i)), plain: plain, secure: freeAddress(t)})
	}
	common := filepath.Dir(e.members[0].dir)
	e.ca, e.jaas, e.password = filepath.Join(common, "ca.pem"), filepath.Join(common, "jaas.conf"), filepath.Join(common, "password")
	e.zkr, e.socket = filepath.Join(common, "zkr"), filepath.Join(t.TempDir(), "s")
	if out, err := exec.Command("go", "build", "-o", e.zkr, "../../../cmd/zkr").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	e.authority.Write(e.ca)
	server := filepath.Join(common, "server.pem")
	tlstest.WritePair(t, e.authority.Issue("ensemble.example", time.Hour), server, server)
	jaas := regexp.MustCompile("(?s)```text\n *(Server .*?) *```").FindSubmatch(page)
	if jaas == nil {
		t.Fatal("docs/deploy.md has no jaas.conf")
	}
	for file, text := range map[string]string{e.jaas: string(jaas[1]), e.password: "secret\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := framework.New(e.ens.Servers())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.MakePersistentPath(t.Context(), "/app/locks"); err != nil {
		t.Fatal(err)
	}
	return e
}

// freeAddress returns an address below the range of outgoing connections.
func freeAddress(t *testing.T) string {
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(20000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

func (e *estate) servers(secure bool) string {
	var all []string
	for _, m := range e.members {
		if secure {
			all = append(all, m.secure)
		} else {
			all = append(all, m.plain)
		}
	}
	return strings.Join(all, ",")
}

func (e *estate) tls() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: e.authority.Pool(), ServerName: "ensemble.example"}
}

// client opens a client. The test closes it, or the end of the test does.
func (e *estate) client(o outfit) *framework.Client {
	e.t.Helper()
	opts := []framework.Option{framework.WithSessionTimeout(enduring)}
	if o.tls {
		opts = append(opts, framework.WithTLS(e.tls()))
	}
	if o.user != "" {
		opts = append(opts, framework.WithSASL(digestmd5.New(o.user, "secret")))
	}
	if o.acl {
		opts = append(opts, framework.WithACL(forUser(o.user)))
	}
	c, err := framework.New(e.servers(o.tls)+"/app", opts...)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = c.Close() })
	return c
}

// acquire acquires the lock that is held all the time. If there is a lease
// before, it is released once the client is in line.
func (e *estate) acquire(c *framework.Client, before *recipes.Lease) heldLock {
	e.t.Helper()
	lock, err := locks.NewMutex(c, "/locks/held")
	if err != nil {
		e.t.Fatal(err)
	}
	if before == nil {
		lease, err := lock.Acquire(e.t.Context())
		if err != nil {
			e.t.Fatal(err)
		}
		return heldLock{c, lease}
	}
	type answer struct {
		lease *recipes.Lease
		err   error
	}
	got := make(chan answer, 1)
	go func() { // ends with the test's context at the latest
		lease, err := lock.Acquire(e.t.Context())
		got <- answer{lease, err}
	}()
	e.until("a new client is in line behind the old one", func() error {
		names, _, err := c.Children(e.t.Context(), "/locks/held")
		if err == nil && len(names) != 2 {
			err = fmt.Errorf("in line: %q", names)
		}
		return err
	})
	select {
	case a := <-got:
		e.t.Fatalf("it has got the lock that is held: %v", a)
	default:
	}
	if err := before.Release(e.t.Context()); err != nil {
		e.t.Fatal(err)
	}
	a := <-got
	if a.err != nil {
		e.t.Fatal(a.err)
	}
	if a.lease.Token().Compare(before.Token()) <= 0 {
		e.t.Errorf("the token %v comes after %v", a.lease.Token(), before.Token())
	}
	return heldLock{c, a.lease}
}

// start starts a client that takes the contended lock again and again.
func (e *estate) start(o outfit) {
	w := &contending{client: e.client(o), outfit: o, stop: make(chan struct{}), ended: make(chan struct{})}
	lock, err := locks.NewMutex(w.client, "/locks/contended")
	if err != nil {
		e.t.Fatal(err)
	}
	e.workers = append(e.workers, w)
	go func() { // ends by stop, or with the test's context
		defer close(w.ended)
		for {
			select {
			case <-w.stop:
				return
			default:
			}
			lease, err := lock.Acquire(e.t.Context())
			if err != nil {
				if e.t.Context().Err() == nil {
					e.t.Errorf("acquire the contended lock: %v", err)
				}
				return
			}
			if e.inside.Add(1) != 1 {
				e.t.Error("two clients have the contended lock")
			}
			e.turns.Add(1)
			time.Sleep(5 * time.Millisecond) // work
			e.inside.Add(-1)
			if err := lease.Release(e.t.Context()); err != nil && e.t.Context().Err() == nil {
				e.t.Errorf("release the contended lock: %v", err)
				return
			}
		}
	}()
}

// stop ends the oldest of these clients.
func (e *estate) stop() {
	e.t.Helper()
	w := e.workers[0]
	e.workers = e.workers[1:]
	close(w.stop)
	select {
	case <-w.ended:
	case <-time.After(time.Minute):
		e.t.Fatal("a client's turn does not end")
	}
	if err := w.client.Close(); err != nil {
		e.t.Error(err)
	}
}

// roll changes the members one after the other, the leader last.
func (e *estate) roll(what string, change func(*secured)) {
	e.t.Helper()
	leader := e.leader()
	order := append([]*secured(nil), e.members...)
	order[leader], order[len(order)-1] = order[len(order)-1], order[leader]
	for _, m := range order {
		change(m)
		file := filepath.Join(m.dir, "zoo.cfg")
		old, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, []byte(m.edit(string(old))), 0o600)
		}
		if err == nil {
			err = e.ens.Stop(m.index)
		}
		if err == nil {
			err = e.ens.Restart(m.index)
		}
		if err != nil {
			e.t.Fatal(err)
		}
		e.until(fmt.Sprintf("%s: member %d serves", what, m.index), func() error {
			_, err := e.mode(m)
			return err
		})
	}
	e.works(what)
}

// mode asks a member whether it leads, by TLS as the page says.
func (e *estate) mode(m *secured) (leads bool, err error) {
	ctx, cancel := context.WithTimeout(e.t.Context(), 5*time.Second)
	defer cancel()
	var answer []byte
	if m.closed {
		cmd := exec.CommandContext(ctx, "sh", "-c", strings.NewReplacer("zk1:2281", m.secure, "ca.pem", e.ca).Replace(e.srvr))
		cmd.WaitDelay = time.Second // openssl may have the output open
		answer, err = cmd.Output()
	} else {
		answer, err = fourLetters(ctx, m.plain, "srvr")
	}
	if err == nil && !strings.Contains(string(answer), "Mode: ") {
		err = fmt.Errorf("it answers %q", answer)
	}
	return strings.Contains(string(answer), "Mode: leader"), err
}

// fourLetters sends a command of four letters to a member, and returns the
// answer.
func fourLetters(ctx context.Context, address, command string) ([]byte, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, command); err != nil {
		return nil, err
	}
	return io.ReadAll(conn)
}

func (e *estate) leader() int {
	e.t.Helper()
	found := 0
	e.until("a member leads", func() error {
		for i, m := range e.members {
			if leads, err := e.mode(m); err == nil && leads {
				found = i
				return nil
			}
		}
		return errors.New("none does")
	})
	return found
}

// change replaces the clients one after the other, each by one with another
// outfit, which contends with the older ones. left says, for each member, who
// is left with the old outfit.
func (e *estate) change(what string, o outfit, left func(*secured) string) {
	e.t.Helper()
	old := e.held
	e.held = e.acquire(e.client(o), old.lease)
	if err := old.client.Close(); err != nil {
		e.t.Error(err)
	}
	for len(e.workers) > 0 && e.workers[0].outfit != o {
		e.start(o)
		if left != nil && e.workers[1].outfit == o { // the last one with the old outfit
			session, err := e.workers[0].client.AwaitSession(e.t.Context())
			if err != nil {
				e.t.Fatal(err)
			}
			e.until(what+": the last old client is named", func() error { return e.leftAre(left, fmt.Sprintf("%#x", session.ID())) })
		}
		e.stop()
	}
	if left != nil {
		e.until(what+": nobody is left", func() error { return e.leftAre(left) })
	}
	e.works(what)
}

// leftAre returns an error unless exactly these sessions are left.
func (e *estate) leftAre(left func(*secured) string, want ...string) error {
	var got []string
	for _, m := range e.members {
		for line := range strings.Lines(left(m)) {
			got = append(got, strings.Fields(line)[0])
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("left are %q, want %q", got, want)
	}
	return nil
}

// run runs the script of the page.
func (e *estate) run(args ...string) string {
	e.t.Helper()
	cmd := exec.Command("../../../examples/deploy/who-is-left", args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		e.t.Fatalf("the script %q: %v: %s", args, err, errs.String())
	}
	return string(out)
}

// works checks that the held lock was not lost, and that the contended one
// changes hands.
func (e *estate) works(when string) {
	e.t.Helper()
	before := e.turns.Load()
	e.until(when+": the contended lock changes hands", func() error {
		if now := e.turns.Load(); now < before+10 {
			return fmt.Errorf("%d times", now-before)
		}
		return nil
	})
	if err := e.held.lease.Err(); err != nil {
		e.t.Fatalf("%s: the held lock is lost: %v", when, err)
	}
	e.t.Logf("%s: held since %v, %d turns", when, e.held.lease.Token(), e.turns.Load())
}

// until waits until a condition holds.
func (e *estate) until(what string, ok func() error) {
	e.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("not yet: %s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// end ends all clients.
func (e *estate) end() {
	e.t.Helper()
	for len(e.workers) > 0 {
		e.stop()
	}
	if err := e.held.lease.Release(e.t.Context()); err != nil {
		e.t.Error(err)
	}
}

// process is a zkr that runs.
type process struct {
	*exec.Cmd
	output *os.File // of stdout and stderr
}

func (p *process) text(t *testing.T) string {
	text, err := os.ReadFile(p.output.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// kill kills it, and waits until it is dead.
func (p *process) kill() {
	_ = p.Process.Kill() // it may have ended
	_ = p.Wait()
	_ = p.output.Close()
}

// launch starts zkr with the variables that the page has for an outfit. The end
// of the test kills it.
func (e *estate) launch(o outfit, args ...string) *process {
	e.t.Helper()
	p := &process{Cmd: exec.Command(e.zkr, args...)}
	var err error
	if p.output, err = os.CreateTemp(e.t.TempDir(), ""); err != nil {
		e.t.Fatal(err)
	}
	p.Env = append(os.Environ(), "ZKR_SERVERS="+e.servers(o.tls)+"/app", fmt.Sprint("ZKR_SESSION_TIMEOUT=", enduring))
	if o.tls {
		p.Env = append(p.Env, "ZKR_TLS_CA="+e.ca, "ZKR_TLS_SERVER_NAME=ensemble.example")
	}
	if o.user != "" {
		p.Env = append(p.Env, "ZKR_SASL=digest-md5", "ZKR_SASL_USER="+o.user, "ZKR_SASL_PASSWORD_FILE="+e.password)
	}
	p.Stdout, p.Stderr = p.output, p.output
	child.DieWithParent(p.Cmd)
	if err := p.Start(); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(p.kill)
	return p
}

// guard starts the guardian of the host again, with the environment of an
// outfit.
func (e *estate) guard(o outfit) {
	e.t.Helper()
	if e.guardian != nil {
		e.guardian.kill()
	}
	e.guardian = e.launch(o, "guard", "--listen", e.socket)
	e.prints(e.guardian, "guarding at "+e.socket)
}

func (e *estate) prints(p *process, what string) {
	e.t.Helper()
	e.until(fmt.Sprintf("zkr prints %q", what), func() error {
		if text := p.text(e.t); !strings.Contains(text, what) {
			return fmt.Errorf("it has printed %q", text)
		}
		return nil
	})
}

// hold starts a program that holds a lock, and has no guardian but that of the
// host.
func (e *estate) hold(o outfit, path string) *process {
	e.t.Helper()
	args := []string{"lock", "--json", "--guardian", e.socket}
	if o.acl {
		args = append(args, "--acl", "sasl:"+o.user+":cdrwa")
	}
	p := e.launch(o, append(args, path)...)
	e.prints(p, `"token":`)
	return p
}

// isRefused sees that the guardian does not guard a program with an outfit.
func (e *estate) isRefused(o outfit) {
	e.t.Helper()
	p := e.hold(o, "/locks/refused")
	e.prints(p, "is not one that this guardian serves")
	_ = p.Process.Signal(syscall.SIGTERM)
	if err := p.Wait(); err != nil {
		e.t.Errorf("it ends with %v: %s", err, p.text(e.t))
	}
}

// failsOver kills a program that holds a lock, which passes on long before the
// program's session could expire.
func (e *estate) failsOver(when string, o outfit) {
	e.t.Helper()
	const path = "/locks/guarded"
	p := e.hold(o, path)
	lock, err := locks.NewMutex(e.held.client, path)
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := lock.TryAcquire(e.t.Context()); !errors.Is(err, recipes.ErrBusy) {
		e.t.Fatalf("%s: the lock is not held: %v", when, err)
	}
	p.kill()
	died := time.Now()
	ctx, cancel := context.WithTimeout(e.t.Context(), enduring/2)
	defer cancel()
	lease, err := lock.Acquire(ctx)
	if err != nil {
		e.t.Fatalf("%s: after the death of its holder: %v; the guardian prints %q", when, err, e.guardian.text(e.t))
	}
	e.t.Logf("%s: the lock of a dead program passes on after %v", when, time.Since(died).Round(time.Millisecond))
	if err := lease.Release(e.t.Context()); err != nil {
		e.t.Error(err)
	}
}
