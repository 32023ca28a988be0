package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/goroutines"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
)

// loop runs a loop over a sequence on a goroutine, and keeps a line of each
// iteration.
type loop struct {
	mu   sync.Mutex // guards told
	told []string
	done chan struct{} // closed: the loop has ended
}

func loopOver(run func(tell func(format string, args ...any))) *loop {
	l := &loop{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		run(func(format string, args ...any) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.told = append(l.told, fmt.Sprintf(format, args...))
		})
	}()
	return l
}

// loopViews is a loop over the views of a cache. Each iteration takes a while.
func loopViews(ctx context.Context, k *cache.Cache, slow time.Duration) *loop {
	return loopOver(func(tell func(string, ...any)) {
		for v, s := range k.Views(ctx) {
			tell("%v %s", s.State, short(v))
			time.Sleep(slow)
		}
	})
}

func loopValue(ctx context.Context, value *cache.Value[string]) *loop {
	return loopOver(func(tell func(string, ...any)) {
		for v, err := range value.Changes(ctx) {
			tell("%s %v", v, err)
		}
	})
}

// short shows a view in one line.
func short(v cache.View) string {
	var all []string
	for n := range v.All() {
		all = append(all, fmt.Sprintf("%s=%s", strings.TrimPrefix(n.Path, root), n.Data))
	}
	return strings.Join(all, " ")
}

// take returns what the loop has had since the last call, when all is quiet.
func (l *loop) take() string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	told := strings.Join(l.told, "; ")
	l.told = nil
	return told
}

func (l *loop) wants(t *testing.T, want string) {
	t.Helper()
	if got := l.take(); got != want {
		t.Errorf("the loop had %q, want %q", got, want)
	}
}

// ended fails the test unless the loop has ended, and has had this since.
func (l *loop) ended(t *testing.T, want string) {
	t.Helper()
	l.wants(t, want)
	select {
	case <-l.done:
	default:
		t.Error("the loop goes on")
		<-l.done
	}
}

// A loop has the first whole view, and then what changes: over a connection
// that is lost, a session that ends, until the cache is closed.
func TestViews(t *testing.T) {
	for name, opts := range map[string][]cache.Option{"a recursive watch": nil, "one-shot watches": {cache.WithOneShotWatches()}} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				c, other := w.Connect("reader"), w.Connect("other")
				k := start(t, c, opts...)
				l := loopViews(t.Context(), k, 0)
				view(t, k.Synced)
				l.wants(t, "SYNCED ")
				create(t, other, root, "1")
				shows(t, w, k)
				l.wants(t, "SYNCED =1")
				create(t, other, root+"/a", "")
				shows(t, w, k)
				l.wants(t, "SYNCED =1 /a=")
				create(t, other, "/elsewhere", "")
				if _, err := k.Reach(t.Context(), set(t, other, "/elsewhere", "1").Mzxid); err != nil { // another Zxid
					t.Fatal(err)
				}
				l.wants(t, "")

				net := w.ClientNet("reader")
				net.Cut()
				await(t, k, cache.Stale)
				l.wants(t, "STALE =1 /a=")
				set(t, other, root, "2")
				time.Sleep(time.Second)
				l.wants(t, "")
				net.Heal()
				await(t, k, cache.Synced)
				l.wants(t, "SYNCED =2 /a=")

				w.Expire(c)
				removeLeaf(t, other, root+"/a")
				shows(t, w, k)
				time.Sleep(bubble.Timeout)
				if got := l.take(); !strings.HasPrefix(got, "STALE =2 /a=; ") || !strings.HasSuffix(got, "SYNCED =2") {
					t.Errorf("the loop had %q", got)
				}
				k.Close()
				l.ended(t, "CLOSED =2")
			})
		})
	}
}

// A body that takes a minute has the first view, then the one that is latest
// when it asks, and none of those between them. Nobody waits for it.
func TestASlowLoopOverViews(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		create(t, c, root, "0")
		k := synced(t, c)
		slow, quick := loopViews(t.Context(), k, time.Minute), loopViews(t.Context(), k, 0)
		quick.wants(t, "SYNCED =0")
		for i := range 20 {
			time.Sleep(time.Second)
			began := time.Now()
			if _, err := k.Reach(t.Context(), set(t, c, root, strconv.Itoa(i+1)).Mzxid); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("the change took %v", took)
			}
			quick.wants(t, fmt.Sprintf("SYNCED =%d", i+1))
		}
		slow.wants(t, "SYNCED =0")
		time.Sleep(time.Minute)
		slow.wants(t, "SYNCED =20")
		began := time.Now()
		k.Close()
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		quick.ended(t, "CLOSED =20")
		time.Sleep(2 * time.Minute)
		slow.ended(t, "CLOSED =20")
	})
}

