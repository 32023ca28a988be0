package framework_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/retry"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// rtt is a round trip in the tests of group commit.
const rtt = 100 * time.Millisecond

// lines is a session with the directories /line/0, /line/1, ..., whose round
// trips take rtt, and a record of what the ensemble is asked for.
type lines struct {
	*testing.T
	ens  *testutil.Embedded
	net  *testutil.ClientNet
	c    *framework.Client
	sess *framework.Session

	mu   sync.Mutex
	seen []testutil.Request // writes, syncs and lists
}

func inLines(t *testing.T, directories int, scenario func(t *testing.T, l *lines), opts ...framework.Option) {
	t.Helper()
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens, opts...)
		l := &lines{T: t, ens: ens, net: network, c: c, sess: session(t, c)}
		for i := range directories {
			must(t, l.sess.MakePersistentPath(t.Context(), line(i)))
		}
		ens.Latency(rtt / 2)
		defer ens.Control(func(r testutil.Request) testutil.Action {
			switch r.Op {
			case testutil.OpCreate, testutil.OpDelete, testutil.OpMulti, testutil.OpSync, testutil.OpGetChildren2:
				l.mu.Lock()
				defer l.mu.Unlock()
				l.seen = append(l.seen, r)
			}
			return testutil.Pass()
		})()
		time.Sleep(10 * time.Millisecond) // away from the heartbeats
		scenario(t, l)
	})
}

func line(i int) string { return fmt.Sprint("/line/", i) }

// requests returns how many requests of each kind there were since the last
// call.
func (l *lines) requests() map[testutil.Op]int {
	n := make(map[testutil.Op]int)
	for _, r := range l.take() {
		n[r.Op]++
	}
	return n
}

func (l *lines) take() []testutil.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.seen = nil }()
	return l.seen
}

func (l *lines) want(want map[testutil.Op]int) {
	l.Helper()
	if got := l.requests(); !maps.Equal(got, want) {
		l.Errorf("requests %v, want %v", got, want)
	}
}

// joined is the result of a create that join has begun.
type joined struct {
	framework.Created
	err  error
	took time.Duration
	done bool
}

// join begins to create a contender in each of the directories.
func (l *lines) join(ctx context.Context, dirs ...string) (results []*joined, wait func()) {
	var all sync.WaitGroup
	for _, dir := range dirs {
		r := &joined{}
		results = append(results, r)
		began := time.Now()
		all.Go(func() {
			r.Created, r.err = l.sess.CreateProtected(ctx, dir, "lock-", nil, sequential)
			r.took, r.done = time.Since(began), true
		})
	}
	return results, all.Wait
}

// occupy has as many creates under way, in line 0, as hold other creates back.
func (l *lines) occupy() (wait func()) {
	var waits []func()
	for range framework.UnderWay {
		_, wait := l.join(l.Context(), line(0))
		waits = append(waits, wait)
		time.Sleep(rtt / 20)
	}
	return func() {
		for _, wait := range waits {
			wait()
		}
	}
}

// joinAll joins the directories of the given numbers and waits. None must fail.
func (l *lines) joinAll(numbers ...int) []*joined {
	l.Helper()
	var dirs []string
	for _, i := range numbers {
		dirs = append(dirs, line(i))
	}
	results, wait := l.join(l.Context(), dirs...)
	wait()
	for i, r := range results {
		if r.err != nil {
			l.Fatalf("%s: %v", dirs[i], r.err)
		}
		l.stands(r)
	}
	return results
}

// stands checks that a create has one znode, which its list shows.
func (l *lines) stands(r *joined) {
	l.Helper()
	at := strings.LastIndexByte(r.Path, '/')
	if !slices.Contains(r.Children, r.Path[at+1:]) {
		l.Errorf("the list %v does not show %s", r.Children, r.Path)
	}
	if data := l.ens.Children(r.Path[:at]); !slices.Contains(data, r.Path[at+1:]) {
		l.Errorf("%s has %v", r.Path, data)
	}
}

// leave deletes znodes at once, and waits.
func (l *lines) leave(paths ...string) (errs []error) {
	errs = make([]error, len(paths))
	var all sync.WaitGroup
	for i, path := range paths {
		finish := l.sess.StartDelete(path)
		all.Go(func() { errs[i] = finish() })
	}
	all.Wait()
	return errs
}

// left checks that nothing is left in any line, after a while.
func (l *lines) left(directories int, want ...string) {
	l.Helper()
	time.Sleep(2 * timeout)
	for i := range directories {
		for _, name := range l.ens.Children(line(i)) {
			if path := line(i) + "/" + name; !slices.Contains(want, path) {
				l.Errorf("%s is left", path)
			}
		}
	}
}

