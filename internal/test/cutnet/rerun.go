package cutnet

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/child"
)

// Rerun runs a test, and no other, in another process of the same test binary,
// which is in a network namespace of its own, and fails the test if it fails
// there, or skips it. It logs what that process prints.
func Rerun(t testing.TB) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var pattern []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	cmd := exec.Command(self, "-test.run="+strings.Join(pattern, "/"), "-test.v", "-test.timeout=0", "-test.count=1")
	Isolate(cmd)
	child.DieWithParent(cmd)
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	ended := make(chan error, 1)
	go func() {
		// Linux takes the end of the thread that started a child for the end of
		// the parent, so keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Run()
		in.Close()
		ended <- err
	}()
	passed, skipped := false, false
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		t.Log(scanner.Text())
		line := strings.TrimSpace(scanner.Text())
		passed = passed || strings.HasPrefix(line, "--- PASS: "+t.Name()+" ")
		skipped = skipped || strings.HasPrefix(line, "--- SKIP: "+t.Name()+" ")
	}
	_, _ = io.Copy(io.Discard, out) // a line was too long
	err = <-ended
	if err == nil && skipped {
		t.SkipNow()
	}
	if err != nil || !passed {
		t.Errorf("in a namespace of its own: passed %v, %v", passed, err)
	}
}
