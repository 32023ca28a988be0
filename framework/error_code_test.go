package framework_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

func TestErrorCode(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, "OK"},
		{fmt.Errorf("create /x: %w", zk.ErrNoNode), "NONODE"},
		{zk.ErrConnectionClosed, "CONNECTIONLOSS"},
		{framework.ErrUnproven, "UNPROVEN"},
		{framework.ErrSessionLost, "SESSIONEXPIRED"},
		{context.DeadlineExceeded, "TIMEOUT"},
		{errors.New("anything"), "OTHER"},
	} {
		if got := framework.ErrorCode(tt.err); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.err, got, tt.want)
		}
	}
}

// Each code of the protocol that the wire client does not know has a name of
// its own.
func TestUnknownCodesHaveNames(t *testing.T) {
	names := map[string]bool{"OTHER": true}
	for _, code := range []wire.Code{
		wire.SystemError, wire.RuntimeInconsistency, wire.DataInconsistency, wire.MarshallingError, wire.Unimplemented,
		wire.OperationTimeout, -12, -13, -14, wire.InvalidCallback, wire.NotReadOnly, wire.EphemeralOnLocal, wire.NoWatcher,
		wire.RequestTimeout, wire.SessionClosedRequire, wire.QuotaExceeded, wire.Throttled,
	} {
		name := framework.ErrorCode(errors.New("unknown error: " + strconv.Itoa(int(code))))
		if names[name] {
			t.Errorf("code %d has the name %s, as another one", code, name)
		}
		names[name] = true
	}
}
