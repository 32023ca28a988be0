//go:build linux

package guardian_test

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/guardian"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/guarding"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// TestFailoverOnRealServers: a holder is killed, and both of its locks pass on
// long before its sessions expire, from real members, one of which is an
// observer, with each kind of guardian.
func TestFailoverOnRealServers(t *testing.T) {
	const runs = 20
	servers := apache.Start(t, 3, apache.WithObservers(1), apache.WithSessionTimeouts(time.Second, 2*sessionTimeout)).Servers()
	socket := guarding.Daemon(t, servers)
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

// TestManyProcesses: processes with one daemon hold a permit each, and are all
// killed at once.
func TestManyProcesses(t *testing.T) {
	n := bubble.Draw(20, 500)
	servers := apache.Start(t, 3, apache.WithSessionTimeouts(time.Second, 2*sessionTimeout)).Servers()
	env := []string{guardian.Variable + "=" + guarding.Daemon(t, servers), "GUARDIAN_PERMIT=1"}
	all, c := make([]*exec.Cmd, n), connect(t, servers)
	for i := range all {
		all[i], _, _ = startHolder(t, servers, env...)
	}
	held := func() int {
		permits, _, err := c.Children(t.Context(), "/permits/leases")
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // a container, which goes soon
			t.Fatal(err)
		}
		return len(permits)
	}
	if err := c.Sync(t.Context(), "/permits/leases"); err != nil { // its member may lag
		t.Fatal(err)
	}
	if got := held(); got != n {
		t.Fatalf("%d of %d permits are held", got, n)
	}
	died := time.Now()
	for _, one := range all {
		_ = one.Process.Kill()
	}
	for time.Since(died) < sessionTimeout/2 && held() > 0 {
		time.Sleep(time.Millisecond)
	}
	if left := held(); left > 0 {
		t.Errorf("%d of %d sessions are not closed", left, n)
	}
	t.Logf("the permits of %d processes are free after %v", n, time.Since(died).Round(time.Millisecond))
}
