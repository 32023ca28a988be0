package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// ofKazoo lists our recipes that Kazoo also has, in a layout that both
// understand.
var ofKazoo = repertoire{
	alone: []string{"kazoo-lock", "kazoo-election", "kazoo-write"},
	read:  "kazoo-read", write: "kazoo-write",
}

// A Kazoo process and ours exclude each other on the same znodes, in both
// directions. They are served in the order of arrival, each sees the other
// among its participants, and if either is killed the other succeeds it.
func TestBesideKazoo(t *testing.T) {
	needsKazoo(t)
	besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) { standTogether(t, ens, ofKazoo, kazoo, ours) })
}

// Two Kazoo processes behave on the embedded ensemble as on the real one, with
// their semaphore too.
func TestKazooOnTheEmbeddedEnsemble(t *testing.T) {
	needsKazoo(t)
	all := ofKazoo
	all.semaphore = "kazoo-semaphore"
	standTogether(t, embedded(t, 1), all, kazoo, kazoo)
}

// What cannot be safe beside Kazoo is refused with an error that names it: the
// other layouts at a path where Kazoo holds, a mutex beside Kazoo's readers,
// and a semaphore, since each side would look for the other's leases elsewhere.
func TestKazooIsRefused(t *testing.T) {
	needsKazoo(t)
	besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) {
		theirs, c := kazoo(t, ens), client(t, ens)
		for _, path := range []struct {
			held    string
			refused []string
		}{
			{"kazoo-lock", []string{"mutex", "latch", "selector", "read", "write", "plain-read", "semaphore:2"}},
			{"kazoo-write", []string{"mutex", "latch", "selector", "read", "write", "plain-read", "semaphore:2"}},
			{"kazoo-election", []string{"mutex", "latch", "selector"}},
			{"kazoo-read", []string{"mutex", "latch", "selector", "read", "write", "plain-read", "kazoo-lock", "kazoo-election", "semaphore:2"}},
			{"kazoo-semaphore:2", []string{"mutex", "latch", "selector", "read", "write", "plain-read", "kazoo-lock", "kazoo-election", "kazoo-read", "semaphore:2"}},
		} {
			at := "/refused/" + strings.ReplaceAll(path.held, ":", "-")
			m := theirs.join(t, path.held, at)
			m.acquire(t)
			for _, kind := range path.refused {
				recipe, err := newRecipe(c, kind, at, "ours")
				if err != nil {
					t.Fatal(err)
				}
				for _, enter := range []func(context.Context) (*recipes.Lease, error){recipe.Acquire, recipe.TryAcquire} {
					switch _, err := enter(t.Context()); {
					case err == nil:
						judge.Errorf(t, "%s is held beside %s", kind, path.held)
					case !errors.Is(err, recipes.ErrLayout):
						t.Errorf("acquire %s while %s is held: %v", kind, path.held, err)
					}
					inLine(t, c, at, 1) // the refused contender withdraws
				}
			}
			m.release(t)
		}
	})
}

// pythonVariable names an interpreter that has Kazoo.
const pythonVariable = "ZKR_PYTHON"

func python() string {
	if python := os.Getenv(pythonVariable); python != "" {
		return python
	}
	return "/usr/bin/python3" // Debian's interpreter sees Debian's packages
}

func needsKazoo(t *testing.T) {
	t.Helper()
	needsNeighbors(t)
	if out, err := exec.Command(python(), "-c", "import kazoo.version; print(kazoo.version.__version__)").CombinedOutput(); err != nil {
		missing(t, "Kazoo (Debian's package python3-kazoo)", fmt.Errorf("%w: %s", err, out))
	} else {
		t.Logf("Kazoo %s", strings.TrimSpace(string(out)))
	}
}

// kazoo starts a process with Kazoo's recipes.
func kazoo(t *testing.T, ens testutil.Ensemble) *neighbor {
	t.Helper()
	process := exec.Command(python(), "testdata/neighbor.py", ens.Servers(), fmt.Sprint(timeout.Seconds()))
	process.Env = environment(ens)
	return startNeighbor(t, "kazoo", process)
}
