package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Result is what came of a run.
type Result struct {
	Plan    *Plan
	Wrong   []string // nothing, or the violations in the order in which they were seen
	Trace   string
	Grants  int
	Losses  int
	Faults  int           // that have happened
	Longest time.Duration // that anybody waited for nothing

	resources []*resource
}

// Run plays a plan in a bubble of its own and says what was wrong with it. Like
// synctest.Test it must be called outside of one.
func Run(t *testing.T, p *Plan) (r *Result) {
	w := &world{plan: p}
	defer func() {
		// Goroutines that are left, or wait for each other for ever.
		if v := recover(); v != nil {
			w.ledger.fault("the bubble does not end: %v\n%s", v, strings.Join(bubble.Stacks(w.bubble), "\n\n"))
			r = w.result()
		}
	}()
	synctest.Test(t, func(*testing.T) { w.run() })
	return w.result()
}

func (w *world) result() *Result {
	l := w.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &Result{
		Plan: w.plan, Wrong: l.wrong, Trace: strings.Join(l.trace, "\n"), Grants: l.grants, Losses: l.losses,
		Faults: w.happened, Longest: l.longest,
	}
	for _, path := range w.paths {
		r.resources = append(r.resources, l.resources[path])
	}
	return r
}

// Judge has porcupine judge the histories of a run that is over, and puts pictures of
// those that it cannot explain into a directory. It must not be called in a bubble.
func (r *Result) Judge(pictures string) {
	for _, res := range r.resources {
		limit := 0
		if r.Plan.Recipe == Semaphore {
			limit = r.Plan.Limit
		}
		if err := res.judge(limit, pictures); err != nil {
			r.Wrong = append(r.Wrong, err.Error())
		}
	}
}

// world is a run.
type world struct {
	plan     *Plan
	bubble   string // its name in stacks
	ens      *testutil.Embedded
	ledger   *ledger
	paths    []string
	clients  []*framework.Client
	nets     []*testutil.ClientNet
	operator *framework.Client // nil: it has nothing to do
	happened int

	mu       sync.Mutex // guards what follows
	sessions map[int64]int
	rules    []*rule
	leavers  map[who]*leaver
	armed    map[*Fault]func(client int)
	dead     map[int]bool // clients that are closed, or killed
	troubled map[int]bool // members
}

func (w *world) run() {
	p := w.plan
	w.bubble = bubble.Name()
	opts := []testutil.Option{
		testutil.InMemory(), testutil.WithMembers(p.Members), testutil.WithTick(p.Tick), testutil.WithContainerInterval(p.Reap),
		testutil.WithSyncLimit(int(3 * p.Timeout / p.Tick)), // members go on answering for longer than sessions last
	}
	if p.Rates != nil {
		opts = append(opts, testutil.WithClockRates(func(session int64) float64 { return p.Rates[int(session%int64(len(p.Rates)))] }))
	}
	w.ledger = &ledger{plan: p, limit: p.Limit, begin: time.Now(), resources: map[string]*resource{}, expired: map[int64]bool{}, closed: map[int]bool{}, killed: map[int]bool{}, clients: map[int64]int{}}
	w.sessions, w.dead, w.troubled, w.leavers, w.armed = map[int64]int{}, map[int]bool{}, map[int]bool{}, map[who]*leaver{}, map[*Fault]func(int){}
	ens, err := testutil.New(opts...)
	if err != nil {
		w.ledger.fault("no ensemble: %v", err)
		return
	}
	w.ens, w.ledger.ens = ens, ens
	defer w.end()
	if err := w.build(); err != nil {
		w.ledger.fault("no world: %v", err)
		return
	}
	ens.Latency(p.Latency)
	defer ens.Control(w.control)()
	w.play()
}

