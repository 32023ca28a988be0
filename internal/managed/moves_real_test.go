package managed_test

import (
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// A client leaves a real member that is taken off its list, in the same
// session, and its lease stays. Requests go on meanwhile.
func TestAMoveOnRealServers(t *testing.T) {
	ens := apache.Start(t, 3)
	const T = 4 * time.Second
	c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(T))
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	must(t, c.WaitConnected(within(t, time.Minute)))
	s := session(t, c)
	_, err = c.Create(t.Context(), "/moved", nil, 0)
	must(t, err)
	lost := lossOf(t, s)
	for range 3 {
		left := c.Server()
		var others []string
		for _, server := range strings.Split(ens.Servers(), ",") {
			if server != left {
				others = append(others, server)
			}
		}
		must(t, c.SetServers(t.Context(), strings.Join(others, ",")))
		began := time.Now()
		for c.Server() == left || c.Server() == "" {
			if _, err := c.Set(t.Context(), "/moved", nil, -1); err != nil {
				t.Errorf("%v; may have been applied: %t", err, framework.MaybeApplied(err))
			}
			if time.Since(began) > 30*time.Second {
				t.Fatalf("still at %s: %+v", left, c.Servers())
			}
		}
		t.Logf("from %s to %s after %v", left, c.Server(), time.Since(began))
	}
	if len(lost) > 0 || session(t, c).ID() != s.ID() {
		judge.Errorf(t, "the session was lost: %v", s.Err())
	}
}
