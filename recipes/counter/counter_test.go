package counter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const path = "/ids/order"

// Bubbles check their goroutines. This checks those of the examples.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t bubble.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newCounter(t bubble.T, c *framework.Client, opts ...counter.Option) *counter.Counter {
	t.Helper()
	n, err := counter.New(c, path, opts...)
	must(t, err)
	return n
}

// is fails the test unless the counter has a value.
func is(t *testing.T, n *counter.Counter, want int64) {
	t.Helper()
	if got, err := n.Get(t.Context()); got != want || err != nil {
		t.Fatalf("%d, %v, want %d", got, err, want)
	}
}

// add adds, and checks the value after it.
func add(t *testing.T, n *counter.Counter, delta, want int64) {
	t.Helper()
	if got, err := n.Add(t.Context(), delta); got != want || err != nil {
		t.Fatalf("%d, %v, want %d", got, err, want)
	}
}

func create(t *testing.T, c *framework.Client, path, data string) {
	t.Helper()
	must(t, c.MakePersistentPath(t.Context(), path[:strings.LastIndexByte(path, '/')]))
	_, err := c.Create(t.Context(), path, []byte(data), zk.FlagPersistent)
	must(t, err)
}

func TestCounter(t *testing.T) {
	bubble.RunEach(t, func(t *testing.T, w *bubble.World) {
		ctx := t.Context()
		n, m := newCounter(t, w.ConnectNext()), newCounter(t, w.ConnectNext())
		is(t, n, 0)
		add(t, n, 1, 1)
		add(t, m, 41, 42)
		add(t, n, -2, 40)
		if first, err := m.Reserve(ctx, 1000); first != 41 || err != nil {
			t.Errorf("%d, %v", first, err)
		}
		is(t, n, 1040)
		for old, want := range map[int64]bool{1040: true, 1041: false} {
			if ok, err := n.CompareAndSet(ctx, old, 5); ok != want || err != nil {
				t.Errorf("%t, %v", ok, err)
			}
		}
		must(t, m.Set(ctx, -7))
		is(t, n, -7)
		r, err := n.AddOnce(ctx, "a", 10)
		if (r != counter.OnceResult{Value: 3}) || err != nil {
			t.Errorf("%+v, %v", r, err)
		}
		r, err = m.AddOnce(ctx, "a", 10)
		if (r != counter.OnceResult{Value: 3, Repeated: true}) || err != nil {
			t.Errorf("%+v, %v", r, err)
		}
		is(t, m, 3)
	})
}

// Directories that are missing do not make the first additions wait.
func TestNewDirectoriesMakeNoPause(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := newCounter(t, w.Connect("a"))
		began := time.Now()
		add(t, n, 1, 1)
		for i := range 10 { // most in directories of their own
			_, err := n.AddOnce(t.Context(), fmt.Sprint(i), 1)
			must(t, err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("paused for %v", took)
		}
	})
}

// What is missing above the znode is made by the first write: as a container,
// by AddOnce as a persistent znode.
func TestWhatIsAboveACounter(t *testing.T) {
	bubble.Usual(t, bubble.NoContainers) // waits for the end of a container
	for what, write := range map[string]func(context.Context, *counter.Counter) error{
		" container\n": func(ctx context.Context, n *counter.Counter) error { return n.Set(ctx, 1) },
		"\n":           func(ctx context.Context, n *counter.Counter) error { _, err := n.AddOnce(ctx, "id", 1); return err },
	} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			must(t, write(t.Context(), newCounter(t, w.ConnectNext())))
			if tree := w.Tree(); !strings.Contains(tree, "/ids"+what) {
				t.Errorf("%q is not in %s", what, tree)
			}
		})
	}
}

