package acceptance_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// repertoire names the recipes that two kinds of processes have in common.
type repertoire struct {
	alone       []string // recipes with one holder
	read, write string
	semaphore   string // the kind without its limit; empty: neither has a semaphore
}

// besideNeighbors runs a scenario with other processes on both kinds of
// ensemble. Other processes exist in ring 3 only.
func besideNeighbors(t *testing.T, scenario func(t *testing.T, ens testutil.Ensemble)) {
	t.Run("embedded", func(t *testing.T) { scenario(t, embedded(t, 1)) })
	t.Run("real", func(t *testing.T) { scenario(t, apache.Start(t, 1)) })
}

// standTogether makes processes of two kinds, or two of one kind, contend for
// every recipe that both have.
func standTogether(t *testing.T, ens testutil.Ensemble, of repertoire, first, second starter) {
	watcher := client(t, ens)
	one, other := first(t, ens), second(t, ens)
	for _, kind := range of.alone {
		t.Run(kind+" in turns", func(t *testing.T) { takeTurns(t, watcher, kind, one, other) })
		t.Run(kind+" contended for", func(t *testing.T) { contend(t, watcher, kind, one, other) })
	}
	t.Run("readers and writers", func(t *testing.T) { readAndWrite(t, watcher, of, one, other) })
	if of.semaphore != "" {
		t.Run("semaphore", func(t *testing.T) {
			sharePermits(t, watcher, of, one, other)
			sharePermits(t, watcher, of, other, one)
		})
	}
	for _, killed := range []struct {
		name   string
		doomed starter
		heir   *neighbor
	}{{"one killed", first, other}, {"the other killed", second, one}} {
		t.Run(killed.name, func(t *testing.T) {
			t.Parallel() // each waits for a session to expire
			succeed(t, watcher, of, killed.doomed(t, ens), killed.heir)
		})
	}
}

// takeTurns makes members of both processes join one by one while the first
// holds. They must be served in that order, one at a time, and each must see
// all others.
func takeTurns(t *testing.T, watcher *framework.Client, kind string, one, other *neighbor) {
	path := "/turns/" + kind
	members := []*member{one.join(t, kind, path), other.join(t, kind, path), one.join(t, kind, path), other.join(t, kind, path)}
	served := make(chan int, len(members))
	var wg sync.WaitGroup
	defer wg.Wait()
	members[0].acquire(t)
	served <- 0
	for i, m := range members[1:] {
		wg.Go(func() {
			m.acquire(t)
			served <- i + 1
		})
		inLine(t, watcher, path, i+2)
	}
	for i, m := range members {
		select {
		case who := <-served:
			if who != i {
				t.Fatalf("granted to %s, want %s", members[who].name, m.name)
			}
		case <-time.After(load.Patience):
			t.Fatalf("%s was not granted", m.name)
		}
		if n, want := m.participants(t), len(members)-i; n != want {
			t.Errorf("%s sees %d participants, want %d", m.name, n, want)
		}
		nobody(t, served, members)
		m.release(t)
	}
	nothingLeft(t, watcher, path)
}

// nobody fails the test if another member is served soon.
func nobody(t *testing.T, served <-chan int, members []*member) {
	t.Helper()
	select {
	case who := <-served:
		judge.Errorf(t, "%s was granted, too", members[who].name)
	case <-time.After(50 * time.Millisecond):
	}
}

// contend makes members of both processes acquire and release as fast as they
// can. No two may hold at once, and each must finish its rounds. Of ours, one
// waits for its releases and one does not.
func contend(t *testing.T, watcher *framework.Client, kind string, one, other *neighbor) {
	const rounds = 10
	path := "/contended/" + kind
	var mu sync.Mutex // guards holder
	var holder string
	var wg sync.WaitGroup
	for i := range 2 {
		for _, n := range []*neighbor{one, other} {
			of := kind
			if n.who == "ours" && i == 1 {
				of = notWaiting + kind
			}
			m := n.join(t, of, path)
			wg.Go(func() {
				for range rounds {
					m.acquire(t)
					if t.Failed() {
						return // and do not wait for the others
					}
					mu.Lock()
					if holder != "" {
						judge.Errorf(t, "%s holds while %s holds", m.name, holder)
					}
					holder = m.name
					mu.Unlock()
					time.Sleep(time.Millisecond) // it holds
					mu.Lock()
					holder = ""
					mu.Unlock()
					m.release(t)
				}
			})
		}
	}
	wg.Wait()
	nothingLeft(t, watcher, path)
}

