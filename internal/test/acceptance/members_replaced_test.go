package acceptance_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The session timeout of the clients whose members are replaced, and how long
// no server may answer before a lease can be lost: README.md has that of leases
// that are not older.
const (
	replacedSession = 30 * time.Second
	replacedSilence = replacedSession/3 - replacedSession/10
)

// All members of an ensemble are replaced by others at other addresses, one
// after another, while clients use all locks. One follows the ensemble by its
// configuration, one by a function. On real members two more are behind
// HAProxy, of which one follows nothing. Another client uses the other recipes,
// and holds one lock throughout. No session and no lease is lost, unless all
// servers were silent for too long, and by the ledgers nobody holds what
// another holds. Beside them Curator, which follows the configuration, holds a
// lock: what becomes of its session is logged.
func TestAllMembersAreReplacedUnderLoad(t *testing.T) {
	parallel(t)
	if !inRing3 {
		t.Run("embedded", func(t *testing.T) { replacedUnderLoad(t, embedded(t, 5, testutil.WithReconfig()), nil, nil) })
	}
	t.Run("real", func(t *testing.T) {
		ens := apache.Start(t, bubble.Draw(3, 5), apache.WithReconfig())
		needsCurator(t)
		beside := curatorFor(t, ens, replacedSession).join(t, "mutex", "/suite/held")
		beside.acquire(t)
		replacedUnderLoad(t, ens, startBalancer(t, strings.Split(ens.Servers(), ","), time.Minute), beside)
	})
}

func replacedUnderLoad(t *testing.T, ens testutil.Ensemble, front *balancer, beside *member) {
	const few = 5
	s := &storm{ens, t.TempDir(), "/suite/replaced"}
	load.MakeResources(t, client(t, ens), s.path)
	var members atomic.Value // the addresses of those that have not left
	members.Store(ens.Servers())
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer func() {
		cancel()
		working.Wait()
	}()
	lost, figures := map[string]*atomic.Int32{}, map[string]*load.Figures{}
	longest := listen(ctx, &working, ens)
	use := func(who, servers string, opts ...framework.Option) {
		opts = append(opts, framework.WithSessionTimeout(replacedSession), framework.WithStopMargin(replacedSession/10))
		n, f := &atomic.Int32{}, &load.Figures{}
		lost[who], figures[who] = n, f
		counts := framework.WithObserver(framework.Observer{StateChanged: func(c framework.StateChange) {
			if c.To == framework.Lost {
				n.Add(1)
			}
		}})
		working.Go(func() {
			if err := load.Run(ctx, servers, s.dir, s.path, who, f, append(opts, counts)...); err != nil {
				t.Errorf("client %s: %v", who, err)
			}
		})
	}
	use("tracks", ens.Servers(), framework.WithEnsembleTracking())
	use("asks", ens.Servers(), framework.WithServersFunc(func(context.Context) (string, error) { return members.Load().(string), nil }))
	if front != nil {
		use("balanced", front.address)
		use("both", front.address, framework.WithEnsembleTracking())
	}
	compare := useTheOthers(ctx, t, &working, ens)
	s.grants(t, few)
	var left []string
	err := load.ReplaceMembers(ctx, ens, time.Second, func(old, added int) {
		all := strings.Split(ens.Servers(), ",")
		if front != nil {
			front.add(t, added, all[added])
		}
		left = append(left, all[old])
		members.Store(strings.Join(slices.DeleteFunc(all, func(a string) bool { return slices.Contains(left, a) }), ","))
		s.grants(t, few)
	})
	if err != nil {
		t.Fatal(err)
	}
	for who, f := range figures {
		grants := func() (n int) {
			f.Note(func(f *load.Figures) { n = f.Grants })
			return n
		}
		before := grants()
		bubble.AwaitTrue(t, "client "+who+" goes on", func() bool { return grants() >= before+few })
	}
	sessions, leases := compare()
	cancel()
	working.Wait()
	for who, n := range lost {
		sessions += int(n.Load())
		leases += figures[who].Losses
		t.Logf("client %s: %d grants, %d leases and %d sessions lost, longest wait %v", who, figures[who].Grants, figures[who].Losses, n.Load(), figures[who].Wait)
	}
	silence := longest()
	t.Logf("the servers were silent for %v at most", silence)
	if sessions+leases > 0 && silence < replacedSilence {
		judge.Errorf(t, "%d sessions and %d leases were lost, although the servers were silent for %v at most: README.md says that %v are survived", sessions, leases, silence, replacedSilence)
	}
	for _, name := range load.Ledgers {
		load.Ledger(filepath.Join(s.dir, name)).Acceptable(t, load.Permits, 4*few)
	}
	if beside != nil {
		t.Logf("Curator %s has lost %s sessions, with the session timeout of ours", curatorVersion(t), beside.ask(t, "losses", "losses"))
	}
}

