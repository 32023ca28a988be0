package presence_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// What a user supplies may block, panic or end its goroutine. The znode, its
// other listeners and Close do not wait for it.
func TestListenersThatMisbehave(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		n := announce(t, c, path, "a")
		never := make(chan struct{})
		var panics, ends, blocked, stopped atomic.Int32
		n.Listen(nil)()
		n.Listen(func(presence.Status) { panics.Add(1); panic("listener") })
		n.Listen(func(presence.Status) { ends.Add(1); runtime.Goexit() })
		n.Listen(func(presence.Status) { blocked.Add(1); <-never })
		n.Listen(func(presence.Status) { stopped.Add(1) })()
		var told []presence.State
		n.Listen(func(s presence.Status) { told = append(told, s.State) })
		for range 100 {
			w.ClientNet("ours").Cut()
			awaitState(t, n, presence.Suspended)
			w.ClientNet("ours").Heal()
			awaitState(t, n, presence.Standing)
		}
		closed(t, w, n)
		time.Sleep(time.Second)
		synctest.Wait()
		if want := int32(1 + 200 + 1); panics.Load() != want || ends.Load() != want || blocked.Load() != 1 || stopped.Load() > 1 || len(told) != int(want) {
			t.Errorf("called %d, %d, %d, %d and %d times, want %d", panics.Load(), ends.Load(), blocked.Load(), stopped.Load(), len(told), want)
		}
		close(never)
		time.Sleep(time.Second)
		if got := blocked.Load(); got != 1+64 {
			t.Errorf("the slow one has heard %d statuses", got)
		}
	})
}

func TestTakeoverFunctionsThatMisbehave(t *testing.T) {
	never := make(chan struct{})
	var calls atomic.Int32
	for name, mine := range map[string]func([]byte) bool{
		"panics":             func([]byte) bool { panic("takeover") },
		"ends its goroutine": func([]byte) bool { runtime.Goexit(); return true },
		"blocks":             func([]byte) bool { <-never; return true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				never = make(chan struct{})
				calls.Store(0)
				theirs, ours := w.ConnectNext(), w.ConnectNext()
				old := announce(t, theirs, path, "0")
				n, err := presence.New(ours, path, []byte("ours"), presence.WithTakeover(func(data []byte) bool {
					calls.Add(1)
					return mine(data)
				}))
				must(t, err)
				must(t, n.Start())
				awaitState(t, n, presence.Taken)
				for range 20 {
					must(t, old.Set(t.Context(), []byte("next")))
					time.Sleep(time.Minute)
				}
				if name == "blocks" && calls.Load() != 1 {
					t.Errorf("%d calls beside each other", calls.Load())
				}
				standing(t, w, theirs, old, "next")
				must(t, old.Close(t.Context()))
				standing(t, w, ours, n, "ours")
				closed(t, w, n)
				close(never)
			})
		})
	}
}

// What a Node is told while a takeover function runs does not wait for the next
// look, about a session timeout later: Close, and that it is ill.
func TestANodeHearsWhileATakeoverFunctionRuns(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		never := make(chan struct{})
		defer close(never)
		var checks, ill atomic.Int64 // when it was ill
		c := w.ConnectNext()
		announce(t, w.ConnectNext(), path, "0")
		n, err := presence.New(c, path, []byte("ours"), presence.WithTakeover(func([]byte) bool { <-never; return true }),
			presence.WithHealthCheck(time.Minute, func(context.Context) error {
				if checks.Add(1) != 2 {
					return nil
				}
				ill.Store(time.Now().UnixNano())
				return errors.New("ill")
			}))
		must(t, err)
		must(t, n.Start())
		awaitState(t, n, presence.Taken)
		awaitState(t, n, presence.Pending)
		if late := time.Since(time.Unix(0, ill.Load())); late > 100*time.Millisecond {
			t.Errorf("ill since %v", late)
		}
		awaitState(t, n, presence.Taken)
		time.Sleep(time.Second)
		began := time.Now()
		must(t, n.Close(t.Context()))
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
	})
}

// A call of the health check that has not returned fails, and no other begins
// beside it. Close does not wait for it.
func TestAHealthCheckThatBlocks(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		never := make(chan struct{})
		var calls atomic.Int32
		c := w.ConnectNext()
		n := announce(t, c, path, "a", presence.WithHealthCheck(time.Second, func(context.Context) error {
			if calls.Add(1) > 1 {
				<-never
			}
			return nil
		}))
		awaitState(t, n, presence.Pending)
		time.Sleep(time.Minute)
		if w.Exists(path) || calls.Load() != 2 {
			t.Errorf("exists %t, %d calls", w.Exists(path), calls.Load())
		}
		closed(t, w, n)
		close(never)
	})
}

