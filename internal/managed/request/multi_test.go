package request_test

import (
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// Which operation of a multi was refused.
func TestRefusedOperation(t *testing.T) {
	other := errors.New("unknown error: -2")
	for _, tt := range []struct {
		errs []error
		ops  int
		want int
	}{
		{[]error{nil, zk.ErrNoNode}, 2, 1},
		{[]error{nil, nil, zk.ErrNoNode, other}, 4, 2},
		{[]error{other, zk.ErrNoNode}, 2, -1},
		{[]error{nil, nil}, 2, -1},
		{[]error{zk.ErrNoNode}, 2, -1},
		{nil, 0, -1},
	} {
		responses := make([]zk.MultiResponse, len(tt.errs))
		for i, err := range tt.errs {
			responses[i].Error = err
		}
		if got := request.Refused(responses, tt.ops); got != tt.want {
			t.Errorf("%v of %d: %d, want %d", tt.errs, tt.ops, got, tt.want)
		}
	}
}
