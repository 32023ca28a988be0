package cache

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

// A disk that hangs delays Start and Close for a bounded time, and nothing
// else. The goroutine that would hang is not started.
func TestADiskThatHangs(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		core, logged := observer.New(zap.DebugLevel)
		c, err := New(w.Connect("program", framework.WithLogger(zap.New(core))), "/config", WithSnapshot(filepath.Join(t.TempDir(), "snapshot")))
		if err != nil {
			t.Fatal(err)
		}
		within := func(what string, want time.Duration, do func()) {
			t.Helper()
			began := time.Now()
			if do(); time.Since(began) != want {
				t.Errorf("%s takes %v, want %v", what, time.Since(began), want)
			}
		}
		within("Start", readPatience, func() {
			c.started = true
			go c.run()
			c.keeper.awaitRead()
		})
		if v, err := c.Synced(t.Context()); err != nil || v.Zxid() == 0 {
			t.Errorf("%x, %v", v.Zxid(), err)
		}
		within("Close", writePatience, c.Close)
		synctest.Wait()
		if logged.FilterMessage("a snapshot was not written").Len() != 1 {
			t.Error("the log does not say so")
		}
	})
}

// Writes take a fiftieth of the time at most, however slow the disk is, and
// whether or not they fail.
func TestPauseAfterAWrite(t *testing.T) {
	for took, want := range map[time.Duration][2]time.Duration{
		0:                      {5 * time.Second, time.Minute},
		100 * time.Millisecond: {5 * time.Second, time.Minute},
		200 * time.Millisecond: {10 * time.Second, time.Minute},
		3 * time.Second:        {150 * time.Second, 150 * time.Second},
	} {
		if good, bad := pauseAfter(took, nil), pauseAfter(took, errors.New("full")); good != want[0] || bad != want[1] {
			t.Errorf("after %v the pause is %v, and after an error %v, want %v", took, good, bad, want)
		}
	}
}

// What is written beside a file is named after it, also if the name has what is
// special in a pattern. So what is left is found.
func TestNameOfAFileThatIsWritten(t *testing.T) {
	k := &keeper{c: &Cache{root: "/"}, file: filepath.Join(t.TempDir(), "a*b")}
	if err := os.Mkdir(k.file, 0o700); err != nil {
		t.Fatal(err)
	}
	var refused *os.LinkError
	if err := k.write(&snapshot{}); !errors.As(err, &refused) || !strings.HasPrefix(refused.Old, k.file+beside) {
		t.Errorf("%v", err)
	}
}
