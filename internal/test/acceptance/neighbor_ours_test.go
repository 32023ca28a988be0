package acceptance_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/guardian"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func TestMain(m *testing.M) {
	if os.Getenv(load.Role) != "" {
		processMain()
	}
	if !inRing3 { // tests mostly wait; a flag overrides it
		_ = flag.Set("test.parallel", "16")
	}
	code := m.Run()
	removeClasses()
	os.Exit(code)
}

// ours is a process of ours: this test binary again.
func ours(t *testing.T, ens testutil.Ensemble) *neighbor {
	t.Helper()
	return oursWith(t, ens, guardian.Variable+"=off")
}

// oursWith is ours with more in its environment.
func oursWith(t *testing.T, ens testutil.Ensemble, env ...string) *neighbor {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command(self, ens.Servers())
	process.Env = append(append(environment(ens), load.Role+"=neighbor"), env...)
	return startNeighbor(t, "ours", process)
}

// lined is a recipe that lists the contenders of its line.
type lined interface {
	recipes.Acquirer
	Participants(context.Context) ([]recipes.Participant, error)
}

// side is one side of a read/write lock.
type side struct {
	recipes.Acquirer
	*rwlock.RWLock
}

func (s side) Path() string { return s.RWLock.Path() }

// notWaiting is what the protocol puts before the kind of a recipe whose
// release does not wait.
const notWaiting = "async-"

// newRecipe returns the recipe that the protocol calls kind.
func newRecipe(c *framework.Client, kind, path, id string) (lined, error) {
	opts := []recipes.ZnodeOption{recipes.WithData([]byte(id)).ZnodeOption}
	kind, isAsync := strings.CutPrefix(kind, notWaiting)
	if isAsync {
		opts = append(opts, recipes.WithAsyncRelease())
	}
	mutex := func(l locks.Layout) (lined, error) {
		return locks.NewMutex(c, path, with(opts, locks.WithLayout(l))...)
	}
	election := func(l leader.Layout) (lined, error) {
		return leader.New(c, path, with(opts, leader.WithLayout(l))...)
	}
	rw := func(l rwlock.Layout, of func(*rwlock.RWLock) recipes.Acquirer) (lined, error) {
		lock, err := rwlock.New(c, path, with(opts, rwlock.WithLayout(l))...)
		if err != nil {
			return nil, err
		}
		return side{of(lock), lock}, nil
	}
	switch kind {
	case "mutex":
		return mutex(locks.LayoutCurator)
	case "latch":
		return election(leader.LayoutLatch)
	case "selector":
		return election(leader.LayoutSelector)
	case "read":
		return rw(rwlock.LayoutCurator, (*rwlock.RWLock).Reader)
	case "write":
		return rw(rwlock.LayoutCurator, (*rwlock.RWLock).Writer)
	case "plain-read":
		return rw(rwlock.LayoutPlain, (*rwlock.RWLock).Reader)
	case "kazoo-lock":
		return mutex(locks.LayoutKazoo)
	case "kazoo-election":
		return election(leader.LayoutKazoo)
	case "kazoo-read":
		return rw(rwlock.LayoutKazoo, (*rwlock.RWLock).Reader)
	case "kazoo-write":
		return rw(rwlock.LayoutKazoo, (*rwlock.RWLock).Writer)
	}
	var limit int
	if _, err := fmt.Sscanf(kind, "semaphore:%d", &limit); err != nil {
		return nil, fmt.Errorf("no recipe %q", kind)
	}
	return semaphore.New(c, path, limit)
}

// with returns opt and the options that every recipe has, as options of one.
func with[O any](opts []recipes.ZnodeOption, opt O) []O {
	all := []O{opt}
	for _, o := range opts {
		all = append(all, any(o).(O))
	}
	return all
}

// serve speaks the protocol until its input ends.
func serve(servers string) {
	var mu sync.Mutex // guards standard output
	members := make(map[string]chan []string)
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		number, command := words[0], words[1:]
		if members[number] == nil {
			commands := make(chan []string, 10)
			members[number] = commands
			go func() {
				var m served
				for command := range commands {
					answer, err := m.do(servers, command)
					if err != nil {
						answer = "failed " + err.Error()
					}
					mu.Lock()
					fmt.Println(number, answer)
					mu.Unlock()
				}
			}()
		}
		members[number] <- command
	}
}

// served is a member of this process.
type served struct {
	recipe lined
	lease  *recipes.Lease
}

func (m *served) do(servers string, command []string) (answer string, err error) {
	ctx := context.Background()
	switch command[0] {
	case "open":
		opts := append(identity(os.Getenv(userVariable), os.Getenv(passwordVariable)), framework.WithSessionTimeout(timeout))
		g, err := guardian.Find()
		if err != nil {
			return "", err
		}
		if g != nil {
			opts = append(opts, g.Options()...)
		}
		c, err := framework.New(servers, opts...)
		if err != nil {
			return "", err
		}
		m.recipe, err = newRecipe(c, command[1], command[2], command[3])
		return "opened", err
	case "acquire":
		m.lease, err = m.recipe.Acquire(ctx)
		return "acquired", err
	case "release":
		return "released", m.lease.Release(ctx)
	case "participants":
		all, err := m.recipe.Participants(ctx)
		return fmt.Sprint("participants ", len(all)), err
	default:
		return "", fmt.Errorf("unknown command %q", command)
	}
}