// readAndWrite: readers of both processes read together while a writer of each
// waits. A later reader waits behind the writers.
func readAndWrite(t *testing.T, watcher *framework.Client, of repertoire, one, other *neighbor) {
	const path = "/shared/readers-and-writers"
	reading := []*member{one.join(t, of.read, path), other.join(t, of.read, path)}
	for _, m := range reading {
		m.acquire(t) // beside the other reader
	}
	waiting := []*member{
		other.join(t, of.write, path), one.join(t, of.write, path),
		other.join(t, of.read, path), one.join(t, of.read, path),
	}
	served := make(chan int, len(waiting))
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, m := range waiting {
		wg.Go(func() {
			m.acquire(t)
			served <- i
		})
		inLine(t, watcher, path, len(reading)+i+1)
	}
	expect := func(want int) {
		t.Helper()
		select {
		case who := <-served:
			if who != want {
				t.Fatalf("granted to %s, want %s", waiting[who].name, waiting[want].name)
			}
		case <-time.After(load.Patience):
			t.Fatalf("%s was not granted", waiting[want].name)
		}
	}
	nobody(t, served, waiting)
	reading[0].release(t)
	nobody(t, served, waiting)
	reading[1].release(t)
	for writer := range 2 {
		expect(writer)
		nobody(t, served, waiting)
		waiting[writer].release(t)
	}
	for range 2 { // together, in either order
		select {
		case <-served:
		case <-time.After(load.Patience):
			t.Fatal("the later reader was not granted")
		}
	}
	waiting[2].release(t)
	waiting[3].release(t)
	nothingLeft(t, watcher, path)
}

// sharePermits: each process has one of two permits. A third member, of the
// first's kind, waits until the other process releases.
func sharePermits(t *testing.T, watcher *framework.Client, of repertoire, one, other *neighbor) {
	kind, path := of.semaphore+":2", fmt.Sprintf("/permits/%s-%s", one.who, other.who)
	line, leases := semaphoreDirs(of, path)
	first, second, third := one.join(t, kind, path), other.join(t, kind, path), one.join(t, kind, path)
	first.acquire(t)
	second.acquire(t)
	for _, m := range []*member{first, second} {
		if n := m.participants(t); n != 2 {
			t.Errorf("%s sees %d participants, want 2", m.name, n)
		}
	}
	served := make(chan int, 1)
	go func() {
		third.acquire(t)
		served <- 0
	}()
	inLine(t, watcher, line, 1)
	nobody(t, served, []*member{third})
	second.release(t)
	select {
	case <-served:
	case <-time.After(load.Patience):
		t.Fatal("the third was not granted")
	}
	inLine(t, watcher, leases, 2)
	first.release(t)
	third.release(t)
	nothingLeft(t, watcher, leases)
	nothingLeft(t, watcher, line)
}

// semaphoreDirs returns the directories of a semaphore's waiters and of its
// permits.
func semaphoreDirs(of repertoire, path string) (line, leases string) {
	if of.semaphore == "kazoo-semaphore" {
		return path + "-__lock__", path
	}
	return path + "/locks", path + "/leases"
}

// succeed makes members of one process wait for those of another, which is
// killed while it holds one of each recipe.
func succeed(t *testing.T, watcher *framework.Client, of repertoire, doomed, heir *neighbor) (took time.Duration) {
	type succession struct{ held, wanted, path, line string }
	var all []succession
	add := func(held, wanted string) {
		path := fmt.Sprintf("/%s/%d", strings.ReplaceAll(t.Name(), "/", "-"), len(all))
		all = append(all, succession{held, wanted, path, path})
	}
	for _, kind := range of.alone {
		add(kind, kind)
	}
	add(of.read, of.write)
	add(of.write, of.read)
	if of.semaphore != "" {
		add(of.semaphore+":1", of.semaphore+":1")
		last := &all[len(all)-1]
		last.line, _ = semaphoreDirs(of, last.path)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	served := make(chan *member, len(all))
	for _, s := range all {
		doomed.join(t, s.held, s.path).acquire(t)
		next := heir.join(t, s.wanted, s.path)
		wg.Go(func() {
			next.acquire(t)
			served <- next
		})
		if s.line == s.path {
			inLine(t, watcher, s.line, 2)
		} else {
			inLine(t, watcher, s.line, 1)
		}
	}
	if len(served) != 0 {
		judge.Errorf(t, "%s was granted too early", (<-served).name)
	}
	doomed.kill(t)
	died := time.Now()
	for range all {
		select {
		case m := <-served:
			m.release(t)
		case <-time.After(load.Patience):
			t.Fatal("the killed process has no successor")
		}
	}
	took = time.Since(died)
	for _, s := range all {
		nothingLeft(t, watcher, s.line)
	}
	return took
}

// inLine waits until path has n children.
func inLine(t *testing.T, c *framework.Client, path string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), load.Patience)
	defer cancel()
	var names []string
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if names, _, _ = c.Children(ctx, path); len(names) == n {
			return
		}
	}
	if len(names) > n {
		judge.Fatalf(t, "left in line at %s: %v, want %d", path, names, n)
	}
	t.Fatalf("in line at %s: %v, want %d", path, names, n)
}
