package presence_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// loopOver runs a loop over the changes of a roster, each of whose iterations
// takes a while. done is closed when it has ended.
func loopOver(ctx context.Context, r *presence.Roster, slow time.Duration) (told *heard, last *cache.Status, done <-chan struct{}) {
	told, last = &heard{}, &cache.Status{}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for all, status := range r.Changes(ctx) {
			*last = status
			told.hear(all, status)
			slices.Reverse(all) // it is the body's
			time.Sleep(slow)
		}
	}()
	return told, last, over
}

// A loop has the members when they are known, and each change; a slow one has
// the latest. It ends with the Roster, or with its context, and says so.
func TestChangesOfARoster(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c, other := w.Connect("follower"), w.ConnectNext()
		g, err := presence.NewGroup(c, dir)
		must(t, err)
		h, err := presence.NewGroup(other, dir)
		must(t, err)
		r := g.Follow()
		defer r.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		told, _, done := loopOver(t.Context(), r, 0)
		slow, lastSlow, doneSlow := loopOver(ctx, r, time.Minute)
		expect := func(h *heard, want string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := h.take(); got != want {
				t.Errorf("the loop had %q, want %q", got, want)
			}
		}
		expect(told, "SYNCED: ")
		expect(slow, "SYNCED: ")
		b, err := h.Join(t.Context(), "b", []byte("1"))
		must(t, err)
		expect(told, "SYNCED: b=1")
		_, err = h.Join(t.Context(), "a", nil)
		must(t, err)
		expect(told, "SYNCED: a= b=1")
		must(t, c.MakePersistentPath(t.Context(), dir+"/no-member"))
		expect(told, "")
		must(t, b.Set(t.Context(), []byte("2")))
		expect(told, "SYNCED: a= b=2")
		expect(slow, "")
		time.Sleep(time.Minute)
		expect(slow, "SYNCED: a= b=2")

		w.ClientNet("follower").Cut()
		time.Sleep(bubble.Timeout)
		expect(told, "STALE: a= b=2")
		must(t, b.Close(t.Context()))
		w.ClientNet("follower").Heal()
		time.Sleep(2 * time.Minute)
		expect(told, "SYNCED: a=")
		slow.take()
		cancel()
		bubble.Await(t, "the slow loop ends", doneSlow)
		if got := slow.take(); got != "SYNCED: a=" || !errors.Is(lastSlow.Err, context.Canceled) {
			t.Errorf("the loop had %q, %v", got, lastSlow.Err)
		}
		r.Close()
		bubble.Await(t, "the loop ends", done)
		expect(told, "CLOSED: a=")
		for all, status := range r.Changes(t.Context()) {
			if status.State != cache.Closed || namesOf(all) != "a=" {
				t.Errorf("behind the end: %v, %v", status.State, all)
			}
		}
	})
}

// A loop that never had the members has no iteration, whatever ends it.
func TestChangesOfARosterThatKnowsNothing(t *testing.T) {
	for range new(presence.Roster).Changes(t.Context()) {
		t.Error("the zero Roster has members")
	}
	for _, closes := range []bool{true, false} {
		bubble.Run(t, func(t *testing.T, w *bubble.World) {
			w.ClientNet("follower").Cut()
			c, err := w.Open("follower", framework.WithSessionTimeout(bubble.Timeout))
			must(t, err)
			t.Cleanup(func() { _ = c.Close() })
			g, err := presence.NewGroup(c, dir)
			must(t, err)
			r := g.Follow()
			defer r.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			told, _, done := loopOver(ctx, r, 0)
			time.Sleep(time.Hour)
			if closes {
				r.Close()
			} else {
				cancel()
			}
			bubble.Await(t, "the loop ends", done)
			if got := told.take(); got != "" {
				t.Errorf("the loop had %q", got)
			}
		})
	}
}
