package page_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
)

// TestHandovers: the page of a line says how often this process was granted it,
// by whom, and how long that took from the release before: for a handoff inside
// the process no time, between two of its clients what the ensemble takes. A
// lock that was free meanwhile, or somebody else's, was not handed over.
func TestHandovers(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		w.Latency(10 * time.Millisecond)
		watch := page.NewWatch()
		c, d, other := w.Connect("c", watch.Option()), w.Connect("d", watch.Option()), w.Connect("other")
		p := of(t, w, page.WithWatch(watch))
		body := sees(t, p, lineAt("/app/x"))
		if strings.Contains(body, "In this process") {
			t.Errorf("before the first grant:\n%s", body)
		}
		m := mutex(t, c, "/app/x", "")
		held := bubble.Acquire(t, t.Context(), m)
		handed := bubble.Acquiring(t.Context(), m)
		bubble.Release(t, bubble.Acquire(t, held.Context(), m)) // it is held nonetheless
		synctest.Wait()
		time.Sleep(time.Second)
		bubble.Release(t, held)
		held = bubble.Granted(t, handed).Lease
		next := bubble.Acquiring(t.Context(), mutex(t, d, "/app/x", ""))
		w.InLine("/app/x", 2)
		bubble.Release(t, held)
		held = bubble.Granted(t, next).Lease
		stranger := bubble.Acquiring(t.Context(), mutex(t, other, "/app/x", ""))
		w.InLine("/app/x", 2)
		behind := bubble.Acquiring(t.Context(), m)
		w.InLine("/app/x", 3)
		bubble.Release(t, held)
		time.Sleep(time.Second)
		bubble.Release(t, bubble.Granted(t, stranger).Lease)
		bubble.Release(t, bubble.Granted(t, behind).Lease)
		time.Sleep(2 * time.Second) // nobody holds it
		held = bubble.Acquire(t, t.Context(), mutex(t, d, "/app/x", ""))
		w.Expire(d)
		bubble.Lost(t, held)
		synctest.Wait()

		body = sees(t, p, lineAt("/app/x"), "<dt>granted</dt><dd>6</dd>", "<dt>by handoff</dt><dd>1</dd>", "<dt>lost</dt><dd>1</dd>", "<dt>since</dt><dd>2", "of the last 2.")
		var got []string // the earliest first
		for _, found := range regexp.MustCompile(`data-label="What">(\w+)(?: \((\w+)\))?.*data-label="Hand-over">([^<]*)<`).FindAllStringSubmatch(body, -1) {
			got = append([]string{strings.Join(found[1:], " ")}, got...)
		}
		over := strings.TrimPrefix(got[6], "granted ensemble ")
		if took, err := time.ParseDuration(over); err != nil || took < time.Millisecond || took > 50*time.Millisecond {
			t.Errorf("from one client to the other: %q", over)
		}
		want := []string{
			"granted ensemble ", "granted reentry ", "released  ", "released  ", "granted handoff 0s", "released  ", "granted ensemble " + over, "released  ",
			"granted ensemble ", "released  ", "granted ensemble ", "lost session ",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
	})
}

// TestPastOfManyLocks: a watch forgets the locks that were used longest ago.
func TestPastOfManyLocks(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		watch := page.NewWatch()
		c := w.Connect("c", watch.Option())
		for i := range 101 {
			bubble.Release(t, bubble.Acquire(t, t.Context(), mutex(t, c, fmt.Sprint("/app/", i), "")))
			time.Sleep(time.Millisecond)
			if i != 1 {
				continue
			}
			for range 200 { // of one lock it counts all events
				bubble.Release(t, bubble.Acquire(t, t.Context(), mutex(t, c, "/app/busy", "")))
			}
		}
		p := of(t, w, page.WithWatch(watch))
		sees(t, p, lineAt("/app/100"), "In this process")
		sees(t, p, lineAt("/app/busy"), "<dt>granted</dt><dd>200</dd>")
		if body := sees(t, p, lineAt("/app/0")); strings.Contains(body, "In this process") {
			t.Error("the past of 102 locks is remembered, none of them held")
		}
	})
}
