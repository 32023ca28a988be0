package locks_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
)

const root = "/app/orders"

func keyedOf(t bubble.T, c *framework.Client, opts ...locks.Option) *locks.Keyed {
	t.Helper()
	k, err := locks.NewKeyed(c, root, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Locks of one key exclude each other, from any Keyed, and exclude no other
// key. Each is an ordinary mutex at its path.
func TestKeyed(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers) // waits for the end of a container
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		mine, theirs := keyedOf(t, a, recipes.WithData([]byte("host a"))), keyedOf(t, b)
		if mine.Path() != root || mine.Key("a/b").Path() != root+"/a%2Fb" {
			t.Errorf("paths %s and %s", mine.Path(), mine.Key("a/b").Path())
		}
		keys := []string{"", ".", "..", "/", "a", "a/b", "%", "%2F", "line\nbreak", "ключ", "🔑", "\xff", strings.Repeat("k", 1024)}
		var leases []*recipes.Lease
		for _, key := range keys {
			leases = append(leases, bubble.Acquire(t, t.Context(), mine.Key(key)))
		}
		listed, err := theirs.Keys(t.Context())
		slices.Sort(keys)
		if err != nil || !slices.Equal(listed, keys) {
			t.Errorf("Keys: %q, %v, want %q", listed, err, keys)
		}
		for _, key := range keys {
			_, err := theirs.Key(key).TryAcquire(t.Context())
			bubble.WantErr(t, err, recipes.ErrBusy)
			if all, err := theirs.Key(key).Participants(t.Context()); err != nil || len(all) != 1 || string(all[0].Data) != "host a" {
				t.Errorf("Participants of %q: %v, %v", key, all, err)
			}
		}
		for _, l := range leases {
			bubble.Release(t, l)
		}

		l := bubble.Acquire(t, t.Context(), mine.Key("a"))
		inner := bubble.Acquire(t, l.Context(), mine.Key("a")) // re-entered by another value of the same lock
		if inner.Path() != l.Path() {
			t.Errorf("re-entered %s at %s", l.Path(), inner.Path())
		}
		plain := bubble.Acquiring(t.Context(), mutexAt(t, b, root+"/a"))
		bubble.Pending(t, plain)
		bubble.Release(t, l)
		bubble.Pending(t, plain)
		bubble.Release(t, inner)
		bubble.Release(t, bubble.Granted(t, plain).Lease)

		both := bubble.Acquire(t, t.Context(), all(t, mine.Key("x"), mine.Key("a")))
		_, err = theirs.Key("x").TryAcquire(t.Context())
		bubble.WantErr(t, err, recipes.ErrBusy)
		bubble.Release(t, both)
		w.NothingLeft()
		removed(w, "/app")
	})
}

func TestInvalidKeys(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a")
		k := keyedOf(t, c)
		if keys, err := k.Keys(t.Context()); err != nil || len(keys) != 0 {
			t.Errorf("Keys without a directory: %v, %v", keys, err)
		}
		w.ResetRequests()
		for _, key := range []string{strings.Repeat("k", 1025), strings.Repeat("/", 342), strings.Repeat("é", 513), strings.Repeat("x", 2<<20)} {
			m := k.Key(key)
			for _, verb := range []func(context.Context) (*recipes.Lease, error){m.Acquire, m.TryAcquire} {
				_, err := verb(t.Context())
				if err == nil || !strings.Contains(err.Error(), "key too long") || len(err.Error()) > 1200 {
					t.Errorf("Acquire: %v", err)
				}
			}
			if l := bubble.Acquire(t, t.Context(), k.Key(strings.Repeat("k", 1024))); true {
				if _, ok := m.Held(l.Context()); ok {
					t.Error("an invalid key is held")
				}
				bubble.Release(t, l)
			}
			if all, err := m.Participants(t.Context()); err != nil || len(all) != 0 {
				t.Errorf("Participants: %v, %v", all, err)
			}
		}
		for story, make := range map[string]func() (*locks.Keyed, error){
			"no client":     func() (*locks.Keyed, error) { return locks.NewKeyed(nil, root) },
			"a relative":    func() (*locks.Keyed, error) { return locks.NewKeyed(c, "orders") },
			"the root":      func() (*locks.Keyed, error) { return locks.NewKeyed(c, "/") },
			"a bad option":  func() (*locks.Keyed, error) { return locks.NewKeyed(c, root, recipes.WithMaxHold(-1)) },
			"a bad layout":  func() (*locks.Keyed, error) { return locks.NewKeyed(c, root, locks.WithLayout(7)) },
			"an empty root": func() (*locks.Keyed, error) { return locks.NewKeyed(c, "") },
		} {
			if _, err := make(); err == nil || !strings.HasPrefix(err.Error(), "locks: ") {
				t.Errorf("%s: error %v", story, err)
			}
		}
		w.NothingLeft()
	})
}

