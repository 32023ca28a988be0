//go:build unix

package live

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
)

// changes returns what zkr observe --json has printed.
func changes(t *testing.T, p *zkrtest.Process) []leadership {
	t.Helper()
	var all []leadership
	for text := range strings.Lines(p.Text()) {
		var change leadership
		if strings.HasSuffix(text, "\n") && strings.HasPrefix(text, "{") {
			if err := json.Unmarshal([]byte(text), &change); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			all = append(all, change)
		}
	}
	return all
}

// TestObserve: an observer prints the leader now and each change, of every
// layout, also when a leader is killed, until it is interrupted.
func TestObserve(t *testing.T) {
	zkrtest.Parallel(t)
	zkrtest.OnEach(t, func(t *testing.T, e zkrtest.Target) {
		client := e.Client(t)
		for _, layout := range []string{"latch", "selector", "kazoo"} {
			t.Run(layout, func(t *testing.T) {
				zkrtest.Parallel(t)
				path := "/observed/" + layout
				if err := client.MakePersistentPath(t.Context(), path); err != nil {
					t.Fatal(err)
				}
				text := zkrtest.Start(t, e.Args("observe", "--layout", layout, path)...)
				asJSON := zkrtest.Start(t, e.Args("observe", "--json", "--layout", layout, path)...)
				shows := func(n int, id string) {
					t.Helper()
					bubble.AwaitTrue(t, fmt.Sprintf("change %d is printed", n), func() bool {
						return len(changes(t, asJSON)) == n && strings.Count(text.Text(), "\n") == n
					})
					lines := strings.Split(text.Text(), "\n")
					at, said, _ := strings.Cut(lines[n-1], "  ")
					if _, err := time.Parse(time.RFC3339, at); err != nil {
						t.Errorf("line %d begins with %q: %v", n, at, err)
					}
					now := changes(t, asJSON)[n-1].Leader
					if id == "" {
						if said != "no leader" || now != nil {
							t.Errorf("without a leader it prints %q and %+v", said, now)
						}
						return
					}
					if now == nil || now.ID != id || !strings.HasPrefix(now.Znode, path+"/") || now.Since.IsZero() {
						t.Fatalf("it prints %+v, want %s", now, id)
					}
					want := fmt.Sprintf("%s  session %s  candidate since %s  %s", id, now.Session, now.Since.Local().Format(time.RFC3339), now.Znode)
					if said != want {
						t.Errorf("it prints %q, want %q", said, want)
					}
					if _, stat, err := client.Get(t.Context(), now.Znode); err != nil || fmt.Sprintf("%#x", uint64(stat.EphemeralOwner)) != now.Session {
						t.Errorf("the znode of %s: %v, %v; want session %s", id, stat, err, now.Session)
					}
				}
				candidate := func(id string, place int, more ...string) *zkrtest.Process {
					p := zkrtest.Start(t, e.Args("elect", append(more, "--layout", layout, "--id", id, path, "--", zkrtest.Self(t))...)...)
					e.InLine(t, client, path, place)
					return p
				}
				shows(1, "")
				first := candidate("first", 1, zkrtest.ToBeKilled...)
				shows(2, "first")
				second := candidate("second", 2)
				if layout == "latch" {
					first.Signal(t, syscall.SIGKILL)
				} else { // without waiting for a session to expire
					first.Signal(t, syscall.SIGTERM)
				}
				shows(3, "second")
				second.Signal(t, syscall.SIGTERM)
				shows(4, "")
				for p, sig := range map[*zkrtest.Process]syscall.Signal{text: syscall.SIGINT, asJSON: syscall.SIGTERM} {
					p.Signal(t, sig)
					if code := p.Wait(t); code != 0 {
						t.Errorf("%v: exit code %d, want 0", sig, code)
					}
				}
				if left := zkrtest.Line(t, client, path); len(left) != 0 {
					t.Errorf("an observer is in line: %q", left)
				}
			})
		}
	})
}

// TestObserveAnotherLayout: an observer that would see no leader, because the
// candidates have another layout, or there is no such path, says so.
func TestObserveAnotherLayout(t *testing.T) {
	t.Parallel()
	e := zkrtest.StartServer(t)
	leads := zkrtest.Start(t, e.Args("elect", "--layout", "selector", "/layouts", "--", zkrtest.Self(t))...)
	leads.Prints(t, "ready\n")
	p := zkrtest.Start(t, e.Args("observe", "/layouts")...)
	if code := p.Wait(t); code != cli.ExitFailed || !strings.Contains(p.Text(), "another layout; see --layout") {
		t.Errorf("exit code %d; it printed %q", code, p.Text())
	}
	missing := zkrtest.Start(t, e.Args("observe", "/nope")...)
	missing.Prints(t, "zkr: /nope: does not exist (the ensemble deletes the directories of unused locks)\n")
	missing.Prints(t, "  no leader\n")
	nobody := zkrtest.Start(t, zkrtest.Target{Servers: "127.0.0.1:1"}.Args("observe", "--connect-timeout", "200ms", "/layouts")...)
	if code := nobody.Wait(t); code != cli.ExitNoEnsemble {
		t.Errorf("without an ensemble: exit code %d", code)
	}
}
