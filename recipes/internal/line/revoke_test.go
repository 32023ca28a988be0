package line_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// A request to release is repeated after a lost answer: the name of a contender
// never comes back.
func TestRevokeAfterALostAnswer(t *testing.T) {
	for name, action := range map[string]testutil.Action{"executed": testutil.DropAfter(), "not executed": testutil.DropBefore()} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, w *bubble.World) {
				l := bubble.Acquire(t, t.Context(), mutexOf(t, w.Connect("a")))
				revoked := l.Revoked()
				b := mutexOf(t, w.Connect("b"))
				w.ClientNet("b").Control(testutil.NewFault(testutil.Match{Op: testutil.OpSetData}, action).Control)
				if err := b.Revoke(t.Context(), recipes.Participant{Path: l.Path()}); err != nil {
					t.Error(err)
				}
				bubble.Await(t, "the request", revoked)
				bubble.Release(t, l)
			})
		})
	}
}
