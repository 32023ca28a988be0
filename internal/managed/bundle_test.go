package managed_test

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Watches of many znodes that are asked for together cost a few requests.
// Whatever happens to a znode between its read and its watch is told, or seen.
func TestWatchesAreArmedTogether(t *testing.T) {
	const all = 100
	book := func(i int) string { return fmt.Sprint("/lib/", i) }
	singly := map[testutil.Op]int{testutil.OpGetData: all + 2}
	together := map[testutil.Op]int{testutil.OpMultiRead: 5, testutil.OpSetWatches: 1}
	for name, tt := range map[string]struct {
		opts      []testutil.Option
		held      testutil.Op // the request before which meanwhile happens
		meanwhile func(t *testing.T, other *framework.Client)
		tells     bool // of it
		op        testutil.Op
		fault     testutil.Action // of the first op
		cost      map[testutil.Op]int
	}{
		"unchanged": {cost: together},
		"changed before its watch": {held: testutil.OpSetWatches, tells: true, cost: together, meanwhile: func(t *testing.T, other *framework.Client) {
			must(t, failure(other.Set(t.Context(), book(7), nil, -1)))
		}},
		"changed before its read": {held: testutil.OpMultiRead, cost: together, meanwhile: func(t *testing.T, other *framework.Client) {
			must(t, failure(other.Set(t.Context(), book(7), nil, -1)))
		}},
		"deleted before its watch": {held: testutil.OpSetWatches, tells: true, cost: together, meanwhile: func(t *testing.T, other *framework.Client) {
			must(t, other.Delete(t.Context(), book(7), -1))
		}},
		"made anew before its watch": {held: testutil.OpSetWatches, tells: true, cost: together, meanwhile: func(t *testing.T, other *framework.Client) {
			must(t, other.Delete(t.Context(), book(7), -1))
			must(t, failure(other.Create(t.Context(), book(7), []byte(book(7)), 0)))
		}},
		"another one changed": {held: testutil.OpSetWatches, cost: together, meanwhile: func(t *testing.T, other *framework.Client) {
			must(t, failure(other.Set(t.Context(), "/lib", nil, -1)))
		}},
		"watches refused":        {op: testutil.OpSetWatches, fault: testutil.Fail(testutil.CodeSystemError)},
		"watches never received": {op: testutil.OpSetWatches, fault: testutil.DropBefore()},
		"watches unanswered":     {op: testutil.OpSetWatches, fault: testutil.DropAfter()},
		"reads refused":          {op: testutil.OpMultiRead, fault: testutil.Fail(testutil.Code(wire.Unimplemented)), cost: singly},
		"reads unanswered":       {op: testutil.OpMultiRead, fault: testutil.DropAfter()},
		"a server before 3.6":    {opts: []testutil.Option{testutil.WithoutNewOperations()}, cost: singly},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, network := connect(t, w.Embedded)
				other, _ := connect(t, w.Embedded)
				library(t, other, all)
				s := session(t, c)
				release, reached := make(chan struct{}), make(chan struct{})
				var once sync.Once
				network.Control(func(r testutil.Request) testutil.Action {
					action := testutil.Pass()
					if r.Op == tt.held {
						once.Do(func() { close(reached); action = testutil.Hold(release) })
					}
					if r.Op == tt.op {
						once.Do(func() { action = tt.fault })
					}
					return action
				})
				w.ResetRequests()
				var fired [all]<-chan struct{}
				var calls sync.WaitGroup
				for i := range fired {
					calls.Go(func() {
						data, stat, changed, _, err := inside(s).WatchAndResume(book(i))
						if fired[i] = changed; tt.fault == testutil.DropAfter() {
							return // the caller tries again
						}
						if err != nil || stat == nil || string(data) != book(i) && i != 7 {
							t.Errorf("%s: %q, %v, %v", book(i), data, stat, err)
						}
					})
				}
				for path, want := range map[string]error{"/lib/none": zk.ErrNoNode, "/lib/secret": zk.ErrNoAuth} {
					calls.Go(func() {
						if _, _, _, _, err := inside(s).WatchAndResume(path); !errors.Is(err, want) {
							t.Errorf("%s: %v", path, err)
						}
					})
				}
				if tt.held != 0 {
					bubble.Await(t, "the request", reached)
					tt.meanwhile(t, other)
					close(release)
				}
				calls.Wait()
				time.Sleep(time.Second)
				for op, n := range tt.cost {
					if cost := w.Requests(); cost[op] > n || cost[op] == 0 || maps.Equal(tt.cost, together) && cost[testutil.OpGetData] > 0 {
						t.Errorf("it cost %v, want %v", cost, tt.cost)
					}
				}
				armed := all
				for i := range fired {
					if has := hasHappened(fired[i]); has != (tt.tells && i == 7) {
						t.Errorf("%s has fired: %t", book(i), has)
					} else if has {
						armed--
					}
				}
				if n := w.WatchCount(); n != armed {
					t.Errorf("%d watches, want %d", n, armed)
				}
				for i := range fired {
					if i != 7 || !tt.tells {
						must(t, failure(other.Set(t.Context(), book(i), nil, -1)))
					}
					bubble.Await(t, book(i), fired[i])
				}
			}, tt.opts...)
		})
	}
}

// Many reads are several requests, between which znodes change.
func TestAChangeBetweenTheReadsOfABundle(t *testing.T) {
	const all = 100
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		other, _ := connect(t, ens)
		books := library(t, other, all)[:all]
		s := session(t, c)
		second, release := make(chan struct{}), make(chan struct{})
		var reads atomic.Int32
		network.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpMultiRead && reads.Add(1) == 2 {
				close(second)
				return testutil.Hold(release)
			}
			return testutil.Pass()
		})
		var calls sync.WaitGroup
		var data [all][]byte
		var fired [all]<-chan struct{}
		for i, book := range books {
			calls.Go(func() {
				var err error
				data[i], _, fired[i], _, err = inside(s).WatchAndResume(book.Path)
				if err != nil {
					t.Error(err)
				}
			})
		}
		bubble.Await(t, "the second request", second)
		time.Sleep(time.Second) // the first one has been executed
		for _, book := range books {
			must(t, failure(other.Set(t.Context(), book.Path, nil, -1)))
		}
		close(release)
		calls.Wait()
		told := 0
		for i, book := range books {
			if len(data[i]) == 0 {
				continue
			}
			if told++; !hasHappened(fired[i]) {
				t.Errorf("%s: the change is not told", book.Path)
			}
		}
		if told == 0 || told == all {
			t.Errorf("%d of %d changed between their read and their watch", told, all)
		}
	})
}

// A few watches are armed by a read each, and without asking the server what it
// knows.
func TestAFewWatchesAreNoBundle(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, _ := connect(t, ens)
		books := library(t, c, managed.Many-1)[:managed.Many-1]
		connections := ens.Connections()
		ens.ResetRequests()
		var calls sync.WaitGroup
		for _, book := range books {
			calls.Go(func() {
				_, _, _, _, err := inside(session(t, c)).WatchAndResume(book.Path)
				must(t, err)
			})
		}
		calls.Wait()
		if cost := ens.Requests(); !maps.Equal(cost, map[testutil.Op]int{testutil.OpGetData: len(books)}) || ens.Connections() != connections {
			t.Errorf("it cost %v", cost)
		}
	})
}

func hasHappened(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
