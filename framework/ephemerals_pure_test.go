package framework

import (
	"testing"

	"github.com/go-zookeeper/zk"
)

// What a create has made in a session that is over does not count in the next,
// whatever its answer was, and whichever came first.
func TestEphemeralsOfASessionThatIsOver(t *testing.T) {
	for answer, err := range map[string]error{"made": nil, "unknown": zk.ErrConnectionClosed, "refused": zk.ErrNodeExists} {
		c := &core{cfg: config{maxRequest: defaultMaxRequest}}
		c.ephemerals.init(c)
		e := &c.ephemerals
		first, second := &session{core: c}, &session{core: c}
		settle := func(tried *session) {
			claim, failed := e.claim(t.Context(), nil, 10, allowance{reserve: 5})
			if failed != nil {
				t.Fatal(failed)
			}
			claim.tryIn(tried)
			e.begin(second)
			claim.settle(err, "/e/znode")
		}
		e.begin(first)
		settle(first)
		if e.sum != 0 {
			t.Errorf("%s: %d bytes", answer, e.sum)
		}
		settle(second)
		if counts := answer != "refused"; e.sum > 0 != counts {
			t.Errorf("%s: %d bytes after a try in the next session", answer, e.sum)
		}
	}
}