// A loop ends with its context, and its last status says so, with the cause.
// Without a view before that it has no iteration.
func TestAContextEndsALoopOverViews(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		create(t, c, root, "1")
		cause := errors.New("reloaded")
		var last cache.Status
		run := func(ctx context.Context, k *cache.Cache) *loop {
			return loopOver(func(tell func(string, ...any)) {
				for v, s := range k.Views(ctx) {
					tell("%v %s", s.State, short(v))
					last = s
				}
			})
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		k := synced(t, c)
		l := run(ctx, k)
		l.wants(t, "SYNCED =1")
		if last.Err != nil {
			t.Error(last.Err)
		}
		cancel(cause)
		l.ended(t, "SYNCED =1")
		if !errors.Is(last.Err, context.Canceled) || !errors.Is(last.Err, cause) {
			t.Errorf("the last status has %v", last.Err)
		}
		if err := k.Status().Err; err != nil {
			t.Errorf("the cache has %v", err)
		}
		run(ctx, k).ended(t, "SYNCED =1") // it had ended before

		w.ClientNet("reader").Cut()
		ctx, cancel = context.WithCancelCause(t.Context())
		l = run(ctx, start(t, c))
		time.Sleep(time.Hour)
		l.wants(t, "")
		cancel(nil)
		l.ended(t, "")
	})
}

// A loop over a cache that was not started, is closed or has Failed does not
// wait. It ends with the cache, also if there was no view.
func TestLoopsThatDoNotWait(t *testing.T) {
	text := func(data []byte) (string, error) { return string(data), nil }
	both := func(t *testing.T, k *cache.Cache) (views, values *loop) {
		value := cache.NewValue(k, root, text)
		return loopViews(t.Context(), k, 0), loopValue(t.Context(), value)
	}
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		create(t, c, root, "1")
		idle, err := cache.New(c, root)
		if err != nil {
			t.Fatal(err)
		}
		for name, tt := range map[string]struct {
			cache *cache.Cache
			close bool
		}{"the zero Cache": {new(cache.Cache), false}, "not started": {idle, false}, "closed without a start": {idle, true}} {
			t.Log(name)
			if tt.close {
				tt.cache.Close()
			}
			views, values := both(t, tt.cache)
			views.ended(t, "")
			values.ended(t, "")
		}
		k := synced(t, c)
		k.Close()
		value := cache.NewValue(k, root, text)
		if _, err := value.Get(); err != nil { // decoded: from now on it is known
			t.Fatal(err)
		}
		views, values := loopViews(t.Context(), k, 0), loopValue(t.Context(), value)
		views.ended(t, "CLOSED =1")
		values.ended(t, "1 cache /config: "+framework.ErrClosed.Error())

		full := start(t, c, cache.WithMaxBytes(64)) // which the first znode exceeds
		views, values = both(t, full)
		await(t, full, cache.Failed)
		views.ended(t, "")
		values.ended(t, "")

		limited := synced(t, c, cache.WithMaxBytes(5_000))
		views, values = both(t, limited)
		views.wants(t, "SYNCED =1")
		values.wants(t, "1 <nil>")
		create(t, c, root+"/large", strings.Repeat("x", 10_000))
		await(t, limited, cache.Failed)
		views.ended(t, "FAILED =1")
		values.ended(t, "1 "+fmt.Sprintf("cache /config: %v", limited.Status().Err))

		w.ClientNet("reader").Cut()
		never := start(t, c)
		views, values = both(t, never)
		time.Sleep(time.Hour)
		never.Close()
		views.ended(t, "")
		values.ended(t, "")
	})
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		create(t, c, root, "1")
		views, values := both(t, synced(t, c))
		views.wants(t, "SYNCED =1")
		values.wants(t, "1 <nil>")
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		bubble.Await(t, "the views end", views.done)
		bubble.Await(t, "the value ends", values.done)
		if got := views.take(); !strings.HasSuffix(got, "CLOSED =1") {
			t.Errorf("the loop had %q", got)
		}
		if got := values.take(); !strings.HasPrefix(got, "1 ") || !strings.Contains(got, framework.ErrClosed.Error()) {
			t.Errorf("the loop had %q", got)
		}
	})
}