// below returns the paths of what is in a line.
func (l *lines) below(i int) (all []string) {
	for _, name := range l.ens.Children(line(i)) {
		all = append(all, line(i)+"/"+name)
	}
	return all
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func paths(results []*joined) (all []string) {
	for _, r := range results {
		all = append(all, r.Path)
	}
	return all
}

// With nothing under way a write leaves at once, alone.
func TestALoneWriteIsNoBatch(t *testing.T) {
	inLines(t, 1, func(t *testing.T, l *lines) {
		for range 3 {
			made := l.joinAll(0)[0]
			if made.took != rtt {
				t.Errorf("took %v, want one round trip", made.took)
			}
			if errs := l.leave(made.Path); errs[0] != nil {
				t.Error(errs[0])
			}
			l.want(map[testutil.Op]int{testutil.OpCreate: 1, testutil.OpGetChildren2: 1, testutil.OpDelete: 1})
		}
	})
}

// Creates that are asked for while others are under way leave in one request,
// and so do deletes.
func TestWritesAreBatched(t *testing.T) {
	const n = 40
	inLines(t, n, func(t *testing.T, l *lines) {
		results := l.joinAll(upTo(n)...)
		for i, r := range results {
			if r.took > 2*rtt {
				t.Errorf("%d took %v, want two round trips at most", i, r.took)
			}
		}
		got := l.requests()
		if requests := got[testutil.OpCreate] + got[testutil.OpMulti]; requests > framework.UnderWay+2 || got[testutil.OpGetChildren2] != n {
			t.Errorf("requests %v for %d creates", got, n)
		}
		began := time.Now()
		for i, err := range l.leave(paths(results)...) {
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		if took := time.Since(began); took > 2*rtt {
			t.Errorf("%d deletes took %v, want two round trips at most", n, took)
		}
		got = l.requests()
		if requests := got[testutil.OpDelete] + got[testutil.OpMulti]; requests > framework.UnderWay+2 {
			t.Errorf("requests %v for %d deletes", got, n)
		}
		l.left(n)
	})
}

func TestBatchingCanBeTurnedOff(t *testing.T) {
	const n = 10
	inLines(t, n, func(t *testing.T, l *lines) {
		l.leave(paths(l.joinAll(upTo(n)...))...)
		l.want(map[testutil.Op]int{testutil.OpCreate: n, testutil.OpGetChildren2: n, testutil.OpDelete: n})
	}, framework.WithBatching(false))
}

// A create does not wait for a delete that is under way, nor a delete for
// creates.
func TestDeletesAndCreatesHoldNothingBack(t *testing.T) {
	inLines(t, 3, func(t *testing.T, l *lines) {
		held := l.joinAll(0, 1)
		l.take()
		finish := l.sess.StartDelete(held[0].Path)
		done := make(chan error, 1)
		go func() { done <- finish() }()
		time.Sleep(rtt / 10)
		wait := l.occupy()
		_, waitLast := l.join(t.Context(), line(2)) // is held back
		time.Sleep(rtt / 10)
		began := time.Now()
		if errs := l.leave(held[1].Path); errs[0] != nil {
			t.Error(errs[0])
		}
		if took := time.Since(began); took != rtt {
			t.Errorf("a delete beside creates took %v, want one round trip", took)
		}
		must(t, <-done)
		wait()
		waitLast()
		// The second delete takes the create with it that was held back.
		l.want(map[testutil.Op]int{
			testutil.OpDelete: 1, testutil.OpCreate: framework.UnderWay, testutil.OpMulti: 1, testutil.OpGetChildren2: framework.UnderWay + 1,
		})
	})
}

// In a batch the deletes are first, and a directory has one create.
func TestTheOrderInABatch(t *testing.T) {
	inLines(t, 3, func(t *testing.T, l *lines) {
		held := l.joinAll(0, 1, 2)
		l.take()
		waitFirst := l.occupy()
		_, wait := l.join(t.Context(), line(1), line(1), line(2))
		time.Sleep(rtt / 10)
		if errs := l.leave(held[1].Path, held[2].Path); errors.Join(errs...) != nil {
			t.Error(errs)
		}
		waitFirst()
		wait()
		batches := 0
		for _, r := range l.take() {
			if r.Op != testutil.OpMulti {
				continue
			}
			batches++
			creates, dirs := 0, map[string]bool{}
			for _, op := range r.Operations {
				if op.Op == testutil.OpDelete {
					if creates > 0 {
						t.Errorf("a delete behind a create: %v", r.Operations)
					}
					continue
				}
				creates++
				dir := op.Path[:strings.LastIndexByte(op.Path, '/')]
				if dirs[dir] {
					t.Errorf("two creates in %s: %v", dir, r.Operations)
				}
				dirs[dir] = true
			}
		}
		if batches == 0 {
			t.Error("there was no batch: the test shows nothing")
		}
	})
}

// What is asked for after a delete is executed after it, however the goroutines
// run: a lock that is released is free for the next acquisition of the process.
func TestACreateDoesNotOvertakeADelete(t *testing.T) {
	inLines(t, 1, func(t *testing.T, l *lines) {
		held := l.joinAll(0)[0]
		for i := range 200 {
			finish := l.sess.StartDelete(held.Path)
			results, wait := l.join(t.Context(), line(0))
			must(t, finish())
			wait()
			must(t, results[0].err)
			if len(results[0].Children) != 1 {
				t.Fatalf("round %d: the create was executed before the delete: %v", i, results[0].Children)
			}
			held = results[0]
		}
	})
}

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
			if alone := l.requests()[testutil.OpCreate]; round > 0 && alone > framework.UnderWay+1 {
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
		// may be enough creates for one more. The rest leaves behind the first answer.
		most := framework.UnderWay + 1
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
		if got := l.requests()[testutil.OpCreate]; got < n || got > n+framework.UnderWay+1 {
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
					finish[i] = l.sess.StartDelete(path)
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

// A batch has a quarter of the largest request, and 256 operations, at most. A
// create with more than that goes alone.
func TestTheBoundsOfABatch(t *testing.T) {
	const n = 600
	inLines(t, 1, func(t *testing.T, l *lines) {
		for i := range n {
			must(t, l.sess.MakePersistentPath(t.Context(), fmt.Sprint("/line/of-many/", i)))
		}
		l.ens.Latency(0)
		l.take()
		var all sync.WaitGroup
		create := func(i, size int) {
			all.Go(func() {
				_, err := l.sess.CreateProtected(t.Context(), fmt.Sprint("/line/of-many/", i), "lock-", make([]byte, size), sequential)
				if err != nil {
					t.Error(err)
				}
			})
		}
		l.ens.Latency(rtt / 2)
		for i := range n {
			create(i, 10)
		}
		all.Wait()
		most := 0
		for _, r := range l.take() {
			most = max(most, len(r.Operations))
		}
		if most < 32 || most > 256 {
			t.Errorf("the largest batch has %d operations", most)
		}
		for i := range 20 {
			create(i, 3000)
		}
		create(20, 20_000)
		all.Wait()
		for _, r := range l.take() {
			if len(r.Operations) > 1 {
				most = max(most, len(r.Operations))
			}
			if len(r.Operations) > 5 {
				t.Errorf("a batch of %d creates with 3000 bytes each", len(r.Operations))
			}
			if r.Op == testutil.OpMulti && r.Does(testutil.OpCreate, "/line/of-many/20/") {
				t.Error("a large create is in a batch")
			}
		}
	}, framework.WithMaxRequest(64<<10), framework.WithObserver(framework.Observer{Batched: func(operations int) {
		if operations < 2 || operations > 256 {
			t.Errorf("a batch of %d operations", operations)
		}
	}}))
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
				finish := l.sess.StartDelete(held.Path)
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

// Views of one client in two namespaces share batches. Each gets its own paths,
// also in errors.
func TestNamespacesShareBatches(t *testing.T) {
	inLines(t, 1, func(t *testing.T, l *lines) {
		sessions := map[string]*framework.Session{}
		for _, name := range []string{"a", "b"} {
			view, err := l.c.Namespace(name)
			must(t, err)
			sessions[name] = session(t, view)
			must(t, sessions[name].MakePersistentPath(t.Context(), "/lock"))
		}
		l.take()
		waitFirst := l.occupy()
		var all sync.WaitGroup
		for name, s := range sessions {
			all.Go(func() {
				made, err := s.CreateProtected(t.Context(), "/lock", "lock-", nil, sequential)
				must(t, err)
				if !strings.HasPrefix(made.Path, "/lock/") {
					t.Errorf("%s: path %s", name, made.Path)
				}
				finish := s.StartDelete(made.Path)
				must(t, finish())
				if err := s.StartDelete(made.Path)(); !errors.Is(err, zk.ErrNoNode) || !strings.Contains(err.Error(), " /lock/") {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		all.Wait()
		waitFirst()
		if l.requests()[testutil.OpMulti] == 0 {
			t.Error("there was no batch: the test shows nothing")
		}
	})
}

// A path that cannot be is refused before it is in anybody's batch.
func TestABadPathIsInNoBatch(t *testing.T) {
	inLines(t, 1, func(t *testing.T, l *lines) {
		if err := l.sess.StartDelete("/line/../0")(); err == nil || !strings.Contains(err.Error(), "path") {
			t.Error(err)
		}
		if n := len(l.take()); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}
