//go:build unix

package run

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// TestOneLeaderAtATime: candidates lead in the order of their arrival. The
// first is killed, and the next leads when its session has expired. The second
// is stopped, and the next leads at once. A waiting candidate ends when it gets
// a signal.
func TestOneLeaderAtATime(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		for _, layout := range []string{"latch", "selector"} {
			path := "/elected/" + layout
			log := filepath.Join(t.TempDir(), "log")
			// It sets the trap first: after it has printed "in" it
			// may be stopped at once.
			script := `trap 'echo "out $1" >> "$2"; exit 5' TERM; echo "in $1 $ZKR_TOKEN $ZKR_PATH" >> "$2"; while :; do sleep 0.02; done`
			client := e.Client(t)
			var all []*zkrtest.Process
			for i := range 4 {
				id := strconv.Itoa(i)
				args := []string{"--layout", layout, "--id", "candidate " + id}
				if i == 0 {
					args = append(args, zkrtest.ToBeKilled...)
				}
				all = append(all, zkrtest.Start(t, e.Args("elect", append(args, path, "--", "sh", "-c", script, "sh", id, log)...)...))
				e.InLine(t, client, path, i+1)
			}
			led := func(n int) {
				bubble.AwaitTrue(t, fmt.Sprintf("term %d", n), func() bool {
					text, _ := os.ReadFile(log)
					return strings.Count(string(text), "in ") == n
				})
			}
			led(1)
			text := zkrtest.Start(t, e.Args("inspect", path)...)
			if text.Wait(t) != 0 || !strings.Contains(text.Text(), "election") || !strings.Contains(text.Text(), "candidate 0") {
				t.Errorf("inspect prints %q", text.Text())
			}
			want := []string{"in 0", "in 1", "out 1", "in 3"}
			began := time.Now()
			if layout == "latch" {
				all[0].Signal(t, syscall.SIGKILL)
			} else { // the same, but without waiting for a session to expire
				all[0].Signal(t, syscall.SIGTERM)
				want = slices.Insert(want, 1, "out 0")
			}
			led(2)
			zkrtest.Within(t, "succession", time.Since(began), zkrtest.Succession)
			all[2].Signal(t, syscall.SIGTERM) // it is waiting
			if code := all[2].Wait(t); code != 0 {
				t.Errorf("a candidate that waits: exit code %d, want 0", code)
			}
			all[1].Signal(t, syscall.SIGTERM)
			if code := all[1].Wait(t); code != 5 {
				t.Errorf("a leader: exit code %d, want its command's own 5", code)
			}
			led(3)
			lines := zkrtest.Contents(t, log)
			all[3].Signal(t, syscall.SIGTERM)
			if code := all[3].Wait(t); code != 5 {
				t.Errorf("the last leader: exit code %d, want its command's own 5", code)
			}
			last := ""
			for i, w := range want {
				if i >= len(lines) || !strings.HasPrefix(lines[i], w) {
					t.Fatalf("%s: the log reads\n%s\nwant %q", layout, strings.Join(lines, "\n"), want)
				}
				if in := strings.Fields(lines[i]); in[0] == "in" {
					if in[2] <= last || in[3] != path {
						t.Errorf("%s after token %s", lines[i], last)
					}
					last = in[2]
				}
			}
			if left := zkrtest.Line(t, client, path); len(left) != 0 {
				judge.Errorf(t, "left in line: %q", left)
			}
		}
	})
}

// TestLeaderFails: a candidate whose command fails goes to the end of the line
// and campaigns again after a pause.
func TestLeaderFails(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	log := filepath.Join(t.TempDir(), "log")
	script := `echo "$1" >> "$2"; exit 7`
	fails := zkrtest.Start(t, e.Args("elect", "/fails", "--", "sh", "-c", script, "sh", "one", log)...)
	fails.Prints(t, "sh failed with exit code 7; campaigning again in ")
	another := zkrtest.Start(t, e.Args("elect", "--once", "/fails", "--", "sh", "-c", script, "sh", "another", log)...)
	if code := another.Wait(t); code != 7 || strings.Contains(another.Text(), "again") {
		t.Errorf("--once: exit code %d, want the command's own 7; it printed %q", code, another.Text())
	}
	seen := len(zkrtest.Contents(t, log))
	bubble.AwaitTrue(t, "it leads again", func() bool { return len(zkrtest.Contents(t, log)) > seen })
	fails.Signal(t, syscall.SIGTERM)
	if code := fails.Wait(t); code != 0 && code != 7 && code != 143 { // between two terms, in one, or the signal ended the command
		t.Errorf("exit code %d", code)
	}
	if lines := zkrtest.Contents(t, log); !slices.Contains(lines, "another") {
		t.Errorf("the log reads %q", lines)
	}
}

// TestTermLostOnReal: TestTermLost, of processes.
func TestTermLostOnReal(t *testing.T) {
	zkrtest.OnReal(t, func(t *testing.T, e zkrtest.Target) {
		client := e.Client(t)
		campaigns := zkrtest.Start(t, e.Args("elect", append(zkrtest.PatientGrace, "/lost/term", "--", zkrtest.Self(t))...)...)
		campaigns.Prints(t, "ready\n")
		zkrtest.DeleteFirst(t, client, "/lost/term")
		bubble.AwaitTrue(t, "it leads again", func() bool { return strings.Count(campaigns.Text(), "ready\n") == 2 })
		if text := campaigns.Text(); !strings.Contains(text, "stopping\n") || !strings.Contains(text, "/lost/term: lease lost while") {
			t.Errorf("it printed %q", text)
		}
		campaigns.Signal(t, syscall.SIGTERM)
		if code := campaigns.Wait(t); code != 3 {
			t.Errorf("exit code %d, want the command's own 3", code)
		}
		once := zkrtest.Start(t, e.Args("elect", append(zkrtest.PatientGrace, "--once", "/lost/once", "--", zkrtest.Self(t))...)...)
		once.Prints(t, "ready\n")
		zkrtest.DeleteFirst(t, client, "/lost/once")
		if code := once.Wait(t); code != cli.ExitLost || !strings.Contains(once.Text(), "stopping\n") {
			t.Errorf("--once: exit code %d, want %d; it printed %q", code, cli.ExitLost, once.Text())
		}
	})
}
