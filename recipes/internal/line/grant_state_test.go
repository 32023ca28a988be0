package line

import "testing"

func TestNext(t *testing.T) {
	// What each event makes of each state, in the order claimed, held, idle,
	// leaving, left, lost.
	table := map[event][6]state{
		granted: {held, held, held, leaving, left, lost},
		taken:   {held, held, held, leaving, left, lost},
		vacated: {claimed, idle, idle, leaving, left, lost},
		ended:   {claimed, leaving, leaving, leaving, left, lost},
		removed: {claimed, held, idle, left, left, lost},
		deleted: {lost, lost, lost, leaving, left, lost},
		failed:  {lost, lost, lost, lost, left, lost},
	}
	for e := granted; e <= failed; e++ {
		want, ok := table[e]
		if !ok {
			t.Errorf("%v: not in the table", e)
		}
		for s := claimed; s <= lost; s++ {
			if got := next(s, e); got != want[s] {
				t.Errorf("%v, %v: got %v, want %v", s, e, got, want[s])
			}
		}
	}
}
