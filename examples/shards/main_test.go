package main

import (
	"flag"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The command as a user runs it.
func TestExample(t *testing.T) {
	ens := testutil.Start(t, testutil.WithMembers(3))
	var out strings.Builder
	if err := run(t.Context(), ens.Servers(), &out); err != nil {
		t.Fatal(err)
	}
	const want = `shards of each member: map[a:4 b:4 c:4]
shards of each member: map[b:6 c:6]
`
	if out.String() != want {
		t.Errorf("it printed\n%s", out.String())
	}
	if left := ens.Children(basePath + "/members"); len(left) > 0 {
		judge.Errorf(t, "left: %v", left)
	}
}

// In virtual time: a member that is killed, stopped past its deadline or cut
// off, the one that leads as well, costs its shards two session timeouts at
// most, and the others nothing. Only one that was stopped comes late with a
// token, and the store refuses it.
func TestMembersFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t)
		w.scenario()
		for id, n := range w.refused() {
			if !w.wasStopped[id] {
				t.Errorf("%s was not stopped, and %d of its writes came late", id, n)
			}
		}
		if len(w.refused()) == 0 {
			t.Error("no write came late: nobody needs the tokens")
		}
	})
}

// The same on real servers. It needs ZKR_REAL=1 and Apache ZooKeeper.
func TestOnRealServers(t *testing.T) {
	newWorld(t, apache.Start(t, 3), 4*time.Second).scenario()
}

var seed = flag.Uint64("seed", 0, "of the random test; 0: a new one")

// One or two of four members at a time are killed, stopped, cut off, lose their
// session or their connection, and answers to writes are lost. Each shard is
// worked on again within two session timeouts, and in the end the members have
// the same number.
func TestRandomFaults(t *testing.T) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d", s)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(s, 0))
		w := newVirtual(t)
		var lossy atomic.Bool
		var writes atomic.Int64
		defer w.ens.(*testutil.Embedded).Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpMulti && lossy.Load() && writes.Add(1)%3 == 0 {
				return testutil.DropAfter()
			}
			return testutil.Pass()
		})()
		members := []*running{w.start("a"), w.start("b"), w.start("c"), w.start("d")}
		w.settled(members...)
		from := time.Now()
		for range 15 {
			rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
			lossy.Store(rng.IntN(3) == 0)
			var ends []func()
			for _, r := range members[:1+rng.IntN(2)] {
				switch rng.IntN(5) {
				case 0:
					r.kill()
					ends = append(ends, func() { *r = *w.start(r.id) })
				case 1:
					ends = append(ends, r.stop())
				case 2:
					ends = append(ends, r.cut())
				case 3:
					r.expire()
				case 4:
					r.drop()
				}
			}
			time.Sleep(time.Duration(rng.Int64N(int64(25 * time.Second))))
			lossy.Store(false)
			for _, end := range ends {
				end()
			}
			time.Sleep(30 * time.Second)
		}
		w.settled(members...)
		w.notLonger(from, 2*w.timeout, all()...)
		if err := audit(w.entries()); err != nil {
			judge.Errorf(t, "%v", err)
		}
	})
}

// A write of a leader that comes when another member leads changes nothing.
func TestADeposedLeaderWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t, testutil.WithMembers(1)) // of several, one refuses what another one has held back
		ens := w.ens.(*testutil.Embedded)
		first, second := w.start("a"), w.start("b")
		w.settled(first, second)
		release, held := make(chan struct{}), make(chan struct{})
		var once atomic.Bool
		defer ens.Control(func(r testutil.Request) testutil.Action {
			if r.Does(testutil.OpSetData, assignmentPath) && once.CompareAndSwap(false, true) {
				close(held)
				return testutil.Hold(release)
			}
			return testutil.Pass()
		})()
		third := w.start("c") // the leader writes that
		<-held
		w.settled(first, second, third)
		before, _ := ens.Stat(assignmentPath)
		close(release)
		time.Sleep(time.Minute)
		if after, _ := ens.Stat(assignmentPath); after != before {
			t.Errorf("a write was executed after all: %+v, then %+v", before, after)
		}
		w.settled(first, second, third)
	})
}

// newVirtual returns a world in virtual time.
func newVirtual(t *testing.T, opts ...testutil.Option) *world {
	ens := testutil.Start(t, append([]testutil.Option{testutil.InMemory(), testutil.WithMembers(3), testutil.WithLogger(func(string, ...any) {})}, opts...)...)
	w := newWorld(t, ens, 10*time.Second)
	w.exact = true
	return w
}

// roles are what the processes of tests are.
var roles = make(map[string]func(args []string) error)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	if role := roles[os.Getenv(load.Role)]; role != nil {
		load.Main(role(os.Args[1:]))
	}
	m.Run()
}
