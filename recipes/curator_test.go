package recipes_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// member is one of those who stand in a line: ours, or a Curator process.
type member interface {
	acquire(t *testing.T)
	release(t *testing.T)
	participants(t *testing.T) int
	kill(t *testing.T)
}

// pairs are the recipes that both sides have, by the name of Curator's.
var pairs = []struct {
	curator string
	ours    func(c *framework.Client, path string) (lined, error)
}{
	{"mutex", func(c *framework.Client, path string) (lined, error) { return locks.NewMutex(c, path) }},
	{"latch", func(c *framework.Client, path string) (lined, error) {
		return leader.New(c, path, leader.WithID("ours"))
	}},
	{"selector", func(c *framework.Client, path string) (lined, error) {
		return leader.New(c, path, leader.WithID("ours"), leader.WithLayout(leader.LayoutSelector))
	}},
	{"write", func(c *framework.Client, path string) (lined, error) {
		rw, err := rwlock.New(c, path, rwlock.WithLayout(rwlock.LayoutCurator))
		if err != nil {
			return nil, err
		}
		return side{rw.Writer(), rw}, nil
	}},
}

// side is one side of a read/write lock.
type side struct {
	recipes.Acquirer
	*rwlock.RWLock
}

func (s side) Path() string { return s.RWLock.Path() }

// lined is a recipe that tells who stands in its line.
type lined interface {
	recipes.Acquirer
	Participants(context.Context) ([]recipes.Participant, error)
}

// A Curator process and ours exclude each other on the same znodes, in both
// directions; they are served in the order in which they came, each sees the other
// in its participants, and either of them that is killed is succeeded by the other.
func TestBesideCurator(t *testing.T) {
	ens := apache.Start(t, 1)
	needCurator(t)
	for _, pair := range pairs {
		t.Run(pair.curator, func(t *testing.T) {
			path := "/beside/" + pair.curator
			theirs := func() member { return startCurator(t, ens, pair.curator, path) }
			ours := func() member {
				c := client(t, ens)
				r, err := pair.ours(c, path)
				if err != nil {
					t.Fatal(err)
				}
				return &goMember{ens: ens, client: c, recipe: r}
			}
			t.Run("in turns", func(t *testing.T) { takeTurns(t, ens, path, []member{ours(), theirs(), ours(), theirs()}) })
			t.Run("curator killed", func(t *testing.T) { succeed(t, ens, path, theirs(), ours()) })
			t.Run("ours killed", func(t *testing.T) { succeed(t, ens, path, ours(), theirs()) })
		})
	}
}

