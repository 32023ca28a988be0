package acceptance_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// What went wrong in other systems, in virtual time for every kind of recipe.

const recordPath = "/app/record"

func forEveryKind(t *testing.T, scenario func(t *testing.T, w *bubble.World, k kind)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				scenario(t, w, k)
				w.Empty(recordPath+k.line, recordPath+k.hold)
			})
		})
	}
}

// stands returns the number of holders and waiters at the path.
func (k kind) stands(w *bubble.World) int {
	n := len(w.Children(recordPath + k.line))
	if k.line != k.hold {
		n += len(w.Children(recordPath + k.hold))
	}
	return n
}

// CURATOR-376: an acquire that raced a release succeeded, and could not be
// released.
func TestEveryGrantCanBeReleased(t *testing.T) {
	forEveryKind(t, func(t *testing.T, w *bubble.World, k kind) {
		a := k.of(t, w.Connect("a"), recordPath)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 50 {
					l, err := a.Acquire(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if err := l.Release(t.Context()); err != nil {
						t.Errorf("granted, but not released: %v", err)
					}
				}
			})
		}
		wg.Wait()
	})
}

// CURATOR-19, CURATOR-358: listing the participants of an unused path is no
// error.
func TestParticipantsOfNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		m, err := locks.NewMutex(c, recordPath)
		if err != nil {
			t.Fatal(err)
		}
		rw, err := rwlock.New(c, recordPath)
		if err != nil {
			t.Fatal(err)
		}
		sem, err := semaphore.New(c, recordPath, 3)
		if err != nil {
			t.Fatal(err)
		}
		e, err := leader.New(c, recordPath)
		if err != nil {
			t.Fatal(err)
		}
		for _, ask := range []func(context.Context) ([]recipes.Participant, error){m.Participants, rw.Participants, sem.Participants, e.Participants} {
			if all, err := ask(t.Context()); err != nil || len(all) > 0 {
				t.Errorf("%v, %v", all, err)
			}
		}
		if n, err := sem.Available(t.Context()); n != 3 || err != nil {
			t.Errorf("%d of 3 permits are available, %v", n, err)
		}
		if w.Exists(recordPath) {
			t.Error("asking has created the path")
		}
	})
}

// CURATOR-110: a contender that came before the first connection was never
// granted.
func TestAcquireBeforeTheFirstConnection(t *testing.T) {
	for _, k := range kinds {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			if err := w.Stop(0); err != nil {
				t.Fatal(err)
			}
			c, err := framework.New(w.Servers(), framework.WithDialer(w.Dial))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			granted := bubble.Acquiring(t.Context(), k.of(t, c, recordPath))
			time.Sleep(3 * time.Second)
			bubble.Pending(t, granted)
			if err := w.Restart(0); err != nil {
				t.Fatal(err)
			}
			bubble.Release(t, bubble.Granted(t, granted).Lease)
			w.Empty(recordPath+k.line, recordPath+k.hold)
		})
	}
}

// A wait of an hour is not a busy loop, as it was in a port of Curator. Once a
// session timeout it reads again what it waits for, and its own znode, in case
// an event was lost. A timeout ends it on time, and neither leaves anything
// behind. A known failure elsewhere: ports of Curator to Go.
func TestALongWaitIsNoLoop(t *testing.T) {
	forEveryKind(t, func(t *testing.T, w *bubble.World, k kind) {
		held := bubble.Acquire(t, t.Context(), k.of(t, w.Connect("a"), recordPath))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		waiting := bubble.Acquiring(ctx, k.of(t, w.Connect("b"), recordPath))
		time.Sleep(time.Minute)
		w.ResetRequests()
		const while = 58 * time.Minute
		time.Sleep(while)
		// The znode ahead and its own, or the limit and the permits.
		looks := map[testutil.Op]int{testutil.OpExists: 2}
		if k.line != k.hold {
			looks = map[testutil.Op]int{testutil.OpGetData: 1, testutil.OpGetChildren2: 1}
		}
		for op, n := range w.Cost() {
			most := looks[op] * int(while/(3*bubble.Timeout/4))
			if op != testutil.OpPing && n > most {
				t.Errorf("%d times %v in %v, want at most %d", n, op, while, most)
			}
		}
		g := <-waiting
		if took := g.At.Sub(began); !errors.Is(g.Err, context.DeadlineExceeded) || took != time.Hour {
			t.Errorf("Acquire ended after %v: %v", took, g.Err)
		}
		time.Sleep(time.Second)
		if n := k.stands(w); n != 1 {
			judge.Errorf(t, "%d znodes are left", n)
		}
		bubble.Release(t, held)
	})
}

