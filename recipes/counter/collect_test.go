package counter_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/tamper"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// addOnce adds 1 for an id, and checks whether it was counted before.
func addOnce(t *testing.T, n *counter.Counter, id string, repeated bool) {
	t.Helper()
	if r, err := n.AddOnce(t.Context(), id, 1); err != nil || r.Repeated != repeated {
		t.Fatalf("%s: %+v, %v", id, r, err)
	}
}

func TestOldMarkersAreRemoved(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := newCounter(t, w.ConnectNext(), counter.WithMarkerAge(time.Hour))
		addOnce(t, n, "a", false)
		made := time.Now()
		time.Sleep(2 * time.Hour)
		// A leader's clock that is a day ahead does not matter, nor does the clock of
		// this process: both must say that it is old.
		must(t, counter.RemoveOld(n, "a", made.Add(59*time.Minute)))
		addOnce(t, n, "a", true)
		must(t, counter.RemoveOld(n, "a", time.Now()))
		addOnce(t, n, "a", false)
		must(t, counter.RemoveOld(n, "a", time.Now().Add(24*time.Hour)))
		addOnce(t, n, "a", true)
		is(t, n, 2)
		if !w.Exists(counter.Directory(n, "a")) {
			t.Error("the directory was removed")
		}
	})
}

// together returns ids whose markers are in one directory.
func together(n *counter.Counter) iter.Seq[string] {
	dir := counter.Directory(n, "0")
	return func(yield func(string) bool) {
		for i := 0; ; i++ {
			if id := fmt.Sprint(i); counter.Directory(n, id) == dir && !yield(id) {
				return
			}
		}
	}
}

// Old markers go, also if each addition is made by another process, or there is
// one less often than a process remembers that it has added. With a chance of
// 1/8 an addition removes up to 64, so that more than 150 stay in a directory
// has a chance of one in a billion.
func TestRareAdditionsRemoveOldMarkers(t *testing.T) {
	const age, pause, additions, left = time.Hour, 65 * time.Second, 500, 150
	for name, each := range map[string]bool{"one process": false, "a process for each": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				bubble.Bound(t, 2*additions*pause)
				c := w.ConnectNext()
				count := 0
				for id := range together(newCounter(t, c)) {
					n := newCounter(t, c, counter.WithMarkerAge(age))
					addOnce(t, n, id, false)
					if each {
						must(t, n.AwaitRemoval(t.Context()))
						must(t, c.Close())
						c = w.ConnectNext()
					}
					time.Sleep(pause)
					if count++; count == additions {
						break
					}
				}
				n := newCounter(t, c)
				if there := len(w.Children(counter.Directory(n, "0"))); there > int(age/pause)+left {
					t.Errorf("%d markers are left of %d", there, additions)
				}
				is(t, n, additions)
			})
		})
	}
}

// Markers are kept for the longest age that anybody has set, whoever removes
// them.
func TestTheLongestAgeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		bubble.Bound(t, 20*day)
		w := bubble.New(t)
		root := path + "-once"
		patient := framework.WithSessionTimeout(40 * time.Second) // fewer pings
		c, other := w.ConnectNext(patient), w.ConnectNext(patient)
		unset, longest := newCounter(t, c), newCounter(t, c, counter.WithMarkerAge(3*day))
		short, long := newCounter(t, other, counter.WithMarkerAge(time.Hour)), newCounter(t, other, counter.WithMarkerAge(2*day))
		carries := func(want string) {
			t.Helper()
			if data, _ := w.Data(root); string(data) != want {
				t.Errorf("%q, want %q", data, want)
			}
		}
		// kept has counters remove what is old in the directory of an id.
		kept := func(id string, want bool, by ...*counter.Counter) {
			t.Helper()
			for _, n := range by {
				must(t, counter.RemoveOld(n, id, time.Now()))
				if found := w.Exists(counter.Directory(n, id) + "/" + id); found != want {
					t.Errorf("%s is there: %t", id, found)
				}
			}
		}
		addOnce(t, unset, "default", false)
		carries("")
		time.Sleep(day - time.Minute)
		kept("default", true, unset)
		time.Sleep(2 * time.Minute)
		kept("default", false, unset)

		addOnce(t, short, "short", false)
		carries("1h0m0s")
		time.Sleep(2 * time.Hour)
		kept("short", false, unset)

		for id, n := range map[string]*counter.Counter{"a": long, "b": short, "c": unset} {
			addOnce(t, n, id, false)
		}
		carries("48h0m0s")
		time.Sleep(2*day - time.Minute)
		for _, id := range []string{"a", "b", "c"} {
			kept(id, true, unset, short, long)
		}
		time.Sleep(2 * time.Minute)
		kept("a", false, unset)
		kept("b", false, short)
		kept("c", false, long)

		addOnce(t, unset, "longest", false)
		time.Sleep(2*day + time.Minute)
		kept("longest", true, longest) // who has not added yet
		carries("72h0m0s")
		_, err := c.Set(t.Context(), root, []byte("1h"), -1)
		must(t, err)
		kept("longest", false, unset)
		addOnce(t, short, "shorter", false)
		carries("1h")
		addOnce(t, long, "long again", false)
		carries("48h0m0s")
	})
}

