//go:build unix

package zkrtest

import (
	"context"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

// Target is an ensemble to run zkr against.
type Target struct {
	Servers string
	Freeze  func(t *testing.T) // makes the ensemble stop answering without breaking a connection
	Thaw    func(t *testing.T) // ends that
}

// OnEach runs a test on every kind of ensemble. In ring 3 that is one of three
// real members: the others are tested before, and that a standalone server
// answers as they do is a test of package testutil.
func OnEach(t *testing.T, test func(t *testing.T, e Target)) {
	if !InRing3 {
		t.Run("zkr server", func(t *testing.T) {
			t.Parallel()
			test(t, StartServer(t))
		})
		t.Run("zkr server with 3 members", func(t *testing.T) {
			t.Parallel()
			test(t, StartServer(t, "--members", "3"))
		})
	}
	OnReal(t, test)
}

// OnReal runs a test on three real members. It is for what other tests show
// elsewhere in virtual time.
func OnReal(t *testing.T, test func(t *testing.T, e Target)) {
	t.Run("real with 3 members", func(t *testing.T) { test(t, startReal(t)) })
}

var Serving = regexp.MustCompile(`serves? at (\S+) `)

// StartServer starts `zkr server` on free ports, with session timeouts from 1s
// to 10s.
func StartServer(t *testing.T, args ...string) Target {
	t.Helper()
	p := Start(t, append([]string{"server", "--listen", "127.0.0.1:0", "--tick", "500ms"}, args...)...)
	p.Prints(t, "serve")
	p.Prints(t, "\n")
	match := Serving.FindStringSubmatch(p.Text())
	if match == nil {
		t.Fatalf("zkr server says %q", p.Text())
	}
	return Target{
		match[1],
		func(t *testing.T) { p.Signal(t, syscall.SIGSTOP) },
		func(t *testing.T) { p.Signal(t, syscall.SIGCONT) },
	}
}

// Args puts the common flags first. The session is long enough to survive a
// machine that stops for two seconds. A lease in it is lost after half of the
// session, less the grace.
func (e Target) Args(verb string, args ...string) []string {
	return append([]string{verb, "--servers", e.Servers, "--session-timeout", "10s"}, args...)
}

// ToBeKilled are the options of a holder that is killed. Its session is shorter
// than others', but long enough for a slow machine. The next one holds within
// succession: its session and two ticks.
var ToBeKilled = []string{"--session-timeout", "5s", "--grace", "200ms"}

const Succession = 6 * time.Second

// PatientGrace is for commands that must be able to react to SIGTERM, however
// slowly.
var PatientGrace = []string{"--grace", "3s"}

// Client returns a client for the test itself.
func (e Target) Client(t *testing.T) *framework.Client {
	t.Helper()
	c, err := framework.New(e.Servers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// FirstInLine returns the path of the first znode in line at path.
func FirstInLine(t *testing.T, c *framework.Client, path string) string {
	t.Helper()
	names := Line(t, c, path)
	if len(names) == 0 {
		t.Fatalf("nobody is in line at %s", path)
	}
	return path + "/" + names[0]
}

// DeleteFirst deletes the first znode in line at path, as another client could.
func DeleteFirst(t *testing.T, c *framework.Client, path string) {
	t.Helper()
	if err := c.Delete(t.Context(), FirstInLine(t, c, path), -1); err != nil {
		t.Fatal(err)
	}
}

// Line returns the names in line at path, in order.
func Line(t *testing.T, c *framework.Client, path string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if err := c.Sync(ctx, path); err != nil {
		t.Fatal(err)
	}
	children, _, err := c.Children(ctx, path)
	if err != nil {
		return nil // nobody has arrived yet
	}
	var contenders []layout.Node
	for _, name := range children {
		if contender, known := layout.Parse(name); known {
			contenders = append(contenders, contender)
		}
	}
	layout.Sort(contenders)
	var names []string
	for _, contender := range contenders {
		names = append(names, contender.Name)
	}
	return names
}

func (e Target) InLine(t *testing.T, c *framework.Client, path string, want int) {
	t.Helper()
	bubble.AwaitTrue(t, "the line has its length", func() bool { return len(Line(t, c, path)) == want })
}

// Within fails the test if something took longer than its limit, plus what a
// slow machine needs.
func Within(t *testing.T, what string, took, limit time.Duration) {
	t.Helper()
	const slack = 3 * time.Second
	if took > limit+slack {
		t.Errorf("%s took %v, more than %v", what, took, limit)
	}
}

func Contents(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