// listen asks for the leader until ctx ends. It returns a function that returns
// the longest time between two answers: of an election, or because this machine
// stood still.
func listen(ctx context.Context, working *sync.WaitGroup, ens testutil.Ensemble) (longest func() time.Duration) {
	var silence time.Duration
	working.Go(func() {
		for last := time.Now(); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			asked := time.Now()
			if answered := ens.Leader() >= 0; answered {
				silence, last = max(silence, time.Since(last)), asked
			}
		}
	})
	return func() time.Duration { return silence } // once all have ended
}

// useTheOthers lets a client hold a lock, add to a counter, meet at a barrier,
// register an instance of a service, keep a presence, and follow all that in
// caches, until ctx ends. What it returns compares them, and returns what was
// lost.
func useTheOthers(ctx context.Context, t *testing.T, working *sync.WaitGroup, ens testutil.Ensemble) (compare func() (sessions, leases int)) {
	t.Helper()
	const path = "/suite/others"
	c := made[*framework.Client](t)(framework.New(ens.Servers(), framework.WithSessionTimeout(replacedSession), framework.WithEnsembleTracking(),
		framework.WithRetry(retry.Forever(100*time.Millisecond))))
	t.Cleanup(func() { _ = c.Close() })
	held := acquire(t, ctx, made[*locks.Mutex](t)(locks.NewMutex(c, path+"/lock")))
	session := made[*framework.Session](t)(c.Session())
	n := made[*counter.Counter](t)(counter.New(c, path+"/count"))
	gate := made[*barrier.Double](t)(barrier.NewDouble(c, path+"/gate", 2))
	here := made[*presence.Node](t)(presence.Announce(ctx, c, path+"/here/one", []byte("1")))
	services := made[*discovery.Discovery[string]](t)(discovery.New(c, path+"/services", discovery.JSON[string]("")))
	t.Cleanup(services.Close)
	made[*discovery.Registration[string]](t)(services.Register(ctx, discovery.Instance[string]{Name: "web", ID: "one"}))
	web := made[*discovery.Service[string]](t)(services.Service("web"))
	follows := made[*cache.Cache](t)(cache.New(c, path))
	follows.Start()
	t.Cleanup(follows.Close)
	var added, failed, met atomic.Int64
	repeat := func(what string, count *atomic.Int64, do func() error) {
		working.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
				if err := do(); err == nil {
					count.Add(1)
				} else if failed.Add(1); ctx.Err() == nil {
					t.Logf("%s: %v", what, err)
				}
			}
		})
	}
	repeat("add", &added, func() error { // what fails may have been counted
		_, err := n.Add(ctx, 1)
		return err
	})
	for range 2 {
		repeat("meet", &met, func() error {
			in, err := gate.Enter(ctx)
			if err != nil {
				return err
			}
			return in.Leave(ctx)
		})
	}
	return func() (sessions, leases int) {
		t.Helper()
		if err := here.Standing(ctx); err != nil {
			t.Fatal(err)
		}
		if err := session.Err(); err != nil {
			t.Logf("the session of who uses the other recipes: %v", err)
			sessions++
		}
		before, rounds := added.Load(), met.Load()
		bubble.AwaitTrue(t, "more is added, and more rounds are made", func() bool { return added.Load() > before && met.Load() > rounds+2 })
		fresh := made[cache.View](t)(follows.Fresh(ctx))
		if node, ok := fresh.Get(path + "/here/one"); !ok || string(node.Data) != "1" {
			t.Errorf("the cache shows the presence as %v, %+v", ok, node)
		}
		if all := made[[]discovery.Instance[string]](t)(web.Fresh(ctx)); len(all) != 1 || all[0].ID != "one" {
			t.Errorf("the instances of the service are %+v", all)
		}
		if counted := made[int64](t)(n.Get(ctx)); counted < before || counted > added.Load()+failed.Load()+1 {
			judge.Errorf(t, "%d are counted, of %d additions and %d failures", counted, added.Load(), failed.Load())
		}
		t.Logf("%d additions, %d rounds of two, %d failures; %+v", added.Load(), met.Load()/2, failed.Load(), follows.Status().State)
		if err := held.Release(ctx); err != nil {
			t.Logf("the lock that was held throughout: %v", err)
			leases++
		}
		return sessions, leases
	}
}
