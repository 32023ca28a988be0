package apache

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestNew: a program starts and closes an ensemble that writes to its disk.
func TestNew(t *testing.T) {
	if os.Getenv("ZKR_REAL") != "1" {
		t.Skip("needs real Apache ZooKeeper servers: set ZKR_REAL=1 to run it")
	}
	e, err := New(t.Context(), t.TempDir(), 1, WithForceSync())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(e.members[0].args, "-Dzookeeper.forceSync=yes") {
		t.Errorf("it runs with %q", e.members[0].args)
	}
	if e.Leader() != 0 {
		t.Error("it does not serve")
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if conn, err := e.Dial("tcp", e.Servers(), time.Second); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

func TestNewRefusesWhatIsImpossible(t *testing.T) {
	for name, start := range map[string]func() (*Ensemble, error){
		"no members":         func() (*Ensemble, error) { return New(t.Context(), t.TempDir(), 0) },
		"no tick":            func() (*Ensemble, error) { return New(t.Context(), t.TempDir(), 1, WithTick(0)) },
		"bounds reversed":    func() (*Ensemble, error) { return New(t.Context(), t.TempDir(), 1, WithSessionTimeouts(2, 1)) },
		"bounds of none":     func() (*Ensemble, error) { return New(t.Context(), t.TempDir(), 1, WithMemberTimeouts(1, 1, 2)) },
		"lonely observers":   func() (*Ensemble, error) { return New(t.Context(), t.TempDir(), 1, WithObservers(1)) },
		"-1 observers":       func() (*Ensemble, error) { return New(t.Context(), t.TempDir(), 3, WithObservers(-1)) },
		"one to reconfigure": func() (*Ensemble, error) { return New(t.Context(), t.TempDir(), 1, WithReconfig()) },
		"a nil network":      func() (*Ensemble, error) { return New(t.Context(), t.TempDir(), 1, WithNetwork(nil)) },
	} {
		if e, err := start(); err == nil {
			e.Close()
			t.Errorf("%s: it starts", name)
		}
	}
}

// TestSettings: a member's file names all members and their roles, and then
// what the caller wants.
func TestSettings(t *testing.T) {
	ports := []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	for member, role := range []string{"", "", "peerType=observer\n"} {
		peers, err := peersSeenBy(loopback{}, member, 2, ports, false)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if _, err := newProcess(config{network: loopback{}}, dir, member, ports[3*member], append(peers, "tickTime=7", "x=y")); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "zoo.cfg"))
		want := "\nserver.1=127.0.0.1:2:3:participant\nserver.2=127.0.0.1:5:6:participant\nserver.3=127.0.0.1:8:9:observer\n" + role + "tickTime=7\nx=y"
		if err != nil || !strings.HasSuffix(string(got), want) {
			t.Errorf("member %d: %v\n%s", member, err, got)
		}
	}
}
