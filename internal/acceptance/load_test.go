package acceptance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
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

// place is what a worker's lock protects.
type place struct {
	ledger   ledger
	resource string // the znode that exclusive holders write their tokens to; empty for none
}

// worker is one goroutine that acquires one of the locks again and again.
type worker struct {
	places  []place // one for most
	mode    string
	who     string
	lock    recipes.Acquirer
	reader  recipes.Acquirer // what a writer downgrades to; nil for most
	client  *framework.Client
	figures *figures
	pace    pace
	history bool // it also records what a history needs
}

// pace is how long a worker works, and how long it then rests.
type pace struct{ work, rest func() time.Duration }

// brisk is the pace of a load that makes as many grants as it can.
var brisk = pace{
	work: func() time.Duration { return time.Duration(1+rand.IntN(4)) * time.Millisecond },
	rest: func() time.Duration { return time.Duration(rand.IntN(10)) * time.Millisecond },
}

// figures counts what workers have seen.
type figures struct {
	mu      sync.Mutex // guards what follows
	Grants  int
	Losses  int           // leases that were lost
	Writes  int           // guarded writes that were executed
	Refused int           // guarded writes that were not
	Unknown int           // guarded writes that may have been executed
	Late    int           // those among all of these that were sent after a loss
	Wait    time.Duration // the longest Acquire
	Stall   time.Duration // the longest time for which the process was not run, if it looks
}

func (f *figures) note(change func(*figures)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *figures) add(o *figures) {
	f.note(func(sum *figures) {
		sum.Grants += o.Grants
		sum.Losses += o.Losses
		sum.Writes += o.Writes
		sum.Refused += o.Refused
		sum.Unknown += o.Unknown
		sum.Late += o.Late
		sum.Wait = max(sum.Wait, o.Wait)
		sum.Stall = max(sum.Stall, o.Stall)
	})
}

// append writes a line to all ledgers of a worker.
func (w worker) append(format string, args ...any) error {
	var errs []error
	for _, p := range w.places {
		errs = append(errs, p.ledger.append(format, args...))
	}
	return errors.Join(errs...)
}

// record writes a line that only histories need.
func (w worker) record(format string, args ...any) error {
	if !w.history {
		return nil
	}
	return w.append(format, args...)
}

// tokens returns the token of a lease at each place: a lease of several locks
// has several.
func (w worker) tokens(l *recipes.Lease) []recipes.Token {
	tokens := make([]recipes.Token, len(w.places))
	for i, p := range w.places {
		tokens[i] = l.Token()
		for _, part := range l.Parts() {
			if len(w.places) > 1 && path.Base(part.LockPath()) == filepath.Base(string(p.ledger)) {
				tokens[i] = part.Token()
			}
		}
	}
	return tokens
}

// work is one section: the holder works and appends to the ledgers. It returns
// the lease that is left, and whether the section began at all.
func (w worker) work(l *recipes.Lease) (left *recipes.Lease, err error) {
	if !l.Held() {
		return l, w.record("none %s", w.who)
	}
	for i, token := range w.tokens(l) {
		if err := w.places[i].ledger.append("in %s %v %s", w.mode, token, w.who); err != nil {
			return l, err
		}
	}
	if err := w.record("at %d %s", time.Now().UnixMilli(), w.who); err != nil {
		return l, err
	}
	err = w.write(l)
	guard := w.guard(l)
	w.linger(l)
	if w.reader != nil {
		var downErr error
		l, downErr = w.downgrade(l)
		err = errors.Join(err, downErr)
	}
	return l, errors.Join(err, w.append("out %s", w.who), w.writeLate(l, guard))
}

// linger works, until the lease is lost. A worker with a history goes on until
// the ensemble answers: one that is cut off holds until it is told of its loss.
func (w worker) linger(l *recipes.Lease) {
	select {
	case <-l.Lost():
	case <-time.After(w.pace.work()):
	}
	for w.history && l.Held() && w.client.Sync(l.Context(), w.places[0].resource) != nil {
		time.Sleep(10 * time.Millisecond)
	}
}