// A loop that waits has no goroutine but its own, and one that was left by a
// break has none.
func TestLoopsHaveNoGoroutines(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("reader")
		create(t, c, root, "1")
		k := synced(t, c)
		value := cache.NewValue(k, root, func(data []byte) (string, error) { return string(data), nil })
		synctest.Wait()
		before := len(goroutines.In(goroutines.Bubble()))
		for range k.Views(t.Context()) {
			break
		}
		for range value.Changes(t.Context()) {
			break
		}
		synctest.Wait()
		if n := len(goroutines.In(goroutines.Bubble())); n != before {
			t.Errorf("%d goroutines before the loops, %d behind them", before, n)
		}
		const loops = 100
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		for range loops {
			all.Go(func() {
				for range k.Views(ctx) {
				}
			})
			all.Go(func() {
				for range value.Changes(ctx) {
				}
			})
		}
		synctest.Wait()
		if n := len(goroutines.In(goroutines.Bubble())) - before; n != 2*loops {
			t.Errorf("%d loops have %d goroutines", 2*loops, n)
		}
		cancel()
		all.Wait()
		synctest.Wait()
		if n := len(goroutines.In(goroutines.Bubble())); n != before {
			t.Errorf("%d goroutines before the loops, %d behind them", before, n)
		}
	})
}

// A value that cannot be decoded, is gone, or may not be shown yet does not end
// a loop. It has the last good value with the error.
func TestChangesOfAValue(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("reader"), w.Connect("other")
		k := start(t, c)
		value := cache.NewValue(k, root+"/n", func(data []byte) (int, error) {
			if string(data) == "panic" {
				panic("decode")
			}
			return strconv.Atoi(string(data))
		})
		l := loopOver(func(tell func(string, ...any)) {
			for n, err := range value.Changes(t.Context()) {
				text := fmt.Sprint(err)
				text, _, _ = strings.Cut(text, ": ")
				tell("%d %s", n, text)
			}
		})
		expect := func(want string) {
			t.Helper()
			shows(t, w, k)
			l.wants(t, want)
		}
		expect("0 cache /config")
		create(t, other, root, "")
		expect("")
		create(t, other, root+"/n", "1")
		expect("1 <nil>")
		set(t, other, root, "of another")
		expect("")
		set(t, other, root+"/n", "many")
		expect("1 decode /config/n")
		set(t, other, root+"/n", "panic")
		expect("1 decode /config/n")
		set(t, other, root+"/n", "2")
		expect("2 <nil>")
		removeLeaf(t, other, root+"/n")
		expect("2 cache /config")
		create(t, other, root+"/n", "3")
		expect("3 <nil>")
		w.ClientNet("reader").Cut()
		await(t, k, cache.Stale)
		l.wants(t, "") // Cache.Views tells of it
		set(t, other, root+"/n", "4")
		w.ClientNet("reader").Heal()
		expect("4 <nil>")
		k.Close()
		l.ended(t, "4 cache /config")
	})
}

// A decoder hangs. The loop ends with its context, and with the cache, all the
// same; its last value is the last that was decoded.
func TestADecoderThatHangsInALoop(t *testing.T) {
	for _, first := range []bool{true, false} {
		for _, closes := range []bool{true, false} {
			t.Run(fmt.Sprintf("first=%t closes=%t", first, closes), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T, w *bubble.World) {
					c := w.Connect("reader")
					data := "good"
					if first {
						data = "hangs"
					}
					create(t, c, root, data)
					k := synced(t, c)
					release := make(chan struct{})
					value := cache.NewValue(k, root, func(data []byte) (string, error) {
						if string(data) == "hangs" {
							<-release
						}
						return string(data), nil
					})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					var last error
					l := loopOver(func(tell func(string, ...any)) {
						for v, err := range value.Changes(ctx) {
							tell("%s %t", v, err != nil)
							last = err
						}
					})
					want := ""
					if !first {
						l.wants(t, "good false")
						set(t, c, root, "hangs")
						shows(t, w, k)
						want = "good true"
					}
					time.Sleep(time.Minute)
					l.wants(t, "")
					why := context.Canceled
					if closes {
						why = framework.ErrClosed
						k.Close()
					} else {
						cancel()
					}
					l.ended(t, want)
					if !first && !errors.Is(last, why) {
						t.Errorf("the last error is %v, want %v", last, why)
					}
					close(release)
				})
			})
		}
	}
}

