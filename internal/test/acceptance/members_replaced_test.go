package acceptance_test

import (
	"context"
	"fmt"
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
// no server may answer.
const (
	replacedSession = 30 * time.Second
	// Before a lease can be lost: README.md has that of leases that are not
	// older.
	replacedSilence = replacedSession/3 - replacedSession/10
	// Before the session of a client that holds nothing can be lost. The ensemble
	// may have heard of it by a ping that was sent T/3 before the silence, and
	// after that the client needs time to come to a member that serves.
	restingSilence = replacedSession - replacedSession/3 - replacedSession/10
)

// All members of an ensemble are replaced by others at other addresses, one
// after another, while clients use all recipes. One client follows the ensemble
// by its configuration, one by a function, and one is told. On real members two
// more are behind HAProxy, of which one follows nothing. No session and no
// lease is lost, unless all servers were silent for too long, and by the
// ledgers nobody holds what another holds. Other clients hold nothing, so their
// sessions outlast a longer silence. Beside them Curator, which follows the
// configuration, holds a lock: what becomes of its session is logged.
func TestAllMembersAreReplacedUnderLoad(t *testing.T) {
	wholeInRing3(t)
	parallel(t)
	if !inRing3 {
		t.Run("embedded", func(t *testing.T) {
			untilLeasesAreJudged(t, func(t *testing.T) time.Duration {
				return replacedUnderLoad(t, embedded(t, 5, testutil.WithReconfig()), nil, nil)
			})
		})
	}
	t.Run("real", func(t *testing.T) {
		untilLeasesAreJudged(t, func(t *testing.T) time.Duration {
			ens := apache.Start(t, bubble.Draw(3, 5), apache.WithReconfig())
			needsCurator(t)
			beside := curatorFor(t, ens, replacedSession).join(t, "mutex", "/suite/held")
			beside.acquire(t)
			return replacedUnderLoad(t, ens, startBalancer(t, strings.Split(ens.Servers(), ","), time.Minute), beside)
		})
	})
}

// untilLeasesAreJudged plays once more if the servers were silent for so long
// that leases could be lost.
func untilLeasesAreJudged(t *testing.T, play func(t *testing.T) (silence time.Duration)) {
	for _, name := range []string{"once", "again"} {
		silence := time.Duration(-1)
		t.Run(name, func(t *testing.T) { silence = play(t) })
		if silence < replacedSilence { // or the play has failed, or was not wanted
			return
		}
		t.Logf("NOT JUDGED: whether leases are lost, and sessions that have them. The servers were silent for %v, and may be for %v", silence, replacedSilence)
	}
}

// replaced is what becomes of a client whose members are replaced, and of one
// like it that uses what is no lock.
type replaced struct {
	who             string
	figures         load.Figures                  // of its locks
	sessions, moves atomic.Int32                  // sessions that were lost; moves to another server
	compare         func() (sessions, leases int) // nil: there is no other one; see useTheOthers
	lost, leases    int                           // of the other one
}

// option lets a client count.
func (r *replaced) option() framework.Option {
	return framework.WithObserver(framework.Observer{
		StateChanged: func(c framework.StateChange) {
			if c.To == framework.Lost {
				r.sessions.Add(1)
			}
		},
		Moved: func(m framework.Move) {
			if m.Err == nil {
				r.moves.Add(1)
			}
		},
	})
}

func (r *replaced) grants() (n int) {
	r.figures.Note(func(f *load.Figures) { n = f.Grants })
	return n
}

// replacedUnderLoad plays once, and returns how long the servers were silent.
func replacedUnderLoad(t *testing.T, ens testutil.Ensemble, front *balancer, beside *member) (silence time.Duration) {
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
	longest := listen(ctx, &working, ens)
	var all []*replaced
	use := func(who, servers string, opts ...framework.Option) *framework.Client {
		r := &replaced{who: who}
		all = append(all, r)
		opts = append(opts, framework.WithSessionTimeout(replacedSession), framework.WithStopMargin(replacedSession/10), r.option())
		c := made[*framework.Client](t)(load.New(servers, opts...))
		t.Cleanup(func() { _ = c.Close() }) // the servers may be gone
		working.Go(func() {
			if err := load.Use(ctx, c, s.dir, s.path, who, &r.figures); err != nil {
				t.Errorf("client %s: %v", who, err)
			}
		})
		return c
	}
	useAll := func(who, servers string, opts ...framework.Option) {
		use(who, servers, opts...)
		all[len(all)-1].compare = useTheOthers(ctx, t, &working, who, servers, opts...)
	}
	resting := map[string]*framework.Session{"tracks": rest(t, ens.Servers(), framework.WithEnsembleTracking())}
	useAll("tracks", ens.Servers(), framework.WithEnsembleTracking())
	useAll("asks", ens.Servers(), framework.WithServersFunc(func(context.Context) (string, error) { return members.Load().(string), nil }))
	told := use("told", ens.Servers())
	if front != nil {
		resting["balanced"] = rest(t, front.address)
		useAll("balanced", front.address)
		use("both", front.address, framework.WithEnsembleTracking())
	}
	s.grants(t, few)
	var left []string
	err := load.ReplaceMembers(ctx, ens, time.Second, func(old, added int) {
		servers := strings.Split(ens.Servers(), ",")
		if front != nil {
			front.add(t, added, servers[added])
		}
		left = append(left, servers[old])
		now := strings.Join(slices.DeleteFunc(servers, func(a string) bool { return slices.Contains(left, a) }), ",")
		members.Store(now)
		if err := told.SetServers(ctx, now); err != nil {
			t.Fatal(err)
		}
		s.grants(t, few)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		before := r.grants()
		bubble.AwaitTrue(t, "client "+r.who+" goes on", func() bool { return r.grants() >= before+few })
	}
	for _, r := range all {
		if r.compare != nil {
			r.lost, r.leases = r.compare()
		}
	}
	lostResting := 0
	for who, session := range resting {
		if err := session.Err(); err != nil {
			t.Logf("the session of a client that holds nothing and is %s: %v", who, err)
			lostResting++
		}
	}
	cancel()
	working.Wait()
	sessions, leases := map[string]int{}, 0
	total := 0
	for _, r := range all {
		lost := int(r.sessions.Load()) + r.lost
		sessions[r.who] = int(r.sessions.Load()) // Curator has one client as well
		total += lost
		leases += r.figures.Losses + r.leases
		t.Logf("client %s: %d grants, %d leases and %d sessions lost, longest wait %v, %d moves", r.who, r.figures.Grants, r.figures.Losses+r.leases, lost, r.figures.Wait, r.moves.Load())
	}
	silence = longest()
	t.Logf("the servers were silent for %v at most", silence)
	if total+leases > 0 && silence < replacedSilence {
		judge.Errorf(t, "%d sessions and %d leases were lost, although the servers were silent for %v at most: README.md says that %v are survived", total, leases, silence, replacedSilence)
	}
	if lostResting > 0 && silence < restingSilence {
		judge.Errorf(t, "%d clients that held nothing have lost their sessions, although the servers were silent for %v at most: %v are survived", lostResting, silence, restingSilence)
	}
	for _, name := range load.Ledgers {
		load.Ledger(filepath.Join(s.dir, name)).Acceptable(t, load.Permits, 4*few)
	}
	if beside != nil {
		silent := fmt.Sprintf("up to %.0f s, T/3 less the stop margin", replacedSilence.Seconds())
		if silence >= replacedSilence {
			silent = "longer"
		}
		t.Logf("Curator has the session timeout of ours. For bench/results/replaced.txt:\n"+
			"| sessions lost where no server answered for | runs | tracks the ensemble | asks a function | behind HAProxy | Curator %s |\n| %s | 1 | %d | %d | %d | %s |",
			curatorVersion(t), silent, sessions["tracks"], sessions["asks"], sessions["balanced"], beside.ask(t, "losses", "losses"))
	}
	return silence
}

// rest connects a client that holds nothing, and returns its session.
func rest(t *testing.T, servers string, opts ...framework.Option) *framework.Session {
	t.Helper()
	c := made[*framework.Client](t)(framework.New(servers, append(opts, framework.WithSessionTimeout(replacedSession))...))
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), load.Patience)
	defer cancel()
	if err := c.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	return made[*framework.Session](t)(c.Session())
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
func useTheOthers(ctx context.Context, t *testing.T, working *sync.WaitGroup, who, servers string, opts ...framework.Option) (compare func() (sessions, leases int)) {
	t.Helper()
	path := "/suite/others/" + who
	opts = append(opts, framework.WithSessionTimeout(replacedSession), framework.WithRetry(retry.Forever(100*time.Millisecond)))
	c := made[*framework.Client](t)(framework.New(servers, opts...))
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
					t.Logf("%s: %s: %v", who, what, err)
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
			t.Logf("%s: the session of who uses the other recipes: %v", who, err)
			sessions++
		}
		before, rounds := added.Load(), met.Load()
		bubble.AwaitTrue(t, who+": more is added, and more rounds are made", func() bool { return added.Load() > before && met.Load() > rounds+2 })
		fresh := made[cache.View](t)(follows.Fresh(ctx))
		if node, ok := fresh.Get(path + "/here/one"); !ok || string(node.Data) != "1" {
			t.Errorf("%s: the cache shows the presence as %v, %+v", who, ok, node)
		}
		if all := made[[]discovery.Instance[string]](t)(web.Fresh(ctx)); len(all) != 1 || all[0].ID != "one" {
			t.Errorf("%s: the instances of the service are %+v", who, all)
		}
		if counted := made[int64](t)(n.Get(ctx)); counted < before || counted > added.Load()+failed.Load()+1 {
			judge.Errorf(t, "%s: %d are counted, of %d additions and %d failures", who, counted, added.Load(), failed.Load())
		}
		t.Logf("%s: %d additions, %d rounds of two, %d failures; %+v", who, added.Load(), met.Load()/2, failed.Load(), follows.Status().State)
		if err := held.Release(ctx); err != nil {
			t.Logf("%s: the lock that was held throughout: %v", who, err)
			leases++
		}
		return sessions, leases
	}
}
