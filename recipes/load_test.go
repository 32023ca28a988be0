package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The sessions of those under load, and the margin that they have to stop in: wide,
// so that a machine that is busier than it should be is not taken for a double grant.
const (
	loadSession = 3 * time.Second
	loadMargin  = time.Second
	loadPermits = 2
)

// ledgers are those of a load, and the paths of their locks below its own.
var ledgers = []string{"mutex", "election", "rwlock", "semaphore"}

// worker is one goroutine that acquires one of the ledgers' locks again and again.
type worker struct {
	ledger ledger
	mode   string
	who    string
	lock   recipes.Acquirer
}

// work is one section: what the holder does, and says in the ledger.
func (w worker) work(l *recipes.Lease) error {
	if err := w.ledger.append("in %s %v %s", w.mode, l.Token(), w.who); err != nil {
		return err
	}
	select {
	case <-l.Lost():
	case <-time.After(time.Duration(1+rand.IntN(4)) * time.Millisecond):
	}
	return w.ledger.append("out %s", w.who)
}

// run works until ctx ends.
func (w worker) run(ctx context.Context) error {
	for {
		l, err := w.lock.Acquire(ctx)
		if ctx.Err() != nil && err != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.work(l); err != nil {
			return err
		}
		// A release outlives a member that is down: it goes on until the session has ended.
		if err := l.Release(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, recipes.ErrNotHeld) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(rand.IntN(10)) * time.Millisecond):
		}
	}
}

// lead works in terms until ctx ends.
func (w worker) lead(ctx context.Context, e *leader.Election) error {
	err := e.Run(ctx, func(_ context.Context, l *recipes.Lease) error { return w.work(l) })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// load has all recipes used at once by some goroutines of one client, until ctx
// ends. Process names the process in the ledgers, which are files in dir.
func load(ctx context.Context, servers, dir, path, process string) error {
	// Without servers, too, for as long as it takes a busy machine to have them back.
	c, err := framework.New(servers, framework.WithSessionTimeout(loadSession), framework.WithStopMargin(loadMargin),
		framework.WithRetry(retry.Forever(100*time.Millisecond)))
	if err != nil {
		return err
	}
	defer c.Close()
	mutex, err := locks.NewMutex(c, path+"/mutex")
	if err != nil {
		return err
	}
	rw, err := rwlock.New(c, path+"/rwlock")
	if err != nil {
		return err
	}
	sem, err := semaphore.New(c, path+"/semaphore", loadPermits)
	if err != nil {
		return err
	}
	election, err := leader.New(c, path+"/election")
	if err != nil {
		return err
	}
	file := func(name string) ledger { return ledger(filepath.Join(dir, name)) }
	workers := []worker{
		{file("mutex"), exclusive, "", mutex},
		{file("mutex"), exclusive, "", mutex},
		{file("rwlock"), exclusive, "", rw.Writer()},
		{file("rwlock"), shared, "", rw.Reader()},
		{file("rwlock"), shared, "", rw.Reader()},
		{file("semaphore"), permit, "", sem},
		{file("semaphore"), permit, "", sem},
	}
	ctx, stop := context.WithCancel(ctx) // all of them end with the first that fails
	defer stop()
	errs := make([]error, len(workers)+1)
	var wg sync.WaitGroup
	for i, w := range workers {
		w.who = fmt.Sprintf("%s.%d", process, i)
		wg.Go(func() {
			defer stop()
			errs[i] = w.run(ctx)
		})
	}
	wg.Go(func() {
		defer stop()
		w := worker{file("election"), exclusive, process + ".leader", nil}
		errs[len(workers)] = w.lead(ctx, election)
	})
	wg.Wait()
	return errors.Join(errs...)
}

// A lock that is none is found out: workers under locks of their own write into one
// ledger, and it is rejected.
func TestTheLedgerOfABrokenLockIsRejected(t *testing.T) {
	parallel(t)
	onBoth(t, 1, func(t *testing.T, ens testutil.Ensemble) {
		c := client(t, ens)
		file := ledger(filepath.Join(t.TempDir(), "ledger"))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 3 {
			m, err := locks.NewMutex(c, fmt.Sprint("/suite/broken/", i))
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				w := worker{file, exclusive, fmt.Sprint("1.", i), m}
				if err := w.run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		for began := time.Now(); file.grants(t) < 100 && time.Since(began) < patience; {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
		wg.Wait()
		text, err := os.ReadFile(string(file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := judge(string(text), loadPermits); err == nil || !strings.Contains(err.Error(), " is in, in mode ") {
			t.Errorf("judged: %v", err)
		}
	})
}
