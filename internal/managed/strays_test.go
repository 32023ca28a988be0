package managed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The id of each create whose answer was lost was remembered for as long as the
// session, and had its own goroutine, sync and list. Two days later there were
// 300 of them in 300 maps, and a thousand creates under way at a disconnect
// made sixteen thousand requests.
func TestAStraySearchEndsAndIsShared(t *testing.T) {
	for _, test := range []struct {
		name        string
		directories int
		each        int
	}{{"many at a disconnect", 1, bubble.Few(200, 1000)}, {"many directories", bubble.Few(60, 300), 1}} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				ens.Latency(time.Millisecond)
				c, network := connect(t, ens, framework.WithBatching(false))
				s := session(t, c)
				for i := range test.directories {
					must(t, s.MakeContainerPath(t.Context(), fmt.Sprint("/lock", i)))
				}
				stop := network.Control(func(r testutil.Request) testutil.Action {
					if r.Op == testutil.OpCreate && strings.HasPrefix(r.Path, "/lock") {
						return testutil.Delay(time.Second) // until the connection is gone
					}
					return testutil.Pass()
				})
				var creating sync.WaitGroup
				for i := range test.directories {
					for range test.each {
						creating.Go(func() {
							if _, err := s.CreateProtected(t.Context(), fmt.Sprint("/lock", i), "lock-", nil, sequential); err != nil {
								t.Error(err)
							}
						})
					}
				}
				time.Sleep(100 * time.Millisecond)
				stop()
				network.Drop()
				creating.Wait()
				if ids, _ := inside(s).Strays(); ids != test.directories*test.each {
					t.Errorf("%d strays are expected: the test shows nothing", ids)
				}
				ens.ResetRequests()
				time.Sleep(2 * time.Hour)
				if ids, directories := inside(s).Strays(); ids != 0 || directories != 0 {
					t.Errorf("%d ids in %d directories are remembered", ids, directories)
				}
				if got := ens.Requests()[testutil.OpGetChildren2]; got > 24*test.directories {
					t.Errorf("%d lists for strays in %d directories", got, test.directories)
				}
				if s.Err() != nil {
					t.Error(s.Err())
				}
			})
		})
	}
}

// The looks for a stray that does not appear grow rarer. The first is at once,
// the second after a third of the session timeout, and each pause after that is
// twice as long.
func TestLooksForAStrayGrowRarer(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		stop := network.Control(testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.Delay(time.Second)).Control)
		made := make(chan error, 1)
		go func() {
			_, err := s.CreateProtected(t.Context(), "/lock", "lock-", nil, sequential)
			made <- err
		}()
		time.Sleep(100 * time.Millisecond)
		stop()
		network.Drop()
		must(t, <-made)
		if ids, _ := inside(s).Strays(); ids != 1 {
			t.Fatalf("%d strays are expected", ids)
		}
		// The first look was at the drop. The create was made after a pause with
		// jitter, so only the times between looks are known.
		var looks []time.Time
		ens.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpGetChildren2 {
				looks = append(looks, time.Now())
			}
			return testutil.Pass()
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(looks) != 8 {
			t.Fatalf("looks at %v, want 8", looks)
		}
		for i := range looks[1:] {
			pause, want := looks[i+1].Sub(looks[i]), timeout/3<<(i+1)
			if (pause - want).Abs() > 200*time.Millisecond {
				t.Errorf("%v between looks %d and %d, want %v", pause, i+2, i+3, want)
			}
		}
	})
}

