package acceptance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/retry"
)

// cutPermits is the limit of the semaphore on a network that is cut.
const cutPermits = 3

// cutLocks are the ledgers of a load on a network that is cut, each with the
// directories in which its contenders stand, below the load's path, and the
// goroutines of each process.
var cutLocks = []struct {
	name    string
	dirs    []string
	workers []string
}{
	{"mutex", []string{"mutex"}, []string{"mutex1", "mutex2"}},
	{"rwlock", []string{"rwlock"}, []string{"writer", "downgrader", "reader"}},
	{"semaphore", []string{"semaphore/locks", "semaphore/leases"}, []string{"permit", "permits"}},
	{"election", []string{"election"}, []string{"leader"}},
	{"first", []string{"first"}, []string{"several"}},
	{"second", []string{"second"}, []string{"several", "second"}},
	{"a", []string{"keyed/a"}, []string{"a"}},
	{"b", []string{"keyed/b"}, []string{"b"}},
	{"left", []string{"line"}, []string{"left", "both"}},
	{"right", []string{"line"}, []string{"right", "both"}},
}

// calm is the pace of a load on a network that is cut: slow enough for
// histories that can be judged, and for a cut to find somebody holding.
var calm = pace{
	work: func() time.Duration {
		if rand.IntN(16) == 0 {
			return rand.N(time.Second)
		}
		return rand.N(20 * time.Millisecond)
	},
	rest: func() time.Duration { return rand.N(150 * time.Millisecond) },
}

// cutParty is one process of a load on a network that is cut.
type cutParty struct {
	client   *framework.Client
	dir      string
	path     string
	workers  []worker
	leads    worker
	election *leader.Election
	figures  *figures
}

// cutLoad is the main of such a process. A line of input makes it work, or rest
// if it works. It ends with its input.
func cutLoad(servers, dir, path, proof, session string) error {
	proofs := map[string]framework.Proof{"sync": framework.ProofSync, "write": framework.ProofWrite}
	timeout, err := time.ParseDuration(session)
	if err != nil {
		return err
	}
	c, err := framework.New(servers, framework.WithSessionTimeout(timeout), framework.WithStopMargin(timeout*3/10),
		framework.WithRetry(retry.Forever(100*time.Millisecond)), framework.WithProof(proofs[proof]))
	if err != nil {
		return err
	}
	defer c.Close()
	p := &cutParty{client: c, dir: dir, path: path, figures: &figures{}}
	p.hire()
	defer p.figures.watchStalls()()
	input := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	for input.Scan() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			like := worker{client: c, figures: p.figures, pace: calm, history: true}
			err := together(ctx, like, p.workers, p.leads, p.election)
			if err != nil {
				fmt.Println("failed", err)
			}
			ended <- err
		}()
		input.Scan()
		cancel()
		if err := <-ended; err != nil {
			return err
		}
		fmt.Println("rests")
	}
	text, err := json.Marshal(p.figures)
	fmt.Println("figures", string(text))
	return err
}

// watchStalls notes the longest time for which this process was not run, until
// stop is called. Who stalls for longer than the stop margin holds too long.
func (f *figures) watchStalls() (stop func()) {
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
			f.note(func(f *figures) { f.Stall = max(f.Stall, stall) })
			last = time.Now()
		}
	}()
	return func() {
		ticker.Stop()
		close(done)
		<-ended
	}
}

// at returns the places with these names.
func (p *cutParty) at(names ...string) []place {
	var places []place
	for _, name := range names {
		places = append(places, place{ledger(filepath.Join(p.dir, name)), resource(p.path + "/" + name)})
	}
	return places
}

func (p *cutParty) who(name string) string { return strconv.Itoa(os.Getpid()) + "." + name }

// hire makes the workers of all recipes.
func (p *cutParty) hire() {
	mutex := func(name string) *locks.Mutex { return must(locks.NewMutex(p.client, p.path+"/"+name)) }
	rw := must(rwlock.New(p.client, p.path+"/rwlock"))
	sem := must(semaphore.New(p.client, p.path+"/semaphore", cutPermits))
	keyed := must(locks.NewKeyed(p.client, p.path+"/keyed"))
	line := func(name string) *recipes.Line {
		return must(recipes.NewLine(p.client, p.path+"/line", "sides.v1", name, sidesMeet))
	}
	add := func(name, mode string, lock recipes.Acquirer, at ...string) *worker {
		p.workers = append(p.workers, worker{places: p.at(at...), mode: mode, who: p.who(name), lock: lock})
		return &p.workers[len(p.workers)-1]
	}
	add("mutex1", exclusive, mutex("mutex"), "mutex")
	add("mutex2", exclusive, mutex("mutex"), "mutex")
	add("writer", exclusive, rw.Writer(), "rwlock")
	add("downgrader", exclusive, rw.Writer(), "rwlock").reader = rw.Reader()
	add("reader", shared, rw.Reader(), "rwlock")
	add("permit", permit, sem, "semaphore")
	add("permits", permits2, sem.Permits(2), "semaphore")
	add("several", exclusive, must(locks.All(mutex("first"), mutex("second"))), "first", "second")
	add("second", exclusive, mutex("second"), "second")
	add("a", exclusive, keyed.Key("a"), "a")
	add("b", exclusive, keyed.Key("b"), "b")
	add("left", exclusive, line("left"), "left")
	add("right", exclusive, line("right"), "right")
	add("both", exclusive, line("both"), "left", "right")
	p.election = must(leader.New(p.client, p.path+"/election"))
	p.leads = worker{places: p.at("election"), mode: exclusive, who: p.who("leader")}
}

// sidesMeet is the rule of a line of our own: left and right conflict with
// themselves, and both with all.
func sidesMeet(mine, theirs string) bool {
	return mine == theirs || strings.Contains(mine+theirs, "both")
}

// must returns what a constructor has made of known arguments.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