// In the wire client's own lock, a loop of tries at a lock that is held for
// long leaked a watch with each try. A known failure elsewhere: go-zookeeper.
func TestALoopOfTriesLeavesNothing(t *testing.T) {
	forEveryKind(t, func(t *testing.T, w *bubble.World, k kind) {
		held := bubble.Acquire(t, t.Context(), k.of(t, w.Connect("a"), recordPath))
		b := k.of(t, w.Connect("b"), recordPath)
		time.Sleep(time.Minute) // the holder has set its watches
		watches := w.WatchCount()
		for range 500 {
			_, err := b.TryAcquire(t.Context())
			bubble.WantErr(t, err, recipes.ErrBusy)
		}
		time.Sleep(time.Second)
		if n := w.WatchCount() - watches; n != 0 {
			t.Errorf("%d watches were added", n)
		}
		if n := k.stands(w); n != 1 {
			judge.Errorf(t, "%d znodes are left", n)
		}
		bubble.Release(t, held)
	})
}

// A repeated or late release removed the lock of the current holder: in etcd,
// and in every lock over a store that knows no owners. Known failures
// elsewhere: etcd #22082, Redis locks.
func TestALateReleaseHarmsNobody(t *testing.T) {
	forEveryKind(t, func(t *testing.T, w *bubble.World, k kind) {
		c := w.Connect("a")
		a, b := k.of(t, c, recordPath), k.of(t, w.Connect("b"), recordPath)
		first := bubble.Acquire(t, t.Context(), a)
		home := bubble.Acquiring(t.Context(), a) // the znode may be handed off to it
		synctest.Wait()
		bubble.Release(t, first)
		second := bubble.Granted(t, home).Lease
		for range 3 {
			bubble.Release(t, first) // already released: nothing to do
		}
		w.Expire(c)
		third := bubble.Granted(t, bubble.Acquiring(t.Context(), b)).Lease
		bubble.Lost(t, second)
		for range 3 {
			bubble.WantErr(t, second.Release(t.Context()), recipes.ErrNotHeld)
			bubble.Release(t, first)
		}
		time.Sleep(time.Second)
		if !third.Held() || !w.Exists(third.Path()) || k.stands(w) != 1 {
			t.Errorf("held %t, with %d znodes", third.Held(), k.stands(w))
		}
		bubble.Release(t, third)
	})
}

// A value whose call was cancelled, was busy, or lost its lease works like a
// new one: it keeps no state that could stick. Known failures elsewhere: kazoo
// #87, #429.
func TestNothingSticksToAValue(t *testing.T) {
	forEveryKind(t, func(t *testing.T, w *bubble.World, k kind) {
		c := w.Connect("a")
		a, b := k.of(t, c, recordPath), k.of(t, w.Connect("b"), recordPath)
		for range 3 {
			other := bubble.Acquire(t, t.Context(), b)
			_, err := a.TryAcquire(t.Context())
			bubble.WantErr(t, err, recipes.ErrBusy)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = a.Acquire(ctx)
			cancel()
			bubble.WantErr(t, err, context.DeadlineExceeded)
			bubble.Release(t, other)
			own := bubble.Acquire(t, t.Context(), a)
			w.Expire(c)
			bubble.Lost(t, own)
			if own.Held() || own.Err() == nil {
				t.Errorf("lost, and held %t, %v", own.Held(), own.Err())
			}
			_, err = a.Acquire(context.WithoutCancel(own.Context()))
			if k.name == "mutex" || k.name == "write lock" { // the others are not re-entered
				bubble.WantErr(t, err, recipes.ErrNotHeld)
			} else if err != nil {
				t.Error(err)
			}
			bubble.WantErr(t, own.Release(t.Context()), recipes.ErrNotHeld)
			time.Sleep(time.Second)
			w.Expire(c) // with what was just acquired
			time.Sleep(time.Second)
		}
		bubble.Release(t, bubble.Acquire(t, t.Context(), a))
	})
}

// CURATOR-3, CURATOR-18: what was being created while its client closed stayed
// there.
func TestCloseWhileACreateIsUnderWay(t *testing.T) {
	for _, action := range []testutil.Action{
		testutil.Delay(time.Second), testutil.Delay(10 * time.Second), testutil.DelayReply(10 * time.Second), testutil.DropBefore(), testutil.DropAfter(),
	} {
		forEveryKind(t, func(t *testing.T, w *bubble.World, k kind) {
			c := w.Connect("a")
			a := k.of(t, c, recordPath)
			bubble.Release(t, bubble.Acquire(t, t.Context(), a))
			create := testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: recordPath + k.line + "/"}, action)
			defer w.Control(func(r testutil.Request) testutil.Action {
				if r.Op == testutil.OpCreateSession { // or another try is granted before Close
					return testutil.Delay(time.Second)
				}
				return create.Control(r)
			})()
			granted := bubble.Acquiring(t.Context(), a)
			<-create.Hit()
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			bubble.WantErr(t, (<-granted).Err, framework.ErrClosed)
			if n := len(w.Sessions()); n != 0 {
				judge.Errorf(t, "%d sessions are left", n)
			}
			time.Sleep(20 * time.Second)
			if n := k.stands(w); n != 0 {
				judge.Errorf(t, "%d znodes are left", n)
			}
		})
	}
}

