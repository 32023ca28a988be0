package acceptance_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// neighbor is a process that contends for locks on request: ours (see serve),
// Apache Curator's (testdata/Neighbor.java) or Kazoo's (testdata/neighbor.py).
// Each line of its input is a command to one of its members:
//
//	<member> open <kind> <path> <id>    a client with its own session, and a recipe; later, another recipe
//	<member> acquire
//	<member> release
//	<member> participants
//	<member> show                       a service alone
//	<member> losses                     Curator alone
//
// Each line of its output answers one command: opened, acquired, released,
// participants with their number, shown with the participants, losses with the
// number of lost sessions, or failed with the reason. A member runs one command
// at a time; the members are independent of each other. The first line is
// "ready". The process ends with its input.
type neighbor struct {
	who     string
	process *exec.Cmd
	in      io.WriteCloser
	said    bytes.Buffer // from stderr; read after ended
	ended   chan struct{}

	mu      sync.Mutex // guards what follows
	members []chan string
}

// startNeighbor starts a process that speaks the protocol. It ends with the
// test.
func startNeighbor(t *testing.T, who string, process *exec.Cmd) *neighbor {
	t.Helper()
	n := &neighbor{who: who, process: process, ended: make(chan struct{})}
	var err error
	if n.in, err = process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	process.Stderr = &n.said
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go func() { // ends with the process
		defer close(n.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if line := lines.Text(); line == "ready" {
				close(ready)
			} else {
				n.heard(line)
			}
		}
		_ = process.Wait() // how it ended does not matter: many are killed
	}()
	t.Cleanup(func() {
		_ = n.in.Close() // makes it end
		select {
		case <-n.ended:
		case <-time.After(5 * time.Second):
			_ = n.process.Process.Kill() // it may be ending
			<-n.ended
		}
		if t.Failed() && n.said.Len() > 0 {
			t.Logf("%s said:\n%s", n.who, n.said.Bytes()[max(0, n.said.Len()-4<<10):])
		}
	})
	select {
	case <-ready:
	case <-n.ended:
		t.Fatalf("%s ended at once", who)
	case <-time.After(load.Patience):
		t.Fatalf("%s is not ready", who)
	}
	return n
}

// heard passes an answer to its member.
func (n *neighbor) heard(line string) {
	number, answer, _ := strings.Cut(line, " ")
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < len(n.members) {
		n.members[i] <- answer
	}
}

// kill ends the process at once with SIGKILL.
func (n *neighbor) kill(t *testing.T) {
	t.Helper()
	if err := n.process.Process.Kill(); err != nil {
		t.Error(err)
	}
	<-n.ended
}

// member is one contender of a process.
type member struct {
	n       *neighbor
	number  int
	name    string
	answers chan string
}

// join creates a member of a process.
func (n *neighbor) join(t *testing.T, kind, path string) *member {
	t.Helper()
	n.mu.Lock()
	m := &member{n: n, number: len(n.members), answers: make(chan string, 10)}
	m.name = fmt.Sprintf("%s %s %d", n.who, kind, m.number)
	n.members = append(n.members, m.answers)
	n.mu.Unlock()
	m.ask(t, fmt.Sprintf("open %s %s %s-%d", kind, path, n.who, m.number), "opened")
	if t.Failed() {
		t.FailNow()
	}
	return m
}

// ask sends a command and returns what follows the expected answer. Any
// goroutine of the test may call it.
func (m *member) ask(t *testing.T, command, answer string) string {
	t.Helper()
	if _, err := fmt.Fprintf(m.n.in, "%d %s\n", m.number, command); err != nil {
		t.Errorf("%s: %s: %v", m.name, command, err)
		return ""
	}
	select {
	case got := <-m.answers:
		rest, ok := strings.CutPrefix(got, answer)
		if !ok {
			t.Errorf("%s: %s: %s", m.name, command, got)
		}
		return strings.TrimSpace(rest)
	case <-m.n.ended:
		t.Errorf("%s: %s: the process has ended", m.name, command)
	case <-time.After(load.Patience):
		t.Errorf("%s: %s: no answer", m.name, command)
	}
	return ""
}

// open gives the member another recipe, in the same session. What it holds it
// keeps.
func (m *member) open(t *testing.T, kind, path string) {
	t.Helper()
	m.ask(t, fmt.Sprintf("open %s %s %s-%d", kind, path, m.n.who, m.number), "opened")
}

func (m *member) acquire(t *testing.T) { t.Helper(); m.ask(t, "acquire", "acquired") }
func (m *member) release(t *testing.T) { t.Helper(); m.ask(t, "release", "released") }

func (m *member) participants(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(m.ask(t, "participants", "participants"))
	if err != nil {
		t.Error(err)
	}
	return n
}

// starter starts a process of one kind beside an ensemble.
type starter func(t *testing.T, ens testutil.Ensemble) *neighbor

// needsNeighbors skips a test with other processes unless ring 3 is wanted.
func needsNeighbors(t *testing.T) {
	t.Helper()
	if os.Getenv("ZKR_REAL") != "1" {
		t.Skip("needs processes that are not ours: set ZKR_REAL=1 to run it")
	}
}

// missing skips a test whose other process is not installed. In CI it fails the
// test.
func missing(t *testing.T, what string, err error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("needs %s: %v", what, err)
	}
	t.Skipf("needs %s: %v", what, err)
}
