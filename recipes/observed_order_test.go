package recipes_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
)

// Observers of several packages that are given together hear all events one at
// a time, in the order in which they happened, however slow they are. What is
// given by itself does not wait for them.
func TestObserversTogetherHearInOrder(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		free := make(chan struct{})
		var inside atomic.Int32
		var told []string
		var latest time.Time
		hear := func(at time.Time, format string, args ...any) {
			if inside.Add(1) > 1 {
				t.Error("two are told at the same time")
			}
			defer inside.Add(-1)
			<-free
			told = append(told, fmt.Sprintf(format, args...))
			if at.Before(latest) {
				t.Errorf("%q was told after what happened %v later", told[len(told)-1], latest.Sub(at))
			}
			latest = at
		}
		alone := make(chan recipes.Loss, 1)
		c := w.Connect("a",
			framework.Together(
				cache.WithObserver(cache.Observer{StateChanged: func(s cache.StateChange) { hear(s.At, "cache %s", s.To) }}),
				framework.Together( // as one of several that a package gives as one
					recipes.WithObserver(recipes.Observer{Lost: func(_ context.Context, l recipes.Loss) { hear(l.At, "lost: %s", l.Reason) }}),
					framework.WithObserver(framework.Observer{
						StateChanged: func(s framework.StateChange) { hear(s.At, "client %v", s.To) },
						RequestEnd: func(_ context.Context, r framework.Request, result framework.RequestResult) {
							if r.Op == "set" {
								hear(r.Began.Add(result.Took), "set: %s", result.Code)
							}
						},
					}),
				),
			),
			recipes.WithObserver(recipes.Observer{Lost: func(_ context.Context, l recipes.Loss) { alone <- l }}))
		step := func() {
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		if _, err := c.Create(t.Context(), "/config", nil, zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
		step()
		k, err := cache.New(c, "/config")
		if err != nil {
			t.Fatal(err)
		}
		k.Start()
		if _, err := k.Synced(t.Context()); err != nil {
			t.Fatal(err)
		}
		step()
		lease := bubble.Acquire(t, t.Context(), mutexAt(t, c, "/lock"))
		step()
		if _, err := c.Set(t.Context(), "/config", []byte("x"), -1); err != nil {
			t.Fatal(err)
		}
		step()
		w.ClientNet("a").Cut()
		bubble.Lost(t, lease)
		if l := bubble.Await(t, "the loss", alone); l.Reason != recipes.LostUnproven {
			t.Errorf("lost: %s", l.Reason)
		}
		step()
		w.ClientNet("a").Heal()
		if _, err := c.Set(t.Context(), "/config", []byte("y"), -1); err != nil {
			t.Fatal(err)
		}
		if len(told) > 0 {
			t.Fatalf("told %q while the first function blocks", told)
		}
		close(free)
		k.Close()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		at := -1
		for _, want := range []string{
			"client CONNECTED", "cache syncing", "cache synced", "set: OK", "client SUSPENDED", "lost: unproven", "client CONNECTED", "set: OK",
			"client CLOSED",
		} {
			next := slices.Index(told[at+1:], want)
			if next < 0 {
				t.Fatalf("no %q behind %q, of %q", want, strings.Join(told[:at+1], ", "), told)
			}
			at += 1 + next
		}
		if at != len(told)-1 {
			t.Errorf("told %q", told)
		}
	})
}
