package semaphore_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func setMax(t *testing.T, s *semaphore.Semaphore, n int) {
	t.Helper()
	if err := s.SetMax(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// Processes that disagree about the limit get an error with both numbers. A
// known failure elsewhere: Curator.
func TestProcessesWithDifferentLimits(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		held := bubble.Acquire(t, t.Context(), newSemaphore(t, w.Connect("a"), 2))
		b := w.Connect("b")
		_, err := newSemaphore(t, b, 3).Acquire(t.Context())
		bubble.WantErr(t, err, semaphore.ErrLimit)
		if want := "semaphore: acquire /app/sem: limit exceeded, or different from the recorded limit: 2 is recorded, this process was made with 3"; err == nil || err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		_, err = newSemaphore(t, b, 3).TryAcquire(t.Context())
		bubble.WantErr(t, err, semaphore.ErrLimit)

		adopts := newSemaphore(t, b, 3, semaphore.WithRecordedLimit())
		other := bubble.Acquire(t, t.Context(), adopts)
		_, err = adopts.TryAcquire(t.Context())
		bubble.WantErr(t, err, recipes.ErrBusy)
		_, err = adopts.Permits(3).Acquire(t.Context())
		bubble.WantErr(t, err, semaphore.ErrLimit)
		bubble.Release(t, held, other)
		empty(w)
	})
}

// A semaphore with another limit that joined during the first one's multi,
// while no limit was recorded, was granted, and from then on used the recorded
// limit. Acquire and TryAcquire must fail with ErrLimit, whichever of the two
// joined first.
func TestDifferentLimitsBeforeOneIsRecorded(t *testing.T) {
	for _, first := range []string{"a", "b"} {
		for _, op := range []testutil.Op{testutil.OpMulti, testutil.OpCreate, testutil.OpCreateContainer} {
			for name, enter := range map[string]func(*semaphore.Semaphore) (*recipes.Lease, error){
				"acquire": func(s *semaphore.Semaphore) (*recipes.Lease, error) { return s.Acquire(context.Background()) },
				"try":     func(s *semaphore.Semaphore) (*recipes.Lease, error) { return s.TryAcquire(context.Background()) },
			} {
				t.Run(fmt.Sprintf("%s, %v of %s is delayed", name, op, first), func(t *testing.T) {
					bubble.Run(t, func(t *testing.T, w *bubble.World) {
						s := map[string]*semaphore.Semaphore{
							"a": newSemaphore(t, w.Connect("a"), 2),
							"b": newSemaphore(t, w.Connect("b"), 3),
						}
						defer w.ClientNet(first).Control(testutil.NewFault(testutil.Match{Op: op}, testutil.Delay(time.Second)).Control)()
						taking := bubble.Acquiring(t.Context(), s["a"])
						time.Sleep(100 * time.Millisecond)
						l, err := enter(s["b"])
						g := <-taking
						if (g.Err == nil) == (err == nil) {
							t.Fatalf("limit 2: %v; limit 3: %v", g.Err, err)
						}
						for lease, err := range map[*recipes.Lease]error{l: err, g.Lease: g.Err} {
							if lease == nil {
								bubble.WantErr(t, err, semaphore.ErrLimit)
								continue
							}
							bubble.Release(t, lease)
						}
						empty(w)
					})
				})
			}
		}
	}
}

// A semaphore with another limit does not disturb the waiters of its process.
func TestDifferentLimitsInOneProcess(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		good, bad := newSemaphore(t, c, 1), newSemaphore(t, c, 2)
		held := bubble.Acquire(t, t.Context(), good)
		wrong := bubble.Acquiring(t.Context(), bad)
		synctest.Wait()
		right := bubble.Acquiring(t.Context(), good)
		bubble.WantErr(t, (<-wrong).Err, semaphore.ErrLimit)
		bubble.Pending(t, right)
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, right).Lease)
		empty(w)
	})
}

func TestRequestBeyondTheLimitFailsAtOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 3)
		held := bubble.Acquire(t, t.Context(), s[1].Permits(3))
		waiting := bubble.Acquiring(t.Context(), s[1])
		w.InLine(path+"/locks", 1)
		start := time.Now()
		_, err := s[0].Permits(4).Acquire(t.Context())
		bubble.WantErr(t, err, semaphore.ErrLimit)
		if took := time.Since(start); took != 0 || !strings.Contains(err.Error(), "4 permits of 3") {
			t.Errorf("after %v: %v", took, err)
		}
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
		empty(w)
	})
}

// Raising the limit wakes waiters, lowering it revokes nothing, and every
// semaphore that used the former limit uses the new one. A known failure
// elsewhere: CURATOR-75.
func TestSetMax(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 4, 1)
		held := []*recipes.Lease{bubble.Acquire(t, t.Context(), s[0])}
		var waiting []<-chan bubble.Grant
		for i := range 3 {
			waiting = append(waiting, bubble.Acquiring(t.Context(), s[i+1]))
			w.InLine(path+"/locks", i+1)
		}
		bubble.Pending(t, waiting...)
		setMax(t, s[3], 3)
		held = append(held, bubble.Granted(t, waiting[0]).Lease, bubble.Granted(t, waiting[1]).Lease)
		bubble.Pending(t, waiting[2])
		setMax(t, s[0], 1)
		for _, l := range held {
			if !l.Held() {
				t.Error("a lease was revoked")
			}
		}
		bubble.Release(t, held[0])
		bubble.Pending(t, waiting[2])
		bubble.Release(t, held[1])
		bubble.Pending(t, waiting[2])
		if n, err := s[1].Available(t.Context()); n != 0 || err != nil {
			t.Errorf("available: %d, %v", n, err)
		}
		bubble.Release(t, held[2])
		last := bubble.Granted(t, waiting[2]).Lease
		_, err := s[0].TryAcquire(t.Context())
		bubble.WantErr(t, err, recipes.ErrBusy)
		bubble.Release(t, last)
		bubble.WantErr(t, s[0].SetMax(t.Context(), 0), semaphore.ErrLimit)
		empty(w)
	})
}

// A waiter for more permits than a lowered limit fails, and others are granted.
func TestWaiterExceedsALoweredLimit(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 3, 3)
		held := bubble.Acquire(t, t.Context(), s[0])
		three := bubble.Acquiring(t.Context(), s[1].Permits(3))
		w.InLine(path+"/locks", 1)
		one := bubble.Acquiring(t.Context(), s[2])
		w.InLine(path+"/locks", 2)
		bubble.Pending(t, three, one)
		setMax(t, s[0], 2)
		bubble.WantErr(t, (<-three).Err, semaphore.ErrLimit)
		bubble.Release(t, bubble.Granted(t, one).Lease, held)
		empty(w)
	})
}

// The limit is lowered between the read of it and the multi: the multi must
// fail.
func TestLimitIsLoweredDuringAcquire(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 2)
		held := bubble.Acquire(t, t.Context(), s[0])
		pass := make(chan struct{})
		hits := w.Once(testutil.OpMulti, path, testutil.Hold(pass))
		waiting := bubble.Acquiring(t.Context(), s[1])
		w.InLine(path+"/locks", 1)
		setMax(t, s[0], 1)
		close(pass)
		bubble.Pending(t, waiting)
		if hits.Load() != 1 {
			t.Error("the multi was not delayed")
		}
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
		empty(w)
	})
}

// settingThree starts SetMax(3), with an action for its write, and waits a
// second.
func settingThree(t *testing.T, w *bubble.World, s *semaphore.Semaphore, a testutil.Action) (set <-chan error, hits *atomic.Int32) {
	hits = w.Once(testutil.OpSetData, path, a)
	result := make(chan error, 1)
	go func() { result <- s.SetMax(t.Context(), 3) }()
	time.Sleep(time.Second)
	return result, hits
}

// SetMax loses its connection and repeats its write. The first write arrives
// late, after another client has lowered the limit: it must not raise the limit
// again.
func TestLateSetMaxRequest(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 2)
		setMax(t, s[1], 1)
		pass := make(chan struct{})
		set, hits := settingThree(t, w, s[0], testutil.Hold(pass))
		w.ClientNet("client 0").Drop()
		if err := <-set; err != nil || hits.Load() != 1 {
			t.Fatalf("%v; delayed %d times", err, hits.Load())
		}
		setMax(t, s[1], 2)
		close(pass)
		time.Sleep(time.Second)
		if data, _ := w.Data(path); string(data) != "2" {
			t.Errorf("limit %s, want 2, which was set last", data)
		}
	})
}

