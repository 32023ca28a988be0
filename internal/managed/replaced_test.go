package managed_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The ensemble behind the addresses is another one: it was rebuilt, or restored
// from a copy.

func TestWatchDataInARebuiltEnsemble(t *testing.T) {
	for when, others := range bubble.Rebuilt {
		t.Run(when, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				script := func(others int, data string) func(c *framework.Client) {
					return func(c *framework.Client) {
						bubble.Padding(t, others)(c)
						bubble.Tree(t, "/a", data, "/a/b", data)(c)
					}
				}
				w.Provision(script(10, "old"))
				c := w.Connect("watcher")
				data, err := c.WatchData(t.Context(), "/a")
				must(t, err)
				lists, err := c.WatchChildren(t.Context(), "/a")
				must(t, err)
				<-data
				<-lists
				w.Rebuild(script(others, "new"), "watcher")
				if now := bubble.Await(t, "the new data", data); string(now.Data) != "new" || now.Err != nil {
					t.Errorf("the data are %q, %v", now.Data, now.Err)
				}
				if now := bubble.Await(t, "the new children", lists); fmt.Sprint(now.Names) != "[b]" || now.Err != nil {
					t.Errorf("the children are %v, %v", now.Names, now.Err)
				}
			})
		})
	}
}

// A watch of before is taken up only if what was written last has happened in
// this history. After an election alone that costs one request for all of them,
// once.
func TestWatchesAfterARestore(t *testing.T) {
	for name, tt := range map[string]struct {
		before, since func(t *testing.T, c *framework.Client) // the copy
		restore       bool
		epoch         bool // another one
		want          bool
		again         string // the data of /a when all were read again
	}{
		"a reconnect":                 {want: true},
		"an election":                 {epoch: true, want: true},
		"nothing is taken back":       {restore: true, epoch: true, want: true},
		"a write is taken back":       {since: setTo("/a", "newer"), restore: true, epoch: true, again: "old"},
		"another one's is taken back": {before: setTo("/a", "newer"), since: setTo("/b", "newer"), restore: true, epoch: true, again: "newer"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("reader"), w.Connect("writer")
				bubble.Tree(t, "/a", "old", "/b", "old")(other)
				if tt.before != nil {
					tt.before(t, other)
				}
				copied := w.Snapshot()
				if tt.since != nil {
					tt.since(t, other)
				}
				must(t, c.Sync(t.Context(), "/"))
				s := w.Session(c)
				resumes := map[string]func() (<-chan struct{}, bool){}
				var fired <-chan struct{}
				for _, path := range []string{"/a", "/b"} {
					_, _, changed, resume, err := inside(s).WatchAndResume(path)
					must(t, err)
					resumes[path], fired = resume, changed
				}
				for round := range 3 {
					w.ClientNet("reader").Cut()
					switch {
					case tt.restore && round == 0:
						w.Restore(copied)
					case tt.epoch && round == 0:
						leader := w.Leader()
						must(t, w.Stop(leader))
						must(t, w.WaitServing(t.Context()))
						must(t, w.Restart(leader))
						must(t, w.WaitServing(t.Context()))
					}
					bubble.AwaitTrue(t, "the writer", func() bool { return other.State() == framework.Connected })
					setTo("/", "")(t, other) // all members show the epoch now
					w.ResetRequests()
					w.ClientNet("reader").Heal()
					w.ClientNet("reader").Drop()
					bubble.Await(t, "the reconnect", fired)
					must(t, c.WaitConnected(t.Context()))
					for path, resume := range resumes {
						changed, ok := resume()
						if ok != tt.want {
							t.Fatalf("%d: %s is taken up: %t", round, path, ok)
						}
						fired = changed
					}
					if !tt.want {
						break
					}
					want := 0
					if tt.epoch && round == 0 {
						want = 1
					}
					if got := w.Requests(); got[testutil.OpGetData] != 0 || got[testutil.OpExists] > want {
						t.Errorf("%d: requests %v", round, got)
					}
				}
				if now, err := c.Session(); err != nil || now.ID() != s.ID() {
					t.Errorf("the session has not been resumed: %v", err)
				}
				if !tt.want {
					data, _, changed, resume, err := inside(s).WatchAndResume("/a")
					if err != nil || string(data) != tt.again {
						t.Errorf("/a is %q, %v", data, err)
					}
					time.Sleep(time.Second)
					w.ClientNet("reader").Drop()
					bubble.Await(t, "the reconnect", changed)
					if _, ok := resume(); !ok {
						t.Error("it is not taken up in the new history")
					}
				}
			}, testutil.WithMembers(3))
		})
	}
}

func setTo(path, data string) func(t *testing.T, c *framework.Client) {
	return func(t *testing.T, c *framework.Client) {
		t.Helper()
		must(t, failure(c.Set(context.Background(), path, []byte(data), -1)))
	}
}

// A client sweeps the directory that it has made, and not one that has the same
// czxid in another history.
func TestASweepInARebuiltEnsemble(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("sweeper", framework.WithContainers(false), framework.WithSweep(idle))
		emptied(t, c, "/dir")
		before, _ := w.Stat("/dir")
		time.Sleep(idle * 3 / 2) // it has looked once
		w.Rebuild(func(c *framework.Client) {
			bubble.Tree(t, "/dir", "somebody's")(c)
			child(t, c, "/dir")
		}, "sweeper")
		time.Sleep(5 * idle)
		if now, ok := w.Stat("/dir"); !ok || now.Czxid != before.Czxid {
			t.Errorf("the directory exists: %t, %x after %x", ok, now.Czxid, before.Czxid)
		}
	})
}
