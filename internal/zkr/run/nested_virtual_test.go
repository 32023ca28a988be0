package run

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestHeldAbove: what ZKR_HELD says is believed only while the session has a
// znode there, or if nobody can say whether it has. A daemon that was started
// under zkr lock can use the lock after that one has ended.
func TestHeldAbove(t *testing.T) {
	mutex := func(t *testing.T, c *framework.Client, opts ...recipes.AnyOption) *locks.Mutex {
		var all []locks.Option
		for _, opt := range opts {
			all = append(all, opt)
		}
		m, err := locks.NewMutex(c, "/l", all...)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	const granted, waits = "granted", "waits"
	for name, test := range map[string]struct {
		above func(t *testing.T, w *bubble.World, c *framework.Client) // what the session has, and other clients
		want  string                                                   // empty: it is refused
	}{
		"its session has ended": {func(t *testing.T, _ *bubble.World, c *framework.Client) {
			bubble.Acquire(t, t.Context(), mutex(t, c))
			c.Close()
		}, granted},
		"it has released": {func(t *testing.T, _ *bubble.World, c *framework.Client) {
			bubble.Release(t, bubble.Acquire(t, t.Context(), mutex(t, c)))
		}, granted},
		"another one holds": {func(t *testing.T, w *bubble.World, _ *framework.Client) {
			bubble.Acquire(t, t.Context(), mutex(t, w.Connect("another")))
		}, waits},
		"it holds": {func(t *testing.T, _ *bubble.World, c *framework.Client) {
			bubble.Acquire(t, t.Context(), mutex(t, c))
		}, ""},
		"it waits in line": {func(t *testing.T, w *bubble.World, c *framework.Client) {
			bubble.Acquire(t, t.Context(), mutex(t, w.Connect("another")))
			ctx, cancel := context.WithCancel(t.Context())
			over := bubble.Acquiring(ctx, mutex(t, c))
			t.Cleanup(func() { cancel(); <-over })
			w.InLine("/l", 2)
		}, ""},
		"it has a permit": {func(t *testing.T, w *bubble.World, c *framework.Client) {
			for _, c := range []*framework.Client{w.Connect("another"), c} {
				s, err := semaphore.New(c, "/l", 2)
				if err != nil {
					t.Fatal(err)
				}
				bubble.Acquire(t, t.Context(), s.Permits(1))
			}
		}, ""},
		"it is a member": {func(t *testing.T, _ *bubble.World, c *framework.Client) {
			if _, err := c.Create(t.Context(), "/l", nil, zk.FlagEphemeral); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"nobody may read its znode": {func(t *testing.T, _ *bubble.World, c *framework.Client) {
			bubble.Acquire(t, t.Context(), mutex(t, c, recipes.WithACL(zk.ACL{Scheme: "world", ID: "anyone", Perms: zk.PermWrite})))
		}, ""},
		"no server answers": {func(_ *testing.T, w *bubble.World, c *framework.Client) {
			own := w.SessionID(c)
			w.Control(func(r testutil.Request) testutil.Action {
				if r.Op == testutil.OpSync && r.Session != own {
					return testutil.Hold(nil)
				}
				return testutil.Pass()
			})
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.Connect("above")
				t.Setenv(heldVariable, fmt.Sprintf("%s %s /elsewhere\n%[1]s %[2]s /l\n", wire.SessionText(w.SessionID(c)), w.Servers()))
				test.above(t, w, c)
				began := time.Now()
				v := lockVirtual(t, w)
				switch test.want {
				case granted:
					v.out.prints(t, "^[0-9a-f]{32}\n$")
				case waits:
					w.InLine("/l", 2)
				default:
					code, err := v.end(t)
					if code != cli.ExitUsage || !strings.Contains(err.Error(), "/l: a zkr that runs this command holds it (session 0x") {
						t.Errorf("exit code %d: %v", code, err)
					}
					if took := time.Since(began); took > cli.LookTimeout+5*time.Second { // the client closes
						t.Errorf("it took %v", took)
					}
					return
				}
				v.in.Signals.Arrived <- syscall.SIGTERM
				v.end(t)
			})
		})
	}
}

// TestHeldAboveBehindASync: a server that lags behind does not hide the znode
// of the zkr that runs this one.
func TestHeldAboveBehindASync(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		behind := (w.Leader() + 1) % w.Members()
		above, below := w.ConnectTo("above", w.Address(w.Leader())), w.ConnectTo("below", w.Address(behind))
		w.Lag(behind)
		m, err := locks.NewMutex(above, "/l")
		if err != nil {
			t.Fatal(err)
		}
		bubble.Acquire(t, t.Context(), m)
		stands := make(chan bool, 1)
		go func() { stands <- heldAbove{session: w.SessionID(above)}.stands(t.Context(), below, "/l") }() // ends within LookTimeout
		time.Sleep(cli.LookTimeout / 2)
		w.Unlag(behind)
		if !<-stands {
			t.Error("its znode was not seen")
		}
		if (heldAbove{session: w.SessionID(below)}).stands(t.Context(), below, "/l") {
			t.Error("the znode of another session was taken for its own")
		}
	}, testutil.WithMembers(3))
}
