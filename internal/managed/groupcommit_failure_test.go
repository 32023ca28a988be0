package managed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The ensemble refuses one of many. Its caller alone gets the error, the others
// need one more round trip. The next time that directory does not disturb
// anybody.
func TestARefusedOperationConcernsItsCaller(t *testing.T) {
	const n = 20
	inLines(t, n, func(t *testing.T, l *lines) {
		for round := range 3 {
			dirs := []string{line(0), "/line/missing"}
			for i := 1; i < n; i++ {
				dirs = append(dirs, line(i))
			}
			results, wait := l.join(t.Context(), dirs...)
			wait()
			var held []string
			for i, r := range results {
				switch {
				case dirs[i] == "/line/missing":
					if !errors.Is(r.err, zk.ErrNoNode) || framework.MaybeApplied(r.err) || !strings.Contains(r.err.Error(), "/line/missing") {
						t.Errorf("missing directory: %v", r.err)
					}
					continue
				case r.err != nil:
					t.Errorf("%s: %v", dirs[i], r.err)
					continue
				}
				l.stands(r)
				held = append(held, r.Path)
				if most := 3 * rtt; r.took > most || round > 0 && r.took > 2*rtt {
					t.Errorf("round %d: %s took %v", round, dirs[i], r.took)
				}
			}
			if alone := l.requests()[testutil.OpCreate]; round > 0 && alone > managed.UnderWay+1 {
				t.Errorf("round %d: %d creates were sent alone", round, alone)
			}
			if err := errors.Join(l.leave(held...)...); err != nil {
				t.Error(err)
			}
			l.take()
		}
		l.left(n)
	})
}

// The same, where it is in a batch each time.
func TestARefusalInABatchIsRemembered(t *testing.T) {
	inLines(t, 3, func(t *testing.T, l *lines) {
		for round, most := range []time.Duration{3 * rtt, 2 * rtt} {
			occupied := l.occupy()
			results, wait := l.join(t.Context(), line(1), "/line/missing", line(2))
			wait()
			occupied()
			if err := results[1].err; !errors.Is(err, zk.ErrNoNode) {
				t.Errorf("missing directory: %v", err)
			}
			for _, r := range []*joined{results[0], results[2]} {
				if l.stands(r); r.took > most {
					t.Errorf("round %d: took %v, want %v at most", round, r.took, most)
				}
			}
		}
	})
}

// 64 locks whose directories are missing: one round trip more, however many are
// refused.
func TestColdDirectories(t *testing.T) {
	const n = 64
	inLines(t, 1, func(t *testing.T, l *lines) {
		var dirs []string
		for i := range n {
			dirs = append(dirs, fmt.Sprint("/line/cold", i))
		}
		began := time.Now()
		results, wait := l.join(t.Context(), dirs...)
		wait()
		if took := time.Since(began); took > 3*rtt {
			t.Errorf("took %v, want three round trips at most", took)
		}
		for i, r := range results {
			if !errors.Is(r.err, zk.ErrNoNode) || !strings.Contains(r.err.Error(), dirs[i]) {
				t.Errorf("%s: %v", dirs[i], r.err)
			}
		}
		// The first create leaves alone, and UnderWay-1 requests with it. Then there
		// may be enough creates for one more. The rest leaves behind the first
		// answer.
		most := managed.UnderWay + 1
		if got := l.requests(); got[testutil.OpMulti] == 0 || got[testutil.OpMulti] > most || got[testutil.OpCreate] > n {
			t.Errorf("requests %v, want %d batches at most, and each create alone", got, most)
		}
		for _, dir := range dirs {
			must(t, l.sess.MakePersistentPath(t.Context(), dir))
		}
		l.take()
		for range 2 { // alone, since they were refused; then batched
			results, wait = l.join(t.Context(), dirs...)
			wait()
			for _, r := range results {
				must(t, r.err)
			}
			l.leave(paths(results)...)
		}
		// The rest may be a single create, too.
		if got := l.requests()[testutil.OpCreate]; got < n || got > n+managed.UnderWay+1 {
			t.Errorf("%d creates were sent alone, want each once, and the first few again", got)
		}
	})
}