// The znode is made with the first write, by whatever makes it.
func TestMissingCounter(t *testing.T) {
	for name, write := range map[string]func(context.Context, *counter.Counter) error{
		"add":      func(ctx context.Context, n *counter.Counter) error { _, err := n.Add(ctx, 1); return err },
		"add once": func(ctx context.Context, n *counter.Counter) error { _, err := n.AddOnce(ctx, "id", 1); return err },
		"set":      func(ctx context.Context, n *counter.Counter) error { return n.Set(ctx, 8) },
		"compare and set": func(ctx context.Context, n *counter.Counter) error {
			ok, err := n.CompareAndSet(ctx, 7, 8)
			if err == nil && !ok {
				err = errors.New("not 7")
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c := w.ConnectNext()
				acl := zk.DigestACL(zk.PermAll, "a", "b")
				n := newCounter(t, c, counter.WithInitial(7), recipes.WithACL(append(acl, zk.WorldACL(zk.PermAll)...)...), recipes.WithLabel("orders"))
				is(t, n, 7)
				must(t, write(t.Context(), n))
				is(t, n, 8)
				if stat, ok := w.Stat(path); !ok || stat.EphemeralOwner != 0 {
					t.Error("it is not persistent")
				}
				if got, _, err := c.GetACL(t.Context(), path); err != nil || len(got) != 2 {
					t.Errorf("%v, %v", got, err)
				}
				must(t, c.Delete(t.Context(), path, -1))
				time.Sleep(2 * time.Second)
				must(t, write(t.Context(), newCounter(t, c, counter.WithInitial(7))))
			})
		})
	}
}

func TestLayouts(t *testing.T) {
	for _, test := range []struct {
		layout        counter.Layout
		before, after string
		value, most   int64
		foreign       []string
	}{
		{counter.LayoutLong, "\x00\x00\x00\x00\x00\x00\x01\x00", "\x00\x00\x00\x00\x00\x00\x01\x01", 256, math.MaxInt64, []string{"1", "\x00\x00\x00\x01", "123456789"}},
		{counter.LayoutLong, "", "\x00\x00\x00\x00\x00\x00\x00\x01", 0, math.MaxInt64, nil},
		{counter.LayoutLong, "\xff\xff\xff\xff\xff\xff\xff\xff", "\x00\x00\x00\x00\x00\x00\x00\x00", -1, math.MaxInt64, nil},
		{counter.LayoutCount, "\xff\xff\xff\xfe", "\xff\xff\xff\xff", -2, math.MaxInt32, []string{"1", "12345", "\x00\x00\x00\x00\x00\x00\x00\x01"}},
		{counter.LayoutCount, "", "\x00\x00\x00\x04", 3, math.MaxInt32, nil},
		{counter.LayoutKazoo, "41", "42", 41, math.MaxInt64, []string{"1.5", "\x00\x00\x00\x00\x00\x00\x00\x01", "9223372036854775808", "1 "}},
		{counter.LayoutKazoo, "", "4", 3, math.MaxInt64, nil},
		{counter.LayoutKazoo, "-10", "-9", -10, math.MaxInt64, nil},
	} {
		t.Run(fmt.Sprintf("%d from %q", test.layout, test.before), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				ctx, c := t.Context(), w.ConnectNext()
				create(t, c, path, test.before)
				n := newCounter(t, c, counter.WithLayout(test.layout), counter.WithInitial(3))
				is(t, n, test.value)
				add(t, n, 1, test.value+1)
				if data, _ := w.Data(path); string(data) != test.after {
					t.Errorf("%q", data)
				}
				must(t, n.Set(ctx, test.most-1))
				add(t, n, 1, test.most)
				full, _ := w.Data(path)
				for what, err := range map[string]error{
					"add":      func() error { _, err := n.Add(ctx, 1); return err }(),
					"reserve":  func() error { _, err := n.Reserve(ctx, math.MaxInt64); return err }(),
					"add once": func() error { _, err := n.AddOnce(ctx, "a", 1); return err }(),
				} {
					if shown := fmt.Sprintf("% x", full); !errors.Is(err, counter.ErrOverflow) || !strings.Contains(err.Error(), shown) || framework.MaybeApplied(err) {
						t.Errorf("%s: %v", what, err)
					}
				}
				must(t, n.Set(ctx, -test.most-1))
				if _, err := n.Add(ctx, -1); !errors.Is(err, counter.ErrOverflow) {
					t.Error(err)
				}
				for _, data := range test.foreign {
					stat, err := c.Set(ctx, path, []byte(data), -1)
					must(t, err)
					for what, err := range map[string]error{
						"get":      func() error { _, err := n.Get(ctx); return err }(),
						"add":      func() error { _, err := n.Add(ctx, 1); return err }(),
						"add once": func() error { _, err := n.AddOnce(ctx, "a", 1); return err }(),
						"compare":  func() error { _, err := n.CompareAndSet(ctx, 1, 2); return err }(),
					} {
						if shown := fmt.Sprintf("% x", data); !errors.Is(err, counter.ErrData) || !strings.Contains(err.Error(), shown) || framework.MaybeApplied(err) {
							t.Errorf("%s: %v", what, err)
						}
					}
					if after, _ := w.Stat(path); after.Version != stat.Version {
						t.Errorf("written to %q", data)
					}
					must(t, n.Set(ctx, 1))
				}
			})
		})
	}
}