// build connects the clients and makes the resources.
func (w *world) build() error {
	p := w.plan
	pauses := retry.Exponential(20*time.Millisecond, 300*time.Millisecond, 1<<30)
	for i := range p.Workers {
		net := w.ens.ClientNet(fmt.Sprint(i))
		opts := []framework.Option{
			framework.WithDialer(net.Dial), framework.WithSessionTimeout(p.Timeout),
			framework.WithProof(p.Proof), framework.WithErrorPolicy(p.Policy),
			framework.WithObserver(framework.Observer{
				StateChanged: func(s framework.StateChange) { w.changed(i, s) },
				Request:      func(op string, _ time.Duration, err error) { w.asked(i, op, err) },
			}),
		}
		switch {
		case p.Endless:
			opts = append(opts, framework.WithRetry(pauses))
		case p.Brief:
			opts = append(opts, framework.WithRetry(retry.NTimes(2, 50*time.Millisecond)))
		}
		c, err := p.view(i).New(w.ens.Servers(), opts...)
		if err != nil {
			return err
		}
		w.clients, w.nets = append(w.clients, c), append(w.nets, net)
	}
	if err := w.operate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range w.clients {
		if err := c.WaitConnected(ctx); err != nil {
			return err
		}
	}
	if err := w.prepare(ctx); err != nil {
		return err
	}
	for i, path := range p.paths() {
		r := &resource{path: path, dirs: []string{path}, data: p.data(i), waiting: map[who]want{}, ended: map[int]time.Time{}}
		if p.Recipe == Semaphore {
			r.dirs = []string{path + "/locks", path + "/leases"}
			r.limit = p.mostPermits()
		}
		w.ledger.resources[path], w.paths = r, append(w.paths, path)
	}
	return nil
}

// paths are those of what is contended for, at the ensemble.
func (p *Plan) paths() []string {
	switch p.Recipe {
	case Keyed, All:
		return []string{p.base() + "/locks/a", p.base() + "/locks/b"}
	}
	return []string{p.base() + "/lock"}
}

// mostPermits is the greatest limit that there ever is.
func (p *Plan) mostPermits() int {
	most := p.Limit
	for _, client := range p.Workers {
		for _, steps := range client {
			for _, s := range steps {
				most = max(most, s.SetMax)
			}
		}
	}
	return most
}

func (w *world) changed(client int, s framework.StateChange) {
	w.mu.Lock()
	w.sessions[s.Session] = client
	w.mu.Unlock()
	w.ledger.client(client, s)
}

// patience is how long everybody may take to be granted when all faults are over.
const patience = 20 * time.Minute

// play has the workers work and the faults happen, and waits until all are over.
func (w *world) play() {
	var working sync.WaitGroup
	pending := make(map[who]bool) // guarded by w.mu
	for c, client := range w.plan.Workers {
		for g := range client {
			pending[who{c, g}] = true
		}
	}
	for c, client := range w.plan.Workers {
		for g, steps := range client {
			k := newWorker(w, who{c, g})
			working.Go(func() {
				for _, s := range steps {
					if !k.step(s) {
						break
					}
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				delete(pending, k.who)
			})
		}
	}
	over := make(chan struct{})
	go func() {
		working.Wait()
		close(over)
	}()
	watching := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() { w.watch(watching) })
	if w.plan.Storm.quiet() {
		w.ledger.settle(0)
	}
	beside.Go(w.weather)
	w.await(over, pending)
	close(watching)
	beside.Wait()
	w.leftovers()
	w.goroutines()
	if w.plan.Storm == Rush {
		w.herd()
	}
}

// watch looks at what is believed directly after each time at which sessions expire.
func (w *world) watch(stop <-chan struct{}) {
	// The ensemble's clock began with the bubble, as did the ledger's.
	for next := w.plan.Tick; ; next += w.plan.Tick {
		select {
		case <-time.After(time.Until(w.ledger.begin.Add(next + 1))):
			w.ledger.look()
		case <-stop:
			return
		}
	}
}

// await waits for the workers: for those whose clients live, and then for the others.
func (w *world) await(over <-chan struct{}, pending map[who]bool) {
	deadline := time.After(patience)
	buried := false
	for {
		select {
		case <-over:
			return
		case <-time.After(2 * time.Second):
			if !buried && len(w.living(pending)) == 0 {
				buried = true
				w.bury()
			}
		case <-deadline:
			w.ledger.fault("%v have not ended in %v:\n%s", w.living(pending), patience, w.ens.Tree())
			return
		}
	}
}

