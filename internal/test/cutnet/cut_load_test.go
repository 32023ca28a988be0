package cutnet_test

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
	"github.com/zkrecipes/zkrecipes/internal/test/load"
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
var calm = load.Pace{
	Work: func() time.Duration {
		if rand.IntN(16) == 0 {
			return rand.N(time.Second)
		}
		return rand.N(20 * time.Millisecond)
	},
	Rest: func() time.Duration { return rand.N(150 * time.Millisecond) },
}

// cutParty is one process of a load on a network that is cut.
type cutParty struct {
	client   *framework.Client
	dir      string
	path     string
	workers  []load.Worker
	leads    load.Worker
	election *leader.Election
	figures  *load.Figures
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
	p := &cutParty{client: c, dir: dir, path: path, figures: &load.Figures{}}
	p.hire()
	defer p.figures.WatchStalls()()
	input := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	for input.Scan() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			like := load.Worker{Client: c, Figures: p.figures, Pace: calm, History: true}
			err := load.Together(ctx, like, p.workers, p.leads, p.election)
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

// at returns the places with these names.
func (p *cutParty) at(names ...string) []load.Place {
	var places []load.Place
	for _, name := range names {
		places = append(places, load.Place{Ledger: load.Ledger(filepath.Join(p.dir, name)), Resource: load.Resource(p.path + "/" + name)})
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
	add := func(name, mode string, lock recipes.Acquirer, at ...string) *load.Worker {
		p.workers = append(p.workers, load.Worker{Places: p.at(at...), Mode: mode, Who: p.who(name), Lock: lock})
		return &p.workers[len(p.workers)-1]
	}
	add("mutex1", load.Exclusive, mutex("mutex"), "mutex")
	add("mutex2", load.Exclusive, mutex("mutex"), "mutex")
	add("writer", load.Exclusive, rw.Writer(), "rwlock")
	add("downgrader", load.Exclusive, rw.Writer(), "rwlock").Reader = rw.Reader()
	add("reader", load.Shared, rw.Reader(), "rwlock")
	add("permit", load.Permit, sem, "semaphore")
	add("permits", load.Permits2, sem.Permits(2), "semaphore")
	add("several", load.Exclusive, must(locks.All(mutex("first"), mutex("second"))), "first", "second")
	add("second", load.Exclusive, mutex("second"), "second")
	add("a", load.Exclusive, keyed.Key("a"), "a")
	add("b", load.Exclusive, keyed.Key("b"), "b")
	add("left", load.Exclusive, line("left"), "left")
	add("right", load.Exclusive, line("right"), "right")
	add("both", load.Exclusive, line("both"), "left", "right")
	p.election = must(leader.New(p.client, p.path+"/election"))
	p.leads = load.Worker{Places: p.at("election"), Mode: load.Exclusive, Who: p.who("leader")}
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
