package znode

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// TestWatchGoesOnWithoutEvents: a change whose event is lost is printed, as is
// one that was made while zkr might not read the znode. A lost right ends it.
func TestWatchGoesOnWithoutEvents(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		soon := 2 * bubble.Timeout
		owner, c := w.Connect("owner"), w.Connect("watcher")
		set := func(text string) {
			t.Helper()
			if _, err := owner.Set(t.Context(), "/w", []byte(text), -1); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := owner.Create(t.Context(), "/w", nil, 0); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		both := cli.EnumFlag[[2]bool]{Names: []string{"both"}, Values: [][2]bool{{true, true}}}
		seen := watcher{path: "/w", out: &out, kind: both}
		ended := make(chan error, 1)
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		go func() { ended <- seen.run(ctx, c) }()
		synctest.Wait()
		w.ClientNet("watcher").LoseEvents(true)
		set("lost")
		if _, err := owner.Create(t.Context(), "/w/kid", nil, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(soon)
		synctest.Wait()
		for _, want := range []string{"changed, version 1: lost", "child added kid"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in\n%s", want, out.String())
			}
		}
		w.ClientNet("watcher").LoseEvents(false)
		if _, err := owner.SetACL(t.Context(), "/w", zk.WorldACL(zk.PermWrite|zk.PermAdmin), -1); err != nil {
			t.Fatal(err)
		}
		set("unseen")
		if _, err := owner.SetACL(t.Context(), "/w", zk.WorldACL(zk.PermAll), -1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(soon)
		synctest.Wait()
		if !strings.Contains(out.String(), "changed, version 2: unseen") {
			t.Errorf("a change that might not be read is not printed:\n%s", out.String())
		}
		if _, err := owner.SetACL(t.Context(), "/w", zk.WorldACL(zk.PermAdmin), -1); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if !errors.Is(err, zk.ErrNoAuth) {
				t.Errorf("ended with %v", err)
			}
		case <-time.After(soon):
			t.Error("still running, without the right to read")
		}
		if _, err := owner.SetACL(t.Context(), "/w", zk.WorldACL(zk.PermAll), -1); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCreateEphemeralNoticesALostEvent: the znode is deleted, and zkr is not
// told.
func TestCreateEphemeralNoticesALostEvent(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		owner, c := w.Connect("owner"), w.Connect("creator")
		k := creation{ephemeral: true}
		printed, ended := make(chan string, 1), make(chan error, 1)
		go func() {
			ended <- k.hold(t.Context(), c, "/mine", nil, func(made string) error { printed <- made; return nil }, io.Discard, func() {})
		}()
		made := <-printed
		synctest.Wait()
		w.ClientNet("creator").LoseEvents(true)
		if err := owner.Delete(t.Context(), made, -1); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "deleted by another client") {
				t.Errorf("ended with %v", err)
			}
		case <-time.After(2 * bubble.Timeout):
			t.Error("still running, without its znode")
		}
	})
}

// TestWatchBeginsWithTheData: the state of the data is the first line, although
// the list of the children is known first.
func TestWatchBeginsWithTheData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		data, lists := make(chan framework.Data), make(chan framework.Children, 1)
		w := &watcher{path: "/order", out: &out}
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { // ends with ctx
			_ = w.show(ctx, data, lists)
		}()
		lists <- framework.Children{Exists: true, Names: []string{"a"}}
		synctest.Wait()
		data <- framework.Data{Exists: true, Data: []byte("x"), Stat: &zk.Stat{}}
		synctest.Wait()
		cancel(nil)
		synctest.Wait()
		first, second, _ := strings.Cut(out.String(), "\n")
		if !strings.HasSuffix(first, "exists, version 0: x") || !strings.HasSuffix(second, "children: 1\n") {
			t.Errorf("it printed %q", out.String())
		}
	})
}

// TestWatchShowsARebuiltEnsemble: the same script has made the same znodes,
// with other data.
func TestWatchShowsARebuiltEnsemble(t *testing.T) {
	for when, others := range bubble.Rebuilt {
		t.Run(when, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				script := func(others int, data string) func(c *framework.Client) {
					return func(c *framework.Client) {
						bubble.Padding(t, others)(c)
						bubble.Tree(t, "/w", data, "/w/a", data)(c)
					}
				}
				w.Provision(script(10, "old"))
				c := w.Connect("watcher")
				var out printed
				seen := watcher{path: "/w", out: &out, kind: cli.EnumFlag[[2]bool]{Names: []string{"both"}, Values: [][2]bool{{true, true}}}}
				go func() { _ = seen.run(t.Context(), c) }()
				tree := watchTree(t, c, watcher{})
				out.shows(t, "/w  exists, version 0: old", "/w  children: 1")
				tree.out.shows(t, "/w  exists, version 0: old", "/w/a  exists, version 0: old")
				w.Rebuild(script(others, "new"), "watcher")
				time.Sleep(3 * bubble.Timeout)
				out.shows(t, "/w  deleted", "/w  created, version 0: new")
				tree.out.shows(t, "/w/a  deleted", "/w  deleted", "/w  created, version 0: new", "/w/a  created, version 0: new")
			})
		})
	}
}
