package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
)

func TestOutcome(t *testing.T) {
	granted := recipes.AcquireResult{Grant: recipes.Grant{How: recipes.GrantedByHandoff}}
	if got := recipes.Outcome(granted); got != "handoff" {
		t.Errorf("a grant: %s", got)
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{recipes.ErrBusy, "busy"},
		{recipes.ErrLayout, "layout"},
		{recipes.ErrDeadlock, "deadlock"},
		{recipes.ErrExhausted, "exhausted"},
		{context.DeadlineExceeded, "timeout"},
		{context.Canceled, "canceled"},
		{fmt.Errorf("%w: %w", framework.ErrClosed, context.Canceled), "canceled"},
		{framework.ErrClosed, "closed"},
		{zk.ErrNoAuth, "no_auth"},
		{zk.ErrAuthFailed, "no_auth"},
		{framework.ErrUnproven, "session_lost"},
		{zk.ErrNoServer, "unreachable"},
		{errors.New("refused"), "error"},
	} {
		if got := recipes.Outcome(recipes.AcquireResult{Err: fmt.Errorf("acquire /lock: %w", tt.err)}); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.err, got, tt.want)
		}
	}
}
