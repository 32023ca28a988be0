package barrier

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes/internal/recheck"
)

// A watch of a single event tells of a ready that was created before the member
// joined, and not that it was deleted since: the member entered a round that
// was over.
func TestABellOfASingleEvent(t *testing.T) {
	b := newBell(nil, "/ready")
	b.hearOnce(zk.EventNodeCreated)
	b.await()
	if recheck.Happened(b.rung) {
		t.Error("rung by a ready from before the member")
	}
	b.hearOnce(zk.EventNodeCreated)
	if !recheck.Happened(b.rung) {
		t.Error("not rung while the member waits")
	}
}
