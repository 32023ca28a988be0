package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/internal/goroutines"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/hidden"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Result is the outcome of a run.
type Result struct {
	Plan    *Plan
	Wrong   []string // the violations in the order in which they were seen
	Trace   string
	Grants  int
	Losses  int
	Shown   int           // batches of caches and statuses of presence nodes
	Batches int           // multis in which writes of contenders have left
	Moves   []int         // to other servers, by client
	Longest time.Duration // the longest wait of a caller that could have been granted
	Moments []Seen        // of a staged plan, in order
	Struck  []Fault       // what has happened, in order

	resources []*resource
}

// Run runs a plan in its own bubble and returns what was wrong with it. Like
// synctest.Test, it must be called outside of a bubble.
func Run(t *testing.T, p *Plan) (r *Result) {
	w := &world{plan: p, dir: t.TempDir()}
	defer func() {
		// Goroutines are left, or wait for each other forever.
		if v := recover(); v != nil {
			w.ledger.fault("the bubble does not end: %v\n%s", v, strings.Join(goroutines.In(w.bubble), "\n\n"))
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
		Batches: w.batches, Moves: slices.Clone(w.moves), Shown: w.shown, Longest: l.longest, Moments: w.moments.seen, Struck: w.hit,
	}
	for _, path := range w.paths {
		r.resources = append(r.resources, l.resources[path])
	}
	return r
}

// Judge has porcupine judge the histories of a finished run. It writes pictures
// of those that have no explanation to a directory. It must not be called in a
// bubble.
func (r *Result) Judge(pictures string) {
	for _, res := range r.resources {
		limit := 0
		if r.Plan.Recipe == Semaphore {
			limit = r.Plan.Limit
		}
		if err := res.judge(limit, pictures); err != nil {
			r.Wrong = append(r.Wrong, judge.Mark+err.Error())
		}
	}
}

// world is a run in progress.
type world struct {
	plan      *Plan
	dir       string        // of snapshots
	bubble    string        // its name in stacks
	begun     atomic.Bool   // its clients and resources exist: reports take time
	ending    chan struct{} // closed: everything is being closed
	ens       *testutil.Embedded
	ledger    *ledger
	paths     []string
	clients   []*framework.Client
	shared    map[int]*leader.Election // by client, where its goroutines share one
	nets      []*testutil.ClientNet
	named     []*named           // by client; none if the plan has no names
	elsewhere *testutil.Embedded // nil, too, then
	operator  *framework.Client  // nil if it has nothing to do
	batches   int                // guarded by mu
	guardians []*guardian
	moves     []int // to other servers, by client; guarded by mu
	truth     *truth

	copied *testutil.Snapshot // guarded by mu
	buried map[int64]bool     // sessions that a rebuild has ended, or whose clients are told so; guarded by mu

	mu        sync.Mutex // guards what follows
	sessions  map[int64]int
	rules     []*rule
	leavers   map[who]*leaver
	armed     map[*Fault]bool
	dead      map[int]bool    // clients that are closed or killed
	deaf      map[string]bool // znodes that are not removed: see writtenUnheard
	troubled  map[int]bool    // members in trouble
	stuck     map[int]bool    // clients a move of which has failed
	exMembers map[int]bool    // members that others have replaced
	playing   bool            // the workers work: what happens is recorded, and strikes
	moments   moments
	orphans   map[orphan]bool
	late      map[int64]bool // sessions of which a request was delayed
	pending   []Fault        // whose moment has not come
	hit       []Fault        // what has happened
	lasting   int            // faults that have not ended
	delays    []*delay
	cuts      map[int]*[2]int // by client: how many cut requests, and answers
	besides   map[*Fault]bool // what connections beside those of sessions suffer
	vary      *rand.Rand      // nil: nobody lets others go first
	calling   map[who]func()  // ends the call of a worker
	ended     map[who]bool    // workers whose call was ended by a fault

	demands   []*demand
	followers []*follower
	standers  []*stander
	staying   []stayer // what workers keep until all is quiet
	sets      int      // how many different data were set
	calls     []*counted
	parties   []*member
	gates     []*passage
	shown     int
}

func (w *world) run() {
	p := w.plan
	w.bubble = goroutines.Bubble()
	opts := []testutil.Option{
		testutil.InMemory(), testutil.WithMembers(p.Members), testutil.WithTick(p.Tick), testutil.WithContainerInterval(p.Reap),
	}
	opts = append(opts, p.options(&w.begun)...)
	if p.Tracking != nil {
		opts = append(opts, testutil.WithReconfig())
	}
	if p.Recipe.logged() {
		w.truth = &truth{states: map[string][]znode{}}
		opts = append(opts, hidden.WithCommits(w.truth.commit))
	}
	var behind *behind
	if p.Recipe.isExclusive() {
		behind = newBehind()
		opts = append(opts, hidden.WithCommits(behind.commit))
	}
	if p.Rates != nil {
		opts = append(opts, hidden.WithClockRates(func(session int64) float64 { return p.Rates[int(session%int64(len(p.Rates)))] }))
	}
	w.ledger = &ledger{plan: p, behind: behind, limit: p.Limit, begin: time.Now(), resources: map[string]*resource{}, expired: map[int64]bool{}, owned: map[string]int64{}, closed: map[int]bool{}, killed: map[int]bool{}, closedFor: map[int]bool{}, removed: map[string]removal{}, clients: map[int64]int{}}
	w.sessions, w.dead, w.troubled, w.leavers, w.armed = map[int64]int{}, map[int]bool{}, map[int]bool{}, map[who]*leaver{}, map[*Fault]bool{}
	w.moves, w.stuck = make([]int, len(p.Workers)), map[int]bool{}
	w.shared, w.ending = map[int]*leader.Election{}, make(chan struct{})
	w.orphans, w.late, w.deaf, w.exMembers = map[orphan]bool{}, map[int64]bool{}, map[string]bool{}, map[int]bool{}
	w.calling, w.ended, w.moments = map[who]func(){}, map[who]bool{}, moments{counts: map[Moment]int{}}
	w.pending, w.cuts, w.besides, w.buried = slices.Clone(p.Faults), map[int]*[2]int{}, map[*Fault]bool{}, map[int64]bool{}
	if p.Vary > 0 {
		w.vary = rand.New(rand.NewPCG(p.Vary, 0))
	}
	defer clock.Reset()
	ens, err := testutil.New(opts...)
	if err != nil {
		w.ledger.fault("no ensemble: %v", err)
		return
	}
	w.ens, w.ledger.ens = ens, ens
	defer w.end()
	if !p.Staged { // its clients have a latency each
		ens.Latency(p.Latency)
	}
	if err := w.build(); err != nil {
		w.ledger.fault("no world: %v", err)
		return
	}
	w.begun.Store(true)
	defer ens.Control(w.control)()
	w.play()
}

// build connects the clients and creates the resources.
func (w *world) build() error {
	p := w.plan
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pauses := retry.Exponential(20*time.Millisecond, 300*time.Millisecond, 1<<30)
	servers := w.ens.Servers()
	if p.Named {
		var err error
		if servers, err = w.names(ctx); err != nil {
			return err
		}
	}
	for i := range p.Workers {
		net := w.ens.ClientNet(fmt.Sprint(i))
		if p.Staged {
			p.apart(i, net)
		}
		opts := []framework.Option{
			framework.WithDialer(w.beside(i, net.Dial)), framework.WithSessionTimeout(p.Timeout),
			framework.WithProof(p.Proof), framework.WithErrorPolicy(p.Policy), framework.WithBatching(!p.Alone),
			framework.WithObserver(framework.Observer{
				StateChanged: func(s framework.StateChange) { w.changed(i, s) },
				RequestEnd: func(_ context.Context, r framework.Request, result framework.RequestResult) {
					w.asked(i, r.Op, result.Err)
				},
				Batched: func(framework.Batch) { w.batched() },
				Moved:   func(m framework.Move) { w.moved(i, m) },
			}),
		}
		opts = append(opts, p.clientOptions()...)
		opts = append(opts, w.guarded(i)...)
		if p.tracks(i) {
			opts = append(opts, framework.WithEnsembleTracking())
		}
		var self atomic.Pointer[framework.Client]
		if p.Observers != NoMore {
			opts = append(opts, w.observer(&self))
		}
		switch {
		case p.Staged:
			opts = append(opts, framework.WithRetry(retry.Forever(50*time.Millisecond)), framework.WithDialer(w.beside(i, w.tapped(i, net))))
		case p.Endless:
			opts = append(opts, framework.WithRetry(pauses))
		case p.Brief:
			opts = append(opts, framework.WithRetry(retry.NTimes(2, 50*time.Millisecond)))
		}
		if p.Named {
			opts = append(opts, framework.WithResolver(w.named[i].Resolver()), framework.WithDialer(w.named[i].dial))
		}
		given := servers
		if p.Staged && !p.Named {
			given = rotated(servers, i)
		}
		c, err := p.view(i).New(given, opts...)
		if err != nil {
			return err
		}
		self.Store(c)
		w.clients, w.nets = append(w.clients, c), append(w.nets, net)
		if p.Staged { // the sessions' ids are in the clients' order
			if err := c.WaitConnected(ctx); err != nil {
				return err
			}
		}
	}
	if err := w.operate(); err != nil {
		return err
	}
	if p.Staged {
		if err := w.operator.WaitConnected(ctx); err != nil {
			return err
		}
	}
	for _, c := range w.clients {
		if err := c.WaitConnected(ctx); err != nil {
			return err
		}
	}
	if err := w.prepare(ctx); err != nil {
		return err
	}
	for i, path := range p.paths() {
		r := &resource{path: path, dirs: p.dirs(path), data: p.data(i), waiting: map[who]want{}, ended: map[int]time.Time{}}
		if p.Recipe == Semaphore {
			r.limit = p.mostPermits()
		}
		w.ledger.resources[path], w.paths = r, append(w.paths, path)
	}
	return nil
}

// paths returns the paths of the resources at the ensemble.
func (p *Plan) paths() []string {
	switch p.Recipe {
	case Keyed, All:
		return []string{p.keys() + "/a", p.keys() + "/b"}
	case Many:
		var paths []string
		for _, key := range manyKeys {
			paths = append(paths, p.keys()+"/"+key)
		}
		return paths
	case Cache, Presence:
		return []string{p.base() + p.long("/nodes")}
	case Counter, Once:
		return []string{p.base() + "/number"}
	case Barrier:
		return []string{p.base() + "/barrier"}
	case Discovery:
		return []string{p.base() + "/services"}
	}
	return []string{p.base() + p.long("/lock")}
}

// keys is the directory of the keys.
func (p *Plan) keys() string { return p.base() + p.long("/locks") }

// mostPermits is the greatest limit that a semaphore ever has.
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

// apart gives a client its own latency, so that two clients rarely do something
// at the same instant: what would happen first then is up to Go's scheduler.
func (p *Plan) apart(client int, net *testutil.ClientNet) {
	d := p.Latency + time.Duration(client)*p.Latency/7
	net.Latency(d, d+p.Latency/13)
}

// rotated returns a list from its n-th server on. A client of a staged plan
// calls the servers in their order, and not all call the same one first.
func rotated(servers string, n int) string {
	all := strings.Split(servers, ",")
	n %= len(all)
	return strings.Join(slices.Concat(all[n:], all[:n]), ",")
}

// belongs notes whose session it is.
func (w *world) belongs(session int64, client int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessions[session] = client
}

func (w *world) changed(client int, s framework.StateChange) {
	if s.Session != 0 { // what is owned by 0 is persistent
		w.belongs(s.Session, client)
	}
	w.ledger.client(client, s)
}

// patience is how long all waiters may take to be granted after the last fault.
const patience = 20 * time.Minute

// play starts the workers and the faults, and waits until all have ended.
func (w *world) play() {
	w.copies()
	above := w.above()
	stopEnds := sync.OnceFunc(w.ends())
	defer stopEnds()
	var working sync.WaitGroup
	pending := make(map[who]bool) // guarded by w.mu
	for c, client := range w.plan.Workers {
		for g := range client {
			pending[who{c, g}] = true
		}
	}
	w.mu.Lock()
	w.playing = w.plan.Staged
	w.mu.Unlock()
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
	for _, tick := range w.plan.ticks() {
		beside.Go(func() { w.watch(tick, watching) })
	}
	if w.plan.Scenario.quiet() {
		w.ledger.settle(0)
	}
	beside.Go(func() { w.runFaults(watching) })
	if p := w.plan; p.Recipe.watches() {
		beside.Go(func() { w.stale(watching) })
	}
	w.await(over, pending)
	w.mu.Lock()
	w.playing = false
	w.mu.Unlock()
	close(watching)
	beside.Wait()
	w.heal() // a fault may outlast the workers
	w.endStranded()
	w.quietly(stopEnds)
	w.makeContainers()
	w.leftovers()
	w.unwatched(above)
	above.Close()
	w.goroutines()
	if w.plan.Scenario == Rush {
		w.herd()
	}
}

// watch checks what clients believe directly after each time at which sessions
// expire.
func (w *world) watch(tick time.Duration, stop <-chan struct{}) {
	// The ensemble's clock began with the bubble, as did the ledger's.
	for next := tick; ; next += tick {
		select {
		case <-time.After(time.Until(w.ledger.begin.Add(next + 1))):
			w.ledger.look()
		case <-stop:
			return
		}
	}
}

// await waits for the workers: first for those whose clients live, then for the
// others.
func (w *world) await(over <-chan struct{}, pending map[who]bool) {
	limit := max(patience, 200*w.plan.Timeout) // what many do one after the other may take that long
	deadline := time.After(limit)
	buried := false
	for {
		select {
		case <-over:
			return
		case <-time.After(2 * time.Second):
			if !buried && len(w.living(pending)) == 0 {
				buried = true
				w.closeKilled()
			}
		case <-deadline:
			w.ledger.fault("%v have not ended in %v:\n%s", w.living(pending), limit, w.ens.Tree())
			return
		}
	}
}

// living returns the workers that have not ended and whose clients live.
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

// closeKilled closes the clients whose processes were killed. What waits in
// them may fail.
func (w *world) closeKilled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.dead {
		w.ledger.close(i)
		go w.clients[i].Close()
	}
}

