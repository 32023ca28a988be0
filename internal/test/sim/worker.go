package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// worker is one goroutine of one client.
type worker struct {
	who
	*world
	inner    *worker // what it acquires under a lease
	client   *framework.Client
	view     bubble.View // of the client
	side     func(Step) recipes.Acquirer
	election *leader.Election
	sem      *semaphore.Semaphore
	rw       *rwlock.RWLock
	number   *counter.Counter
}

// must panics on an error: constructors get arguments of this package.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newWorker(w *world, id who) *worker {
	k := &worker{who: id, world: w}
	k.use(w.plan.valueOf(id, 0))
	k.inner = k
	if w.plan.Crossed {
		inner := *k
		inner.use(w.plan.valueOf(id, 1))
		k.inner = &inner
	}
	return k
}

// use makes what the worker acquires, with a value.
func (k *worker) use(v Value) {
	k.see(v)
	path, base := k.view.Path(k.paths[0]), k.view.Path(k.plan.keys())
	switch k.plan.Recipe {
	case Mutex:
		m := must(locks.NewMutex(k.client, path, options[locks.Option](v.ofLocks())...))
		k.side = func(Step) recipes.Acquirer { return m }
	case Keyed, All:
		keyed := must(locks.NewKeyed(k.client, base, options[locks.Option](v.ofLocks())...))
		a, b := keyed.Key("a"), keyed.Key("b")
		both := must(locks.All(b, a))
		k.side = func(s Step) recipes.Acquirer { return []recipes.Acquirer{a, b, both}[s.Side] }
	case Many:
		keyed := must(locks.NewKeyed(k.client, base, options[locks.Option](v.ofLocks())...))
		k.side = func(s Step) recipes.Acquirer { return keyed.Key(manyKeys[s.Side]) }
	case RWLock:
		ofRW := options[rwlock.Option](v.ofLocks())
		if k.plan.Kazoo {
			ofRW = append(ofRW, rwlock.WithLayout(rwlock.LayoutKazoo))
		}
		k.rw = must(rwlock.New(k.client, path, ofRW...))
		writer := k.rw.Writer()
		if k.plan.mutexes(k.who.client) {
			writer = must(locks.NewMutex(k.client, path, options[locks.Option](v.ofLocks(), locks.WithLayout(locks.LayoutKazoo))...))
		}
		k.side = func(s Step) recipes.Acquirer { return []recipes.Acquirer{k.rw.Reader(), writer}[s.Side] }
	case Line:
		conflicts := func(mine, theirs string) bool { return mine != reading || theirs != reading }
		opts := options[recipes.LineOption](v.ofLocks())
		reader := must(recipes.NewLine(k.client, path, "sim.v1", reading, conflicts, opts...))
		writer := must(recipes.NewLine(k.client, path, "sim.v1", "write", conflicts, opts...))
		k.side = func(s Step) recipes.Acquirer { return []recipes.Acquirer{reader, writer}[s.Side] }
	case Semaphore:
		k.sem = must(semaphore.New(k.client, path, k.plan.Limit, options(v.ofLeases(), semaphore.WithRecordedLimit())...))
		k.side = func(s Step) recipes.Acquirer { return k.sem.Permits(s.Side) }
	case Counter:
		k.number = k.counter()
	case Election, Campaign:
		k.election = k.elects(path, v)
		k.side = func(Step) recipes.Acquirer { return k.election }
	}
}

// reading is the name of those in a Line that may hold together.
const reading = "read"

