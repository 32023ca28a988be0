package managed_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The error of a multi named its first operation, whichever was refused. Behind
// the guard of a lease that read as a lost lock.
func TestTheErrorOfAMultiNamesTheOperation(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, ens *testutil.Embedded) {
		all, _ := connect(t, ens)
		must(t, all.MakePersistentPath(t.Context(), "/ns/full/child"))
		c, err := all.Namespace("ns")
		must(t, err)
		guard := &zk.CheckVersionRequest{Path: "/full", Version: -1}
		for want, op := range map[string]any{
			"multi: create /full: zk: node already exists":   &zk.CreateRequest{Path: "/full"},
			"multi: create /no/a: zk: node does not exist":   &zk.CreateRequest{Path: "/no/a"},
			"multi: set /none: zk: node does not exist":      &zk.SetDataRequest{Path: "/none", Version: -1},
			"multi: set /full/child: zk: version conflict":   &zk.SetDataRequest{Path: "/full/child", Version: 7},
			"multi: delete /full: zk: node has children":     &zk.DeleteRequest{Path: "/full", Version: -1},
			"multi: check /none: zk: node does not exist":    &zk.CheckVersionRequest{Path: "/none"},
			"multi: check /full/child: zk: version conflict": &zk.CheckVersionRequest{Path: "/full/child", Version: 3},
		} {
			for at := range 3 {
				ops := []any{guard, guard}
				ops = append(ops[:at], append([]any{op}, ops[at:]...)...)
				responses, err := c.Multi(t.Context(), ops...)
				if err == nil || err.Error() != want || framework.MaybeApplied(err) || len(responses) != 3 || responses[at].Error == nil {
					t.Errorf("operation %d: %v, want %q", at, err, want)
				}
			}
		}
		stop := once(ens, testutil.OpMulti, testutil.DropAfter())
		defer stop()
		_, err = c.Multi(t.Context(), guard, guard, guard)
		if !errors.Is(err, zk.ErrConnectionClosed) || !strings.HasPrefix(err.Error(), "multi /full and 2 more: ") {
			t.Errorf("an error of all: %v", err)
		}
		defer once(ens, testutil.OpMulti, testutil.DropAfter())()
		if _, err = c.Multi(t.Context(), guard); err == nil || !strings.HasPrefix(err.Error(), "multi /full: ") {
			t.Errorf("an error of one: %v", err)
		}
	})
}