// If the data of the markers' root are no age, additions are made, and nothing
// is removed. If the root is gone, it is made again and carries the age.
func TestAStrangeAge(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		root, c := path+"-once", w.ConnectNext()
		n := newCounter(t, c, counter.WithMarkerAge(time.Hour))
		addOnce(t, n, "a", false)
		for _, strange := range []string{"text", "-1h", "0s", "7"} {
			_, err := c.Set(t.Context(), root, []byte(strange), -1)
			must(t, err)
			time.Sleep(2 * time.Hour)
			addOnce(t, n, "with "+strange, false)
			if err := counter.RemoveOld(n, "a", time.Now()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("no age: %q", strange)) {
				t.Error(err)
			}
		}
		addOnce(t, n, "a", true)
		for _, dir := range w.Children(root) {
			for _, id := range w.Children(root + "/" + dir) {
				must(t, c.Delete(t.Context(), root+"/"+dir+"/"+id, -1))
			}
			must(t, c.Delete(t.Context(), root+"/"+dir, -1))
		}
		must(t, c.Delete(t.Context(), root, -1))
		addOnce(t, n, "a", false)
		if data, _ := w.Data(root); string(data) != "1h0m0s" {
			t.Errorf("%q", data)
		}
	})
}

// In a large directory, whose list is long, an addition looks less often, and
// at more: a sixteenth.
func TestALargeDirectory(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		n := newCounter(t, c, counter.WithMarkerAge(time.Hour))
		addOnce(t, n, "0", false)
		dir := counter.Directory(n, "0")
		const planted = 32 * counter.SweepSize
		var ops []any
		for i := range planted {
			ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/old %d", dir, i)})
		}
		for some := range slices.Chunk(ops, 64) {
			_, err := c.Multi(t.Context(), some...)
			must(t, err)
		}
		time.Sleep(2 * time.Hour)
		for id := range together(n) {
			if id == "0" {
				continue
			}
			before := len(w.Children(dir))
			addOnce(t, n, id, false)
			must(t, n.AwaitRemoval(t.Context()))
			if removed := before + 1 - len(w.Children(dir)); removed > 0 {
				if removed > planted/8 || removed <= counter.SweepSize {
					t.Errorf("%d of %d were removed", removed, before)
				}
				break
			}
		}
	})
}

// Long ids below a long path: 64 deletes do not fit into the smallest request.
// The removal failed each time, and all markers stayed.
func TestOldMarkersWithLongNames(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext(framework.WithMaxRequest(16 << 10))
		n, err := counter.New(c, path+strings.Repeat("x", 200), counter.WithMarkerAge(time.Hour))
		must(t, err)
		id := func(i int) string { return fmt.Sprintf("%0128d", i) }
		addOnce(t, n, id(0), false)
		dir := counter.Directory(n, id(0))
		for i := 1; i < counter.SweepSize; i++ {
			create(t, c, dir+"/"+id(i), "")
		}
		time.Sleep(2 * time.Hour)
		must(t, counter.RemoveOld(n, id(0), time.Now()))
		if left := w.Children(dir); len(left) > 0 {
			t.Errorf("%d are left", len(left))
		}
	})
}