// step runs one step and reports whether the worker can go on.
func (k *worker) step(s Step) bool {
	for range s.Warm { // holdings like all others
		if !k.step(Step{Side: s.Side}) {
			return false
		}
	}
	time.Sleep(s.Pause)
	if s.SetMax > 0 {
		k.limit(s.SetMax)
	}
	if k.plan.Recipe.watches() {
		defer k.takesUp(s)(false)
		return k.watched(s)
	}
	if k.plan.Recipe.counts() {
		return k.does(s)
	}
	if k.plan.Recipe == Campaign || s.Runs {
		return k.campaign(s)
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	leave := func() {
		k.ledger.leaves(k.resources(s))
		end()
	}
	if s.Cancel > 0 {
		defer time.AfterFunc(s.Cancel, leave).Stop()
	}
	if s.Nth > 0 {
		k.mu.Lock()
		k.leavers[k.who] = &leaver{s, s.Nth, leave}
		k.mu.Unlock()
	}
	for {
		c := k.ledger.call(k.who, "acquire side %d, try %v, cancel %v", s.Side, s.Try, s.Cancel)
		if !s.Try {
			k.ledger.waits(k.who, k.resources(s), k.wants(s))
		}
		entering, returned := k.callable(ctx, k.who)
		k.says("acquires")
		over := k.takesUp(s)
		l, err := k.enter(entering, s)
		struck := returned()
		k.says("returns")
		k.mu.Lock()
		delete(k.leavers, k.who)
		k.mu.Unlock()
		if err == nil {
			k.hold(c, s, l)
			over(true)
			return true
		}
		k.ledger.failed(k.who, k.resources(s), err)
		over(false)
		switch {
		case errors.Is(err, framework.ErrClosed):
			k.clientClosed(err)
			return false
		case ctx.Err() != nil && errors.Is(err, ctx.Err()), s.Try && errors.Is(err, recipes.ErrBusy), struck && errors.Is(err, context.Canceled):
			return true
		case errors.Is(err, recipes.ErrLayout) && s.Side == 1 && k.plan.mutexes(k.who.client): // a reader is in line
			return true
		case k.plan.disagreed(k.who.client, err), k.plan.Recipe == All && k.plan.capped(k.who.client) && errors.Is(err, recipes.ErrMaxHold):
			return true
		case errors.Is(err, framework.ErrTooLarge) && k.fills(k.who.client, c.at) && !k.wasInLine(err):
			return true
		case errors.Is(err, semaphore.ErrLimit) && k.limited(), errors.Is(err, framework.ErrUnproven) && k.plan.far():
			return true
		case !k.expected(err) || errors.Is(err, recipes.ErrNotHeld):
			k.ledger.fault("%v: acquire: %v", k.who, err)
			return true
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// clientClosed checks that a client that says it is closed has been closed.
func (k *worker) clientClosed(err error) {
	if !k.gone(k.who.client) && !k.closedByNow() {
		k.ledger.fault("%v: %v", k.who, err)
	}
}

// closedByNow reports whether the run ended before its workers had.
func (k *worker) closedByNow() bool {
	k.ledger.mu.Lock()
	defer k.ledger.mu.Unlock()
	return k.ledger.closed[k.who.client]
}

// limited reports whether a worker sets limits.
func (k *worker) limited() bool {
	for _, client := range k.plan.Workers {
		for _, steps := range client {
			for _, s := range steps {
				if s.SetMax > 0 {
					return true
				}
			}
		}
	}
	return false
}

func (k *worker) enter(ctx context.Context, s Step) (*recipes.Lease, error) {
	if s.Try {
		return k.side(s).TryAcquire(ctx)
	}
	return k.side(s).Acquire(ctx)
}

// resources returns the resources that a step uses.
func (k *worker) resources(s Step) []*resource {
	paths := k.paths
	if k.plan.Recipe == Keyed || k.plan.Recipe == All {
		paths = [][]string{{paths[0]}, {paths[1]}, paths}[s.Side]
	}
	if k.plan.Recipe == Many {
		paths = paths[s.Side : s.Side+1]
	}
	var all []*resource
	for _, path := range paths {
		all = append(all, k.ledger.resources[path])
	}
	return all
}

func (k *worker) limit(n int) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second+40*k.plan.Latency)
	defer cancel()
	c := k.ledger.call(k.who, "set the limit to %d", n)
	err := k.sem.SetMax(ctx, n)
	k.ledger.limited(c, k.who, k.resources(Step{})[0], n, err)
	if err != nil && k.plan.Scenario.quiet() && !k.plan.outlasted(k.who.client, err) {
		k.ledger.fault("%v: SetMax: %v", k.who, err)
	}
}

// campaign runs a step with the election's Run: two terms.
func (k *worker) campaign(s Step) bool {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	if s.Cancel > 0 {
		defer time.AfterFunc(s.Cancel, leave).Stop()
	}
	c := k.ledger.call(k.who, "campaign, cancel %v", s.Cancel)
	terms := -s.Brief
	var brief time.Time // when the last term began that has ended by itself at once
	ctx, over := k.callable(ctx, k.who)
	defer over()
	k.says("campaigns")
	err := k.election.Run(ctx, func(ctx context.Context, l *recipes.Lease) error {
		k.says("leads")
		if apart := time.Since(brief); apart < time.Second {
			k.ledger.fault("%v: a term of %v follows the one before after %v", k.who, k.plan.Recipe, apart)
		}
		brief = time.Time{}
		terms++
		t := k.grant(c, l, k.resources(s)[0], s, nil)
		if terms > 0 {
			k.look(s, t)
			k.work(ctx, s, t, l)
			defer k.behind(s, t, l)()
		}
		k.ledger.leaving(t, l)
		k.says("steps down")
		c = k.ledger.call(k.who, "the term ends")
		if terms == 2 {
			return leader.ErrStop
		}
		if terms <= 0 && ctx.Err() == nil {
			brief = time.Now()
		}
		return nil
	})
	k.ledger.failed(k.who, k.resources(s), err)
	switch {
	case errors.Is(err, framework.ErrClosed):
		k.clientClosed(err)
		return false
	case errors.Is(err, zk.ErrNoAuth) && k.allowed(err): // which ends it, alone of all errors that strike
	case err != nil && k.plan.OneElection && strings.Contains(err.Error(), "it runs already"): // for another goroutine
	case err != nil && !(ctx.Err() != nil && errors.Is(err, ctx.Err())):
		k.ledger.fault("%v: campaign: %v", k.who, err)
	}
	return true
}

func (k *worker) wants(s Step) want {
	switch k.plan.Recipe {
	case RWLock, Line:
		return want{shared: s.Side == 0}
	case Semaphore:
		return want{permits: s.Side}
	}
	return want{}
}

func (k *worker) grant(c call, l *recipes.Lease, r *resource, s Step, root *holding) *holding {
	wanted := k.wants(s)
	t := &holding{of: r, who: k.who, lease: l, client: k.client, view: k.view, root: root, shared: wanted.shared, permits: wanted.permits}
	if k.plan.Recipe == Semaphore {
		if n := len(l.Guard()); n != s.Side { // one check for each
			k.ledger.fault("%v was granted %d permits with %d znodes", k.who, s.Side, n)
		}
	}
	k.ledger.granted(c, t)
	return t
}

// expected reports whether a call of the worker may fail with this error.
func (k *worker) expected(err error) bool {
	return k.plan.outlasted(k.who.client, err) || k.world.expected(err)
}

// look reads what holders write to, as a holder does first.
func (k *worker) look(s Step, t *holding) {
	if !s.Looks {
		return
	}
	ctx, cancel := context.WithTimeout(t.lease.Context(), patienceOfAWriter)
	defer cancel()
	_, stat, err := t.client.Get(ctx, t.view.Path(t.of.data))
	if err == nil {
		k.ledger.read(t, stat.Mzxid)
	} else if k.plan.Scenario.quiet() && !k.plan.outlasted(k.who.client, err) {
		k.ledger.fault("%v: read: %v", t, err)
	}
}

// hold does what a worker does with a lease.
func (k *worker) hold(c call, s Step, l *recipes.Lease) {
	if parts := l.Parts(); len(parts) > 0 {
		k.holdAll(c, s, l, parts)
		return
	}
	t := k.grant(c, l, k.resources(s)[0], s, nil)
	k.look(s, t)
	var late []any
	if s.Early {
		late = l.Guard(setData(t))
	}
	if s.NestLate {
		time.Sleep(s.Work)
	}
	nested := k.nest(s, t, l)
	k.work(l.Context(), s, t, l)
	lost := k.ledger.lost(t)
	if lost && s.Late > 0 {
		if late == nil {
			late = l.Guard(setData(t))
		}
		k.late(s, t, late)
	}
	if s.First {
		nested = append([]nest{{t, l}}, nested...)
	} else {
		nested = append(nested, nest{t, l})
	}
	written := k.behind(s, t, l)
	for i, n := range nested {
		k.release(s, n.t, n.l)
		if i == 0 {
			time.Sleep(s.Reads)
		}
	}
	written()
	if !lost && late != nil && !t.shared && !k.plan.Staged { // others may share the znode, and it still excludes
		k.late(s, t, late)
	}
}

// work holds a lease for a while, with guarded writes in between.
func (k *worker) work(ctx context.Context, s Step, t *holding, l *recipes.Lease) {
	pieces := time.Duration(s.Writes + 1)
	defer k.longer(ctx, s)
	for range s.Writes + 1 {
		if s.Heedless {
			time.Sleep(s.Work / pieces)
		} else {
			select {
			case <-time.After(s.Work / pieces):
			case <-ctx.Done():
				k.ledger.look()
				return
			}
		}
		k.ledger.look()
		if pieces == 1 {
			continue
		}
		gaveUp := k.write(s, t, l)
		if s.Twice && !gaveUp {
			gaveUp = k.write(s, t, l)
		}
		if gaveUp && !s.Heedless {
			return
		}
	}
}

// longer keeps a lease for longer where something has struck: what that does
// may show only later.
func (k *worker) longer(ctx context.Context, s Step) {
	if k.plan.Longer == 0 || !k.struck() {
		return
	}
	if s.Heedless {
		ctx = context.Background()
	}
	select {
	case <-time.After(k.plan.Longer):
	case <-ctx.Done():
		k.says("loses")
	}
	k.ledger.look()
}

// says is a moment of the worker's client.
func (k *worker) says(what string) { k.happens(k.who.client, Caller, what, message{}) }

// behind starts a write that the release does not wait for, and returns a
// function that does.
func (k *worker) behind(s Step, t *holding, l *recipes.Lease) (written func()) {
	var writing sync.WaitGroup
	if s.Behind {
		writing.Go(func() { k.write(s, t, l) })
		runtime.Gosched() // without it, the write would mostly start too late
	}
	return writing.Wait
}

// patienceOfAWriter is the time limit of a guarded write.
const patienceOfAWriter = 30 * time.Second

// write makes a guarded write and reports whether it gave up.
func (k *worker) write(s Step, t *holding, l *recipes.Lease) (gaveUp bool) {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.Hasty, patienceOfAWriter))
	defer cancel()
	c := k.ledger.call(k.who, "write under #%d", t.id)
	ctx, over := k.callable(ctx, k.who)
	responses, err := l.Multi(ctx, setData(t))
	struck := over()
	k.wrote(c, t, responses, err)
	gaveUp = s.Hasty > 0 && errors.Is(err, context.DeadlineExceeded) || struck && errors.Is(err, context.Canceled)
	tooLate := s.Behind && errors.Is(err, recipes.ErrNotHeld)
	if err != nil && k.plan.Scenario.quiet() && !gaveUp && !tooLate && !k.plan.outlasted(k.who.client, err) {
		k.ledger.fault("%v: write: %v", t, err)
	}
	return gaveUp
}

