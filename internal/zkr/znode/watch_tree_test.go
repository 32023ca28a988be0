package znode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// treeWatch is a zkr watch --tree that runs.
type treeWatch struct {
	out, errs printed
	end       context.CancelCauseFunc
	ended     chan error
}

// printed is what was printed since the last look.
type printed struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *printed) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

// shows compares what was printed since, without the times, after a second.
func (p *printed) shows(t *testing.T, want ...string) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	text := regexp.MustCompile(`(?m)^\S+Z  `).ReplaceAllString(p.text.String(), "")
	p.text.Reset()
	if got := strings.TrimSuffix(text, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("it printed\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func watchTree(t *testing.T, c *framework.Client, w watcher) *treeWatch {
	p := &treeWatch{ended: make(chan error, 1)}
	ctx, end := context.WithCancelCause(t.Context())
	p.end, w.path, w.out = end, "/w", &p.out
	go func() { p.ended <- w.runTree(ctx, c, &p.errs) }()
	t.Cleanup(func() { end(nil) })
	return p
}

// ends checks the error with which the command ends.
func (p *treeWatch) ends(t *testing.T, want error) {
	t.Helper()
	if err := bubble.Await(t, "zkr ends", p.ended); !errors.Is(err, want) {
		t.Errorf("it ended with %v, want %v", err, want)
	}
}

func create(t *testing.T, c *framework.Client, path, data string) {
	t.Helper()
	if _, err := c.Create(t.Context(), path, []byte(data), 0); err != nil {
		t.Fatal(err)
	}
}

// TestWatchTree: what is there is printed, and then every difference, at any
// depth, once, also over a lost connection and an expired session.
func TestWatchTree(t *testing.T) {
	for name, opts := range map[string][]testutil.Option{
		"with a recursive watch": nil,
		"without":                {hidden.WithoutLastingWatches()},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				owner, c := w.Connect("owner"), w.Connect("watcher")
				p := watchTree(t, c, watcher{})
				p.out.shows(t, "/w  missing")
				create(t, owner, "/w", "one")
				create(t, owner, "/w/b", "")
				create(t, owner, "/w/b/c", "\x1b")
				p.out.shows(t, "/w  created, version 0: one", "/w/b  created, version 0: -", `/w/b/c  created, version 0: "\x1b"`)
				again := watchTree(t, owner, watcher{})
				again.out.shows(t, "/w  exists, version 0: one", "/w/b  exists, version 0: -", `/w/b/c  exists, version 0: "\x1b"`)
				p.errs.shows(t)

				w.ClientNet("watcher").Cut()
				if err := owner.Delete(t.Context(), "/w/b/c", -1); err != nil {
					t.Fatal(err)
				}
				create(t, owner, "/w/b/c", "\x1b") // with the same version
				if _, err := owner.Set(t.Context(), "/w", []byte("two"), -1); err != nil {
					t.Fatal(err)
				}
				time.Sleep(bubble.Timeout)
				p.out.shows(t)
				p.errs.shows(t, "zkr: /w: not up to date (the connection was lost): changes are printed later")
				w.ClientNet("watcher").Heal()
				time.Sleep(bubble.Timeout)
				p.out.shows(t, "/w/b/c  deleted", "/w  changed, version 1: two", `/w/b/c  created, version 0: "\x1b"`)
				p.errs.shows(t, "zkr: /w: up to date again")

				w.Expire(c)
				time.Sleep(bubble.Timeout)
				p.out.shows(t)
				for _, path := range []string{"/w/b/c", "/w/b", "/w"} {
					if err := owner.Delete(t.Context(), path, -1); err != nil {
						t.Fatal(err)
					}
				}
				p.out.shows(t, "/w/b/c  deleted", "/w/b  deleted", "/w  deleted")
				p.end(context.Canceled)
				p.ends(t, context.Canceled)
				again.end(context.Canceled)
				again.ends(t, context.Canceled)
			}, opts...)
		})
	}
}

// TestWatchTreeOnce: --once ends with the first change, and --json prints
// objects, each with its path.
func TestWatchTreeOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		owner, c := w.Connect("owner"), w.Connect("watcher")
		create(t, owner, "/w", "")
		p := watchTree(t, c, watcher{once: true, json: true})
		time.Sleep(time.Minute)
		create(t, owner, "/w/a", "\xff")
		p.ends(t, nil)
		var got []string
		for text := range strings.Lines(p.out.text.String()) {
			var seen change
			if err := json.Unmarshal([]byte(text), &seen); err != nil || seen.Time.IsZero() {
				t.Errorf("%v: %s", err, text)
			}
			got = append(got, fmt.Sprintf("%s %s %q", seen.Path, seen.Event, seen.Binary))
		}
		if all := strings.Join(got, ", "); all != `/w exists "", /w/a created "\xff"` {
			t.Errorf("it printed %s", all)
		}
	})
}

// TestWatchTreeWithoutTheRight: a root that may not be read is an error, and
// what is below it is named.
func TestWatchTreeWithoutTheRight(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		owner, c := w.Connect("owner"), w.Connect("watcher")
		create(t, owner, "/w", "")
		create(t, owner, "/w/a", "")
		if _, err := owner.Create(t.Context(), "/w/shut", nil, 0, zk.WorldACL(zk.PermCreate)...); err != nil {
			t.Fatal(err)
		}
		p := watchTree(t, c, watcher{})
		p.out.shows(t, "/w  exists, version 0: -", "/w/a  exists, version 0: -")
		p.errs.shows(t, "zkr: read /w/shut: not allowed by the ACL: neither they nor what is below them is printed")
		if _, err := owner.SetACL(t.Context(), "/w", zk.WorldACL(zk.PermAdmin), -1); err != nil {
			t.Fatal(err)
		}
		watchTree(t, c, watcher{}).ends(t, zk.ErrNoAuth)
		w.ClientNet("watcher").Drop() // the one that runs learns of it by its next look
		time.Sleep(bubble.Timeout)
		p.out.shows(t)
		if text := p.errs.text.String(); !strings.HasSuffix(text, "zkr: /w: not up to date (get /w: not allowed by the ACL): changes are printed later\n") {
			t.Errorf("it said %q", text)
		}
	})
}

// TestWatchTreeUnread: a stderr that nobody reads keeps no change from being
// printed.
func TestWatchTreeUnread(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		owner, c := w.Connect("owner"), w.Connect("watcher")
		create(t, owner, "/w", "")
		full := make(stuck)
		defer close(full)
		p, seen := &printed{}, watcher{path: "/w", tree: true}
		seen.out = p
		ctx, end := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- seen.runTree(ctx, c, full) }()
		time.Sleep(time.Second)
		for i := range 4 {
			w.ClientNet("watcher").Cut()
			time.Sleep(2 * cli.AWhile)
			create(t, owner, fmt.Sprint("/w/", i), "")
			w.ClientNet("watcher").Drop()
			w.ClientNet("watcher").Heal()
			time.Sleep(bubble.Timeout)
		}
		p.shows(t, "/w  exists, version 0: -", "/w/0  created, version 0: -", "/w/1  created, version 0: -", "/w/2  created, version 0: -", "/w/3  created, version 0: -")
		end(context.Canceled)
		if err := bubble.Await(t, "zkr ends", ended); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// stuck is a writer that blocks until it is closed.
type stuck chan struct{}

func (s stuck) Write(text []byte) (int, error) {
	<-s
	return len(text), nil
}
