package acceptance_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// storm is an ensemble under load. Some processes and this one, each with
// several goroutines, use every recipe at once while members are killed, frozen
// and restarted. The ledgers record what they did.
type storm struct {
	testutil.Ensemble
	dir  string
	path string
}

// One member fails: it is killed, frozen past the session timeout, or cut off.
func TestAMemberFailsUnderLoad(t *testing.T) {
	underLoad(t,
		calamity{"a follower is killed", (*storm).followerKilled},
		calamity{"the leader is killed", (*storm).leaderKilled},
		calamity{"the leader stands still", (*storm).leaderStandsStill},
		calamity{"the leader is cut off from the others", (*storm).leaderCutOff},
	)
}

// Several members fail at once or one after the other, or the one in use. In
// the time without a quorum nobody holds anything.
func TestMembersFailUnderLoad(t *testing.T) {
	wholeInRing3(t)
	underLoad(t,
		calamity{"the member of a connection is killed", (*storm).memberOfAConnectionKilled},
		calamity{"all are restarted, one by one", (*storm).rollingRestart},
		calamity{"the quorum is lost", (*storm).quorumLost},
	)
}

type calamity struct {
	name   string
	strike func(s *storm, t *testing.T)
}

// underLoad checks that there are no two holders at once, that tokens are in
// order, and that every contender makes progress soon after each calamity.
func underLoad(t *testing.T, calamities ...calamity) {
	parallel(t)
	onBoth(t, 3, func(t *testing.T, ens testutil.Ensemble) {
		const processes = 2
		s := &storm{ens, t.TempDir(), "/suite/storm"}
		load.MakeResources(t, client(t, ens), s.path)
		var all []*load.Process
		for range processes {
			all = append(all, load.Start(t, "load", s.Servers(), s.dir, s.path))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := load.Run(ctx, s.Servers(), s.dir, s.path, "0", &load.Figures{}); err != nil {
				t.Error(err)
			}
		})
		s.goesOn(t)
		for _, c := range calamities {
			began := time.Now()
			t.Run(c.name, func(t *testing.T) {
				c.strike(s, t)
				s.goesOn(t)
			})
			t.Logf("%s: recovered after %v", c.name, time.Since(began).Round(time.Millisecond))
		}
		cancel()
		for _, p := range all {
			p.In.Close()
		}
		wg.Wait()
		for _, p := range all {
			p.Expect(t, "done")
		}
		watcher := client(t, ens)
		for _, name := range load.Ledgers {
			load.Ledger(filepath.Join(s.dir, name)).Acceptable(t, load.Permits, 100)
			path := s.path + "/" + name
			if name == "semaphore" {
				nothingLeft(t, watcher, path+"/leases")
				path += "/locks"
			}
			nothingLeft(t, watcher, path)
		}
	})
}

// goesOn waits until every lock has been granted several more times.
func (s *storm) goesOn(t *testing.T) {
	t.Helper()
	s.grants(t, 20)
}

// grants waits until every lock has been granted so many more times.
func (s *storm) grants(t *testing.T, more int) {
	t.Helper()
	for _, name := range load.Ledgers {
		l := load.Ledger(filepath.Join(s.dir, name))
		before := l.Grants(t)
		bubble.AwaitTrue(t, name+" is granted again", func() bool { return l.Grants(t) >= before+more })
	}
}

// killed kills a member, and restarts it when the load has made progress
// without it.
func (s *storm) killed(t *testing.T, member int) {
	t.Helper()
	if err := s.Stop(member); err != nil {
		t.Fatal(err)
	}
	s.goesOn(t)
	s.back(t, member)
}

func (s *storm) back(t *testing.T, members ...int) {
	t.Helper()
	for _, m := range members {
		if err := s.Restart(m); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), load.Patience)
	defer cancel()
	if err := s.WaitServing(ctx); err != nil {
		t.Fatal(err)
	}
}

func (s *storm) followerKilled(t *testing.T) { s.killed(t, (load.Leading(t, s)+1)%s.Members()) }
func (s *storm) leaderKilled(t *testing.T)   { s.killed(t, load.Leading(t, s)) }

// The member that a holder is connected to is killed. The holder keeps its
// lease on another member.
func (s *storm) memberOfAConnectionKilled(t *testing.T) {
	net := s.ClientNet("one who holds")
	var member atomic.Int32
	defer net.Control(func(r testutil.Request) testutil.Action {
		member.Store(int32(r.Member))
		return testutil.Pass()
	})()
	// Long enough for an election on a busy machine: the lease must not be
	// lost.
	c, err := framework.New(s.Servers(), framework.WithDialer(net.Dial), framework.WithSessionTimeout(20*time.Second),
		framework.WithRetry(retry.Forever(100*time.Millisecond)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m, err := locks.NewMutex(c, s.path+"/held")
	if err != nil {
		t.Fatal(err)
	}
	held := acquire(t, t.Context(), m)
	at := int(member.Load())
	if err := s.Stop(at); err != nil {
		t.Fatal(err)
	}
	s.goesOn(t)
	// A member that is catching up may not answer a connect, so the holder uses
	// the other members until it does.
	if err := c.Sync(t.Context(), m.Path()); err != nil {
		t.Error(err)
	}
	if now := int(member.Load()); now == at {
		t.Errorf("the holder is still at member %d, which was killed", now)
	}
	s.back(t, at)
	release(t, held) // held all the time
}

// A leader is frozen past the session timeout. The others elect another, and
// holders at the old one have given up before another contender was granted.
func (s *storm) leaderStandsStill(t *testing.T) {
	leader := load.Leading(t, s)
	if err := s.Pause(leader); errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	frozen := time.Now()
	s.goesOn(t)
	time.Sleep(time.Until(frozen.Add(load.Session + time.Second)))
	if err := s.Resume(leader); err != nil {
		t.Fatal(err)
	}
	s.back(t)
}

// A leader that is cut off from the others keeps answering its clients for a
// while, though another one leads already.
func (s *storm) leaderCutOff(t *testing.T) {
	heal, err := testutil.Isolate(s.Ensemble, load.Leading(t, s))
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	s.goesOn(t)
	time.Sleep(load.Session)
	heal()
	s.back(t)
}

// Each member is restarted when the load has made progress with the one before,
// as an operator would. A member of an older release (3.8.0) that is killed
// right after it has joined can lose transactions that are committed
// (ZOOKEEPER-4643, -4646, -4785): it shows znodes that the others do not have,
// and its clients wait for those.
func (s *storm) rollingRestart(t *testing.T) {
	for member := range s.Members() {
		if err := s.Stop(member); err != nil {
			t.Fatal(err)
		}
		s.back(t, member)
		s.goesOn(t)
	}
}

// With two of three members gone, all leases end within a session timeout, and
// nothing is granted before one of the two is back.
func (s *storm) quorumLost(t *testing.T) {
	for _, member := range []int{0, 1} {
		if err := s.Stop(member); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(load.Session + time.Second) // on a busy machine, reporting it may take a while
	grants := func() (n int) {
		for _, name := range load.Ledgers {
			n += load.Ledger(filepath.Join(s.dir, name)).Grants(t)
		}
		return n
	}
	before := grants()
	time.Sleep(500 * time.Millisecond)
	if n := grants() - before; n != 0 {
		judge.Errorf(t, "%d grants while there was no quorum", n)
	}
	for _, name := range load.Ledgers {
		text, err := load.Ledger(filepath.Join(s.dir, name)).Read()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := load.Judge(string(text), load.Permits); err != nil { // nobody holds
			judge.Errorf(t, "%s: %v", name, err)
		}
	}
	s.back(t, 0, 1)
}