// Several goroutines of two processes use thousands of keys at once. Afterwards
// nothing is left.
func TestThousandsOfKeys(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers) // waits for the end of a container
	count := bubble.Few(300, 2000)
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := keyedOf(t, w.Connect("a")), keyedOf(t, w.Connect("b"))
		in := make([]bubble.Exclusion, count)
		var wg sync.WaitGroup
		for i := range count {
			in[i].T = t
			for _, k := range []*locks.Keyed{a, b} {
				wg.Go(func() {
					err := recipes.Do(t.Context(), k.Key(fmt.Sprint("order ", i)), func(ctx context.Context, l *recipes.Lease) error {
						in[i].Enter()
						defer in[i].Leave()
						time.Sleep(time.Second)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		time.Sleep(500 * time.Millisecond)
		if n := len(w.Children(root)); n != count {
			t.Errorf("%d keys, want %d", n, count)
		}
		wg.Wait()
		for i := range count {
			if n := in[i].Entered.Load(); n != 2 {
				t.Errorf("key %d was held %d times", i, n)
			}
		}
		w.NothingLeft()
		removed(w, "/app")
	})
}

// An unused key uses no memory. The keys are long, so that a leak is seen.
func TestUnusedKeysTakeNoMemory(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers) // waits for the end of a container
	count, long := bubble.Few(1000, 2000), 1000
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		k := keyedOf(t, w.Connect("a"))
		use := func(from int) {
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					for n := from + i; n < from+count; n += 20 {
						m := k.Key(strings.Repeat("k", long) + fmt.Sprint(n))
						bubble.Release(t, bubble.Acquire(t, t.Context(), m))
					}
				})
			}
			wg.Wait()
			w.NothingLeft()
			removed(w, root)
		}
		small := w.Connect("b")
		heapNow := func() int {
			for range 2048 { // the ensemble keeps so many entries of its log: none with a long key
				if _, err := small.Set(t.Context(), "/", nil, -1); err != nil {
					t.Fatal(err)
				}
			}
			return heap()
		}
		use(0) // makes all allocations of a first use
		before := heapNow()
		use(count)
		if grown := heapNow() - before; grown > count*long/5 {
			t.Errorf("%d bytes for each key of %d bytes are left", grown/count, long)
		} else {
			t.Logf("%d bytes for each key of %d bytes are left", grown/count, long)
		}
		runtime.KeepAlive(k)
	})
}

func heap() int {
	runtime.GC()
	runtime.GC() // sync.Pools are empty after the second one
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// Close releases all leases and ends all waits. Other values can then acquire
// the keys, and this one cannot.
func TestCloseOfKeyed(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		k, theirs := keyedOf(t, a), keyedOf(t, b)
		held := make(map[string]*recipes.Lease)
		for i := range 100 {
			key := fmt.Sprint(i)
			held[key] = bubble.Acquire(t, t.Context(), k.Key(key))
		}
		nested := bubble.Acquire(t, held["0"].Context(), k.Key("0"))
		gone := bubble.Acquire(t, t.Context(), k.Key("gone"))
		bubble.Release(t, gone)
		taken := bubble.Acquire(t, t.Context(), theirs.Key("taken"))
		waiting := bubble.Acquiring(t.Context(), k.Key("taken"))
		local := bubble.Acquiring(t.Context(), k.Key("1"))
		synctest.Wait()
		bubble.Pending(t, waiting)
		bubble.Pending(t, local)
		independent := bubble.Acquire(t, t.Context(), keyedOf(t, a).Key("independent"))

		start := time.Now()
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("Close took %v", took)
		}
		for key, l := range held {
			if l.Held() || w.Exists(l.Path()) {
				t.Errorf("%s is held", key)
			}
			bubble.WantErr(t, l.Err(), recipes.ErrReleased)
			bubble.Release(t, l)
		}
		if nested.Held() {
			t.Error("a nested lease is held")
		}
		for _, from := range []<-chan bubble.Grant{waiting, local} {
			g := <-from
			bubble.WantErr(t, g.Err, locks.ErrClosed)
			if errors.Is(g.Err, context.Canceled) {
				t.Errorf("error %v: want an error of Close, not a cancel", g.Err)
			}
		}
		_, err := k.Key("2").Acquire(t.Context())
		bubble.WantErr(t, err, locks.ErrClosed)
		_, err = k.Key("2").TryAcquire(t.Context())
		bubble.WantErr(t, err, locks.ErrClosed)
		_, err = k.Key("independent").Acquire(independent.Context()) // re-entry fails too
		bubble.WantErr(t, err, locks.ErrClosed)
		if want := "locks: acquire /app/orders/independent: keyed locks closed"; err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if !independent.Held() {
			t.Error("another value's lease was released")
		}
		bubble.Release(t, independent)
		bubble.Release(t, taken)
		w.NothingLeft()
	})
}

