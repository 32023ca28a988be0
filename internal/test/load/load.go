// Package load has processes and goroutines that use all recipes as much as
// they can, the ledgers to which each holder appends what it does, and the
// judges of these ledgers. The tests that kill members or cut networks let it
// work.
package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
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
	Session    = 5 * time.Second
	loadMargin = 3 * time.Second / 2
	Permits    = 2
)

// MakeResources creates the znodes that exclusive holders write to.
func MakeResources(t *testing.T, c *framework.Client, path string) {
	t.Helper()
	for _, name := range Ledgers {
		if _, err := c.Create(t.Context(), Resource(path+"/"+name), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// Ledgers names the ledgers of a load. The locks have the same names below its
// path.
var Ledgers = []string{"mutex", "second", "election", "rwlock", "semaphore"}

// Place is what a worker's lock protects.
type Place struct {
	Ledger   Ledger
	Resource string // the znode that exclusive holders write their tokens to; empty for none
}

// Worker is one goroutine that acquires one of the locks again and again.
type Worker struct {
	Places  []Place // one for most
	Mode    string
	Who     string
	Lock    recipes.Acquirer
	Reader  recipes.Acquirer // what a writer downgrades to; nil for most
	Client  *framework.Client
	Figures *Figures
	Pace    Pace
	History bool // it also records what a history needs
}

// Pace is how long a worker works, and how long it then rests.
type Pace struct{ Work, Rest func() time.Duration }

// Brisk is the pace of a load that makes as many grants as it can.
var Brisk = Pace{
	Work: func() time.Duration { return time.Duration(1+rand.IntN(4)) * time.Millisecond },
	Rest: func() time.Duration { return time.Duration(rand.IntN(10)) * time.Millisecond },
}

// Figures counts what workers have seen.
type Figures struct {
	mu       sync.Mutex // guards what follows
	Grants   int
	Losses   int           // leases that were lost
	Unproven int           // Acquires that failed since the session could not be proven
	Writes   int           // guarded writes that were executed
	Refused  int           // guarded writes that were not
	Unknown  int           // guarded writes that may have been executed
	Late     int           // those among all of these that were sent after a loss
	Wait     time.Duration // the longest Acquire
	Stall    time.Duration // the longest time for which the process was not run, if it looks
}

func (f *Figures) Note(change func(*Figures)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *Figures) Add(o *Figures) {
	f.Note(func(sum *Figures) {
		sum.Grants += o.Grants
		sum.Losses += o.Losses
		sum.Unproven += o.Unproven
		sum.Writes += o.Writes
		sum.Refused += o.Refused
		sum.Unknown += o.Unknown
		sum.Late += o.Late
		sum.Wait = max(sum.Wait, o.Wait)
		sum.Stall = max(sum.Stall, o.Stall)
	})
}

// WatchStalls notes the longest time for which this process was not run, until
// stop is called. Who stalls for longer than the stop margin holds too long.
func (f *Figures) WatchStalls() (stop func()) {
	const often = 50 * time.Millisecond
	ticker := time.NewTicker(often)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for last := time.Now(); ; {
			select {
			case <-ticker.C:
			case <-done:
				return
			}
			stall := time.Since(last) - often
			f.Note(func(f *Figures) { f.Stall = max(f.Stall, stall) })
			last = time.Now()
		}
	}()
	return func() {
		ticker.Stop()
		close(done)
		<-ended
	}
}

// append writes a line to all ledgers of a worker.
func (w Worker) append(format string, args ...any) error {
	var errs []error
	for _, p := range w.Places {
		errs = append(errs, p.Ledger.Append(format, args...))
	}
	return errors.Join(errs...)
}

// record writes a line that only histories need.
func (w Worker) record(format string, args ...any) error {
	if !w.History {
		return nil
	}
	return w.append(format, args...)
}

// tokens returns the token of a lease at each place: a lease of several locks
// has several.
func (w Worker) tokens(l *recipes.Lease) []recipes.Token {
	tokens := make([]recipes.Token, len(w.Places))
	for i, p := range w.Places {
		tokens[i] = l.Token()
		for _, part := range l.Parts() {
			if len(w.Places) > 1 && path.Base(part.LockPath()) == filepath.Base(string(p.Ledger)) {
				tokens[i] = part.Token()
			}
		}
	}
	return tokens
}

// work is one section: the holder works and appends to the ledgers. It returns
// the lease that is left, and whether the section began at all.
func (w Worker) work(l *recipes.Lease) (left *recipes.Lease, err error) {
	if !l.Held() {
		return l, w.record("none %s", w.Who)
	}
	for i, token := range w.tokens(l) {
		if err := w.Places[i].Ledger.Append("in %s %v %s", w.Mode, token, w.Who); err != nil {
			return l, err
		}
	}
	if err := w.record("at %d %s", time.Now().UnixMilli(), w.Who); err != nil {
		return l, err
	}
	err = w.write(l)
	guard := w.guard(l)
	w.linger(l)
	if w.Reader != nil {
		var downErr error
		l, downErr = w.downgrade(l)
		err = errors.Join(err, downErr)
	}
	return l, errors.Join(err, w.append("out %s", w.Who), w.writeLate(l, guard))
}

// linger works, until the lease is lost. A worker with a history goes on until
// the ensemble answers: one that is cut off holds until it is told of its loss.
func (w Worker) linger(l *recipes.Lease) {
	select {
	case <-l.Lost():
	case <-time.After(w.Pace.Work()):
	}
	for w.History && l.Held() && w.Client.Sync(l.Context(), w.Places[0].Resource) != nil {
		time.Sleep(10 * time.Millisecond)
	}
}

// downgrade turns a write lease into a read lease, and works under that one. If
// the write lease is lost first it is returned again.
func (w Worker) downgrade(l *recipes.Lease) (*recipes.Lease, error) {
	ctx, cancel := l.Bind(context.Background())
	defer cancel()
	read, err := w.Reader.Acquire(ctx)
	if err != nil {
		if !l.Held() {
			return l, nil
		}
		return l, fmt.Errorf("%s: downgrade: %w", w.Who, err)
	}
	err = w.append("down %v %s", read.Token(), w.Who)
	released := l.Release(context.Background())
	if errors.Is(released, recipes.ErrNotHeld) {
		w.Figures.Note(func(f *Figures) { f.Losses++ })
	} else if released != nil {
		return read, errors.Join(err, released)
	}
	err = errors.Join(err, w.record("gave %v %s", released == nil, w.Who))
	w.linger(read)
	return read, err
}

// Run works until ctx ends.
func (w Worker) Run(ctx context.Context) error {
	for {
		if err := w.record("ask %s %s", w.Mode, w.Who); err != nil {
			return err
		}
		began := time.Now()
		l, err := w.Lock.Acquire(ctx)
		if ctx.Err() != nil && err != nil {
			return nil
		}
		if w.History && errors.Is(err, framework.ErrUnproven) { // it has left, so that others go on
			w.Figures.Note(func(f *Figures) { f.Unproven++ })
			continue
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
			w.Figures.Note(func(f *Figures) { f.Losses++ })
		}
		if err := w.record("left %v %s", err == nil, w.Who); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.Pace.Rest()):
		}
	}
}

