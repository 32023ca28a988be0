package framework

import (
	"errors"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"
)

// What of a watch is known after what: see rearmed. The races that the rows are
// about are too narrow to be met from outside.
func TestRearmed(t *testing.T) {
	first, second := &link{}, &link{}
	data := watchKey{watchData, "/a"}
	for name, tt := range map[string]struct {
		story func(r *wireWatches)
		has   bool
		wait  bool
		err   error
	}{
		"nothing is held": {func(*wireWatches) {}, false, false, nil},
		"armed here": {func(r *wireWatches) {
			r.endArming(data, r.beginArming(data), true, data, second)
		}, true, false, nil},
		"not armed after all": {func(r *wireWatches) {
			r.endArming(data, r.beginArming(data), false, data, second)
		}, false, false, nil},
		"armed before the reconnect": {func(r *wireWatches) {
			r.endArming(data, r.beginArming(data), true, data, first)
		}, false, true, nil},
		"an event comes before the answer is noted": {func(r *wireWatches) {
			a := r.beginArming(data)
			r.onEvent([]watchKey{data})
			r.endArming(data, a, true, data, second)
		}, false, false, nil},
		"an event of another kind does": {func(r *wireWatches) {
			a := r.beginArming(data)
			r.onEvent([]watchKey{{watchChildren, "/a"}, {watchData, "/b"}})
			r.endArming(data, a, true, data, second)
		}, true, false, nil},
		"an event comes after": {func(r *wireWatches) {
			r.endArming(data, r.beginArming(data), true, data, second)
			r.onEvent([]watchKey{data})
		}, false, false, nil},
		"armed again": {func(r *wireWatches) {
			r.endArming(data, r.beginArming(data), true, data, first)
			r.onSetWatches(7, []watchKey{data})
			r.onSetWatchesAnswer(second, 7, false)
		}, true, false, nil},
		"the event comes before it is": {func(r *wireWatches) {
			r.endArming(data, r.beginArming(data), true, data, first)
			r.onSetWatches(7, []watchKey{data})
			r.onEvent([]watchKey{data})
			r.onSetWatchesAnswer(second, 7, false)
		}, false, false, nil},
		"another is": {func(r *wireWatches) {
			r.endArming(data, r.beginArming(data), true, data, first)
			r.onSetWatches(7, []watchKey{{watchData, "/b"}})
			r.onSetWatchesAnswer(second, 7, false)
		}, false, true, nil},
		"refused": {func(r *wireWatches) {
			r.endArming(data, r.beginArming(data), true, data, first)
			r.onSetWatches(7, []watchKey{data})
			r.onSetWatchesAnswer(second, 7, true)
		}, false, false, nil},
		"refused after it was": {func(r *wireWatches) {
			r.endArming(data, r.beginArming(data), true, data, first)
			r.onSetWatches(7, []watchKey{data})
			r.onSetWatchesAnswer(second, 7, false)
			r.onSetWatches(8, []watchKey{{watchData, "/b"}})
			r.onSetWatchesAnswer(second, 8, true)
		}, true, false, nil},
		"refused on the connection before": {func(r *wireWatches) {
			r.endArming(data, r.beginArming(data), true, data, first)
			r.onSetWatches(7, []watchKey{data})
			r.onSetWatchesAnswer(first, 7, true)
		}, false, true, nil},
		"the connection before has ended": {func(r *wireWatches) {
			r.endArming(data, r.beginArming(data), true, data, first)
			r.onLinkEnd(first)
		}, false, true, nil},
		"this one has": {func(r *wireWatches) {
			r.endArming(data, r.beginArming(data), true, data, first)
			r.onLinkEnd(second)
		}, false, false, zk.ErrConnectionClosed},
		"given up": {func(r *wireWatches) {
			r.endArming(data, r.beginArming(data), true, data, second)
			r.forget(data)
		}, false, false, nil},
	} {
		r := &wireWatches{}
		tt.story(r)
		has, undecided, err := r.status(data, second)
		if has != tt.has || (undecided != nil) != tt.wait || !errors.Is(err, tt.err) {
			t.Errorf("%s: has %t, undecided %t, %v", name, has, undecided != nil, err)
		}
		if len(r.arming) != 0 {
			t.Errorf("%s: %d requests are still under way", name, len(r.arming))
		}
		if undecided == nil {
			continue
		}
		if r.onSetWatchesAnswer(second, 9, false); !isClosed(undecided) {
			t.Errorf("%s: an answer tells nobody", name)
		}
		if _, undecided, _ = r.status(data, second); undecided == nil {
			t.Errorf("%s: decided by an answer to another", name)
			continue
		}
		if r.onLinkEnd(second); !isClosed(undecided) {
			t.Errorf("%s: the end of the connection tells nobody", name)
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// The paths in a setWatches are read, and a truncated one has none.
func TestWatchesIn(t *testing.T) {
	frame := make([]byte, 20)
	text := func(s string) { frame = append(append(frame, 0, 0, 0, byte(len(s))), s...) }
	frame = append(frame, 0, 0, 0, 2)
	text("/a")
	text("/b")
	frame = append(frame, 0, 0, 0, 0, 0, 0, 0, 1)
	text("/c")
	want := []watchKey{{watchData, "/a"}, {watchData, "/b"}, {watchChildren, "/c"}}
	if got := watchesIn(frame); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for n := range frame {
		if got := watchesIn(frame[:n]); got != nil {
			t.Errorf("%d bytes of it: %v", n, got)
		}
	}
}
