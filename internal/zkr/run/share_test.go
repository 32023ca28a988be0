//go:build unix

package run

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// TestReadersAndWriters: readers hold together, a writer holds alone. A reader
// that arrives after a waiting writer waits for it. When one side is killed the
// other side holds.
func TestReadersAndWriters(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		for _, layout := range []string{"plain", "curator", "kazoo"} {
			t.Run(layout, func(t *testing.T) {
				zkrtest.Parallel(t)
				at := "/shared/" + layout
				client := e.Client(t)
				run := func(verb string, place int, more ...string) *zkrtest.Process {
					p := zkrtest.Start(t, e.Args(verb, append(more, "--layout", layout, at, "--", zkrtest.Self(t))...)...)
					e.InLine(t, client, at, place)
					return p
				}
				a := run("read", 1)
				b := run("read", 2, zkrtest.ToBeKilled...)
				a.Prints(t, "ready\n")
				b.Prints(t, "ready\n")
				w := run("write", 3)
				c := run("read", 4)
				busy := zkrtest.Start(t, e.Args("read", "--try", "--layout", layout, at, "--", "true")...)
				if code := busy.Wait(t); code != cli.ExitNotAcquired {
					t.Errorf("a reader that will not wait behind a writer: exit code %d", code)
				}
				text := zkrtest.Start(t, e.Args("inspect", at)...)
				if text.Wait(t) != 0 || !strings.Contains(text.Text(), "2 holders, 2 waiting") {
					t.Errorf("inspect prints %q", text.Text())
				}
				end := func(p *zkrtest.Process, sig syscall.Signal) {
					t.Helper()
					p.Signal(t, sig)
					if code := p.Wait(t); sig == syscall.SIGTERM && code != 3 {
						t.Errorf("exit code %d, want the command's own 3", code)
					}
				}
				end(a, syscall.SIGTERM)
				if waits := w.Text() + c.Text(); waits != "" {
					t.Errorf("with a reader left the others print %q", waits)
				}
				end(b, map[string]syscall.Signal{"plain": syscall.SIGKILL, "curator": syscall.SIGTERM, "kazoo": syscall.SIGKILL}[layout])
				w.Prints(t, "ready\n")
				if waits := c.Text(); waits != "" {
					t.Errorf("beside a writer the reader prints %q", waits)
				}
				end(w, syscall.SIGTERM)
				c.Prints(t, "ready\n")
				end(c, syscall.SIGTERM)
			})
		}
	})
}

// TestReadersNeverSeeHalf: writers change two files, one after the other, while
// readers compare them.
func TestReadersNeverSeeHalf(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		dir := t.TempDir()
		one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
		for _, file := range []string{one, two} {
			if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var all []*zkrtest.Process
		for range 3 {
			all = append(all, zkrtest.Start(t, e.Args("write", "/halves", "--", "sh", "-c",
				`n=$(($(cat "$1")+1)); echo $n > "$1"; sleep 0.03; echo $n > "$2"`, "sh", one, two)...))
			for range 2 {
				all = append(all, zkrtest.Start(t, e.Args("read", "/halves", "--", "sh", "-c",
					`n=$(cat "$1"); sleep 0.02; test "$n" = "$(cat "$2")"`, "sh", one, two)...))
			}
		}
		for _, p := range all {
			if code := p.Wait(t); code != 0 {
				t.Errorf("%q: exit code %d", p.Cmd.Args, code)
			}
		}
		if got := zkrtest.Contents(t, two)[0]; got != "3" {
			judge.Errorf(t, "3 writers counted to %s", got)
		}
	})
}