// leftovers returns what is left when no caller wants anything.
func (w *world) leftovers() {
	// A request that was given up may still arrive, and the library looks for
	// its znode at growing intervals.
	for end := time.Now().Add(100 * w.plan.Timeout); ; {
		time.Sleep(2 * time.Second)
		synctest.Wait()
		left := w.left()
		if left == "" {
			return
		}
		if time.Now().After(end) || w.plan.Scenario.quiet() {
			w.ledger.fault("left: %s\n%s", left, w.ens.Tree())
			return
		}
		time.Sleep(w.plan.Timeout)
	}
}

func (w *world) left() string {
	for _, r := range w.ledger.resources {
		for _, dir := range r.dirs {
			if w.plan.Recipe == Cache { // what was put there stays
				break
			}
			if names := w.ens.Children(dir); len(names) > 0 {
				return fmt.Sprintf("%v in %s", names, dir)
			}
		}
	}
	if path := w.plan.whole().Outside(w.ens); path != "" {
		return path + ", where no view leads"
	}
	return ""
}

// goroutines checks now and then that a recipe has not left goroutines behind
// while its client lives. At the end the bubble checks the rest.
func (w *world) goroutines() {
	w.mu.Lock()
	dead := len(w.dead)
	w.mu.Unlock()
	if w.plan.Seed%8 > 0 || dead > 0 {
		return
	}
	// What removes a znode that is gone already waits for a connection to learn
	// of that.
	var stacks []string
	bound := max(2*w.plan.Timeout, w.plan.guards())
	pause := w.plan.Timeout / 4 // it grows: a look at all stacks takes longer than all the rest
	for end := time.Now().Add(bound); time.Now().Before(end); pause += pause / 2 {
		if stacks = busy(); len(stacks) == 0 {
			return
		}
		time.Sleep(pause)
	}
	w.ledger.fault("%d goroutines are left:\n%s", len(stacks), strings.Join(stacks, "\n\n"))
}

