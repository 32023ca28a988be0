//go:build unix

package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestReadersAndWriters: readers hold together, a writer holds alone. A reader
// that arrives after a waiting writer waits for it. When one side is killed the
// other side holds.
func TestReadersAndWriters(t *testing.T) {
	parallel(t)
	onEach(t, func(t *testing.T, e target) {
		for _, layout := range []string{"plain", "curator", "kazoo"} {
			at := "/shared/" + layout
			client := e.client(t)
			run := func(verb string, place int, more ...string) *process {
				p := start(t, e.args(verb, append(more, "--layout", layout, at, "--", self(t))...)...)
				e.inLine(t, client, at, place)
				return p
			}
			a := run("read", 1)
			b := run("read", 2, toBeKilled...)
			a.prints(t, "ready\n")
			b.prints(t, "ready\n")
			w := run("write", 3)
			c := run("read", 4)
			busy := start(t, e.args("read", "--try", "--layout", layout, at, "--", "true")...)
			if code := busy.wait(t); code != exitNotAcquired {
				t.Errorf("a reader that will not wait behind a writer: exit code %d", code)
			}
			text := start(t, e.args("inspect", at)...)
			if text.wait(t) != 0 || !strings.Contains(text.text(), "2 holders, 2 waiting") {
				t.Errorf("inspect prints %q", text.text())
			}
			end := func(p *process, sig syscall.Signal) {
				t.Helper()
				p.signal(t, sig)
				if code := p.wait(t); sig == syscall.SIGTERM && code != 3 {
					t.Errorf("exit code %d, want the command's own 3", code)
				}
			}
			end(a, syscall.SIGTERM)
			if waits := w.text() + c.text(); waits != "" {
				t.Errorf("with a reader left the others print %q", waits)
			}
			end(b, map[string]syscall.Signal{"plain": syscall.SIGKILL, "curator": syscall.SIGTERM, "kazoo": syscall.SIGKILL}[layout])
			w.prints(t, "ready\n")
			if waits := c.text(); waits != "" {
				t.Errorf("beside a writer the reader prints %q", waits)
			}
			end(w, syscall.SIGTERM)
			c.prints(t, "ready\n")
			end(c, syscall.SIGTERM)
		}
	})
}

