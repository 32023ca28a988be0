//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestServer: it serves until it is told to end, and says so if it cannot.
func TestServer(t *testing.T) {
	parallel(t)
	p := start(t, "server", "--listen", "127.0.0.1:0", "--members", "3")
	p.prints(t, "3 members serve at 127.0.0.1:")
	p.prints(t, "\n")
	servers := serving.FindStringSubmatch(p.text())[1]
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := (target{servers: servers}).client(t).WaitConnected(ctx); err != nil {
		t.Errorf("connect: %v", err)
	}
	taken := start(t, "server", "--listen", strings.Split(servers, ",")[0])
	if code := taken.wait(t); code != 1 || !strings.Contains(taken.text(), "in use") {
		t.Errorf("on a port that is taken: exit code %d; it printed %q", code, taken.text())
	}
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t); code != 0 {
		t.Errorf("ended by SIGTERM: exit code %d", code)
	}

	config := filepath.Join(t.TempDir(), "zoo.cfg")
	if err := os.WriteFile(config, []byte("tickTime=500\nclientPort=0\nclientPortAddress=127.0.0.1\ndataDir=/nowhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	configured := start(t, "server", "--config", config)
	configured.prints(t, "1 member serves at 127.0.0.1:")
	if text := configured.text(); !strings.Contains(text, "zoo.cfg:4: dataDir: not needed") {
		t.Errorf("it printed %q", text)
	}
	for _, args := range [][]string{
		{"--config", config, "--members", "3"},
		{"--config", config + ".missing"},
	} {
		p := start(t, append([]string{"server"}, args...)...)
		if code := p.wait(t); code != 2 {
			t.Errorf("server %q: exit code %d, want 2", args, code)
		}
	}
}
