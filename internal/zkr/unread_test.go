//go:build unix

package zkr_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestSignalsWhileNobodyReads: a process whose stdout is a full pipe ends at
// SIGTERM. Only SIGKILL ended it.
func TestSignalsWhileNobodyReads(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"watch /d", "watch --tree /", "members --follow /d", "observe /d", "inspect --watch /d", "ls --recursive /", "server --listen 127.0.0.1:0"} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			e := testutil.Start(t)
			c := zkrtest.Dial(t, e)
			if err := c.MakePersistentPath(t.Context(), "/d"); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Create(t.Context(), "/d/m", nil, zk.FlagEphemeral); err != nil {
				t.Fatal(err)
			}
			out := full(t)
			args := strings.Fields(line)
			if args[0] != "server" {
				args = append(args, "--servers", e.Servers())
			}
			p := zkrtest.StartChanged(t, func(cmd *exec.Cmd) { cmd.Stdout = out }, args...)
			for args[0] != "server" && len(e.Sessions()) < 2 {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Second) // by now it prints, if the machine is quick enough to show the fault
			p.Signal(t, syscall.SIGTERM)
			want := 0
			if args[0] == "ls" {
				want = 143
			}
			if code := p.Wait(t); code != want {
				t.Errorf("exit code %d: %s", code, p.Text())
			}
		})
	}
}

// full returns a pipe that nobody reads, and that is full.
func full(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	for {
		if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, 4096)); errors.Is(err, os.ErrDeadlineExceeded) {
			return w
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
