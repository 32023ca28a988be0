package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a file of servers may have, and what is wrong with it.
func TestServersFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "servers")
	for text, want := range map[string]string{
		"zk1:2181":           "zk1:2181",
		"zk1:2181,zk2/app\n": "zk1:2181,zk2/app",
		"# ours\r\nzk1\r\n\r\nzk2,zk3,\r\n/app\n": "zk1,zk2,zk3,/app",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readServers(name); got != want || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":              "no server in the file",
		"#zk1\n, ,\n\n": "no server in the file",
		strings.Repeat("zk1\n", longestServersFile/4+1): "longer than 1048576 bytes",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readServers(name); got != "" || err == nil || !strings.Contains(err.Error(), name+": "+want) {
			t.Errorf("%.20q: %q, %v", text, got, err)
		}
	}
	if _, err := readServers(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("a file that does not exist")
	}
	if _, err := readServers(dir); err == nil {
		t.Error("a directory")
	}
}

// The file counts, not --servers, and its chroot is that of all paths.
func TestServersFromAFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "servers")
	e := &Ensemble{Servers: "other:2181", ServersFile: name, SessionTimeout: 1e9}
	if _, err := e.Options(); err == nil || !strings.Contains(err.Error(), "--servers-file: ") || !strings.Contains(err.Error(), name) {
		t.Errorf("without the file: %v", err)
	}
	if err := os.WriteFile(name, []byte("zk1\nzk2/app\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := e.Options()
	if err != nil || e.Servers != "zk1,zk2/app" || e.Hosts() != "zk1:2181,zk2:2181" || e.Full("/x") != "/app/x" {
		t.Errorf("%d options, %v: %q, %q, %q", len(opts), err, e.Servers, e.Hosts(), e.Full("/x"))
	}
}
