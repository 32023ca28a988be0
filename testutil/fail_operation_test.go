package testutil_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// A multi is refused because of one operation, as the ensemble itself refuses
// it: its error, and nothing else, names that one. The ensemble and the network
// of one client both do it.
func TestFailOperation(t *testing.T) {
	for name, control := range map[string]func(e *testutil.Embedded, n *testutil.ClientNet, fn func(testutil.Request) testutil.Action) (stop func()){
		"at the ensemble": func(e *testutil.Embedded, _ *testutil.ClientNet, fn func(testutil.Request) testutil.Action) (stop func()) {
			return e.Control(fn)
		},
		"in the network": func(_ *testutil.Embedded, n *testutil.ClientNet, fn func(testutil.Request) testutil.Action) (stop func()) {
			return n.Control(fn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, e *testutil.Embedded) {
				n := e.ClientNet("alice")
				c := wireClient(t, e.Servers(), n.Dial, 10*time.Second)
				_, err := c.Create("/there", nil, 0, anyACL)
				must(t, err)
				multi := func(second string) ([]zk.MultiResponse, error) {
					return c.Multi(&zk.CreateRequest{Path: "/a", Acl: anyACL}, &zk.CreateRequest{Path: second, Acl: anyACL}, &zk.CreateRequest{Path: "/c", Acl: anyACL})
				}
				want, wantErr := multi("/there")
				stop := control(e, n, on(testutil.OpMulti, "/a", testutil.FailOperation(1, testutil.CodeNodeExists)))
				got, err := multi("/b")
				stop()
				if !errors.Is(err, zk.ErrNodeExists) || !errors.Is(wantErr, zk.ErrNodeExists) || len(got) != 3 || len(want) != 3 {
					t.Fatalf("%v, %v; the ensemble itself: %v, %v", got, err, want, wantErr)
				}
				for i := range got {
					if got, want := got[i].Error, want[i].Error; (got == nil) != (want == nil) || got != nil && got.Error() != want.Error() {
						t.Errorf("operation %d: %v, of the ensemble itself %v", i, got, want)
					}
				}
				stop = control(e, n, on(testutil.OpMulti, "/a", testutil.FailOperation(3, testutil.CodeNoAuth)))
				if got, err := multi("/b"); !errors.Is(err, zk.ErrNoAuth) || len(got) != 0 {
					t.Errorf("an operation that there is not: %v, %v", got, err)
				}
				stop()
				for _, path := range []string{"/a", "/b", "/c"} {
					if e.Exists(path) {
						t.Errorf("%s exists", path)
					}
				}
				if _, err := multi("/b"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