// Health checks begin once per interval, however long they take.
func TestTheIntervalOfHealthChecks(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var calls atomic.Int32
		n := announce(t, w.ConnectNext(), path, "a", presence.WithHealthCheck(time.Second, func(context.Context) error {
			calls.Add(1)
			time.Sleep(900 * time.Millisecond)
			return nil
		}))
		calls.Store(0)
		time.Sleep(time.Minute)
		if got := calls.Load(); got < 58 || got > 61 {
			t.Errorf("%d checks in a minute", got)
		}
		closed(t, w, n)
	})
}

func TestBadInput(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		check := func(context.Context) error { return nil }
		mine := func([]byte) bool { return false }
		for want, try := range map[string]func() (*presence.Node, error){
			"client":       func() (*presence.Node, error) { return presence.New(nil, path, nil) },
			"relative":     func() (*presence.Node, error) { return presence.New(c, "relative", nil) },
			`""`:           func() (*presence.Node, error) { return presence.New(c, "", nil) },
			"/a/":          func() (*presence.Node, error) { return presence.New(c, "/a/", nil) },
			"root":         func() (*presence.Node, error) { return presence.New(c, "/", nil) },
			"health check": func() (*presence.Node, error) { return presence.New(c, path, nil, presence.WithHealthCheck(0, check)) },
			"must not be nil": func() (*presence.Node, error) {
				return presence.New(c, path, nil, presence.WithHealthCheck(time.Second, nil))
			},
			"takeover is nil": func() (*presence.Node, error) { return presence.New(c, path, nil, presence.WithTakeover(nil)) },
			"sequential": func() (*presence.Node, error) {
				return presence.New(c, path, nil, presence.WithSequential(), presence.WithTakeover(mine))
			},
			"option <nil>": func() (*presence.Node, error) { return presence.New(c, path, nil, nil) },
		} {
			if n, err := try(); err == nil || n != nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
		zero := &presence.Node{}
		zero.Listen(func(presence.Status) { t.Error("told") })()
		for _, err := range []error{zero.Start(), zero.Standing(t.Context()), zero.Set(t.Context(), nil)} {
			if !errors.Is(err, presence.ErrClosed) {
				t.Error(err)
			}
		}
		if err := zero.Close(t.Context()); err != nil || zero.Status().State != presence.Closed || zero.Path() != "" {
			t.Error(err, zero.Status())
		}
		n, err := presence.New(c, path, nil)
		must(t, err)
		for _, err := range []error{n.Standing(t.Context()), n.Set(t.Context(), nil)} {
			if !errors.Is(err, presence.ErrNotStarted) {
				t.Error(err)
			}
		}
		must(t, n.Start())
		if n.Start() == nil {
			t.Error("started twice")
		}
		must(t, n.Standing(t.Context()))
		closed(t, w, n)
		for _, err := range []error{n.Start(), n.Standing(t.Context()), n.Set(t.Context(), nil)} {
			if !errors.Is(err, presence.ErrClosed) {
				t.Error(err)
			}
		}
		n, err = presence.New(c, path, nil)
		must(t, err)
		closed(t, w, n) // never started
		if _, err := presence.Announce(t.Context(), &framework.Client{}, path, nil); !errors.Is(err, framework.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestOptionsOfPackageRecipes(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		n := announce(t, c, path, "a", recipes.WithACL(zk.WorldACL(zk.PermRead)...), recipes.WithLabel("billing"))
		acl, _, err := c.GetACL(t.Context(), path)
		if err != nil || len(acl) != 1 || acl[0].Perms != zk.PermRead {
			t.Error(acl, err)
		}
		if err := n.Set(t.Context(), []byte("b")); !errors.Is(err, zk.ErrNoAuth) { // it may not write to it
			t.Error(err)
		}
		standing(t, w, c, n, "a")
		closed(t, w, n)
	})
}

// A znode that the session may not read is in the way, and nobody knows whose
// it is.
func TestAZnodeThatCannotBeRead(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.ConnectNext(), w.ConnectNext()
		must(t, other.MakeContainerPath(t.Context(), "/services/billing"))
		_, err := other.Create(t.Context(), path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermWrite)...)
		must(t, err)
		n, err := presence.New(c, path, []byte("a"), presence.WithTakeover(func([]byte) bool { return true }))
		must(t, err)
		must(t, n.Start())
		time.Sleep(time.Minute)
		if s := n.Status(); s.State != presence.Pending || !errors.Is(s.Err, zk.ErrNoAuth) {
			t.Errorf("%+v", s)
		}
		must(t, other.Close())
		standing(t, w, c, n, "a")
		closed(t, w, n)
	})
}

func TestAListenerStopsBehind(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		n := announce(t, c, path, "a")
		bubble.StoppedBehind(t, func(hear func()) func() { return n.Listen(func(presence.Status) { hear() }) }, func() {
			w.ClientNet("ours").Cut()
			awaitState(t, n, presence.Suspended)
		})
		w.ClientNet("ours").Heal()
		awaitState(t, n, presence.Standing)
		closed(t, w, n)
	})
}
