//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// changes returns what zkr observe --json has printed.
func changes(t *testing.T, p *process) []leadership {
	t.Helper()
	var all []leadership
	for text := range strings.Lines(p.text()) {
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
	parallel(t)
	onEach(t, func(t *testing.T, e target) {
		client := e.client(t)
		for _, layout := range []string{"latch", "selector", "kazoo"} {
			path := "/observed/" + layout
			if err := client.MakePersistentPath(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			text := start(t, e.args("observe", "--layout", layout, path)...)
			asJSON := start(t, e.args("observe", "--json", "--layout", layout, path)...)
			shows := func(n int, id string) {
				t.Helper()
				eventually(t, fmt.Sprintf("change %d is printed", n), func() bool {
					return len(changes(t, asJSON)) == n && strings.Count(text.text(), "\n") == n
				})
				lines := strings.Split(text.text(), "\n")
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
			candidate := func(id string, place int, more ...string) *process {
				p := start(t, e.args("elect", append(more, "--layout", layout, "--id", id, path, "--", self(t))...)...)
				e.inLine(t, client, path, place)
				return p
			}
			shows(1, "")
			first := candidate("first", 1, toBeKilled...)
			shows(2, "first")
			second := candidate("second", 2)
			if layout == "latch" {
				first.signal(t, syscall.SIGKILL)
			} else { // without waiting for a session to expire
				first.signal(t, syscall.SIGTERM)
			}
			shows(3, "second")
			second.signal(t, syscall.SIGTERM)
			shows(4, "")
			for p, want := range map[*process]int{text: 130, asJSON: 130} {
				p.signal(t, syscall.SIGINT)
				if code := p.wait(t); code != want {
					t.Errorf("interrupted: exit code %d, want %d", code, want)
				}
			}
			if left := line(t, client, path); len(left) != 0 {
				t.Errorf("an observer is in line: %q", left)
			}
		}
	})
}

// TestObserveAnotherLayout: an observer that would see no leader, because the
// candidates have another layout, or there is no such path, says so.
func TestObserveAnotherLayout(t *testing.T) {
	t.Parallel()
	e := startServer(t)
	leads := start(t, e.args("elect", "--layout", "selector", "/layouts", "--", self(t))...)
	leads.prints(t, "ready\n")
	p := start(t, e.args("observe", "/layouts")...)
	if code := p.wait(t); code != exitFailed || !strings.Contains(p.text(), "another layout; see --layout") {
		t.Errorf("exit code %d; it printed %q", code, p.text())
	}
	missing := start(t, e.args("observe", "/nope")...)
	missing.prints(t, "zkr: /nope: does not exist (the ensemble deletes the directories of unused locks)\n")
	missing.prints(t, "  no leader\n")
	nobody := start(t, target{servers: "127.0.0.1:1"}.args("observe", "--connect-timeout", "200ms", "/layouts")...)
	if code := nobody.wait(t); code != exitNoEnsemble {
		t.Errorf("without an ensemble: exit code %d", code)
	}
}
