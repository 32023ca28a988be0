package managed_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// createAll creates ephemeral znodes at the same time, and returns the results.
func createAll(s *framework.Session, paths []string, acl ...zk.ACL) []error {
	results := make([]error, len(paths))
	var all sync.WaitGroup
	for i, path := range paths {
		all.Go(func() { results[i] = inside(s).CreateEphemeral(path, []byte(path), acl) })
	}
	all.Wait()
	return results
}

func names(dir string, n int) (paths []string) {
	for i := range n {
		paths = append(paths, fmt.Sprintf("%s/%04d", dir, i))
	}
	return paths
}

// writes counts transactions, refused ones included.
func writes(ens *testutil.Embedded) (n *atomic.Int32, stop func()) {
	n = &atomic.Int32{}
	return n, ens.Control(func(r testutil.Request) testutil.Action {
		if r.Op == testutil.OpMulti || r.Op == testutil.OpCreate {
			n.Add(1)
		}
		return testutil.Pass()
	})
}

// One request at a time, with 256 creates at most. What is refused is told to
// those that it concerns, and costs few requests more.
func TestPlainCreatesShareRequests(t *testing.T) {
	dir := names("/dir", 1000)
	refuse := func(code testutil.Code, which ...int) func(testutil.Request) testutil.Action {
		return func(r testutil.Request) testutil.Action {
			for _, i := range which {
				if at := slices.IndexFunc(r.Operations, func(o testutil.Operation) bool { return o.Path == dir[i] }); at >= 0 {
					return testutil.FailOperation(at, code)
				}
				if r.Op == testutil.OpCreate && r.Path == dir[i] {
					return testutil.Fail(code)
				}
			}
			return testutil.Pass()
		}
	}
	for name, tt := range map[string]struct {
		paths  []string
		taken  []int
		refuse func(testutil.Request) testutil.Action
		acl    []zk.ACL
		want   map[error]int // how many end so, where an error matters
		most   int32         // transactions
	}{
		"a thousand":             {paths: dir, most: 4},
		"one":                    {paths: dir[:1], most: 1},
		"ten are taken":          {paths: dir, taken: []int{1, 2, 300, 301, 302, 500, 600, 700, 998, 999}, want: map[error]int{zk.ErrNodeExists: 10}, most: 5},
		"all are taken":          {paths: dir[:100], taken: sequence(100), want: map[error]int{zk.ErrNodeExists: 100}, most: 1},
		"one is refused":         {paths: dir, refuse: refuse(testutil.CodeNoAuth, 500), want: map[error]int{zk.ErrNoAuth: 1}, most: 5},
		"two in one directory":   {paths: dir[:10], refuse: refuse(testutil.CodeNoAuth, 3, 7), want: map[error]int{zk.ErrNoAuth: 10}, most: 2},
		"no directory":           {paths: names("/none", 1000), want: map[error]int{zk.ErrNoNode: 1000}, most: 1},
		"one of two directories": {paths: slices.Concat(names("/none", 50), dir[:50]), want: map[error]int{zk.ErrNoNode: 50}, most: 2},
		"an answer without sense": {paths: dir[:5], refuse: func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpMulti {
				return testutil.FailOperation(2, -2) // not executed, because of none
			}
			return testutil.Pass()
		}, most: 6},
		"a wrong ACL": {paths: dir, acl: []zk.ACL{{Perms: zk.PermAll, Scheme: "nonsense", ID: "x"}}, want: map[error]int{zk.ErrInvalidACL: 1000}, most: 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens)
				other, _ := connect(t, ens)
				must(t, c.MakePersistentPath(t.Context(), "/dir"))
				for _, i := range tt.taken {
					_, err := other.Create(t.Context(), tt.paths[i], nil, zk.FlagEphemeral)
					must(t, err)
				}
				if tt.refuse != nil {
					defer ens.Control(tt.refuse)()
				}
				n, stop := writes(ens)
				defer stop()
				s := session(t, c)
				ended := map[error]int{}
				for i, err := range createAll(s, tt.paths, tt.acl...) {
					stat, found := ens.Stat(tt.paths[i])
					if (err == nil) != (found && stat.EphemeralOwner == s.ID()) || framework.MaybeApplied(err) {
						t.Fatalf("%s: %v, exists %t", tt.paths[i], err, found)
					}
					for want := range tt.want {
						if errors.Is(err, want) {
							ended[want]++
						}
					}
				}
				for want, n := range tt.want {
					if ended[want] != n {
						t.Errorf("%d ended by %v, want %d", ended[want], want, n)
					}
				}
				if got := n.Load(); got > tt.most && tt.refuse == nil || got > tt.most+1 {
					t.Errorf("%d transactions, want %d", got, tt.most)
				}
			})
		})
	}
}

func sequence(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// One node with an ACL that is refused does not concern those with another one.
func TestOthersWithABadACL(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, c.MakePersistentPath(t.Context(), "/dir"))
		s := session(t, c)
		var all sync.WaitGroup
		for i, path := range names("/dir", 100) {
			all.Go(func() {
				var acl []zk.ACL
				if i%10 == 0 {
					acl = []zk.ACL{{Perms: zk.PermAll, Scheme: "nonsense", ID: "x"}}
				}
				if err := inside(s).CreateEphemeral(path, nil, acl); errors.Is(err, zk.ErrInvalidACL) != (i%10 == 0) || acl == nil && err != nil {
					t.Errorf("%d: %v", i, err)
				}
			})
		}
		all.Wait()
	})
}