// Readers of both kinds read together, while a writer of each kind waits; whoever
// reads later waits behind the writers.
func TestReadersBesideCurator(t *testing.T) {
	ens := apache.Start(t, 1)
	needCurator(t)
	const path = "/beside/rw"
	reader := func() member {
		c := client(t, ens)
		rw, err := rwlock.New(c, path, rwlock.WithLayout(rwlock.LayoutCurator))
		if err != nil {
			t.Fatal(err)
		}
		return &goMember{ens: ens, client: c, recipe: side{rw.Reader(), rw}}
	}
	writer := func() member {
		m := reader().(*goMember)
		rw := m.recipe.(side).RWLock
		m.recipe = side{rw.Writer(), rw}
		return m
	}
	watcher := client(t, ens)
	ourRead, theirRead := reader(), startCurator(t, ens, "read", path)
	ourWrite, theirWrite := writer(), startCurator(t, ens, "write", path)
	lateRead, theirLateRead := reader(), startCurator(t, ens, "read", path)

	ourRead.acquire(t)
	theirRead.acquire(t) // beside ours
	served := make(chan string, 4)
	for i, waiter := range []struct {
		name string
		member
	}{{"their write", theirWrite}, {"our write", ourWrite}, {"their late read", theirLateRead}, {"our late read", lateRead}} {
		go func() {
			waiter.acquire(t)
			served <- waiter.name
		}()
		inLine(t, watcher, path, 3+i)
	}
	expect := func(what string) {
		t.Helper()
		select {
		case who := <-served:
			if who != what {
				t.Fatalf("served %s, want %s", who, what)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s was not served", what)
		}
	}
	ourRead.release(t)
	time.Sleep(100 * time.Millisecond)
	if len(served) != 0 {
		t.Fatalf("%s while a Curator client reads", <-served)
	}
	theirRead.release(t)
	expect("their write")
	time.Sleep(100 * time.Millisecond)
	theirWrite.release(t)
	expect("our write")
	time.Sleep(100 * time.Millisecond)
	if len(served) != 0 {
		t.Fatalf("%s while we write", <-served)
	}
	ourWrite.release(t)
	for range 2 { // together, in either order
		select {
		case <-served:
		case <-time.After(30 * time.Second):
			t.Fatal("the late readers were not served")
		}
	}
	lateRead.release(t)
	theirLateRead.release(t)
	nothingLeft(t, watcher, path)
}

// A semaphore of two, one permit with us and one with Curator: a third waits, of
// whichever kind, and is let in by whoever leaves.
func TestSemaphoreBesideCurator(t *testing.T) {
	ens := apache.Start(t, 1)
	needCurator(t)
	const path = "/beside/semaphore"
	ours := func() member {
		c := client(t, ens)
		s, err := semaphore.New(c, path, 2)
		if err != nil {
			t.Fatal(err)
		}
		return &goMember{ens: ens, client: c, recipe: s}
	}
	watcher := client(t, ens)
	for _, thirdIsOurs := range []bool{true, false} {
		first, second := ours(), member(startCurator(t, ens, "2", path))
		third := second
		if thirdIsOurs {
			third = ours()
		} else {
			third = startCurator(t, ens, "2", path)
		}
		first.acquire(t)
		second.acquire(t)
		if n := second.participants(t); n != 2 {
			t.Errorf("Curator sees %d leases, want 2", n)
		}
		served := make(chan struct{})
		go func() {
			third.acquire(t)
			close(served)
		}()
		inLine(t, watcher, path+"/locks", 1)
		select {
		case <-served:
			t.Fatal("three at once")
		case <-time.After(200 * time.Millisecond):
		}
		if thirdIsOurs {
			second.release(t)
		} else {
			first.release(t)
		}
		select {
		case <-served:
		case <-time.After(30 * time.Second):
			t.Fatal("the third was not served")
		}
		inLine(t, watcher, path+"/leases", 2)
		if thirdIsOurs {
			first.release(t)
		} else {
			second.release(t)
		}
		third.release(t)
		nothingLeft(t, watcher, path+"/leases")
		nothingLeft(t, watcher, path+"/locks")
	}
}

// takeTurns has the members join one after the other while the first holds, and
// expects them to be served in that order, one at a time.
func takeTurns(t *testing.T, ens testutil.Ensemble, path string, members []member) {
	watcher := client(t, ens)
	served := make(chan int, len(members))
	var wg sync.WaitGroup
	members[0].acquire(t)
	served <- 0
	for i, m := range members[1:] {
		wg.Go(func() {
			m.acquire(t)
			served <- i + 1
		})
		inLine(t, watcher, path, i+2)
	}
	for i, m := range members {
		select {
		case who := <-served:
			if who != i {
				t.Fatalf("served %d, want %d", who, i)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("member %d was not served", i)
		}
		time.Sleep(50 * time.Millisecond) // would another be let in meanwhile?
		if len(served) != 0 {
			t.Errorf("two at once: %d and %d", i, <-served)
		}
		if n, want := m.participants(t), len(members)-i; n != want {
			t.Errorf("%T sees %d in line, want %d", m, n, want)
		}
		m.release(t)
	}
	wg.Wait()
	nothingLeft(t, watcher, path)
}

// succeed has the second wait for the first, which is killed.
func succeed(t *testing.T, ens testutil.Ensemble, path string, first, second member) {
	watcher := client(t, ens)
	first.acquire(t)
	done := make(chan struct{})
	go func() {
		second.acquire(t)
		close(done)
	}()
	inLine(t, watcher, path, 2)
	first.kill(t)
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody succeeds who was killed")
	}
	second.release(t)
	nothingLeft(t, watcher, path)
}

// inLine waits until n znodes stand at path.
func inLine(t *testing.T, c *framework.Client, path string, n int) {
	t.Helper()
	var names []string
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(5 * time.Millisecond) {
		if names, _, _ = c.Children(t.Context(), path); len(names) == n {
			return
		}
	}
	t.Fatalf("in line: %v, want %d", names, n)
}

// goMember is ours.
type goMember struct {
	ens    testutil.Ensemble
	client *framework.Client
	recipe lined
	lease  *recipes.Lease
}

func (m *goMember) acquire(t *testing.T) {
	l, err := m.recipe.Acquire(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	m.lease = l
}

func (m *goMember) release(t *testing.T) {
	if err := m.lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func (m *goMember) participants(t *testing.T) int {
	all, err := m.recipe.Participants(t.Context())
	if err != nil {
		t.Error(err)
	}
	return len(all)
}

// kill ends the session without a word to the client, as a process that was killed
// has its session ended.
func (m *goMember) kill(t *testing.T) {
	s, err := m.client.Session()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.ens.ExpireSession(s.ID()); err != nil {
		t.Error(err)
	}
}

// curator is a Java process with one of Curator's recipes.
type curator struct {
	process *exec.Cmd
	in      io.WriteCloser
	lines   chan string // of its output
}

// classes is where Neighbour was compiled to, once for all tests.
var classes = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "neighbour")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("javac", "-d", dir, "-cp", curatorJar, "testdata/Neighbour.java").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("javac: %w: %s", err, out)
	}
	return dir, nil
})

