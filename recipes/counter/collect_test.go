package counter_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/random"
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

// The adders remove them, one of 256 directories from time to time.
func TestAddersRemoveOldMarkers(t *testing.T) {
	defer random.None()()
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := newCounter(t, w.ConnectNext(), counter.WithMarkerAge(time.Hour))
		inFirst := path + "-once/80"
		count := 0
		for i := 0; count < 200; i++ {
			if id := fmt.Sprint("old ", i); counter.Directory(n, id) == inFirst {
				addOnce(t, n, id, false)
				count++
			}
		}
		time.Sleep(2 * time.Hour)
		for i := range counter.SweepEvery {
			addOnce(t, n, fmt.Sprint("new ", i), false)
		}
		time.Sleep(time.Second)
		for _, left := range w.Children(inFirst) {
			if left[:3] == "old" {
				t.Errorf("%s was left", left)
			}
		}
		addOnce(t, n, "new 1", true)
	})
}

// A client removes the markers of one directory at a time, however long that
// takes.
func TestOneDirectoryIsSweptAtATime(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := newCounter(t, w.ConnectNext())
		add := func(more int) {
			for i := range counter.SweepEvery {
				addOnce(t, n, fmt.Sprint(more, " ", i), false)
			}
			synctest.Wait()
		}
		busy := testutil.NewFault(testutil.Match{Op: testutil.OpGetChildren2, Times: 1000}, testutil.Fail(testutil.CodeThrottled))
		stop := w.Control(busy.Control)
		for i := range 3 {
			add(i)
		}
		if lists := busy.Count(); lists != 1 {
			t.Errorf("%d directories are listed at a time", lists)
		}
		stop()
		time.Sleep(time.Minute)
		w.ResetRequests()
		if add(3); w.Cost()[testutil.OpGetChildren2] != 1 {
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