// herd checks that a release wakes one waiter, or those that may go on: each
// waiter that wakes lists the directory again. A rush of six that all woke each
// other would exceed the limit.
func (w *world) herd() {
	l := w.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := w.ens.Requests()
	lists := counts[testutil.OpGetChildren] + counts[testutil.OpGetChildren2]
	most := 3 // one with the create, one when it is first, and a spare one
	if w.plan.Recipe == Semaphore {
		most = 8 // the permits too, and twice where there is no room
	}
	most *= l.grants
	// Where round trips are long, so is the rush: waiters look again about every
	// T, and a holder every T/4.
	if least, _ := w.plan.granted(); 2*w.plan.Latency > least/50 {
		most += int((time.Duration(len(w.clients)) + 4) * time.Since(l.begin) / least)
	}
	if lists > most {
		l.wrongLocked("%d lists for %d grants", lists, l.grants)
	}
}

// end closes everything. The bubble checks that nothing goes on after it.
func (w *world) end() {
	w.heal()
	close(w.ending)
	var closing sync.WaitGroup
	if w.operator != nil {
		closing.Go(func() { _ = w.operator.Close() }) // it has nothing to lose
	}
	// Everybody can delete what he has made, in the time that a Close takes, and
	// no operator has changed its ACL: then it is the operator's.
	tidy := !w.replaced() && max(w.plan.Latency, w.plan.Reports) < 100*time.Millisecond && !w.hasStruck(DenyCreate, DenyRead, DenyDelete)
	for i, c := range w.clients {
		tidy = tidy && c.State() == framework.Connected
		w.ledger.close(i)
		closing.Go(func() {
			if err := c.Close(); err != nil && !w.gone(i) && !w.plan.doubts(i, err) {
				w.ledger.fault("client %d does not close: %v", i, err)
			}
		})
	}
	closing.Wait()
	_, longest := w.plan.granted()
	time.Sleep(3 * longest)
	if left := w.ens.Sessions(); len(left) > 0 {
		w.ledger.fault("sessions left: %v", left)
	}
	if left := w.ens.Watches(); len(left) > 0 {
		w.ledger.fault("watches left: %v", left)
	}
	probes := w.plan.base() + probe
	left := slices.DeleteFunc(bubble.Unused(w.ens), func(path string) bool { return strings.HasPrefix(path, probes) })
	if tidy && len(left) > 0 {
		w.ledger.fault("containers that never had a child are left: %v", left)
	}
	if err := w.ens.Close(); err != nil {
		w.ledger.fault("%v", err)
	}
	if w.elsewhere != nil {
		if left := w.elsewhere.Sessions(); len(left) > 0 {
			w.ledger.fault("sessions left in another ensemble: %v", left)
		}
		if err := w.elsewhere.Close(); err != nil {
			w.ledger.fault("%v", err)
		}
	}
	w.ledger.finish()
	if len(w.paths) == 0 { // there was no world
		return
	}
	switch w.plan.Recipe {
	case Presence, Discovery:
		w.strangers()
	case Counter, Once:
		w.reckon()
	case Barrier:
		w.rounds()
	}
}

func (w *world) gone(client int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead[client]
}

// expected reports whether a call may fail with this error while faults happen.
func (w *world) expected(err error) bool {
	if w.plan.Scenario.quiet() {
		return false
	}
	if w.allowed(err) {
		return true
	}
	if errors.Is(err, framework.ErrUnproven) && strings.Contains(err.Error(), "a round trip to the leader takes") {
		return true // Prove has an end, whatever the retry policy says
	}
	for _, e := range []error{zk.ErrNoServer, zk.ErrConnectionClosed, framework.ErrSessionLost} { // the error of the last try
		if errors.Is(err, e) {
			return !w.plan.Endless
		}
	}
	if !w.plan.Endless && strings.Contains(err.Error(), " (code -") { // refused until the retries were used up
		return true
	}
	return errors.Is(err, framework.ErrUnproven) || errors.Is(err, framework.ErrNoSession) || errors.Is(err, recipes.ErrNotHeld)
}
