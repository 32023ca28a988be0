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
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// All members of an ensemble are replaced by others at other addresses, one
// after another, while clients use all locks. One follows the ensemble by its
// configuration, one by a function. On real members two more are behind
// HAProxy, of which one follows nothing. Each client goes on in its session,
// and by the ledgers nobody holds what another holds. Another client counts,
// keeps a presence, and follows both in a cache. Beside them Curator, which
// follows the configuration, holds a lock: what becomes of its session is
// logged.
func TestAllMembersAreReplacedUnderLoad(t *testing.T) {
	parallel(t)
	if !inRing3 {
		t.Run("embedded", func(t *testing.T) { replacedUnderLoad(t, embedded(t, 5, testutil.WithReconfig()), nil, nil) })
	}
	t.Run("real", func(t *testing.T) {
		ens := apache.Start(t, bubble.Draw(3, 5), apache.WithReconfig())
		needsCurator(t)
		beside := curator(t, ens).join(t, "mutex", "/suite/held")
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
	use := func(who, servers string, opts ...framework.Option) {
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
	compare := countAndFollow(ctx, t, &working, ens)
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
	compare()
	cancel()
	working.Wait()
	for who, n := range lost {
		if n.Load() > 0 {
			judge.Errorf(t, "client %s has lost its session %d times", who, n.Load())
		}
		t.Logf("client %s: %d grants, %d leases lost, longest wait %v", who, figures[who].Grants, figures[who].Losses, figures[who].Wait)
	}
	for _, name := range load.Ledgers {
		load.Ledger(filepath.Join(s.dir, name)).Acceptable(t, load.Permits, 4*few)
	}
	if beside != nil {
		t.Logf("Curator has lost %s sessions", beside.ask(t, "losses", "losses"))
	}
}

// countAndFollow lets a client add to a counter, keep a presence, and follow
// both in a cache, until ctx ends. What it returns compares them.
func countAndFollow(ctx context.Context, t *testing.T, working *sync.WaitGroup, ens testutil.Ensemble) (compare func()) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	const path = "/suite/followed"
	c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(load.Session), framework.WithEnsembleTracking(),
		framework.WithRetry(retry.Forever(100*time.Millisecond)))
	must(err)
	t.Cleanup(func() { _ = c.Close() })
	n, err := counter.New(c, path+"/count")
	must(err)
	here, err := presence.Announce(ctx, c, path+"/here/one", []byte("1"))
	must(err)
	session, err := c.Session()
	must(err)
	follows, err := cache.New(c, path)
	must(err)
	follows.Start()
	t.Cleanup(follows.Close)
	var added, failed atomic.Int64
	working.Go(func() {
		for ctx.Err() == nil {
			if _, err := n.Add(ctx, 1); err == nil {
				added.Add(1)
			} else {
				failed.Add(1) // it may have been counted
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return func() {
		t.Helper()
		must(here.Standing(ctx))
		if session.Err() != nil {
			judge.Errorf(t, "the session of who counts was lost: %v", session.Err())
		}
		before := added.Load()
		bubble.AwaitTrue(t, "more is added", func() bool { return added.Load() > before })
		view, err := follows.Fresh(ctx)
		must(err)
		if node, ok := view.Get(path + "/here/one"); !ok || string(node.Data) != "1" {
			t.Errorf("the cache shows the presence as %v, %+v", ok, node)
		}
		counted, err := n.Get(ctx)
		must(err)
		if counted < before || counted > added.Load()+failed.Load()+1 {
			judge.Errorf(t, "%d are counted, of %d additions and %d that have failed", counted, added.Load(), failed.Load())
		}
		t.Logf("%d additions, %d failed; %+v", added.Load(), failed.Load(), follows.Status().State)
	}
}
