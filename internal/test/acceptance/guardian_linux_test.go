package acceptance_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/guardian"
	"github.com/zkrecipes/zkrecipes/internal/test/guarding"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// A process of ours that has a guardian is killed. Curator and Kazoo, which
// wait for what it has held, get it long before its session could expire.
func TestNeighborsAreNextAfterADeath(t *testing.T) {
	needsCurator(t)
	needsKazoo(t)
	parallel(t)
	ens := apache.Start(t, 3)
	watcher, variable := client(t, ens), guardian.Variable+"="+guarding.Daemon(t, ens.Servers())
	for _, heir := range []struct {
		starter
		repertoire
	}{{curator, ofCurator}, {kazoo, ofKazoo}} {
		next := heir.starter(t, ens)
		t.Run(next.who, func(t *testing.T) {
			took := succeed(t, watcher, heir.repertoire, oursWith(t, ens, variable), next)
			if took > timeout/2 {
				t.Errorf("succeeded after %v, with a session timeout of %v", took, timeout)
			}
			t.Logf("all locks have passed on after %v", took)
		})
	}
}
