package framework_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/bubble"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The znode of a create that was given up appears late, between two looks for
// it. The next contender sees it in the list that is sent with its create, and
// would wait behind it until the next look: so that list discards it.
func TestTheListBehindACreateRemovesWhatWasGivenUp(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		c, network := connect(t, ens)
		s := session(t, c)
		must(t, s.MakeContainerPath(t.Context(), "/lock"))
		stop := once(ens, testutil.OpCreate, testutil.Delay(timeout/2))
		_, err := contender(within(t, timeout/12), s)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want a create that is given up", err)
		}
		network.Drop()
		bubble.AwaitTrue(t, "the create that was given up", func() bool { return len(ens.Children("/lock")) == 1 })
		stop()
		late := ens.Children("/lock")
		made, err := contender(t.Context(), s)
		must(t, err)
		if !slices.Contains(made.Children, late[0]) {
			t.Fatalf("the list shows %v, and not %v: this test says nothing", made.Children, late)
		}
		time.Sleep(10 * time.Millisecond)
		if left := ens.Children("/lock"); len(left) != 1 || left[0] != strings.TrimPrefix(made.Path, "/lock/") {
			t.Errorf("in line: %v, want %s alone", left, made.Path)
		}
	})
}