// Of additions that share a write, those that overflow fail, and no other one.
func TestOneOfSeveralOverflows(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ctx := t.Context()
		n := newCounter(t, w.ConnectNext(), counter.WithLayout(counter.LayoutCount))
		must(t, n.Set(ctx, math.MaxInt32-10))
		var all sync.WaitGroup
		var failed []int64
		var mu sync.Mutex
		for _, delta := range []int64{1, 2, 100, 3, -200, 200, 4} {
			all.Go(func() {
				if _, err := n.Add(ctx, delta); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = append(failed, delta)
					if !errors.Is(err, counter.ErrOverflow) || !strings.HasPrefix(err.Error(), "counter: add "+path+": ") {
						t.Error(err)
					}
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if fmt.Sprint(failed) != "[100]" {
			t.Errorf("%v have failed", failed)
		}
		is(t, n, math.MaxInt32)
	})
}

func TestBadArguments(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ctx, c := t.Context(), w.ConnectNext()
		for want, err := range map[string]error{
			"client is nil":         func() error { _, err := counter.New(nil, path); return err }(),
			"path /: is the root":   func() error { _, err := counter.New(c, "/"); return err }(),
			`path "ids"`:            func() error { _, err := counter.New(c, "ids"); return err }(),
			"layout 3: unknown":     func() error { _, err := counter.New(c, path, counter.WithLayout(3)); return err }(),
			"marker age 0s":         func() error { _, err := counter.New(c, path, counter.WithMarkerAge(0)); return err }(),
			"option <nil>: unknown": func() error { _, err := counter.New(c, path, nil); return err }(),
			"initial value 2147483648": func() error {
				_, err := counter.New(c, path, counter.WithLayout(counter.LayoutCount), counter.WithInitial(1<<31))
				return err
			}(),
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
		n := newCounter(t, c, counter.WithLayout(counter.LayoutCount))
		for _, count := range []int64{0, -1} {
			if _, err := n.Reserve(ctx, count); err == nil || !strings.Contains(err.Error(), fmt.Sprint("count ", count)) {
				t.Error(err)
			}
		}
		for _, id := range []string{"", strings.Repeat("x", 129), "a/b", "/", ".", "..", "a\nb", "\x7f", "\xff", "\uf8ff"} {
			if _, err := n.AddOnce(ctx, id, 1); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("id %q", id)) {
				t.Errorf("%q: %v", id, err)
			}
		}
		if _, err := n.AddOnce(ctx, strings.Repeat("é", 64), 1); err != nil {
			t.Error(err)
		}
		if err := n.Set(ctx, 1<<31); !errors.Is(err, counter.ErrOverflow) {
			t.Error(err)
		}
		if _, err := n.CompareAndSet(ctx, 1, 1<<31); !errors.Is(err, counter.ErrOverflow) {
			t.Error(err)
		}
		if _, err := n.Listen(ctx, nil); err == nil || !strings.Contains(err.Error(), "function is nil") {
			t.Error(err)
		}
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := n.Add(cancelled, 1); !errors.Is(err, context.Canceled) || framework.MaybeApplied(err) {
			t.Error(err)
		}
		must(t, c.Close())
		for _, n := range []*counter.Counter{n, {}} {
			for what, err := range map[string]error{
				"get":      func() error { _, err := n.Get(ctx); return err }(),
				"add":      func() error { _, err := n.Add(ctx, 1); return err }(),
				"add once": func() error { _, err := n.AddOnce(ctx, "a", 1); return err }(),
				"reserve":  func() error { _, err := n.Reserve(ctx, 1); return err }(),
				"compare":  func() error { _, err := n.CompareAndSet(ctx, 1, 2); return err }(),
				"set":      n.Set(ctx, 1),
				"listen":   func() error { _, err := n.Listen(ctx, func(int64, error) {}); return err }(),
			} {
				if !errors.Is(err, framework.ErrClosed) || framework.MaybeApplied(err) {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
	})
}

// What each call costs, as the comments say.
func TestCost(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		ctx, c := t.Context(), w.ConnectNext()
		n := newCounter(t, c)
		add(t, n, 1, 1)
		_, err := n.AddOnce(ctx, "first", 1)
		must(t, err)
		var syncs atomic.Int32 // a heartbeat is a sync of another path
		w.Control(func(r testutil.Request) testutil.Action {
			if r.Does(testutil.OpSync, path) {
				syncs.Add(1)
			}
			return testutil.Action{}
		})
		for _, test := range []struct {
			name  string
			idle  time.Duration
			call  func() error
			costs map[testutil.Op]int
		}{
			{"add", 0, func() error { _, err := n.Add(ctx, 1); return err }, map[testutil.Op]int{testutil.OpMulti: 1}},
			{"add after a pause", 2 * time.Second, func() error { _, err := n.Add(ctx, 1); return err }, map[testutil.Op]int{testutil.OpMulti: 1, testutil.OpGetData: 1}},
			{"reserve", 0, func() error { _, err := n.Reserve(ctx, 1000); return err }, map[testutil.Op]int{testutil.OpMulti: 1}},
			{"set", 2 * time.Second, func() error { return n.Set(ctx, 7) }, map[testutil.Op]int{testutil.OpMulti: 1}},
			{"compare", 0, func() error { _, err := n.CompareAndSet(ctx, 7, 8); return err }, map[testutil.Op]int{testutil.OpMulti: 1}},
			{"compare in vain", 0, func() error { _, err := n.CompareAndSet(ctx, 7, 8); return err }, map[testutil.Op]int{testutil.OpGetData: 1, testutil.OpSync: 1}},
			{"get", 0, func() error { _, err := n.Get(ctx); return err }, map[testutil.Op]int{testutil.OpGetData: 1, testutil.OpSync: 1}},
			{"add once", 0, func() error { _, err := n.AddOnce(ctx, "first again", 1); return err }, map[testutil.Op]int{testutil.OpMulti: 1, testutil.OpGetData: 0}},
			{"add once after a pause", 2 * time.Second, func() error { _, err := n.AddOnce(ctx, "first again", 1); return err }, map[testutil.Op]int{testutil.OpMulti: 1, testutil.OpGetData: 1}},
			{"add once repeated", 0, func() error { _, err := n.AddOnce(ctx, "first", 1); return err }, map[testutil.Op]int{testutil.OpMulti: 1, testutil.OpGetData: 1}},
		} {
			isNew := test.name == "add once" || test.name == "add once after a pause"
			if isNew { // its directory is made with the first id in it
				_, err := n.AddOnce(ctx, "first again", 1)
				must(t, err)
			}
			for looked := true; looked; { // for old markers, by chance: not this time
				if isNew {
					must(t, c.Delete(ctx, markerOf(t, w, "first again"), -1))
				}
				must(t, n.AwaitRemoval(ctx))
				time.Sleep(test.idle)
				w.ResetRequests()
				syncs.Store(0)
				must(t, test.call())
				must(t, n.AwaitRemoval(ctx))
				looked = w.Cost()[testutil.OpGetChildren2] > 0
			}
			cost := w.Cost()
			cost[testutil.OpSync] = int(syncs.Load())
			if fmt.Sprint(without0(cost)) != fmt.Sprint(without0(test.costs)) {
				t.Errorf("%s: %v, want %v", test.name, cost, test.costs)
			}
		}
	})
}

