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
		story func(r *rearmed)
		has   bool
		wait  bool
		err   error
	}{
		"nothing is held": {func(*rearmed) {}, false, false, nil},
		"armed here": {func(r *rearmed) {
			r.end(data, r.begin(data), true, data, second)
		}, true, false, nil},
		"not armed after all": {func(r *rearmed) {
			r.end(data, r.begin(data), false, data, second)
		}, false, false, nil},
		"armed before the reconnect": {func(r *rearmed) {
			r.end(data, r.begin(data), true, data, first)
		}, false, true, nil},
		"an event comes before the answer is noted": {func(r *rearmed) {
			a := r.begin(data)
			r.event([]watchKey{data})
			r.end(data, a, true, data, second)
		}, false, false, nil},
		"an event of another kind does": {func(r *rearmed) {
			a := r.begin(data)
			r.event([]watchKey{{watchChildren, "/a"}, {watchData, "/b"}})
			r.end(data, a, true, data, second)
		}, true, false, nil},
		"an event comes after": {func(r *rearmed) {
			r.end(data, r.begin(data), true, data, second)
			r.event([]watchKey{data})
		}, false, false, nil},
		"armed again": {func(r *rearmed) {
			r.end(data, r.begin(data), true, data, first)
			r.asks(7, []watchKey{data})
			r.answered(second, 7, false)
		}, true, false, nil},
		"the event comes before it is": {func(r *rearmed) {
			r.end(data, r.begin(data), true, data, first)
			r.asks(7, []watchKey{data})
			r.event([]watchKey{data})
			r.answered(second, 7, false)
		}, false, false, nil},
		"another is": {func(r *rearmed) {
			r.end(data, r.begin(data), true, data, first)
			r.asks(7, []watchKey{{watchData, "/b"}})
			r.answered(second, 7, false)
		}, false, true, nil},
		"refused": {func(r *rearmed) {
			r.end(data, r.begin(data), true, data, first)
			r.asks(7, []watchKey{data})
			r.answered(second, 7, true)
		}, false, false, nil},
		"refused after it was": {func(r *rearmed) {
			r.end(data, r.begin(data), true, data, first)
			r.asks(7, []watchKey{data})
			r.answered(second, 7, false)
			r.asks(8, []watchKey{{watchData, "/b"}})
			r.answered(second, 8, true)
		}, true, false, nil},
		"refused on the connection before": {func(r *rearmed) {
			r.end(data, r.begin(data), true, data, first)
			r.asks(7, []watchKey{data})
			r.answered(first, 7, true)
		}, false, true, nil},
		"the connection before has ended": {func(r *rearmed) {
			r.end(data, r.begin(data), true, data, first)
			r.left(first)
		}, false, true, nil},
		"this one has": {func(r *rearmed) {
			r.end(data, r.begin(data), true, data, first)
			r.left(second)
		}, false, false, zk.ErrConnectionClosed},
		"given up": {func(r *rearmed) {
			r.end(data, r.begin(data), true, data, second)
			r.forget(data)
		}, false, false, nil},
	} {
		r := &rearmed{}
		tt.story(r)
		has, undecided, err := r.look(data, second)
		if has != tt.has || (undecided != nil) != tt.wait || !errors.Is(err, tt.err) {
			t.Errorf("%s: has %t, undecided %t, %v", name, has, undecided != nil, err)
		}
		if len(r.arming) != 0 {
			t.Errorf("%s: %d requests are still under way", name, len(r.arming))
		}
		if undecided == nil {
			continue
		}
		if r.answered(second, 9, false); !isClosed(undecided) {
			t.Errorf("%s: an answer tells nobody", name)
		}
		if _, undecided, _ = r.look(data, second); undecided == nil {
			t.Errorf("%s: decided by an answer to another", name)
			continue
		}
		if r.left(second); !isClosed(undecided) {
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

// A request to arm watches again is taken apart as far as it goes.
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