func setData(t *holding) *zk.SetDataRequest {
	return &zk.SetDataRequest{Path: t.view.Path(t.of.data), Data: []byte(t.token.String()), Version: -1}
}

func (k *worker) wrote(c call, t *holding, responses []zk.MultiResponse, err error) {
	version, zxid := int32(0), int64(0)
	if err == nil {
		stat := responses[len(responses)-1].Stat
		version, zxid = stat.Version, stat.Mzxid
	}
	k.ledger.wrote(c, t, version, zxid, err)
}

// release releases a lease.
func (k *worker) release(s Step, t *holding, l *recipes.Lease) {
	k.ledger.leaving(t, l)
	ctx, cancel := context.Background(), func() {}
	if s.Bound > 0 {
		ctx, cancel = context.WithTimeout(ctx, s.Bound)
	}
	ctx, over := k.callable(ctx, k.who)
	k.says("releases")
	k.leaveBeside(k.who, false)
	err := l.Release(ctx)
	k.leaveBeside(k.who, true)
	cancel()
	struck := over()
	k.says("released")
	if len(t.leases) == 0 { // only this worker changes it
		k.ledger.released(t, err)
	}
	switch {
	case err == nil:
	case errors.Is(err, recipes.ErrNotHeld):
		if l.Err() == nil || k.plan.Scenario.quiet() {
			k.ledger.fault("%v: release: %v, and Err is %v", t, err, l.Err())
		}
	case s.Bound > 0 && errors.Is(err, context.DeadlineExceeded), struck && errors.Is(err, context.Canceled):
	case errors.Is(err, framework.ErrClosed), k.expected(err):
	default:
		k.ledger.fault("%v: release: %v", t, err)
	}
}

