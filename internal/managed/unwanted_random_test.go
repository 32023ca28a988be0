package managed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// watchers use all kinds of watches of a few paths at random, several at a
// time, over connections that end, at a server that refuses some requests.
type watchers struct {
	t       *testing.T
	random  *rand.Rand
	network *testutil.ClientNet
	c       *framework.Client
	other   *framework.Client // makes the changes
	under   sync.WaitGroup    // calls
	over    chan struct{}     // closed: no caller wants anything

	mu    sync.Mutex
	wants map[<-chan struct{}]kept
	stops []func()
}

// kept is a channel that nobody has given up.
type kept struct {
	s    *framework.Session
	path string
}

func (w *watchers) path() string { return []string{"/a", "/b", "/a/x"}[w.random.IntN(3)] }

func (w *watchers) keep(s *framework.Session, path string, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wants[changed] = kept{s, path}
}

// giveUp gives up the channels for a path, or all.
func (w *watchers) giveUp(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for changed, k := range w.wants {
		if path == "" || k.path == path {
			k.s.Unwatch(changed)
			delete(w.wants, changed)
		}
	}
}

func (w *watchers) stopLater(stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stops = append(w.stops, stop)
}

func (w *watchers) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, stop := range w.stops {
		stop()
	}
	w.stops = nil
}

// watch arms a watch of some kind, for a caller who may give up early.
func (w *watchers) watch() {
	s, err := w.c.Session()
	if err != nil {
		return
	}
	path, kind := w.path(), w.random.IntN(8)
	limit := []time.Duration{time.Duration(w.random.IntN(20)) * time.Millisecond, timeout}[w.random.IntN(2)]
	w.under.Go(func() {
		ctx, cancel := context.WithTimeout(w.t.Context(), limit)
		defer cancel()
		var changed <-chan struct{}
		var err error
		reads := []request.Read{{Path: path}, {Path: path, Children: true}}
		switch kind {
		case 0, 1:
			changed, err = s.Watch(ctx, path)
		case 2:
			_, changed, err = s.WatchChildren(ctx, path)
		case 3:
			_, _, changed, err = s.WatchExists(ctx, path)
		case 4:
			var resume func() (<-chan struct{}, bool)
			if _, _, changed, resume, err = inside(s).WatchAndResume(path); err == nil {
				select {
				case <-changed:
					if again, ok := resume(); ok {
						w.keep(s, path, again)
					}
				case <-w.over:
					s.Unwatch(changed)
				}
				return
			}
		case 5:
			var stop func()
			if _, _, stop, err = watchTree(w.t, ctx, s, path); err == nil {
				w.stopLater(stop)
			}
		case 6:
			_, _ = inside(s).ReadAllAndWatch(ctx, path, reads...)
			inside(s).UnwatchReads(reads...)
		case 7:
			_, _, _, _ = inside(s).SetWatches(ctx, int64(1)<<40, reads...)
			inside(s).UnwatchReads(reads...)
		}
		if changed != nil && err == nil {
			w.keep(s, path, changed)
		}
	})
}

// cover keeps a recursive watch above all, as a cache of everything has.
func (w *watchers) cover() {
	for {
		ended := make(chan struct{})
		s, err := w.c.AwaitSession(w.t.Context())
		if err == nil {
			_, _, err = inside(s).WatchTree(w.t.Context(), "/", func(_ uint64, what zk.EventType, _ string) {
				if what == zk.EventNotWatching {
					close(ended)
				}
			})
		}
		if err != nil {
			time.AfterFunc(time.Second, func() { close(ended) })
		}
		select {
		case <-ended:
		case <-w.over:
			return
		}
	}
}

func (w *watchers) change() {
	ctx, path := w.t.Context(), w.path()
	switch w.random.IntN(4) {
	case 0:
		_, _ = w.other.Create(ctx, path, nil, 0)
	case 1:
		_ = w.other.Delete(ctx, path, -1)
	default:
		_, _ = w.other.Set(ctx, path, nil, -1)
	}
}

// changeAll changes each path, so that all kinds of watches tell it.
func (w *watchers) changeAll(ens *testutil.Embedded) {
	for _, path := range []string{"/a/x", "/a", "/b"} {
		if ens.Exists(path) {
			must(w.t, w.other.Delete(w.t.Context(), path, -1))
			continue
		}
		must(w.t, w.other.MakePersistentPath(w.t.Context(), path))
		if path == "/a/x" {
			must(w.t, w.other.Delete(w.t.Context(), path, -1))
		}
	}
}

// disturb makes one request fail, or the connection end.
func (w *watchers) disturb() {
	ops := []testutil.Op{testutil.OpGetData, testutil.OpExists, testutil.OpGetChildren2, testutil.OpRemoveWatches, testutil.OpSetWatches, testutil.OpAddWatch}
	actions := []testutil.Action{
		testutil.Fail(testutil.CodeThrottled), testutil.Fail(testutil.CodeNoAuth), testutil.DelayReply(time.Second),
		testutil.Delay(time.Second), testutil.DropBefore(), testutil.DropAfter(),
	}
	if w.random.IntN(4) == 0 {
		w.network.Drop()
		return
	}
	fault := testutil.NewFault(testutil.Match{Op: ops[w.random.IntN(len(ops))], Times: 1}, actions[w.random.IntN(len(actions))])
	w.stopLater(w.network.Control(fault.Control))
}

// Callers that come, go, and end all at one time leave no watch of any kind.
// Until then each hears of the next change.
func TestUnwatchOfEveryKindAtRandom(t *testing.T) {
	random := bubble.Random(t)
	for range bubble.Few(20, bubble.Draw(100, 3000)) {
		seed := random.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				w := &watchers{t: t, random: rand.New(rand.NewPCG(seed, 0)), over: make(chan struct{}), wants: map[<-chan struct{}]kept{}}
				w.c, w.network = connect(t, ens)
				w.other, _ = connect(t, ens)
				if w.random.IntN(2) == 0 {
					w.under.Go(w.cover)
				}
				for range 60 {
					w.network.Latency(time.Duration(w.random.IntN(20))*time.Millisecond, time.Duration(w.random.IntN(20))*time.Millisecond)
					switch w.random.IntN(12) {
					case 0, 1, 2, 3, 4:
						w.watch()
					case 5, 6:
						w.change()
					case 7:
						w.giveUp(w.path())
					case 8:
						w.stop()
					case 9:
						w.disturb()
					case 10:
						time.Sleep(time.Duration(w.random.IntN(40)) * time.Millisecond)
					case 11:
						time.Sleep(time.Duration(w.random.Int64N(int64(2 * timeout))))
					}
				}
				close(w.over)
				w.under.Wait()
				w.stop()
				time.Sleep(2*timeout + time.Second)
				w.changeAll(ens)
				time.Sleep(time.Second)
				for changed, k := range w.wants {
					select {
					case <-changed:
					default:
						t.Errorf("somebody waits for a change of %s", k.path)
					}
				}
				w.giveUp("")
				time.Sleep(6 * timeout)
				left := ens.Watches()
				delete(left, "/")
				if len(left) > 0 {
					t.Errorf("watches are left: %v", left)
				}
			})
		})
	}
}