func without0(m map[testutil.Op]int) map[testutil.Op]int {
	for op, n := range m {
		if n == 0 {
			delete(m, op)
		}
	}
	return m
}

// markerOf returns the path of an id's marker.
func markerOf(t *testing.T, w *bubble.World, id string) string {
	t.Helper()
	for _, name := range w.Children(path + "-once") {
		if marker := path + "-once/" + name + "/" + id; w.Exists(marker) {
			return marker
		}
	}
	t.Fatalf("no marker of %s", id)
	return ""
}

// While a write is under way, those that come collect, and go out as one.
func TestGoroutinesAddTogether(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		n, same := newCounter(t, c), newCounter(t, c)
		add(t, n, 1, 1)
		w.ClientNet("ours").Latency(10*time.Millisecond, 10*time.Millisecond)
		w.ResetRequests()
		var all sync.WaitGroup
		var mu sync.Mutex
		seen := map[int64]bool{}
		for i := range 256 {
			all.Go(func() {
				from := n
				if i%2 == 0 {
					from = same
				}
				after, err := from.Add(t.Context(), 1)
				mu.Lock()
				defer mu.Unlock()
				if err != nil || seen[after] {
					t.Errorf("%d, %v", after, err)
				}
				seen[after] = true
			})
		}
		all.Wait()
		if cost := w.Cost(); cost[testutil.OpMulti] > 2 || len(cost) != 1 { // one if all have come before the first is sent
			t.Errorf("%v", cost)
		}
		is(t, n, 257)
	})
}