// The reply to the write of SetMax is lost. If another client sets a limit
// before the write is repeated, or makes the path again, SetMax cannot know
// whether its own was applied, and says so.
func TestSetMaxReplyIsLost(t *testing.T) {
	for name, test := range map[string]struct {
		again bool  // the path is removed
		then  []int // the limits that the other client sets
		want  string
		sure  bool
	}{
		"nobody else comes":              {false, nil, "3", true},
		"another limit":                  {false, []int{2}, "2", false},
		"another, and the same":          {false, []int{2, 3}, "3", false},
		"the same, at a path made again": {true, []int{2, 3}, "3", false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				operator := w.Connect("operator")
				s := clients(w, 2, 2)
				setMax(t, s[1], 1)
				set, hits := settingThree(t, w, s[0], testutil.DelayReply(time.Minute))
				for _, gone := range []string{path + "/limit", path} {
					if test.again {
						if err := operator.Delete(t.Context(), gone, -1); err != nil {
							t.Fatal(err)
						}
					}
				}
				for _, n := range test.then {
					setMax(t, s[1], n)
				}
				w.ClientNet("client 0").Drop()
				if err := <-set; framework.MaybeApplied(err) == test.sure || (err == nil) != test.sure || hits.Load() != 1 {
					t.Errorf("%v; delayed %d times", err, hits.Load())
				}
				if data, _ := w.Data(path); string(data) != test.want {
					t.Errorf("limit %s, want %s", data, test.want)
				}
			})
		})
	}
}

// Two clients set a limit at the same time, and both succeed.
func TestConcurrentSetMax(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 2)
		setMax(t, s[1], 1)
		pass := make(chan struct{})
		set, hits := settingThree(t, w, s[0], testutil.Hold(pass))
		setMax(t, s[1], 2)
		close(pass)
		if err := <-set; err != nil || hits.Load() != 1 {
			t.Errorf("%v; delayed %d times", err, hits.Load())
		}
		if data, _ := w.Data(path); string(data) != "3" {
			t.Errorf("limit %s, want 3, which was set last", data)
		}
	})
}

// A limit set by SetMax stays. One that was only recorded is removed with the
// path.
func TestSetLimitStays(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers) // waits for the end of a container
	for _, set := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			c := w.Connect("a")
			s := newSemaphore(t, c, 2)
			if set {
				setMax(t, s, 5)
			}
			bubble.Release(t, bubble.Acquire(t, t.Context(), s))
			time.Sleep(10 * time.Minute)
			if w.Exists(path) != set {
				t.Fatalf("set %v: the path exists: %v\n%s", set, w.Exists(path), w.Tree())
			}
			l, err := newSemaphore(t, c, 7).Acquire(t.Context())
			if !set {
				bubble.Release(t, l)
				_, err = s.Acquire(t.Context()) // it knew the limit of the removed path
			}
			bubble.WantErr(t, err, semaphore.ErrLimit)
			if set {
				bubble.Release(t, bubble.Acquire(t, t.Context(), s.Permits(5)))
			}
			empty(w)
		})
	}
}

func TestPathIsUsedForSomethingElse(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		mutex, err := locks.NewMutex(c, path)
		if err != nil {
			t.Fatal(err)
		}
		l := bubble.Acquire(t, t.Context(), mutex)
		s := newSemaphore(t, c, 2)
		_, err = s.Acquire(t.Context())
		bubble.WantErr(t, err, recipes.ErrLayout)
		bubble.Release(t, l)
		w.Empty(path + "/locks")
		if _, err := c.Set(t.Context(), path, []byte("10.0.0.7"), -1); err != nil {
			t.Fatal(err)
		}
		_, err = s.Acquire(t.Context())
		bubble.WantErr(t, err, semaphore.ErrLimit)
		setMax(t, s, 2)
		bubble.Release(t, bubble.Acquire(t, t.Context(), s))
		empty(w)
	})
}