func (w Worker) granted(after time.Duration) {
	w.Figures.Note(func(f *Figures) {
		f.Grants++
		f.Wait = max(f.Wait, after)
	})
}

// lead serves terms until ctx ends.
func (w Worker) lead(ctx context.Context, e *leader.Election) error {
	asked := func() (time.Time, error) { return time.Now(), w.record("ask %s %s", w.Mode, w.Who) }
	began, failed := asked()
	if failed != nil {
		return failed
	}
	err := e.Run(ctx, func(_ context.Context, l *recipes.Lease) error {
		w.granted(time.Since(began))
		_, err := w.work(l)
		if !l.Held() {
			w.Figures.Note(func(f *Figures) { f.Losses++ })
		}
		var next error // the term ends behind this
		began, next = asked()
		return errors.Join(err, next)
	})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Run makes a client, and uses all locks with it: see New and Use.
func Run(ctx context.Context, servers, dir, path, process string, f *Figures, opts ...framework.Option) error {
	c, err := New(servers, opts...)
	if err != nil {
		return err
	}
	defer c.Close()
	return Use(ctx, c, dir, path, process, f)
}

// New returns a client for Use. Its retries last as long as a busy machine
// needs to restart its servers.
func New(servers string, opts ...framework.Option) (*framework.Client, error) {
	return framework.New(servers, append([]framework.Option{
		framework.WithSessionTimeout(Session), framework.WithStopMargin(loadMargin), framework.WithRetry(retry.Forever(100 * time.Millisecond)),
	}, opts...)...)
}

// Use uses all locks at once from several goroutines of one client, until ctx
// ends. Process names the process in the ledgers, which are files in dir.
func Use(ctx context.Context, c *framework.Client, dir, path, process string, f *Figures) error {
	mutex, err := locks.NewMutex(c, path+"/mutex")
	if err != nil {
		return err
	}
	second, err := locks.NewMutex(c, path+"/second")
	if err != nil {
		return err
	}
	both, err := locks.All(mutex, second)
	if err != nil {
		return err
	}
	rw, err := rwlock.New(c, path+"/rwlock")
	if err != nil {
		return err
	}
	sem, err := semaphore.New(c, path+"/semaphore", Permits)
	if err != nil {
		return err
	}
	election, err := leader.New(c, path+"/election")
	if err != nil {
		return err
	}
	at := func(names ...string) (places []Place) {
		for _, name := range names {
			places = append(places, Place{Ledger(filepath.Join(dir, name)), Resource(path + "/" + name)})
		}
		return places
	}
	workers := []Worker{
		{Places: at("mutex"), Mode: Exclusive, Lock: mutex},
		{Places: at("mutex"), Mode: Exclusive, Lock: mutex},
		{Places: at("rwlock"), Mode: Exclusive, Lock: rw.Writer()},
		{Places: at("rwlock"), Mode: Shared, Lock: rw.Reader()},
		{Places: at("rwlock"), Mode: Shared, Lock: rw.Reader()},
		{Places: at("semaphore"), Mode: Permit, Lock: sem},
		{Places: at("semaphore"), Mode: Permit, Lock: sem},
		{Places: at("second"), Mode: Exclusive, Lock: second},
		{Places: at("mutex", "second"), Mode: Exclusive, Lock: both},
	}
	for i := range workers {
		workers[i].Who = fmt.Sprintf("%s.%d", process, i)
	}
	leads := Worker{Places: at("election"), Mode: Exclusive, Who: process + ".leader"}
	return Together(ctx, Worker{Client: c, Figures: f, Pace: Brisk}, workers, leads, election)
}

// Together lets workers work until ctx ends, and one serve terms. They all end
// with the first one that fails. What all have in common is in like.
func Together(ctx context.Context, like Worker, workers []Worker, leads Worker, election *leader.Election) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	common := func(w Worker) Worker {
		w.Client, w.Figures, w.Pace, w.History = like.Client, like.Figures, like.Pace, like.History
		return w
	}
	errs := make([]error, len(workers)+1)
	var wg sync.WaitGroup
	for i, w := range workers {
		wg.Go(func() {
			defer stop()
			errs[i] = common(w).Run(ctx)
		})
	}
	wg.Go(func() {
		defer stop()
		errs[len(workers)] = common(leads).lead(ctx, election)
	})
	wg.Wait()
	return errors.Join(errs...)
}

// Leading waits for a leader.
func Leading(t *testing.T, ens testutil.Ensemble) (member int) {
	t.Helper()
	bubble.AwaitTrue(t, "there is a leader", func() bool {
		member = ens.Leader()
		return member >= 0
	})
	return member
}