// Callers that leave: before their request is sent it is taken out, afterwards
// nobody knows. The others of the same write are not disturbed.
func TestCallersLeave(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("ours")
		n := newCounter(t, c)
		add(t, n, 1, 1)
		release := make(chan struct{})
		stop := w.ClientNet("ours").Control(testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.HoldReply(release)).Control)
		type outcome struct {
			after int64
			err   error
		}
		begin := func(ctx context.Context, delta int64) chan outcome {
			result := make(chan outcome, 1)
			go func() {
				after, err := n.Add(ctx, delta)
				result <- outcome{after, err}
			}()
			synctest.Wait()
			return result
		}
		leaving, leave := context.WithCancel(t.Context())
		sent := begin(t.Context(), 10)
		waits, leaves := begin(t.Context(), 100), begin(leaving, 1000)
		leave()
		if o := <-leaves; !errors.Is(o.err, context.Canceled) || framework.MaybeApplied(o.err) {
			t.Errorf("%+v", o)
		}
		stop()
		stop = w.ClientNet("ours").Control(testutil.NewFault(testutil.Match{Op: testutil.OpMulti}, testutil.HoldReply(nil)).Control)
		leaving, leave = context.WithCancel(t.Context())
		left := begin(leaving, 10000)
		close(release)
		if o := <-sent; o.after != 11 || o.err != nil {
			t.Errorf("%+v", o)
		}
		synctest.Wait() // the two others share a write, whose answer does not come
		leave()
		if o := <-left; !errors.Is(o.err, context.Canceled) || !framework.MaybeApplied(o.err) {
			t.Errorf("%+v", o)
		}
		stop()
		w.ClientNet("ours").Drop()
		if o := <-waits; o.after != 111 || o.err != nil {
			t.Errorf("%+v", o)
		}
		is(t, n, 10111)
	})
}

// A counter that is not used any longer leaves nothing in the session.
func TestReceiptsGo(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := newCounter(t, w.ConnectNext())
		for i := range int64(2) {
			add(t, n, 1, i+1)
			time.Sleep(50 * time.Second)
			if left := w.Children(path + "-receipts"); len(left) != 1 {
				t.Errorf("%v", left)
			}
		}
		time.Sleep(time.Minute)
		w.NothingLeft(path + "-receipts")
		add(t, n, 1, 3)
	})
}

// No server answers: all that have waited fail together, and nothing was added.
func TestNoServer(t *testing.T) {
	bubble.Usual(t, bubble.FewRetries) // outlasts an outage
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := newCounter(t, w.Connect("ours"))
		add(t, n, 1, 1)
		w.ClientNet("ours").Cut()
		time.Sleep(time.Minute)
		began := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := n.CompareAndSet(t.Context(), 1, 2); !errors.Is(err, zk.ErrNoServer) || framework.MaybeApplied(err) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		w.ClientNet("ours").Heal()
		is(t, n, 1)
	})
}

func TestListen(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		n := newCounter(t, c)
		values := make(chan string, 100)
		calls := 0
		stop, err := n.Listen(t.Context(), func(value int64, err error) {
			values <- fmt.Sprint(value, " ", errors.Is(err, counter.ErrData))
			if calls++; calls == 2 {
				panic("a listener's")
			}
		})
		must(t, err)
		expect := func(want string) {
			t.Helper()
			if got := bubble.Await(t, want, values); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		expect("0 false")
		add(t, n, 5, 5)
		expect("5 false")
		_, err = c.Set(t.Context(), path, []byte("text"), -1)
		must(t, err)
		expect("0 true")
		must(t, n.Set(t.Context(), 9))
		expect("9 false")
		stop()
		must(t, n.Set(t.Context(), 10))
		synctest.Wait()
		if len(values) > 0 {
			t.Error(<-values)
		}
	})
}

func TestAListenerStopsBehind(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		n := newCounter(t, w.ConnectNext())
		bubble.StoppedBehind(t, func(hear func()) func() {
			stop, err := n.Listen(t.Context(), func(int64, error) { hear() })
			must(t, err)
			return stop
		}, func() { add(t, n, 1, 1) })
	})
}