// A znode comes and goes that the cache may not read. Nothing that is shown
// changes by that, but loops have the status, and the error of the value.
func TestLoopsHearOfUnreadableZnodes(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, owner := w.Connect("reader"), w.Connect("owner", framework.WithAuth("digest", []byte("owner:secret")))
		create(t, owner, root, "")
		k := synced(t, c, cache.WithRecheck(time.Minute))
		views := loopOver(func(tell func(string, ...any)) {
			for _, s := range k.Views(t.Context()) {
				tell("%v %v", s.State, s.Unreadable)
			}
		})
		value := cache.NewValue(k, root+"/secret", func(data []byte) (string, error) { return string(data), nil })
		values := loopOver(func(tell func(string, ...any)) {
			for _, err := range value.Changes(t.Context()) {
				tell("absent %t, denied %t", errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNoAuth))
			}
		})
		wants := func(view, value string) {
			t.Helper()
			time.Sleep(5 * time.Minute) // some rechecks
			views.wants(t, view)
			values.wants(t, value)
		}
		wants("SYNCED []", "absent true, denied false")
		for range 2 {
			if _, err := owner.Create(t.Context(), root+"/secret", nil, zk.FlagPersistent, zk.DigestACL(zk.PermAll, "owner", "secret")...); err != nil {
				t.Fatal(err)
			}
			wants("SYNCED [/config/secret]", "absent false, denied true")
			removeLeaf(t, owner, root+"/secret")
			wants("SYNCED []", "absent true, denied false")
		}
	})
}

// A loop begins with the view of a snapshot, whose status says so. If that
// turns out to be of another root, it never has a view without znodes.
func TestViewsOfASnapshot(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		other := w.Connect("other")
		create(t, other, root, "old")
		file := filepath.Join(t.TempDir(), "snapshot")
		yesterday(t, w, file)
		removeLeaf(t, other, root)
		create(t, other, root, "another")
		c, heal := without(t, w)
		k := start(t, c, cache.WithSnapshot(file))
		var why []error
		l := loopOver(func(tell func(string, ...any)) {
			for v, s := range k.Views(t.Context()) {
				tell("%v %s", s.State, short(v))
				why = append(why, s.Err)
			}
		})
		l.wants(t, "STALE =old")
		if !errors.Is(why[0], cache.ErrSnapshot) {
			t.Errorf("status %v", why[0])
		}
		heal()
		await(t, k, cache.Synced)
		l.wants(t, "SYNCED =another")
	})
}

// Loops of all speeds run while a tree changes and connections end. None sees
// an older state behind a newer one, or a status that its view belies, and each
// has the last one.
func TestLoopsUnderFaults(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, writer := w.Connect("reader"), w.Connect("writer")
		create(t, writer, root, "0")
		k := start(t, c)
		value := cache.NewValue(k, root, func(data []byte) (int, error) {
			n, err := strconv.Atoi(string(data))
			if err == nil && n%5 == 4 {
				err = errors.New("bad")
			}
			return n, err
		})
		random := bubble.Random(t)
		const writes = 200
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		for i := range 8 {
			pause := func() func() { // for one goroutine
				pace := rand.New(rand.NewPCG(random.Uint64(), uint64(i)))
				return func() { time.Sleep(time.Duration(pace.Int64N(int64(time.Second) << i / 4))) }
			}
			pauseView, pauseValue := pause(), pause()
			all.Go(func() {
				var before cache.View
				var status cache.Status
				for v, s := range k.Views(ctx) {
					if v.Zxid() < before.Zxid() || !v.Known() {
						t.Errorf("zxid %d behind %d", v.Zxid(), before.Zxid())
					}
					before, status = v, s
					pauseView()
				}
				if got := short(before); got != "="+strconv.Itoa(writes) || !errors.Is(status.Err, context.Canceled) {
					t.Errorf("the last view is %q, %v", got, status.Err)
				}
			})
			all.Go(func() {
				last := 0
				var why error
				for n, err := range value.Changes(ctx) {
					if n < last || n%5 == 4 {
						t.Errorf("%d behind %d", n, last)
					}
					last, why = n, err
					pauseValue()
				}
				if last != writes || !errors.Is(why, context.Canceled) {
					t.Errorf("the last value is %d, %v", last, why)
				}
			})
		}
		for i := range writes {
			set(t, writer, root, strconv.Itoa(i+1))
			time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
			switch {
			case i%50 == 20:
				w.ClientNet("reader").Drop()
			case i%100 == 40:
				w.Expire(c)
			}
		}
		shows(t, w, k)
		cancel()
		all.Wait()
	})
}
