package line

import "testing"

// A create that needs room asks for a lingering znode. It does not copy the
// queues, of which there may be many, and finds the one that has such a znode.
func TestGiveBackCopiesNoQueues(t *testing.T) {
	r := &registry{queues: make(map[key]*localQueue)}
	for i := range int64(1000) {
		r.queues[key{candidate: i}] = &localQueue{registry: r}
	}
	if n := testing.AllocsPerRun(10, func() { r.GiveBack(t.Context()) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
	q := r.queues[key{candidate: 500}]
	g := &grant{queue: q}
	is := func(want *localQueue) {
		t.Helper()
		if got := r.lingering(nil); got != want {
			t.Errorf("%s: %p, want %p", g.state, got, want)
		}
	}
	for _, e := range []event{granted, vacated} {
		is(nil)
		g.onLocked(e)
	}
	is(q)
	if r.lingering(map[*localQueue]struct{}{q: {}}) != nil {
		t.Error("one that was tried")
	}
	g.onLocked(ended)
	is(nil)
}