// Deletes that find nothing, or may not delete, fail alone.
func TestARefusedDelete(t *testing.T) {
	const n = 8
	inLines(t, n, func(t *testing.T, l *lines) {
		held := paths(l.joinAll(upTo(n)...))
		gone := held[3]
		must(t, l.c.Delete(t.Context(), gone, -1))
		for i, err := range l.leave(held...) {
			if held[i] == gone {
				if !errors.Is(err, zk.ErrNoNode) || !strings.Contains(err.Error(), gone) {
					t.Errorf("a znode that is gone: %v", err)
				}
			} else if err != nil {
				t.Errorf("%s: %v", held[i], err)
			}
		}
		l.left(n)
	})
}

// The answer to a batch is lost, or the batch itself. Every create has one
// znode in the end, and every delete has succeeded. What became of the creates
// is found out by one sync, and one list for each directory.
func TestTheAnswerToABatchIsLost(t *testing.T) {
	const n = 12
	for name, action := range map[string]testutil.Action{"before": testutil.DropBefore(), "after": testutil.DropAfter()} {
		t.Run(name, func(t *testing.T) {
			inLines(t, 2*n, func(t *testing.T, l *lines) {
				held := paths(l.joinAll(upTo(n)...))
				l.take()
				stop := once(l.ens, testutil.OpMulti, action)
				finish := make([]func() error, n)
				for i, path := range held {
					finish[i] = inside(l.sess).StartDelete(t.Context(), path, false)
				}
				errs := make([]error, n)
				var all sync.WaitGroup
				for i := range held {
					all.Go(func() { errs[i] = finish[i]() })
				}
				var dirs []string
				for i := range n {
					dirs = append(dirs, line(n+i))
				}
				results, wait := l.join(t.Context(), dirs...)
				all.Wait()
				wait()
				stop()
				if err := errors.Join(errs...); err != nil {
					t.Error(err)
				}
				for _, r := range results {
					must(t, r.err)
					l.stands(r)
				}
				got := l.requests()
				// A directory is listed behind a create, to search for it, to
				// search for what may come late, and behind the second try.
				if got[testutil.OpSync] > 6 || got[testutil.OpGetChildren2] > 4*n {
					t.Errorf("a storm: %v", got)
				}
				l.left(2*n, paths(results)...)
			})
		})
	}
}

// Many creates in one directory whose answers are lost are looked for by one
// list.
func TestSearchesAreShared(t *testing.T) {
	const n = 30
	inLines(t, 1, func(t *testing.T, l *lines) {
		var left sync.WaitGroup
		left.Add(n)
		defer l.ens.Control(func() func(testutil.Request) testutil.Action {
			var mu sync.Mutex
			creates := 0
			return func(r testutil.Request) testutil.Action {
				mu.Lock()
				defer mu.Unlock()
				if r.Op != testutil.OpCreate || creates == n {
					return testutil.Pass()
				}
				if creates++; creates == n {
					return testutil.DropAfter()
				}
				return testutil.DelayReply(time.Minute) // until the connection is gone
			}
		}())()
		var dirs []string
		for range n {
			dirs = append(dirs, line(0))
		}
		results, wait := l.join(t.Context(), dirs...)
		wait()
		for _, r := range results {
			must(t, r.err)
			l.stands(r)
		}
		if names := l.ens.Children(line(0)); len(names) != n {
			t.Errorf("%d znodes, want %d", len(names), n)
		}
		if got := l.requests(); got[testutil.OpSync] > 4 || got[testutil.OpGetChildren2] > n+4 {
			t.Errorf("a storm: %v", got)
		}
	}, framework.WithBatching(false)) // so that they are all under way
}

// A caller that has returned before its create was sent costs nothing, and one
// whose create was sent leaves nothing behind. The others notice neither.
func TestACancelledCallerOfABatch(t *testing.T) {
	const n = 9
	inLines(t, n, func(t *testing.T, l *lines) {
		ctx, cancel := context.WithCancel(t.Context())
		sent, waitSent := l.join(ctx, line(1))
		time.Sleep(rtt / 10)
		waitFirst := l.occupy()
		queued, waitQueued := l.join(ctx, line(2), line(3), line(4))
		others, waitOthers := l.join(t.Context(), line(5), line(6), line(7), line(8))
		time.Sleep(rtt / 10)
		cancel()
		waitSent()
		waitQueued()
		for _, r := range append(sent, queued...) {
			if !errors.Is(r.err, context.Canceled) || r.took > rtt {
				t.Errorf("a cancelled create: %v after %v", r.err, r.took)
			}
		}
		waitFirst()
		waitOthers()
		for _, r := range others {
			must(t, r.err)
			l.stands(r)
			if r.took > 2*rtt {
				t.Errorf("took %v", r.took)
			}
		}
		for _, r := range l.take() {
			for i := 2; i <= 4; i++ {
				if r.Does(testutil.OpCreate, line(i)+"/") {
					t.Errorf("a create was sent whose caller had returned: %v", r)
				}
			}
		}
		l.left(n, append(paths(others), l.below(0)...)...)
	})
}

