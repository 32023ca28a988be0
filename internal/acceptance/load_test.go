package acceptance_test

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

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The session timeout and stop margin of the clients under load. They are wide,
// so that an overloaded machine does not look like a double grant.
const (
	loadSession = 5 * time.Second
	loadMargin  = 3 * time.Second / 2
	loadPermits = 2
)

// makeResources creates the znodes that exclusive holders write to.
func makeResources(t *testing.T, c *framework.Client, path string) {
	t.Helper()
	for _, name := range ledgers {
		if _, err := c.Create(t.Context(), resource(path+"/"+name), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// ledgers names the ledgers of a load. The locks have the same names below its
// path.
var ledgers = []string{"mutex", "election", "rwlock", "semaphore"}

// worker is one goroutine that acquires one of the locks again and again.
type worker struct {
	ledger   ledger
	mode     string
	who      string
	lock     recipes.Acquirer
	client   *framework.Client
	resource string // the znode that exclusive holders write their tokens to; empty for none
	figures  *figures
}

// figures counts what workers have seen.
type figures struct {
	mu      sync.Mutex // guards what follows
	Grants  int
	Losses  int           // leases that were lost
	Writes  int           // guarded writes that were executed
	Refused int           // guarded writes that were not
	Wait    time.Duration // the longest Acquire
}

func (f *figures) note(change func(*figures)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// work is one section: the holder works and appends to the ledger.
func (w worker) work(l *recipes.Lease) error {
	if !l.Held() {
		return nil
	}
	if err := w.ledger.append("in %s %v %s", w.mode, l.Token(), w.who); err != nil {
		return err
	}
	err := w.write(l)
	select {
	case <-l.Lost():
	case <-time.After(time.Duration(1+rand.IntN(4)) * time.Millisecond):
	}
	return errors.Join(err, w.ledger.append("out %s", w.who))
}

// write replaces the last token by that of an exclusive holder, in a guarded
// write. A write of a lost lease is not executed, however late it comes: a
// token that follows a greater one is an error.
func (w worker) write(l *recipes.Lease) error {
	if w.resource == "" || w.mode != exclusive {
		return nil
	}
	ctx := l.Context() // it ends with the lease, so that no work outlives it
	data, stat, err := w.client.Get(ctx, w.resource)
	if err != nil {
		return nil // no server answers, or the lease was lost
	}
	_, err = l.Multi(ctx, &zk.SetDataRequest{Path: w.resource, Data: []byte(l.Token().String()), Version: stat.Version})
	w.figures.note(func(f *figures) {
		if err == nil {
			f.Writes++
		} else {
			f.Refused++
		}
	})
	if len(data) == 0 || err != nil && !framework.MaybeApplied(err) {
		return nil
	}
	last, parseErr := recipes.ParseToken(string(data))
	if parseErr != nil {
		return parseErr
	}
	if err == nil && l.Token().Compare(last) <= 0 {
		return fmt.Errorf("%s writes token %v to %s over %v", w.who, l.Token(), w.resource, last)
	}
	return nil
}

// run works until ctx ends.
func (w worker) run(ctx context.Context) error {
	for {
		began := time.Now()
		l, err := w.lock.Acquire(ctx)
		if ctx.Err() != nil && err != nil {
			return nil
		}
		if err != nil {
			return err
		}
		w.granted(time.Since(began))
		if err := w.work(l); err != nil {
			return err
		}
		// A release outlives a member that is down: it continues until the
		// session has ended.
		err = l.Release(context.WithoutCancel(ctx))
		if err != nil && !errors.Is(err, recipes.ErrNotHeld) {
			return err
		}
		if err != nil {
			w.figures.note(func(f *figures) { f.Losses++ })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(rand.IntN(10)) * time.Millisecond):
		}
	}
}

func (w worker) granted(after time.Duration) {
	w.figures.note(func(f *figures) {
		f.Grants++
		f.Wait = max(f.Wait, after)
	})
}

// lead serves terms until ctx ends.
func (w worker) lead(ctx context.Context, e *leader.Election) error {
	began := time.Now()
	err := e.Run(ctx, func(_ context.Context, l *recipes.Lease) error {
		w.granted(time.Since(began))
		defer func() { began = time.Now() }()
		return w.work(l)
	})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// load uses all recipes at once from several goroutines of one client, until
// ctx ends. Process names the process in the ledgers, which are files in dir.
func load(ctx context.Context, servers, dir, path, process string, f *figures, opts ...framework.Option) error {
	// Retries long enough for a busy machine to restart its servers.
	c, err := framework.New(servers, append([]framework.Option{
		framework.WithSessionTimeout(loadSession), framework.WithStopMargin(loadMargin), framework.WithRetry(retry.Forever(100 * time.Millisecond)),
	}, opts...)...)
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
		{ledger: file("mutex"), mode: exclusive, lock: mutex, resource: resource(path + "/mutex")},
		{ledger: file("mutex"), mode: exclusive, lock: mutex, resource: resource(path + "/mutex")},
		{ledger: file("rwlock"), mode: exclusive, lock: rw.Writer(), resource: resource(path + "/rwlock")},
		{ledger: file("rwlock"), mode: shared, lock: rw.Reader()},
		{ledger: file("rwlock"), mode: shared, lock: rw.Reader()},
		{ledger: file("semaphore"), mode: permit, lock: sem},
		{ledger: file("semaphore"), mode: permit, lock: sem},
	}
	ctx, stop := context.WithCancel(ctx) // all end with the first one that fails
	defer stop()
	errs := make([]error, len(workers)+1)
	var wg sync.WaitGroup
	for i, w := range workers {
		w.who, w.client, w.figures = fmt.Sprintf("%s.%d", process, i), c, f
		wg.Go(func() {
			defer stop()
			errs[i] = w.run(ctx)
		})
	}
	wg.Go(func() {
		defer stop()
		w := worker{
			ledger: file("election"), mode: exclusive, who: process + ".leader", client: c,
			resource: resource(path + "/election"), figures: f,
		}
		errs[len(workers)] = w.lead(ctx, election)
	})
	wg.Wait()
	return errors.Join(errs...)
}

// A broken lock is detected: workers under separate locks write into one
// ledger, and the ledger is rejected.
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
				w := worker{ledger: file, mode: exclusive, who: fmt.Sprint("1.", i), lock: m, client: c, figures: &figures{}}
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
		_, err = judge(string(text), loadPermits)
		// Whichever comes first: two hold at once, or one comes late, after
		// another has come and gone.
		if err == nil || !strings.Contains(err.Error(), " is in, in mode ") && !strings.Contains(err.Error(), ": token ") {
			t.Errorf("judged: %v", err)
		}
	})
}