// TestReadersNeverSeeHalf: writers change two files, one after the other, while
// readers compare them.
func TestReadersNeverSeeHalf(t *testing.T) {
	parallel(t)
	onEach(t, func(t *testing.T, e target) {
		dir := t.TempDir()
		one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
		for _, file := range []string{one, two} {
			if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var all []*process
		for range 3 {
			all = append(all, start(t, e.args("write", "/halves", "--", "sh", "-c",
				`n=$(($(cat "$1")+1)); echo $n > "$1"; sleep 0.03; echo $n > "$2"`, "sh", one, two)...))
			for range 2 {
				all = append(all, start(t, e.args("read", "/halves", "--", "sh", "-c",
					`n=$(cat "$1"); sleep 0.02; test "$n" = "$(cat "$2")"`, "sh", one, two)...))
			}
		}
		for _, p := range all {
			if code := p.wait(t); code != 0 {
				t.Errorf("%q: exit code %d", p.cmd.Args, code)
			}
		}
		if got := contents(t, two)[0]; got != "3" {
			t.Errorf("3 writers counted to %s", got)
		}
	})
}

// TestNeverMoreThanMax: there are more workers than permits, and some take two.
// Each prints when it starts and ends.
func TestNeverMoreThanMax(t *testing.T) {
	parallel(t)
	onEach(t, func(t *testing.T, e target) {
		const most = 3
		log := filepath.Join(t.TempDir(), "log")
		script := `echo "in $1" >> "$2"; sleep 0.05; echo "out $1" >> "$2"`
		var all []*process
		for i := range 7 {
			n := strconv.Itoa(1 + i%2)
			all = append(all, start(t, e.args("semaphore", "--max", strconv.Itoa(most), "--permits", n, "/workers", "--",
				"sh", "-c", script, "sh", n, log)...))
		}
		for _, p := range all {
			if code := p.wait(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		}
		out := 0
		for _, event := range contents(t, log) {
			what, number, _ := strings.Cut(event, " ")
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			if what == "out" {
				n = -n
			}
			if out += n; out > most {
				t.Fatalf("%d permits of %d are out:\n%s", out, most, strings.Join(contents(t, log), "\n"))
			}
		}
	})
}

// TestPermits: who holds and who waits is shown, a holder is killed, and the
// limit is changed while one waits.
func TestPermits(t *testing.T) {
	parallel(t)
	onEach(t, func(t *testing.T, e target) {
		const at = "/permits"
		client := e.client(t)
		run := func(limit int, more ...string) *process {
			return start(t, e.args("semaphore", slices.Concat([]string{"--max", strconv.Itoa(limit)}, more, []string{at, "--", self(t)})...)...)
		}
		first := run(2, append(toBeKilled, "--permits", "2")...)
		first.prints(t, "ready\n")
		second := run(2)
		e.inLine(t, client, path.Join(at, "locks"), 1)
		text := start(t, e.args("inspect", at)...)
		if text.wait(t) != 0 || !strings.Contains(text.text(), "semaphore, 2 of 2 permits held, 1 waiting") {
			t.Errorf("inspect prints %q", text.text())
		}
		if other := run(5); other.wait(t) != exitFailed || !strings.Contains(other.text(), "2 is recorded") || !strings.Contains(other.text(), "with 5") {
			t.Errorf("another limit: exit code %d; it printed %q", other.code, other.text())
		}
		if busy := run(2, "--try"); busy.wait(t) != exitNotAcquired {
			t.Errorf("--try: exit code %d; it printed %q", busy.code, busy.text())
		}
		if late := run(2, "--wait", "100ms"); late.wait(t) != exitNotAcquired {
			t.Errorf("--wait: exit code %d; it printed %q", late.code, late.text())
		}
		if waits := second.text(); waits != "" {
			t.Errorf("it does not wait: it prints %q", waits)
		}
		third := run(4, "--set-max") // which lets the waiting one in, too
		second.prints(t, "ready\n")
		third.prints(t, "ready\n")
		first.signal(t, syscall.SIGKILL)
		fourth := run(4, "--permits", "2")
		fourth.prints(t, "ready\n") // when the session of the first has expired
		for _, p := range []*process{second, third, fourth} {
			p.signal(t, syscall.SIGTERM)
			if code := p.wait(t); code != 3 {
				t.Errorf("exit code %d, want the command's own 3", code)
			}
		}
	})
}

// TestShareLost: under every recipe the command ends when the lease is lost.
func TestShareLost(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	client := e.client(t)
	for _, test := range []struct{ verb, at, dir string }{
		{"read", "/lost/read", "/lost/read"},
		{"write", "/lost/write", "/lost/write"},
		{"semaphore --max 2", "/lost/permit", "/lost/permit/leases"},
	} {
		args := strings.Fields(test.verb)
		p := start(t, slices.Concat(e.args(args[0], args[1:]...), patientGrace, []string{test.at, "--", self(t)})...)
		p.prints(t, "ready\n")
		children, _, err := client.Children(t.Context(), test.dir)
		if err != nil || len(children) != 1 {
			t.Fatalf("%s: %q, %v", test.verb, children, err)
		}
		if err := client.Delete(t.Context(), path.Join(test.dir, children[0]), -1); err != nil {
			t.Fatal(err)
		}
		if code := p.wait(t); code != exitLost || !strings.Contains(p.text(), "stopping\n") {
			t.Errorf("%s: exit code %d, want %d; it printed %q", test.verb, code, exitLost, p.text())
		}
	}
}