// A lock that is granted during Close is released, and its Acquire fails.
func TestGrantDuringClose(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		var k *locks.Keyed
		var closed error
		a := w.Connect("a", recipes.WithObserver(recipes.Observer{
			AcquireEnd: func(context.Context, recipes.Acquire, recipes.AcquireResult) { closed = k.Close(t.Context()) },
		}))
		k = keyedOf(t, a)
		l, err := k.Key("late").Acquire(t.Context())
		bubble.WantErr(t, err, locks.ErrClosed)
		if l != nil || closed != nil {
			t.Errorf("lease %v; Close: %v", l, closed)
		}
		w.NothingLeft()
	})
}

// Without a server Close returns in time and continues in the background. It
// reports a loss.
func TestCloseOfKeyedWithoutAServer(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a := w.Connect("a")
		k := keyedOf(t, a)
		for i := range 10 {
			bubble.Acquire(t, t.Context(), k.Key(fmt.Sprint(i)))
		}
		w.ClientNet("a").Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		bubble.WantErr(t, k.Close(ctx), context.DeadlineExceeded)
		if took := time.Since(start); took != time.Second {
			t.Errorf("Close took %v", took)
		}
		w.ClientNet("a").Heal()
		if err := k.Close(t.Context()); err != nil { // all were held until their release
			t.Error(err)
		}
		w.NothingLeft()

		k = keyedOf(t, a)
		lostBefore := bubble.Acquire(t, t.Context(), k.Key("before"))
		time.Sleep(time.Second)
		if err := w.Connect("b").Delete(t.Context(), lostBefore.Path(), -1); err != nil {
			t.Fatal(err)
		}
		bubble.Lost(t, lostBefore)
		synctest.Wait()
		for i := range 10 {
			bubble.Acquire(t, t.Context(), k.Key(fmt.Sprint(i)))
		}
		w.ClientNet("a").Cut()
		err := k.Close(t.Context())
		bubble.WantErr(t, err, recipes.ErrNotHeld, framework.ErrSessionLost)
		if errors.Is(err, zk.ErrNoNode) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("error %v, want one loss, of those that were held", err)
		}
		w.ClientNet("a").Heal()
		bubble.WantErr(t, lostBefore.Release(t.Context()), recipes.ErrNotHeld)
		time.Sleep(time.Minute)
		w.NothingLeft()
	})
}

// An Acquire during Close either fails, or returns a lease that Close releases.
func TestCloseOfKeyedAtAnyInstant(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		a, b := w.Connect("a"), w.Connect("b")
		w.Latency(10 * time.Millisecond)
		for after := time.Duration(0); after < 100*time.Millisecond; after += 5 * time.Millisecond {
			k := keyedOf(t, a)
			for _, key := range []string{"1", "2"} {
				go func() {
					for {
						if _, err := k.Key(key).Acquire(t.Context()); err != nil {
							bubble.WantErr(t, err, locks.ErrClosed)
							return
						}
					}
				}()
			}
			time.Sleep(after)
			if err := k.Close(t.Context()); err != nil {
				t.Error(err)
			}
			for _, key := range []string{"1", "2"} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				bubble.Release(t, bubble.Acquire(t, ctx, keyedOf(t, b).Key(key)))
				cancel()
			}
		}
		w.NothingLeft()
	})
}

// removed fails the test unless a directory is removed some time after its
// use.
func removed(w *bubble.World, path string) {
	w.T.Helper()
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	if w.Exists(path) {
		w.T.Errorf("%s still exists, with %d children", path, len(w.Children(path)))
	}
}