// downgrade turns a write lease into a read lease, and works under that one. If
// the write lease is lost first it is returned again.
func (w worker) downgrade(l *recipes.Lease) (*recipes.Lease, error) {
	ctx, cancel := l.Bind(context.Background())
	defer cancel()
	read, err := w.reader.Acquire(ctx)
	if err != nil {
		if !l.Held() {
			return l, nil
		}
		return l, fmt.Errorf("%s: downgrade: %w", w.who, err)
	}
	err = w.append("down %v %s", read.Token(), w.who)
	released := l.Release(context.Background())
	if errors.Is(released, recipes.ErrNotHeld) {
		w.figures.note(func(f *figures) { f.Losses++ })
	} else if released != nil {
		return read, errors.Join(err, released)
	}
	err = errors.Join(err, w.record("gave %v %s", released == nil, w.who))
	w.linger(read)
	return read, err
}

// run works until ctx ends.
func (w worker) run(ctx context.Context) error {
	for {
		if err := w.record("ask %s %s", w.mode, w.who); err != nil {
			return err
		}
		began := time.Now()
		l, err := w.lock.Acquire(ctx)
		if ctx.Err() != nil && err != nil {
			return nil
		}
		if err != nil {
			return err
		}
		w.granted(time.Since(began))
		if l, err = w.work(l); err != nil {
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
		if err := w.record("left %v %s", err == nil, w.who); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.pace.rest()):
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
	asked := func() (time.Time, error) { return time.Now(), w.record("ask %s %s", w.mode, w.who) }
	began, failed := asked()
	if failed != nil {
		return failed
	}
	err := e.Run(ctx, func(_ context.Context, l *recipes.Lease) error {
		w.granted(time.Since(began))
		// When the next term is asked for the last one has ended, but whether
		// it was released or lost is not told here.
		_, err := w.work(l)
		var next error
		began, next = asked()
		return errors.Join(err, next)
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
	at := func(name string) []place {
		return []place{{ledger(filepath.Join(dir, name)), resource(path + "/" + name)}}
	}
	workers := []worker{
		{places: at("mutex"), mode: exclusive, lock: mutex},
		{places: at("mutex"), mode: exclusive, lock: mutex},
		{places: at("rwlock"), mode: exclusive, lock: rw.Writer()},
		{places: at("rwlock"), mode: shared, lock: rw.Reader()},
		{places: at("rwlock"), mode: shared, lock: rw.Reader()},
		{places: at("semaphore"), mode: permit, lock: sem},
		{places: at("semaphore"), mode: permit, lock: sem},
	}
	for i := range workers {
		workers[i].who = fmt.Sprintf("%s.%d", process, i)
	}
	leads := worker{places: at("election"), mode: exclusive, who: process + ".leader"}
	return together(ctx, worker{client: c, figures: f, pace: brisk}, workers, leads, election)
}

// together lets workers work until ctx ends, and one serve terms. They all end
// with the first one that fails. What all have in common is in like.
func together(ctx context.Context, like worker, workers []worker, leads worker, election *leader.Election) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	common := func(w worker) worker {
		w.client, w.figures, w.pace, w.history = like.client, like.figures, like.pace, like.history
		return w
	}
	errs := make([]error, len(workers)+1)
	var wg sync.WaitGroup
	for i, w := range workers {
		wg.Go(func() {
			defer stop()
			errs[i] = common(w).run(ctx)
		})
	}
	wg.Go(func() {
		defer stop()
		errs[len(workers)] = common(leads).lead(ctx, election)
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
				w := worker{places: []place{{ledger: file}}, mode: exclusive, who: fmt.Sprint("1.", i), lock: m, client: c, figures: &figures{}, pace: brisk}
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
