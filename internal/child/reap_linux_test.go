package child

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// awaitZombie returns when a process has ended. Nobody waits for it.
func awaitZombie(t *testing.T, id int) {
	t.Helper()
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
		if err != nil {
			t.Fatal(err)
		}
		if _, rest, _ := bytes.Cut(stat, []byte(") ")); rest[0] == 'Z' {
			return
		}
		runtime.Gosched()
	}
}

// TestReap: what nobody waits for is reaped, and never what Start has started,
// whichever of them the kernel names first. Its exit code is its caller's.
func TestReap(t *testing.T) {
	for _, ownFirst := range []bool{false, true} {
		var mine, orphan int
		startMine := func() {
			cmd := exec.Command("sh", "-c", "exit 7")
			if err := Start(cmd); err != nil {
				t.Fatal(err)
			}
			mine = cmd.Process.Pid
		}
		if ownFirst {
			startMine()
		}
		other := exec.Command("true")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		if orphan = other.Process.Pid; !ownFirst {
			startMine()
		}
		awaitZombie(t, mine)
		awaitZombie(t, orphan)
		reap()
		var status syscall.WaitStatus
		if id, err := syscall.Wait4(mine, &status, syscall.WNOHANG, nil); id != mine || status.ExitStatus() != 7 {
			t.Errorf("own first %v: the exit status is %v, %v", ownFirst, status, err)
		}
		Ended(mine)
		select {
		case <-own.changed:
		default:
			t.Error("nobody is told to reap what it has hidden")
		}
		reap()
		if id, err := syscall.Wait4(orphan, nil, syscall.WNOHANG, nil); err != syscall.ECHILD {
			t.Errorf("own first %v: the orphan is left: %d, %v", ownFirst, id, err)
		}
	}
}

// TestStartThatFails: a command that cannot be executed is forgotten.
func TestStartThatFails(t *testing.T) {
	if err := Start(exec.Command("/nonexistent")); err == nil || len(own.ids) != 0 {
		t.Errorf("%v, %v", err, own.ids)
	}
}
