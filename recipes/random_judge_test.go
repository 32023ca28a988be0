package recipes_test

import (
	"fmt"
	"slices"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// judge knows what may be held at once.
type judge struct {
	limit   int                // of the semaphore
	latest  map[string]holding // an exclusive one, by path
	deleted map[string]bool    // znodes that an operator may have deleted: their leases may be told later
}

func newJudge(limit int) judge {
	return judge{limit: limit, latest: map[string]holding{}, deleted: map[string]bool{}}
}

// holding is a lease that is held, the call that has acquired it, and its
// znode.
type holding struct {
	*call
	*recipes.Lease
	znode string
}

// root returns the outermost errand, among those whose leases the call's
// context carries, that has acquired the same lock: what has one root was
// re-entered.
func (c *call) root() any {
	root := any(c)
	for e := c.within; e != nil; e = e.outer {
		if slices.Contains(e.at, c.at) {
			root = e
		}
	}
	return root
}

// wrong returns what is wrong with the leases that are held at one instant: who
// holds a lock that another excludes, and tokens that are less than before.
func (j *judge) wrong(held []holding) (wrong []string) {
	permits := 0
	for i, a := range held {
		if j.deleted[a.znode] {
			continue
		}
		permits += a.permits
		for _, b := range held[:i] {
			if a.at.path == b.at.path && a.root() != b.root() && !(a.shared && b.shared) && !j.deleted[b.znode] {
				wrong = append(wrong, fmt.Sprintf("%s and %s are held together, by two owners", a.znode, b.znode))
			}
		}
		if a.permits > 0 {
			continue // their tokens are in no order
		}
		if before, known := j.latest[a.at.path]; known {
			order := a.Token().Compare(before.Token())
			if order < 0 || order == 0 && !a.shared && a.root() != before.root() {
				wrong = append(wrong, fmt.Sprintf("%s has token %v after %v", a.znode, a.Token(), before.Token()))
			}
		}
		if !a.shared {
			j.latest[a.at.path] = a
		}
	}
	if permits > j.limit {
		wrong = append(wrong, fmt.Sprintf("%d permits are held, the limit is %d", permits, j.limit))
	}
	return wrong
}
