// Package guarding runs a guardian for tests.
package guarding

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/closing"
	"github.com/zkrecipes/zkrecipes/internal/guard"
)

// Daemon runs a guardian of any process inside the test, until that ends, and
// returns its socket.
func Daemon(t *testing.T, servers string, opts ...framework.Option) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := guard.Listen(socket, -1)
	if err != nil {
		t.Fatal(err)
	}
	ensemble, err := closing.Open(servers, opts...)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	var mu sync.Mutex
	over := false // guarded by mu: nothing may be logged any more
	log := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			t.Log(text)
		}
	}
	go func() {
		ended <- guard.ServeAll(t.Context(), l, guard.Config{Ensembles: []guard.Ensemble{{Servers: servers, Closing: ensemble}}, Log: log})
	}()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		over = true
	})
	return socket
}