// Kazoo's semaphore records its limit at the same path, but keeps its leases
// elsewhere: neither would see the other's. Ours fails if it comes second.
func TestKazooSemaphoreOnThePath(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, kazoo := w.Connect("a"), w.Connect("kazoo")
		s := newSemaphore(t, c, 5)
		held := bubble.Acquire(t, t.Context(), s)
		bubble.Release(t, bubble.Acquire(t, t.Context(), s))
		lease := path + "/0123456789abcdef0123456789abcdef"
		if err := kazoo.MakePersistentPath(t.Context(), path+"-__lock__"); err != nil {
			t.Fatal(err)
		}
		if _, err := kazoo.Create(t.Context(), lease, nil, zk.FlagEphemeral); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*semaphore.Semaphore{s, newSemaphore(t, w.Connect("b"), 5)} {
			_, err := s.Acquire(t.Context())
			bubble.WantErr(t, err, recipes.ErrLayout)
			_, err = s.TryAcquire(t.Context())
			bubble.WantErr(t, err, recipes.ErrLayout)
		}
		if err := kazoo.Delete(t.Context(), lease, -1); err != nil {
			t.Fatal(err)
		}
		bubble.Release(t, bubble.Acquire(t, t.Context(), s))
		bubble.Release(t, held)
		empty(w)
	})
}

// CURATOR-173: the directories of the waiters and the permits were never
// removed. Here they are removed when unused, with the recorded limit. A limit
// set by SetMax stays, with its path.
func TestUnusedDirectoriesAreRemoved(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers) // waits for the end of a container
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 1)
		held := bubble.Acquire(t, t.Context(), s[0])
		waiting := bubble.Acquiring(t.Context(), s[1])
		w.InLine(lockDir, 1)
		time.Sleep(time.Hour)
		bubble.Pending(t, waiting)
		if !w.Exists(lockDir) || !w.Exists(leases) {
			t.Errorf("removed while in use:\n%s", w.Tree())
		}
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
		time.Sleep(10 * time.Minute)
		if w.Exists("/app") {
			t.Errorf("not removed:\n%s", w.Tree())
		}
		setMax(t, s[0], 2)
		bubble.Release(t, bubble.Acquire(t, t.Context(), s[0].Permits(2)))
		time.Sleep(10 * time.Minute)
		if w.Exists(lockDir) || w.Exists(leases) || !w.Exists(path) {
			t.Errorf("wrong after SetMax:\n%s", w.Tree())
		}
	})
}

// A tree that somebody deleted is created again.
func TestDeletedTree(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		s := clients(w, 2, 1)
		operator := w.Connect("operator")
		held := bubble.Acquire(t, t.Context(), s[0])
		waiting := bubble.Acquiring(t.Context(), s[1])
		w.InLine(path+"/locks", 1)
		for _, dir := range []string{path + "/locks", path + "/leases"} {
			for _, name := range w.Children(dir) {
				if err := operator.Delete(t.Context(), dir+"/"+name, -1); err != nil {
					t.Error(err)
				}
			}
			_ = operator.Delete(t.Context(), dir, -1) // fails if it is in use again
		}
		_ = operator.Delete(t.Context(), path, -1)
		next := bubble.Granted(t, waiting).Lease
		bubble.WantErr(t, held.Release(context.Background()), recipes.ErrNotHeld)
		bubble.Release(t, next)
		empty(w)
	})
}

// Who has agreed to a limit has not agreed to that of a rebuilt ensemble, also
// if its path has the same czxid.
func TestTheLimitOfARebuiltEnsemble(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		script := func(limit string) func(c *framework.Client) { return bubble.Tree(t, "/app", "", path, limit) }
		w.Provision(script("2"))
		c := w.Connect("user")
		s, before := newSemaphore(t, c, 2), w.SessionID(c)
		bubble.Release(t, bubble.Acquire(t, t.Context(), s))
		w.Rebuild(script("3"), "user")
		w.AwaitNext(c, before)
		_, err := s.Acquire(t.Context())
		bubble.WantErr(t, err, semaphore.ErrLimit)
	})
}
