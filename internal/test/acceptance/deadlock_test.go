package acceptance_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A process of ours and one of Curator's hold what the other waits for.
func TestDeadlockBesideCurator(t *testing.T) {
	needsCurator(t)
	besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) {
		theirs := curator(t, ens)
		for _, kinds := range [][2]string{{"mutex", "mutex"}, {"read", "write"}, {"mutex", "semaphore:1"}} {
			deadlock(t, ens, theirs, kinds[0], kinds[1])
		}
	})
}

// The same beside Kazoo.
func TestDeadlockBesideKazoo(t *testing.T) {
	needsKazoo(t)
	besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) {
		theirs := kazoo(t, ens)
		for _, kinds := range [][2]string{{"kazoo-lock", "kazoo-lock"}, {"kazoo-read", "kazoo-write"}} {
			deadlock(t, ens, theirs, kinds[0], kinds[1])
		}
	})
}

// deadlock makes a member of theirs hold one lock and wait for ours, which
// holds that and waits for the first. Only then is there a deadlock.
func deadlock(t *testing.T, ens testutil.Ensemble, theirs *neighbor, first, second string) {
	below := "/deadlock/" + strings.NewReplacer(":", "-").Replace(theirs.who+"-"+first+"-"+second)
	x, y := below+"/x", below+"/y"
	watcher, us := client(t, ens), client(t, ens)
	them := theirs.join(t, first, x)
	them.acquire(t)
	held, err := newRecipe(us, second, y, "ours")
	if err != nil {
		t.Fatal(err)
	}
	lease, err := held.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	them.open(t, second, y)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { them.acquire(t) })
	waiting(t, watcher, y)
	if got := deadlocksBelow(t, watcher, below); len(got) != 0 {
		t.Errorf("one waits for the other: %q", got)
	}
	want := second
	if first == "mutex" {
		want = first
	} else if first == "read" {
		want = "write"
	}
	wanted, err := newRecipe(us, want, x, "ours")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() { _, _ = wanted.Acquire(ctx) }) // it is canceled
	waiting(t, watcher, x)
	got := deadlocksBelow(t, watcher, below)
	if story := fmt.Sprintf("holds %s and waits for %s;", x, y); len(got) != 1 || !strings.Contains(got[0], story) || !strings.HasSuffix(got[0], fmt.Sprintf("holds %s and waits for %s", y, x)) {
		t.Errorf("deadlocks: %q, want %q in it", got, story)
	}
	cancel()
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// waiting waits until somebody waits at path.
func waiting(t *testing.T, c *framework.Client, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), load.Patience)
	defer cancel()
	for {
		l, err := inspect.Read(ctx, c, path)
		if err != nil {
			t.Fatalf("nobody waits at %s: %v", path, err)
		}
		if len(l.Waiting) == 1 && len(l.Holders) == 1 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func deadlocksBelow(t *testing.T, c *framework.Client, path string) []string {
	t.Helper()
	d, err := inspect.FindDeadlocks(t.Context(), c, path, inspect.WithPause(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range slices.Concat(d.Cycles, d.Possible) {
		all = append(all, c.String()+c.Condition)
	}
	return all
}
