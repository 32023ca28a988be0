package managed_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The goroutine that has to send a request runs late, and the connection has
// ended meanwhile. Its write, and those behind it, wait for the next connection
// as long as the retry policy allows, and not until the session ends.
func TestARequestIsSentLate(t *testing.T) {
	inLines(t, 2, func(t *testing.T, l *lines) {
		held := l.joinAll(0)[0]
		finish := inside(l.sess).StartDelete(t.Context(), held.Path, false) // the rest of it comes late
		results, wait := l.join(t.Context(), line(1))
		synctest.Wait()
		l.net.Cut()
		l.net.Drop()
		synctest.Wait()
		began := time.Now()
		if err := finish(); !errors.Is(err, zk.ErrNoServer) || framework.MaybeApplied(err) {
			t.Errorf("the delete: %v; it may have been applied: %t", err, framework.MaybeApplied(err))
		}
		wait()
		if err := results[0].err; !errors.Is(err, zk.ErrNoServer) || framework.MaybeApplied(err) {
			t.Errorf("the create: %v; it may have been applied: %t", err, framework.MaybeApplied(err))
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the retries took %v", took)
		}
		l.net.Heal()
		must(t, l.c.WaitConnected(t.Context()))
		l.left(2, held.Path)
	}, framework.WithRetry(retry.NTimes(3, 100*time.Millisecond)))
}

// Without batches, a delete that begins while there is no connection waits for
// one as long as the retry policy allows.
func TestALoneDeleteBeginsWithoutAConnection(t *testing.T) {
	inLines(t, 1, func(t *testing.T, l *lines) {
		held := l.joinAll(0)[0]
		l.net.Cut()
		l.net.Drop()
		synctest.Wait()
		began := time.Now()
		if err := inside(l.sess).StartDelete(t.Context(), held.Path, false)(); !errors.Is(err, zk.ErrNoServer) || framework.MaybeApplied(err) {
			t.Errorf("%v; it may have been applied: %t", err, framework.MaybeApplied(err))
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the retries took %v", took)
		}
		l.net.Heal()
	}, framework.WithRetry(retry.NTimes(3, 100*time.Millisecond)), framework.WithBatching(false))
}

// A batch has no room for the last of the deletes. A create that was asked for
// later, and for which there would be room, does not overtake it.
func TestACreateDoesNotOvertakeADeleteThatDoesNotFit(t *testing.T) {
	const n = 4
	inLines(t, n+1, func(t *testing.T, l *lines) {
		var held []string
		for i := range n { // three of these paths fill most of a batch
			made, err := l.sess.CreateProtected(t.Context(), line(i), strings.Repeat("x", 1200)+"-lock-", nil, sequential)
			must(t, err)
			held = append(held, made.Path)
		}
		wait := l.occupy()
		waitDeletes := l.occupyDeletes()
		var finish []func() error
		for _, path := range held {
			finish = append(finish, inside(l.sess).StartDelete(t.Context(), path, false))
		}
		results, waitLast := l.join(t.Context(), line(n-1))
		errs := make(chan error, n)
		for _, f := range finish {
			go func() { errs <- f() }()
		}
		for range n {
			must(t, <-errs)
		}
		wait()
		waitDeletes()
		waitLast()
		must(t, results[0].err)
		if len(results[0].Children) != 1 {
			t.Errorf("the create was executed before the delete: %v", results[0].Children)
		}
	}, framework.WithMaxRequest(16<<10))
}

// occupyDeletes has as many deletes under way, of znodes that do not exist, as
// hold other deletes back.
func (l *lines) occupyDeletes() (wait func()) {
	done := make(chan error, managed.UnderWay)
	for range managed.UnderWay {
		finish := inside(l.sess).StartDelete(context.Background(), line(0)+"/missing", false)
		go func() { done <- finish() }()
		synctest.Wait()
	}
	return func() {
		for range managed.UnderWay {
			if err := <-done; !errors.Is(err, zk.ErrNoNode) {
				l.Error(err)
			}
		}
	}
}

// Creates whose answers are lost share a list. Each caller may change the one
// that it gets.
func TestASharedListIsCopied(t *testing.T) {
	const n = 10
	inLines(t, 1, func(t *testing.T, l *lines) {
		defer l.ens.Control(func() func(testutil.Request) testutil.Action {
			creates := 0
			return func(r testutil.Request) testutil.Action {
				if r.Op != testutil.OpCreate || creates == n {
					return testutil.Pass()
				}
				if creates++; creates == n {
					return testutil.DropAfter()
				}
				return testutil.DelayReply(time.Minute) // until the connection is gone
			}
		}())()
		results, wait := l.join(t.Context(), slices.Repeat([]string{line(0)}, n)...)
		wait()
		for _, r := range results {
			must(t, r.err)
			l.stands(r)
			clear(r.Children)
			*r.Stat = zk.Stat{}
		}
	}, framework.WithBatching(false))
}

// The connection ends twice, and then searches are waited for that have not
// begun. Who waits for them does so as long as the retry policy allows, and not
// until the session ends.
func TestASearchBeginsWithoutAConnection(t *testing.T) {
	const n = 50
	inLines(t, n, func(t *testing.T, l *lines) {
		l.ens.Latency(0)
		defer l.ens.Control(func(r testutil.Request) testutil.Action {
			switch r.Op {
			case testutil.OpCreate, testutil.OpSync:
				return testutil.DelayReply(time.Minute)
			}
			return testutil.Pass()
		})()
		var dirs []string
		for i := range n {
			dirs = append(dirs, line(i))
		}
		results, wait := l.join(t.Context(), dirs...)
		synctest.Wait()
		l.net.Drop()
		time.Sleep(time.Second) // some search on the next connection, and the others wait for that
		l.net.Cut()
		l.net.Drop()
		began := time.Now()
		wait()
		for _, r := range results {
			if !errors.Is(r.err, zk.ErrNoServer) || !framework.MaybeApplied(r.err) {
				t.Errorf("%v; it may have been applied: %t", r.err, framework.MaybeApplied(r.err))
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the retries took %v", took)
		}
		l.net.Heal()
	}, framework.WithRetry(retry.NTimes(3, 100*time.Millisecond)), framework.WithBatching(false))
}

// asked is a context that counts how often it is asked for its error.
type asked struct {
	context.Context
	times atomic.Int32
}

func (a *asked) Err() error {
	a.times.Add(1)
	return a.Context.Err()
}

// The context of a caller may be the user's own code. While its write is
// queued, nobody else calls that, who would do so with a lock held.
func TestNoOtherCallerAsksAContext(t *testing.T) {
	inLines(t, 2, func(t *testing.T, l *lines) {
		waitFirst := l.occupy()
		ctx := &asked{Context: within(t, time.Minute)}
		results, wait := l.join(ctx, line(1))
		synctest.Wait() // it is queued
		before := ctx.times.Load()
		others, waitOthers := l.join(t.Context(), line(0), line(1))
		synctest.Wait()
		if n := ctx.times.Load() - before; n != 0 {
			t.Errorf("asked %d times for another caller", n)
		}
		waitFirst()
		wait()
		waitOthers()
		for _, r := range append(results, others...) {
			must(t, r.err)
			l.stands(r)
		}
	})
}
