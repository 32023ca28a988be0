//go:build unix

package main

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
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// target is an ensemble to run zkr against.
type target struct {
	servers string
	freeze  func(t *testing.T) // makes the ensemble stop answering without breaking a connection
	thaw    func(t *testing.T) // ends that
}

// onEach runs a test on every kind of ensemble. In ring 3 that is one of three
// real members: the others are tested before, and that a standalone server
// answers as they do is a test of package testutil.
func onEach(t *testing.T, test func(t *testing.T, e target)) {
	if !inRing3 {
		t.Run("zkr server", func(t *testing.T) {
			t.Parallel()
			test(t, startServer(t))
		})
		t.Run("zkr server with 3 members", func(t *testing.T) {
			t.Parallel()
			test(t, startServer(t, "--members", "3"))
		})
	}
	t.Run("real with 3 members", func(t *testing.T) { test(t, startReal(t)) })
}

var serving = regexp.MustCompile(`serves? at (\S+) `)

// startServer starts `zkr server` on free ports, with session timeouts from 1s
// to 10s.
func startServer(t *testing.T, args ...string) target {
	t.Helper()
	p := start(t, append([]string{"server", "--listen", "127.0.0.1:0", "--tick", "500ms"}, args...)...)
	p.prints(t, "serve")
	p.prints(t, "\n")
	match := serving.FindStringSubmatch(p.text())
	if match == nil {
		t.Fatalf("zkr server says %q", p.text())
	}
	return target{
		match[1],
		func(t *testing.T) { p.signal(t, syscall.SIGSTOP) },
		func(t *testing.T) { p.signal(t, syscall.SIGCONT) },
	}
}

func startReal(t *testing.T) target {
	t.Helper()
	const members = 3
	e := apache.Start(t, members)
	each := func(do func(int) error) func(*testing.T) {
		return func(t *testing.T) {
			for i := range members {
				if err := do(i); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return target{e.Servers(), each(e.Pause), each(e.Resume)}
}

// args puts the common flags first. The session is long enough to survive a
// machine that stops for two seconds. A lease in it is lost after half of the
// session, less the grace.
func (e target) args(verb string, args ...string) []string {
	return append([]string{verb, "--servers", e.servers, "--session-timeout", "10s"}, args...)
}

// toBeKilled are the options of a holder that is killed. Its session is shorter
// than others', but long enough for a slow machine. The next one holds within
// succession: its session and two ticks.
var toBeKilled = []string{"--session-timeout", "5s", "--grace", "200ms"}

const succession = 6 * time.Second

// patientGrace is for commands that must be able to react to SIGTERM, however
// slowly.
var patientGrace = []string{"--grace", "3s"}

// client returns a client for the test itself.
func (e target) client(t *testing.T) *framework.Client {
	t.Helper()
	c, err := framework.New(e.servers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// line returns the names in line at path, in order.
func line(t *testing.T, c *framework.Client, path string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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

func (e target) inLine(t *testing.T, c *framework.Client, path string, want int) {
	t.Helper()
	eventually(t, "the line has its length", func() bool { return len(line(t, c, path)) == want })
}

// within fails the test if something took longer than its limit, plus what a
// slow machine needs.
func within(t *testing.T, what string, took, limit time.Duration) {
	t.Helper()
	const slack = 3 * time.Second
	if took > limit+slack {
		t.Errorf("%s took %v, more than %v", what, took, limit)
	}
}

func contents(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
