package cache_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/child"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
)

const killedFile = "ZKR_TEST_SNAPSHOT"

// A process is killed while it keeps snapshots, at any instant, and the next
// one goes on. The file is always the one that was written last or the one
// before, and nothing else stays. The process waits in virtual time, so it
// writes as fast as the disk.
func TestKilledAtEveryWrite(t *testing.T) {
	bubble.Usual(t, bubble.SmallRequest) // has large data
	if file := os.Getenv(killedFile); file != "" {
		keepUntilKilled(t, file)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "snapshot")
	cut, last := 0, 0
	longest := 20 * time.Millisecond
	for kills := 1; kills <= 40 && !t.Failed() || cut == 0 && kills <= 100 && !t.Failed(); kills++ {
		if kills%10 == 0 && cut == 0 {
			longest *= 2 // this machine writes slowly
		}
		keepAndKill(t, file, rand.N(longest))
		if files, err := os.ReadDir(dir); err != nil || len(files) > 2 {
			t.Errorf("there are %v, %v", files, err)
		} else if len(files) == 2 {
			cut++
		}
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c, _ := without(t, w)
			now := number(t, start(t, c, cache.WithSnapshot(file)))
			if now < last {
				t.Errorf("the file has the view %d, after %d", now, last)
			}
			last = now
		})
	}
	t.Logf("%d views were written, and %d writes cut off", last, cut)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) > 1 || cut == 0 {
		t.Errorf("after %d writes that were cut off there are %v, %v", cut, files, err)
	}
}

// number returns which view a snapshot has, 0 if there is none yet.
func number(t bubble.T, k *cache.Cache) int {
	t.Helper()
	root, ok := k.View().Get(root)
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(string(root.Data))
	if err != nil || len(root.Data) != numberedBytes {
		t.Fatalf("the file has %d bytes: %v", len(root.Data), err)
	}
	return n
}

const numberedBytes = 300_000

func numbered(n int) string { return fmt.Sprintf("%0*d", numberedBytes, n) }

// keepUntilKilled keeps one view after the other, and never returns.
func keepUntilKilled(t *testing.T, file string) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, heal := without(t, w)
		k := start(t, c, cache.WithSnapshot(file))
		n := number(t, k)
		other := w.Connect("other")
		create(t, other, root, numbered(n))
		heal()
		for {
			n++
			set(t, other, root, numbered(n))
			if time.Sleep(6 * time.Second); k.Status().State == cache.Synced {
				fmt.Println("kept", n) // perhaps not yet on the disk
			}
		}
	})
}

// keepAndKill lets a process keep some views, and kills it after a while.
func keepAndKill(t *testing.T, file string, after time.Duration) {
	t.Helper()
	runtime.LockOSThread() // see child.DieWithParent
	defer runtime.UnlockOSThread()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledAtEveryWrite$")
	cmd.Env = append(os.Environ(), killedFile+"="+file)
	cmd.Stderr = os.Stderr
	child.DieWithParent(cmd)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Error("the process has ended by itself")
	}
	time.Sleep(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
