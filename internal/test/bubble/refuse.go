package bubble

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// EachRefused makes a call in one world after the other. In the first one the
// ensemble refuses the first request of the call, as if an ACL forbade it, in
// the next one the second, and so on; of a transaction each operation in turn.
// The call must fail with zk.ErrNoAuth. It returns the requests whose refusal
// the call has survived.
func EachRefused(t *testing.T, prepare func(t *testing.T, w *World) (*framework.Client, func(context.Context) error)) (survived []testutil.Op) {
	t.Helper()
	for n, more := 0, true; more && !t.Failed(); n++ {
		more = false
		Run(t, func(t *testing.T, w *World) {
			c, call := prepare(t, w)
			id, left := w.SessionID(c), n
			var refused testutil.Request
			stop := w.Control(func(r testutil.Request) testutil.Action {
				if r.Session != id || r.Op == testutil.OpPing || r.Op == testutil.OpCreateSession || more {
					return testutil.Pass()
				}
				operations := max(1, len(r.Operations))
				if left >= operations {
					left -= operations
					return testutil.Pass()
				}
				refused, more = r, true
				return testutil.FailOperation(left, testutil.CodeNoAuth)
			})
			err := call(t.Context())
			synctest.Wait() // what the call leaves behind counts as well
			stop()
			switch {
			case !more && err != nil:
				t.Errorf("nothing was refused: %v", err)
			case more && err == nil:
				survived = append(survived, refused.Op)
			case more && !errors.Is(err, zk.ErrNoAuth):
				t.Errorf("%v %s was refused: %v", refused.Op, refused.Path, err)
			}
		})
	}
	slices.Sort(survived)
	return survived
}