// A request or an answer is lost at each step. Every caller hears at once, and
// what it hears is true.
func TestPlainCreatesWhoseAnswersAreLost(t *testing.T) {
	for name, action := range map[string]testutil.Action{"before": testutil.DropBefore(), "after": testutil.DropAfter(), "late": testutil.Delay(timeout)} {
		t.Run(name, func(t *testing.T) {
			for at := range int32(5) {
				inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
					c, network := connect(t, ens)
					must(t, c.MakePersistentPath(t.Context(), "/dir"))
					s := session(t, c)
					var count atomic.Int32
					stop := network.Control(func(r testutil.Request) testutil.Action {
						if (r.Op == testutil.OpMulti || r.Op == testutil.OpCreate) && count.Add(1) == at+1 {
							return action
						}
						return testutil.Pass()
					})
					left := names("/dir", 600)
					for round := 0; len(left) > 0; round++ {
						if round == 10 {
							t.Fatalf("%d are left", len(left))
						}
						must(t, c.WaitConnected(t.Context()))
						began := time.Now()
						var again []string
						for i, err := range createAll(s, left) {
							_, found := ens.Stat(left[i])
							switch {
							case err == nil, errors.Is(err, zk.ErrNodeExists):
								if !found {
									t.Fatalf("%s: %v, missing", left[i], err)
								}
							case framework.MaybeApplied(err):
								again = append(again, left[i])
							case errors.Is(err, zk.ErrNoServer):
								if found {
									t.Fatalf("%s: %v, found", left[i], err)
								}
								again = append(again, left[i])
							default:
								t.Fatal(err)
							}
						}
						if took := time.Since(began); took > timeout {
							t.Errorf("heard after %v", took)
						}
						left = again
					}
					stop()
					if n := len(ens.Children("/dir")); n != 600 || s.Err() != nil {
						t.Errorf("%d znodes, session %v", n, s.Err())
					}
				})
			}
		})
	}
}

// A create ends with its session, and is not sent in the next one.
func TestAPlainCreateEndsWithItsSession(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, c.MakePersistentPath(t.Context(), "/dir"))
		s := session(t, c)
		release := make(chan struct{})
		held := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: "/dir/a"}, testutil.Hold(release))
		defer ens.Control(held.Control)()
		results := make(chan error, 2)
		go func() { results <- inside(s).CreateEphemeral("/dir/a", nil, nil) }()
		<-held.Hit()
		go func() { results <- inside(s).CreateEphemeral("/dir/b", nil, nil) }()
		time.Sleep(time.Second)
		must(t, ens.ExpireSession(s.ID()))
		for range 2 {
			if <-results == nil {
				t.Error("created in a session that is over")
			}
		}
		close(release)
		must(t, c.WaitConnected(t.Context()))
		time.Sleep(time.Minute)
		if n := ens.Children("/dir"); len(n) != 0 {
			t.Error(n)
		}
		for _, over := range []*framework.Session{s, {}} {
			if err := inside(over).CreateEphemeral("/dir/c", nil, nil); err == nil || framework.MaybeApplied(err) {
				t.Error(err)
			}
		}
		if err := inside(session(t, c)).CreateEphemeral("dir", nil, nil); err == nil {
			t.Error("a bad path")
		}
		if err := inside(session(t, c)).CreateEphemeral("/dir/a", make([]byte, 2<<20), nil); !errors.Is(err, framework.ErrTooLarge) {
			t.Error(err)
		}
	})
}

// A few that find one taken look each for their own, by a read, once. One whose
// look has failed, which is not counted here, is tried all the same.
func TestAFewPlainCreatesLook(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, c.MakePersistentPath(t.Context(), "/dir"))
		paths := names("/dir", 5)
		for _, i := range []int{1, 3, 4} {
			must(t, failure(c.Create(t.Context(), paths[i], nil, 0)))
		}
		lost := testutil.NewFault(testutil.Match{Op: testutil.OpExists, Path: paths[3]}, testutil.Fail(testutil.CodeThrottled))
		defer ens.Control(lost.Control)()
		n, stop := writes(ens)
		defer stop()
		ens.ResetRequests()
		results, s := make([]error, len(paths)), session(t, c)
		var all sync.WaitGroup
		for i, path := range paths {
			all.Go(func() { results[i] = inside(s).CreateEphemeral(path, nil, nil) })
			synctest.Wait() // in this order, so that the second one is refused
		}
		all.Wait()
		for i, err := range results {
			if errors.Is(err, zk.ErrNodeExists) != (i == 1 || i >= 3) || err != nil && i != 1 && i < 3 {
				t.Errorf("%d: %v", i, err)
			}
		}
		if looks := ens.Requests()[testutil.OpExists]; looks != 3 || n.Load() != 3 {
			t.Errorf("%d looks, %d transactions", looks, n.Load())
		}
	})
}

// An answer that the session has expired ends it.
func TestAPlainCreateHearsThatTheSessionHasExpired(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		s := session(t, c)
		defer once(ens, testutil.OpCreate, testutil.Fail(testutil.CodeSessionExpired))()
		err := inside(s).CreateEphemeral("/a", nil, nil)
		if !errors.Is(err, framework.ErrSessionLost) || framework.MaybeApplied(err) || !errors.Is(s.Err(), framework.ErrSessionLost) {
			t.Errorf("%v, session %v", err, s.Err())
		}
	})
}

// Large ones go in requests that the ensemble takes.
func TestLargePlainCreates(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		must(t, c.MakePersistentPath(t.Context(), "/dir"))
		s := session(t, c)
		var all sync.WaitGroup
		for i, path := range names("/dir", 20) {
			all.Go(func() {
				if err := inside(s).CreateEphemeral(path, make([]byte, i*50_000), nil); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}