// A caller whose time ends while its batch is under way returns then. Its znode
// is removed; those of the others stay.
func TestADeadlineOfOneInABatch(t *testing.T) {
	inLines(t, 3, func(t *testing.T, l *lines) {
		waitFirst := l.occupy()
		hurried, waitHurried := l.join(within(t, rtt), line(1))
		patient, waitPatient := l.join(t.Context(), line(2))
		waitHurried()
		if r := hurried[0]; !errors.Is(r.err, context.DeadlineExceeded) || r.took != rtt {
			t.Errorf("%v after %v", r.err, r.took)
		}
		waitFirst()
		waitPatient()
		must(t, patient[0].err)
		l.left(3, append(l.below(0), patient[0].Path)...)
	})
}

// While there is no connection each caller waits as long as its own retry
// policy allows: none is sent on the next connection after its caller was told
// otherwise.
func TestABatchMeetsADisconnect(t *testing.T) {
	const n = 10
	inLines(t, n, func(t *testing.T, l *lines) {
		waitFirst := l.occupy()
		var dirs []string
		for i := 1; i < n; i++ {
			dirs = append(dirs, line(i))
		}
		results, wait := l.join(t.Context(), dirs...) // queued
		l.net.Cut()
		l.net.Drop()
		wait()
		waitFirst()
		for _, r := range results {
			if !errors.Is(r.err, zk.ErrNoServer) || framework.MaybeApplied(r.err) {
				t.Errorf("%v; it may have been applied: %t", r.err, framework.MaybeApplied(r.err))
			}
		}
		l.net.Heal()
		must(t, l.c.WaitConnected(t.Context()))
		l.left(n)
	}, framework.WithRetry(retry.NTimes(3, 100*time.Millisecond)))
}

// The session ends, or the client closes, with writes under way and queued.
// Every caller is told, and nothing hangs.
func TestABatchMeetsTheEndOfItsSession(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(l *lines)
		want error
	}{
		"expiry": {func(l *lines) { l.ens.ExpireSession(l.sess.ID()) }, framework.ErrSessionLost},
		"close":  {func(l *lines) { must(l.T, l.c.Close()) }, framework.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 10
			inLines(t, n, func(t *testing.T, l *lines) {
				held := l.joinAll(0)[0]
				finish := inside(l.sess).StartDelete(t.Context(), held.Path, false)
				deleted := make(chan error, 1)
				go func() { deleted <- finish() }()
				var dirs []string
				for i := 1; i < n; i++ {
					dirs = append(dirs, line(i), line(i))
				}
				results, wait := l.join(t.Context(), dirs...)
				synctest.Wait()
				test.end(l)
				wait()
				for _, r := range results {
					if !errors.Is(r.err, test.want) {
						t.Errorf("%v, want %v", r.err, test.want)
					}
				}
				if err := <-deleted; err != nil && !errors.Is(err, test.want) {
					t.Errorf("a delete: %v", err)
				}
				l.left(n)
			})
		})
	}
}

// A server that is overloaded refuses a batch for the moment. All of it is
// tried again.
func TestABatchIsThrottled(t *testing.T) {
	const n = 6
	inLines(t, n, func(t *testing.T, l *lines) {
		defer once(l.ens, testutil.OpMulti, testutil.Fail(testutil.CodeThrottled))()
		results := l.joinAll(upTo(n)...)
		l.left(n, paths(results)...)
	})
}

// An error that names no operation is nobody's: each write is sent alone.
func TestARefusalWithoutAName(t *testing.T) {
	const n = 6
	inLines(t, n, func(t *testing.T, l *lines) {
		defer once(l.ens, testutil.OpMulti, testutil.Fail(testutil.CodeSystemError))()
		results := l.joinAll(upTo(n)...)
		// Some have left alone before the batch. The others were listed twice.
		if got := l.requests(); got[testutil.OpMulti] == 0 || got[testutil.OpCreate] > n || got[testutil.OpGetChildren2] > 2*n {
			t.Errorf("requests %v, want batches, and each refused create alone", got)
		}
		l.left(n, paths(results)...)
	})
}