const curatorJar = "/usr/share/java/curator-recipes.jar"

func TestMain(m *testing.M) {
	if os.Getenv(role) != "" {
		processMain()
	}
	code := m.Run()
	if os.Getenv("ZKR_REAL") == "1" {
		if dir, err := classes(); err == nil {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// needCurator skips the test where there is no Curator, but not in CI.
func needCurator(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(curatorJar); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("needs Apache Curator (Debian's package libcurator-recipes-java): %v", err)
	}
}

func startCurator(t *testing.T, ens testutil.Ensemble, kind, path string) *curator {
	t.Helper()
	dir, err := classes()
	if err != nil {
		t.Fatal(err)
	}
	c := &curator{process: exec.Command("java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-cp", dir+":"+curatorJar, "Neighbour", ens.Servers(), kind, path, "theirs", fmt.Sprint(timeout.Milliseconds()))}
	if c.in, err = c.process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.process.Start(); err != nil {
		t.Fatal(err)
	}
	c.lines = make(chan string, 100)
	go func() {
		defer close(c.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			c.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = c.in.Close() // it ends with its input
		_ = c.process.Wait()
	})
	c.expect(t, "ready")
	return c
}

func (c *curator) ask(t *testing.T, command, answer string) string {
	if _, err := fmt.Fprintln(c.in, command); err != nil {
		t.Error(err)
	}
	return c.expect(t, answer)
}

func (c *curator) expect(t *testing.T, answer string) string {
	patience := time.After(30 * time.Second)
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				t.Errorf("the Curator process ended without %q", answer)
				return ""
			}
			if rest, found := strings.CutPrefix(line, answer); found {
				return strings.TrimSpace(rest)
			}
		case <-patience:
			t.Errorf("the Curator process does not say %q", answer)
			return ""
		}
	}
}

func (c *curator) acquire(t *testing.T) { c.ask(t, "acquire", "acquired") }
func (c *curator) release(t *testing.T) { c.ask(t, "release", "released") }

func (c *curator) participants(t *testing.T) (n int) {
	if _, err := fmt.Sscan(c.ask(t, "participants", "participants"), &n); err != nil {
		t.Error(err)
	}
	return n
}

func (c *curator) kill(t *testing.T) {
	if err := c.process.Process.Kill(); err != nil {
		t.Error(err)
	}
}