// Whenever the caller returns, and whatever happens to the request, no znode
// stays while the session lives. Known failures elsewhere: CURATOR-79, -62.
func TestCancelledCreateLeavesNothing(t *testing.T) {
	for name, action := range map[string]func(release chan struct{}) testutil.Action{
		"request held":              func(r chan struct{}) testutil.Action { return testutil.Hold(r) },
		"answer held":               func(r chan struct{}) testutil.Action { return testutil.HoldReply(r) },
		"answer lost":               func(chan struct{}) testutil.Action { return testutil.DropAfter() },
		"late":                      func(chan struct{}) testutil.Action { return testutil.Delay(3 * time.Second) },
		"late on a lost connection": func(chan struct{}) testutil.Action { return testutil.Delay(30 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, network := connect(t, ens)
				s := session(t, c)
				must(t, s.MakeContainerPath(t.Context(), "/lock"))
				release := make(chan struct{})
				var sent atomic.Bool
				defer ens.Control(func(r testutil.Request) testutil.Action {
					if r.Op != testutil.OpCreate || !sent.CompareAndSwap(false, true) {
						return testutil.Pass()
					}
					network.Cut() // no second try before the caller leaves
					return action(release)
				})()
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				began := time.Now()
				if _, err := contender(ctx, s); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Millisecond {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				if name == "late on a lost connection" {
					network.Drop()
				}
				network.Heal()
				time.Sleep(time.Second)
				close(release)
				time.Sleep(2 * time.Minute)
				if got := ens.Children("/lock"); len(got) != 0 {
					t.Errorf("left in line: %v", got)
				}
				if s.Err() != nil {
					t.Errorf("the session was lost: %v", s.Err())
				}
			})
		})
	}
}

// A create was given up and its znode appears very late, between two looks for
// it that are far apart. Any other list of the directory in that session
// discards it.
func TestAStrayIsDiscardedByAnyList(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		defer once(ens, testutil.OpCreate, testutil.Delay(5*time.Minute))()
		go func() {
			time.Sleep(time.Millisecond)
			network.Drop()
		}()
		made, err := contender(t.Context(), s) // the second try succeeds
		must(t, err)
		time.Sleep(5*time.Minute + 10*time.Second)
		if got := ens.Children("/lock"); len(got) != 2 {
			t.Fatalf("the ensemble did not execute the late create: %v", got)
		}
		if _, _, err := c.Children(t.Context(), "/lock"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := ens.Children("/lock"); len(got) != 1 || "/lock/"+got[0] != made.Path {
			t.Errorf("in line: %v, ours is %s", got, made.Path)
		}
		if ids, directories := inside(s).Strays(); ids != 0 || directories != 0 {
			t.Errorf("%d ids in %d directories are still looked for", ids, directories)
		}
	})
}

// A thousand creates are cancelled at random instants, with requests and
// answers lost at random. No znode stays, and the session lives.
func TestRandomCancels(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		ens.Latency(time.Millisecond)
		c, _ := connect(t, ens)
		s := session(t, c)
		release := s.Keep()
		defer release()
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		var mu sync.Mutex
		defer ens.Control(func(r testutil.Request) testutil.Action {
			mu.Lock()
			defer mu.Unlock()
			if r.Op == testutil.OpCreateSession || rnd.IntN(40) != 0 {
				return testutil.Pass()
			}
			return []testutil.Action{testutil.DropBefore(), testutil.DropAfter(), testutil.Delay(5 * time.Millisecond)}[rnd.IntN(3)]
		})()
		var wg sync.WaitGroup
		var made atomic.Int32
		for range 1000 {
			mu.Lock()
			patience := time.Duration(rnd.IntN(5000)) * time.Microsecond
			mu.Unlock()
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if created, err := contender(ctx, s); err == nil {
					made.Add(1)
					s.Discard(created.Path)
				}
			})
			time.Sleep(500 * time.Microsecond)
		}
		wg.Wait()
		if n := made.Load(); n == 0 || n == 1000 {
			t.Errorf("%d of 1000 succeeded: the test shows nothing", n)
		}
		time.Sleep(2 * time.Minute)
		if got := ens.Children("/lock"); len(got) != 0 {
			t.Errorf("left in line: %v", got)
		}
		if s.Err() != nil {
			t.Errorf("the session was lost: %v", s.Err())
		}
	})
}