// TestNeverMoreThanMax: there are more workers than permits, and some take two.
// Each prints when it starts and ends.
func TestNeverMoreThanMax(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		const most = 3
		log := filepath.Join(t.TempDir(), "log")
		script := `echo "in $1" >> "$2"; sleep 0.05; echo "out $1" >> "$2"`
		var all []*zkrtest.Process
		for i := range 7 {
			n := strconv.Itoa(1 + i%2)
			all = append(all, zkrtest.Start(t, e.Args("semaphore", "--max", strconv.Itoa(most), "--permits", n, "/workers", "--",
				"sh", "-c", script, "sh", n, log)...))
		}
		for _, p := range all {
			if code := p.Wait(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		}
		out := 0
		for _, event := range zkrtest.Contents(t, log) {
			what, number, _ := strings.Cut(event, " ")
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			if what == "out" {
				n = -n
			}
			if out += n; out > most {
				t.Fatalf("%d permits of %d are out:\n%s", out, most, strings.Join(zkrtest.Contents(t, log), "\n"))
			}
		}
	})
}

// TestPermits: who holds and who waits is shown, a holder is killed, and the
// limit is changed while one waits.
func TestPermits(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		const at = "/permits"
		client := e.Client(t)
		run := func(limit int, more ...string) *zkrtest.Process {
			return zkrtest.Start(t, e.Args("semaphore", slices.Concat([]string{"--max", strconv.Itoa(limit)}, more, []string{at, "--", zkrtest.Self(t)})...)...)
		}
		first := run(2, append(zkrtest.ToBeKilled, "--permits", "2")...)
		first.Prints(t, "ready\n")
		second := run(2)
		e.InLine(t, client, path.Join(at, "locks"), 1)
		text := zkrtest.Start(t, e.Args("inspect", at)...)
		if text.Wait(t) != 0 || !strings.Contains(text.Text(), "semaphore, 2 of 2 permits held, 1 waiting") {
			t.Errorf("inspect prints %q", text.Text())
		}
		if other := run(5); other.Wait(t) != cli.ExitFailed || !strings.Contains(other.Text(), "2 is recorded") || !strings.Contains(other.Text(), "with 5") {
			t.Errorf("another limit: exit code %d; it printed %q", other.Code, other.Text())
		}
		if busy := run(2, "--try"); busy.Wait(t) != cli.ExitNotAcquired {
			t.Errorf("--try: exit code %d; it printed %q", busy.Code, busy.Text())
		}
		if late := run(2, "--wait", "2s"); late.Wait(t) != cli.ExitNotAcquired {
			t.Errorf("--wait: exit code %d; it printed %q", late.Code, late.Text())
		}
		if waits := second.Text(); waits != "" {
			t.Errorf("it does not wait: it prints %q", waits)
		}
		third := run(4, "--set-max") // which lets the waiting one in, too
		second.Prints(t, "ready\n")
		third.Prints(t, "ready\n")
		first.Signal(t, syscall.SIGKILL)
		fourth := run(4, "--permits", "2")
		fourth.Prints(t, "ready\n") // when the session of the first has expired
		for _, p := range []*zkrtest.Process{second, third, fourth} {
			p.Signal(t, syscall.SIGTERM)
			if code := p.Wait(t); code != 3 {
				t.Errorf("exit code %d, want the command's own 3", code)
			}
		}
	})
}

// TestShareLost: under every recipe the command ends when the lease is lost.
func TestShareLost(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	client := e.Client(t)
	for _, test := range []struct{ verb, at, dir string }{
		{"read", "/lost/read", "/lost/read"},
		{"write", "/lost/write", "/lost/write"},
		{"semaphore --max 2", "/lost/permit", "/lost/permit/leases"},
	} {
		args := strings.Fields(test.verb)
		p := zkrtest.Start(t, slices.Concat(e.Args(args[0], args[1:]...), zkrtest.PatientGrace, []string{test.at, "--", zkrtest.Self(t)})...)
		p.Prints(t, "ready\n")
		children, _, err := client.Children(t.Context(), test.dir)
		if err != nil || len(children) != 1 {
			t.Fatalf("%s: %q, %v", test.verb, children, err)
		}
		if err := client.Delete(t.Context(), path.Join(test.dir, children[0]), -1); err != nil {
			t.Fatal(err)
		}
		if code := p.Wait(t); code != cli.ExitLost || !strings.Contains(p.Text(), "stopping\n") {
			t.Errorf("%s: exit code %d, want %d; it printed %q", test.verb, code, cli.ExitLost, p.Text())
		}
	}
}
