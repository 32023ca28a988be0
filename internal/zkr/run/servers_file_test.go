package run

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The file of --servers-file changes while zkr holds a lock: zkr moves to a
// server of the new list, and keeps the lock.
func TestAServersFileThatChanges(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		name := filepath.Join(t.TempDir(), "servers")
		members := strings.Split(w.Servers(), ",")
		write := func(list ...string) {
			t.Helper()
			if err := os.WriteFile(name, []byte(strings.Join(list, "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(members[0])
		command := within(w, parsed(t))
		command.to.Servers, command.to.ServersFile = "nowhere:2181", name
		var client *framework.Client
		v := startVirtual(func(ctx context.Context, in *cli.Process) error {
			return command.run(ctx, in, func(_ context.Context, c *framework.Client, path string) (recipes.Acquirer, error) {
				client = c
				return locks.NewMutex(c, path, recipes.WithData(command.data()))
			})
		})
		v.out.prints(t, "^[0-9a-f]{32}\n$")
		s, err := client.Session()
		if err != nil || client.Server() != members[0] {
			t.Fatalf("at %s, %v", client.Server(), err)
		}
		write(slices.Concat([]string{"# two are left"}, members[1:])...)
		time.Sleep(4 * time.Minute)
		if at := client.Server(); !slices.Contains(members[1:], at) || s.Err() != nil || len(v.ended) > 0 {
			t.Errorf("at %s; session: %v; ended: %d", at, s.Err(), len(v.ended))
		}
		write() // whoever writes it begins with an empty one
		time.Sleep(4 * time.Minute)
		if s.Err() != nil || !s.Connected() {
			t.Errorf("connected %t, %v", s.Connected(), s.Err())
		}
		v.in.Signals.Arrived <- syscall.SIGTERM
		if code, err := v.end(t); code != 0 || v.errs.String() != "" {
			t.Errorf("exit code %d, %v; it said %q", code, err, v.errs.String())
		}
	}, testutil.WithMembers(3))
}