// A client removes the markers of one directory at a time, however long that
// takes. Who waits for that waits no longer than his context.
func TestOneDirectoryIsSweptAtATime(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := newCounter(t, w.ConnectNext())
		must(t, n.AwaitRemoval(t.Context()))
		busy := testutil.NewFault(testutil.Match{Op: testutil.OpGetChildren2, Times: 1000}, testutil.Fail(testutil.CodeThrottled))
		stop := w.Control(busy.Control)
		for i := range 200 { // some have begun
			addOnce(t, n, fmt.Sprint(i), false)
		}
		synctest.Wait()
		if lists := busy.Count(); lists != 1 {
			t.Errorf("%d directories are listed at a time", lists)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		bubble.WantErr(t, n.AwaitRemoval(ctx), context.DeadlineExceeded)
		stop()
		must(t, n.AwaitRemoval(t.Context()))
		w.ResetRequests()
		for i := range 200 {
			addOnce(t, n, fmt.Sprint("more ", i), false)
		}
		must(t, n.AwaitRemoval(t.Context())) // which has begun
		if w.Cost()[testutil.OpGetChildren2] == 0 {
			t.Errorf("afterwards: %v", w.Cost())
		}
	})
}

// Between the read of an old marker and its removal, somebody else removes it
// and AddOnce makes it anew. It stays, and its id counts once.
func TestAMarkerThatIsMadeAnew(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		collector, n := newCounter(t, c, counter.WithMarkerAge(time.Hour)), newCounter(t, w.ConnectNext(), counter.WithMarkerAge(time.Hour))
		addOnce(t, n, "a", false)
		time.Sleep(2 * time.Hour)
		release := make(chan struct{})
		stop := nth(w, c, testutil.Hold(release))
		done := make(chan error)
		go func() { done <- counter.RemoveOld(collector, "a", time.Now()) }()
		synctest.Wait()
		stop()
		must(t, counter.RemoveOld(n, "a", time.Now()))
		addOnce(t, n, "a", false)
		close(release)
		must(t, <-done)
		addOnce(t, n, "a", true)
	})
}

// At version -1 the check of a directory would pass whatever was made in it.
func TestADirectoryAtVersionMinusOne(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var lying atomic.Bool
		c, _ := lied(t, w, wire.OpExists, func(a tamper.Answer) {
			if lying.Load() {
				const fromEnd = 68 - 32 // of the version in the stat
				binary.BigEndian.PutUint32(a.Frame[len(a.Frame)-fromEnd:], 1<<32-1)
			}
		})
		n := newCounter(t, c, counter.WithMarkerAge(time.Hour))
		addOnce(t, n, "a", false)
		time.Sleep(2 * time.Hour)
		for _, lies := range []bool{true, false} {
			lying.Store(lies)
			must(t, counter.RemoveOld(n, "a", time.Now()))
			if found := w.Exists(counter.Directory(n, "a") + "/a"); found != lies {
				t.Errorf("it is there: %t", found)
			}
		}
	})
}

// Markers that somebody else has put things below, or that go meanwhile, do not
// keep the others.
func TestStrangeMarkers(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		n := newCounter(t, c, counter.WithMarkerAge(time.Hour))
		addOnce(t, n, "a", false)
		dir := counter.Directory(n, "a")
		create(t, c, dir+"/parent", "")
		create(t, c, dir+"/parent/child", "")
		create(t, c, dir+"/goes", "")
		time.Sleep(2 * time.Hour)
		admin := w.ConnectNext()
		gone := false
		defer w.Control(func(r testutil.Request) testutil.Action {
			if r.Op == testutil.OpMulti && !gone {
				gone = true
				if err := admin.Delete(t.Context(), dir+"/goes", -1); err != nil {
					t.Error(err)
				}
			}
			return testutil.Pass()
		})()
		must(t, counter.RemoveOld(n, "a", time.Now()))
		if left := w.Children(dir); fmt.Sprint(left) != "[parent]" {
			t.Errorf("%v", left)
		}
		if err := counter.RemoveOld(n, "none is here", time.Now()); !errors.Is(err, zk.ErrNoNode) {
			t.Error(err)
		}
	})
}
