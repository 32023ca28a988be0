package acceptance_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/load"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Members of Curator's groups and ours see each other, in both directions.
func TestGroupsBesideCurator(t *testing.T) {
	needsCurator(t)
	besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) {
		theirs := curator(t, ens)
		joinTogether(t, ens, theirs, "group-member", presence.LayoutMember, 2)
		joinTogether(t, ens, theirs, "persistent-node", presence.LayoutMember, 1)
		joinTogether(t, ens, theirs, "protected-node", presence.LayoutProtected, 1)
	})
}

func TestGroupsBesideKazoo(t *testing.T) {
	needsKazoo(t)
	besideNeighbors(t, func(t *testing.T, ens testutil.Ensemble) {
		theirs := kazoo(t, ens)
		joinTogether(t, ens, theirs, "kazoo-party", presence.LayoutParty, 2)
		joinTogether(t, ens, theirs, "kazoo-shallow-party", presence.LayoutShallowParty, 2)
	})
}

// joinTogether has one of theirs and one of ours join a group. Each sees both,
// and ours sees who leaves. sees is how many members theirs can
// see then.
func joinTogether(t *testing.T, ens testutil.Ensemble, theirs *neighbor, kind string, layout presence.Layout, sees int) {
	t.Helper()
	t.Run(kind, func(t *testing.T) {
		path := "/groups/" + kind
		group, err := presence.NewGroup(client(t, ens), path, presence.WithLayout(layout))
		if err != nil {
			t.Fatal(err)
		}
		m := theirs.join(t, kind, path)
		m.acquire(t)
		id := fmt.Sprintf("%s-%d", theirs.who, m.number)
		awaitMembers(t, group, id)
		node, err := group.Join(t.Context(), "ours", nil)
		if err != nil {
			t.Fatal(err)
		}
		awaitMembers(t, group, id, "ours")
		for end := time.Now().Add(load.Patience); m.participants(t) != sees; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("theirs does not see %d members", sees)
			}
		}
		m.release(t)
		awaitMembers(t, group, "ours")
		if err := node.Close(t.Context()); err != nil {
			t.Error(err)
		}
		awaitMembers(t, group)
	})
}

func awaitMembers(t *testing.T, group *presence.Group, want ...string) {
	t.Helper()
	for end := time.Now().Add(load.Patience); ; time.Sleep(50 * time.Millisecond) {
		members, err := group.Members(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, m := range members {
			ids = append(ids, m.ID)
		}
		if slices.Equal(ids, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("members %q, want %q", ids, want)
		}
	}
}
