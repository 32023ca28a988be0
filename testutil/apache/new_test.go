package apache

import (
	"os"
	"slices"
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
		"no members":      func() (*Ensemble, error) { return New(t.Context(), t.TempDir(), 0) },
		"no tick":         func() (*Ensemble, error) { return New(t.Context(), t.TempDir(), 1, WithTick(0)) },
		"bounds reversed": func() (*Ensemble, error) { return New(t.Context(), t.TempDir(), 1, WithSessionTimeouts(2, 1)) },
		"bounds of none":  func() (*Ensemble, error) { return New(t.Context(), t.TempDir(), 1, WithMemberTimeouts(1, 1, 2)) },
		"a nil network":   func() (*Ensemble, error) { return New(t.Context(), t.TempDir(), 1, WithNetwork(nil)) },
	} {
		if e, err := start(); err == nil {
			e.Close()
			t.Errorf("%s: it starts", name)
		}
	}
}
