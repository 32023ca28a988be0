//go:build linux

package guardian_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/guardian"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// TestFailoverOnRealServers: a holder is killed, and both of its locks pass on
// long before its sessions expire, from real members, with each kind of
// guardian.
func TestFailoverOnRealServers(t *testing.T) {
	const runs = 20
	servers := apache.Start(t, 3, apache.WithSessionTimeouts(time.Second, 2*sessionTimeout)).Servers()
	socket := startDaemon(t, servers)
	var mutexes []*locks.Mutex
	for _, path := range []string{"/lock", "/other"} {
		mutex, err := locks.NewMutex(connect(t, servers), path)
		if err != nil {
			t.Fatal(err)
		}
		mutexes = append(mutexes, mutex)
	}
	for _, kind := range []string{"daemon", "child"} {
		env := guardian.Variable + "=child"
		if kind == "daemon" {
			env = guardian.Variable + "=" + socket
		}
		var all []time.Duration
		for range runs {
			holder, _, _ := startHolder(t, servers, env)
			ctx, cancel := context.WithTimeout(t.Context(), sessionTimeout/2)
			granted := make(chan error, len(mutexes))
			for _, mutex := range mutexes {
				go func() {
					lease, err := mutex.Acquire(ctx)
					granted <- err
					if err == nil {
						_ = lease.Release(context.Background())
					}
				}()
			}
			time.Sleep(50 * time.Millisecond) // until both wait
			_ = holder.Process.Kill()
			died := time.Now()
			for range mutexes {
				if err := <-granted; err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
			}
			all = append(all, time.Since(died))
			cancel()
			_ = holder.Wait()
		}
		slices.Sort(all)
		t.Logf("%s: both locks passed on after %v, at most %v", kind, all[runs/2].Round(100*time.Microsecond), all[runs-1].Round(100*time.Microsecond))
	}
}
