package load

import (
	"context"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// ReplaceMembers replaces all members of an ensemble by others, at other
// addresses, one after another, as an operator does: a new member joins, an old
// one leaves, stays for a while without a vote, and is stopped. Once all
// members that run serve again, replaced is called, and the next one follows.
func ReplaceMembers(ctx context.Context, ens testutil.Ensemble, stay time.Duration, replaced func(old, added int)) error {
	for old := range ens.Members() {
		added, err := replaceMember(ctx, ens, old, stay)
		if err != nil {
			return fmt.Errorf("replace member %d: %w", old, err)
		}
		replaced(old, added)
	}
	return nil
}

func replaceMember(ctx context.Context, ens testutil.Ensemble, old int, stay time.Duration) (added int, err error) {
	if added, err = ens.AddMember(ctx); err != nil {
		return -1, err
	}
	if err := ens.RemoveMember(ctx, old); err != nil {
		return added, err
	}
	select {
	case <-time.After(stay):
	case <-ctx.Done():
		return added, context.Cause(ctx)
	}
	if err := ens.Stop(old); err != nil {
		return added, err
	}
	return added, ens.WaitServing(ctx)
}
