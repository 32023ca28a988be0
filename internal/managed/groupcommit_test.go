package managed_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/testutil"
)

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
		l.knowsMultiRead()
		results := l.joinAll(upTo(n)...)
		for i, r := range results {
			if r.took > 2*rtt {
				t.Errorf("%d took %v, want two round trips at most", i, r.took)
			}
		}
		got := l.requests()
		if requests := got[testutil.OpCreate] + got[testutil.OpMulti]; requests > managed.UnderWay+2 ||
			got[testutil.OpGetChildren2] != got[testutil.OpCreate] || got[testutil.OpMultiRead] != got[testutil.OpMulti] {
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
		if requests := got[testutil.OpDelete] + got[testutil.OpMulti]; requests > managed.UnderWay+2 {
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
		finish := inside(l.sess).StartDelete(t.Context(), held[0].Path, false)
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
			testutil.OpDelete: 1, testutil.OpCreate: managed.UnderWay, testutil.OpMulti: 1, testutil.OpGetChildren2: managed.UnderWay + 1,
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
			finish := inside(l.sess).StartDelete(t.Context(), held.Path, false)
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
		for _, r := range l.multis() {
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
		for _, r := range l.multis() {
			if len(r.Operations) > 5 {
				t.Errorf("a batch of %d creates with 3000 bytes each", len(r.Operations))
			}
			if r.Does(testutil.OpCreate, "/line/of-many/20/") {
				t.Error("a large create is in a batch")
			}
		}
	}, framework.WithMaxRequest(64<<10), framework.WithObserver(framework.Observer{Batched: func(b framework.Batch) {
		if b.Operations < 2 || b.Operations > 256 {
			t.Errorf("a batch of %d operations", b.Operations)
		}
	}}))
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
				finish := inside(s).StartDelete(t.Context(), made.Path, false)
				must(t, finish())
				if err := inside(s).StartDelete(t.Context(), made.Path, false)(); !errors.Is(err, zk.ErrNoNode) || !strings.Contains(err.Error(), " /lock/") {
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
		if err := inside(l.sess).StartDelete(t.Context(), "/line/../0", false)(); err == nil || !strings.Contains(err.Error(), "path") {
			t.Error(err)
		}
		if n := len(l.take()); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}