// late writes with the guard of a lease that was lost or released, like a
// process that was paused between the check and the write.
func (k *worker) late(s Step, t *holding, guarded []any) {
	time.Sleep(s.Late)
	ctx, cancel := context.WithTimeout(context.Background(), patienceOfAWriter)
	defer cancel()
	c := k.ledger.call(k.who, "write late under #%d", t.id)
	responses, err := t.client.Multi(ctx, guarded...)
	k.wrote(c, t, responses, err)
}

// holdAll is hold for several locks.
func (k *worker) holdAll(c call, s Step, l *recipes.Lease, parts []*recipes.Lease) {
	var all []*holding
	for i, part := range parts {
		all = append(all, k.grant(c, part, k.resources(s)[i], s, nil))
	}
	k.work(l.Context(), Step{Work: s.Work, Heedless: s.Heedless}, all[0], l)
	for i, t := range all {
		k.ledger.leaving(t, parts[i])
	}
	ctx, cancel := context.Background(), func() {}
	if s.Bound > 0 {
		ctx, cancel = context.WithTimeout(ctx, s.Bound)
	}
	err := l.Release(ctx)
	cancel()
	for _, t := range all {
		result := err
		if err == nil && k.ledger.lost(t) {
			result = fmt.Errorf("of the whole: %w", recipes.ErrNotHeld)
			k.ledger.fault("%v was lost, and the release of the whole has succeeded", t)
		}
		k.ledger.released(t, result)
	}
}
