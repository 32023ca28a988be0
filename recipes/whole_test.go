package recipes_test

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Nobody outside can make a lease that holds something.
func TestALeaseOfNothingIsNotHeld(t *testing.T) {
	for story, l := range map[string]*recipes.Lease{
		"zero":             new(recipes.Lease),
		"of no place":      recipes.NewLease(t.Context()),
		"of no part":       recipes.NewWhole(t.Context()),
		"of parts of none": recipes.NewWhole(t.Context(), recipes.NewLease(t.Context())),
	} {
		if l.Held() {
			t.Errorf("%s: held", story)
		}
		op := &zk.DeleteRequest{Path: "/a", Version: -1}
		if guarded := l.Guard(op); len(guarded) != 2 || guarded[0] == op {
			t.Errorf("%s: guarded by %v", story, guarded)
		}
	}
}