// living are those who work still, and whose clients live.
func (w *world) living(pending map[who]bool) (all []who) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range pending {
		if !w.dead[k.client] {
			all = append(all, k)
		}
	}
	return all
}

// bury closes the clients whose processes were killed: what waits in them is no loss.
func (w *world) bury() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.dead {
		w.ledger.close(i)
		go w.clients[i].Close()
	}
}

// leftovers looks for what should not be there any more when nobody wants anything.
func (w *world) leftovers() {
	// What was given up for lost may come late, and is hunted at growing intervals.
	for end := time.Now().Add(100 * w.plan.Timeout); ; {
		time.Sleep(2 * time.Second)
		synctest.Wait()
		left := w.left()
		if left == "" {
			return
		}
		if time.Now().After(end) || w.plan.Storm.quiet() {
			w.ledger.fault("left: %s\n%s", left, w.ens.Tree())
			return
		}
		time.Sleep(w.plan.Timeout)
	}
}

func (w *world) left() string {
	for _, r := range w.ledger.resources {
		for _, dir := range r.dirs {
			if names := w.ens.Children(dir); len(names) > 0 {
				return fmt.Sprintf("%v in %s", names, dir)
			}
		}
	}
	for path, n := range w.ens.Watches() {
		if strings.Contains(path, "_c_") {
			return fmt.Sprintf("%d watches of %s", n, path)
		}
	}
	if path := w.plan.whole().Outside(w.ens); path != "" {
		return path + ", where no view leads"
	}
	return ""
}

// goroutines looks, now and then, for those that a recipe has left behind while its
// client lives: at the end the bubble sees the rest.
func (w *world) goroutines() {
	w.mu.Lock()
	dead := len(w.dead)
	w.mu.Unlock()
	if w.plan.Seed%8 > 0 || dead > 0 {
		return
	}
	if stacks := busy(); len(stacks) > 0 {
		w.ledger.fault("%d goroutines are left:\n%s", len(stacks), strings.Join(stacks, "\n\n"))
	}
}

// herd checks that a release wakes one, or those who may go on: whoever is woken
// lists the line again. In a rush of six, who would all wake each other, that shows.
func (w *world) herd() {
	l := w.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := w.ens.Requests()
	lists := counts[testutil.OpGetChildren] + counts[testutil.OpGetChildren2]
	most := 3 // the first with the create, one when its turn comes, and a spare one
	if w.plan.Recipe == Semaphore {
		most = 8 // the permits too, and twice where there is no room
	}
	if lists > most*l.grants {
		l.wrongLocked("%d lists for %d grants", lists, l.grants)
	}
}

// end closes everything; the bubble itself sees what goes on after that.
func (w *world) end() {
	w.heal()
	var closing sync.WaitGroup
	if w.operator != nil {
		closing.Go(func() { _ = w.operator.Close() }) // it has nothing to lose
	}
	for i, c := range w.clients {
		w.ledger.close(i)
		closing.Go(func() {
			if err := c.Close(); err != nil && !w.gone(i) {
				w.ledger.fault("client %d does not close: %v", i, err)
			}
		})
	}
	closing.Wait()
	time.Sleep(3 * w.plan.Timeout)
	if left := w.ens.Sessions(); len(left) > 0 {
		w.ledger.fault("sessions left: %v", left)
	}
	if left := w.ens.Watches(); len(left) > 0 {
		w.ledger.fault("watches left: %v", left)
	}
	if err := w.ens.Close(); err != nil {
		w.ledger.fault("%v", err)
	}
	w.ledger.finish()
}

func (w *world) gone(client int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead[client]
}

// expected reports whether what failed may fail so while things go wrong.
func (w *world) expected(err error) bool {
	if w.plan.Storm.quiet() {
		return false
	}
	for _, e := range []error{zk.ErrNoServer, zk.ErrConnectionClosed, framework.ErrSessionLost} { // the last try ran into
		if errors.Is(err, e) {
			return !w.plan.Endless
		}
	}
	if !w.plan.Endless && strings.Contains(err.Error(), " (code -") { // refused until no try was left
		return true
	}
	return errors.Is(err, framework.ErrNoSession) || errors.Is(err, recipes.ErrNotHeld)
}