// CURATOR-280, CURATOR-270: recipes failed under a chroot or a namespace, and
// created directories outside of it.
func TestUnderAChrootAndANamespace(t *testing.T) {
	forEveryKind(t, func(t *testing.T, w *bubble.World, k kind) {
		chrooted, err := framework.New(w.Servers()+"/chroot/x", framework.WithDialer(w.Dial), framework.WithCreateChroot())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = chrooted.Close() })
		named, err := chrooted.Namespace("named")
		if err != nil {
			t.Fatal(err)
		}
		plain := w.Connect("plain")
		const full = "/chroot/x/named/lock"
		inside, outside := k.of(t, named, "/lock"), k.of(t, plain, full)
		held := bubble.Acquire(t, t.Context(), inside)
		if !strings.HasPrefix(held.Path(), "/lock"+k.hold+"/") || len(w.Children(full+k.hold)) != 1 {
			t.Errorf("the lease is %s; children of %s: %v", held.Path(), full, w.Children(full+k.hold))
		}
		if _, err := held.Multi(t.Context(), &zk.CreateRequest{Path: "/written", Flags: zk.FlagEphemeral}); err != nil || !w.Exists("/chroot/x/named/written") {
			t.Errorf("a guarded write: %v", err)
		}
		waiting := bubble.Acquiring(t.Context(), outside)
		time.Sleep(time.Second)
		bubble.Pending(t, waiting)
		bubble.Release(t, held)
		bubble.Release(t, bubble.Granted(t, waiting).Lease)
		bubble.Release(t, bubble.Acquire(t, t.Context(), inside))
		time.Sleep(time.Second)
		if names := w.Children("/"); len(names) != 2 { // zookeeper, chroot
			t.Errorf("children of the root: %v", names)
		}
		w.Empty(full+k.line, full+k.hold)
		for _, c := range []*framework.Client{chrooted, plain} { // ends the watch on the semaphore's limit
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// CURATOR-466, CURATOR-468, CURATOR-337: ending an active leader logged an
// error, and its znode was removed late or never.
func TestAnActiveLeaderEndsInSilence(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		core, logged := observer.New(zap.WarnLevel)
		e, err := leader.New(w.Connect("a", framework.WithLogger(zap.New(core))), recordPath)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			err := e.Run(ctx, func(ctx context.Context, l *recipes.Lease) error {
				cancel()
				<-ctx.Done()
				return ctx.Err()
			})
			bubble.WantErr(t, err, context.Canceled)
			if left := w.Children(recordPath); len(left) > 0 {
				judge.Errorf(t, "Run has returned, and left in line: %v", left)
			}
		}
		if logged.Len() > 0 {
			t.Errorf("logged: %v", logged.All())
		}
	})
}

// CURATOR-518: two requests to resign, one soon after the other, ended the
// campaign for good. CURATOR-54, CURATOR-73: without a connection a campaign
// could neither be ended nor begun again.
func TestACampaignIsEndedAndBegunAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		e, err := leader.New(w.Connect("a"), recordPath)
		if err != nil {
			t.Fatal(err)
		}
		terms := make(chan struct{})
		run := func(ctx context.Context) <-chan error {
			ended := make(chan error, 1)
			go func() {
				ended <- e.Run(ctx, func(ctx context.Context, _ *recipes.Lease) error {
					terms <- struct{}{}
					<-ctx.Done()
					return nil
				})
			}()
			return ended
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := run(ctx)
		<-terms
		for range 10 {
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { <-e.Resign() })
			}
			<-terms // the next term; the second Resign may end it, too
			wg.Wait()
			select {
			case <-terms:
			case <-time.After(time.Minute):
			}
		}
		w.ClientNet("a").Cut()
		time.Sleep(time.Minute) // the session is lost, and the campaign fails
		cancel()
		select {
		case err := <-ended:
			bubble.WantErr(t, err, context.Canceled)
		case <-time.After(time.Minute):
			t.Fatal("the campaign does not end without a connection")
		}
		ctx, cancel = context.WithCancel(t.Context())
		ended = run(ctx)
		time.Sleep(time.Second)
		w.ClientNet("a").Heal()
		<-terms
		cancel()
		bubble.WantErr(t, <-ended, context.Canceled)
		w.Empty(recordPath)
	})
}
