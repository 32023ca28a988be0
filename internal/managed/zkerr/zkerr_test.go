package zkerr_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want zkerr.Outcome
	}{
		{zk.ErrNoNode, zkerr.Final},
		{zk.ErrNoAuth, zkerr.Final},
		{zk.ErrBadVersion, zkerr.Final},
		{zk.ErrConnectionClosed, zkerr.Ambiguous},
		{zk.ErrClosing, zkerr.Ambiguous},
		{zk.ErrNoServer, zkerr.Unsent},
		{zk.ErrSessionMoved, zkerr.Unsent},
		{zk.ErrSessionExpired, zkerr.Expired},
		{errors.New("unknown error: what"), zkerr.Final},
		{fmt.Errorf("wrapped: %w", zk.ErrNoServer), zkerr.Unsent},
		{zkerr.WithMeaning(errors.New("unknown error: -7")), zkerr.Ambiguous},
		{fmt.Errorf("wrapped: %w", zkerr.WithMeaning(errors.New("unknown error: -127"))), zkerr.Unsent},
	} {
		if got := zkerr.Classify(tt.err); got != tt.want {
			t.Errorf("classify(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

// Codes that the wire client has no error for have a text. A known failure
// elsewhere: go-zookeeper.
func TestErrorsThatTheWireClientDoesNotKnow(t *testing.T) {
	for text, want := range map[string]string{
		"unknown error: -125": "quota exceeded (code -125)",
		"unknown error: -999": "unknown error: -999",
		"zk: not empty":       "zk: not empty",
	} {
		if got := zkerr.WithMeaning(errors.New(text)).Error(); got != want {
			t.Errorf("%q is named %q, want %q", text, got, want)
		}
	}
}

// A server with localSessionsEnabled refused every acquire with "unknown error:
// -120". These are all the codes of ZooKeeper 3.9 (KeeperException.Code). Each
// has a text and a meaning for the operation. Of gives the error that the wire
// client would give, but for the code of a request that nothing here sends.
func TestEveryCodeOfTheServerIsKnown(t *testing.T) {
	for code, want := range map[int]struct {
		known   error // the wire client's own; nil: it knows the number only
		text    string
		outcome zkerr.Outcome
	}{
		-1:   {nil, "system error", zkerr.Final},
		-2:   {nil, "runtime inconsistency", zkerr.Final},
		-3:   {nil, "data inconsistency", zkerr.Final},
		-4:   {nil, "connection loss", zkerr.Ambiguous},
		-5:   {nil, "marshalling error", zkerr.Final},
		-6:   {nil, "unimplemented", zkerr.Final},
		-7:   {nil, "operation timeout", zkerr.Ambiguous},
		-8:   {zk.ErrBadArguments, "invalid arguments", zkerr.Final},
		-12:  {nil, "session not known", zkerr.Final},
		-13:  {nil, "no quorum", zkerr.Final},
		-14:  {nil, "reconfiguration is in progress", zkerr.Final},
		-100: {zk.ErrAPIError, "api error", zkerr.Final},
		-101: {zk.ErrNoNode, "does not exist", zkerr.Final},
		-102: {zk.ErrNoAuth, "not authenticated", zkerr.Final},
		-103: {zk.ErrBadVersion, "version conflict", zkerr.Final},
		-108: {zk.ErrNoChildrenForEphemerals, "may not have children", zkerr.Final},
		-110: {zk.ErrNodeExists, "already exists", zkerr.Final},
		-111: {zk.ErrNotEmpty, "has children", zkerr.Final},
		-112: {zk.ErrSessionExpired, "expired", zkerr.Expired},
		-113: {nil, "invalid callback", zkerr.Final},
		-114: {zk.ErrInvalidACL, "invalid ACL", zkerr.Final},
		-115: {zk.ErrAuthFailed, "authentication failed", zkerr.Final},
		-118: {zk.ErrSessionMoved, "moved", zkerr.Unsent},
		-119: {nil, "read-only", zkerr.Unsent},
		-120: {nil, "localSessionsUpgradingEnabled=true", zkerr.Final},
		-121: {nil, "no such watch", zkerr.Final},
		-122: {nil, "request timeout", zkerr.Ambiguous},
		-123: {zk.ErrReconfigDisabled, "disabled", zkerr.Final},
		-124: {nil, "SASL", zkerr.Final},
		-125: {nil, "quota exceeded", zkerr.Final},
		-127: {nil, "throttled", zkerr.Unsent},
	} {
		err := want.known
		if err == nil {
			err = fmt.Errorf("unknown error: %d", code)
		}
		if of := zkerr.Of(wire.Code(code)); of.Error() != err.Error() && !errors.Is(err, zk.ErrReconfigDisabled) {
			t.Errorf("code %d: Of gives %q, want %q", code, of, err)
		}
		got := zkerr.WithMeaning(err)
		if !strings.Contains(got.Error(), want.text) || strings.Contains(got.Error(), "unknown") {
			t.Errorf("code %d: %q, want %q in it", code, got, want.text)
		}
		for _, e := range []error{err, got, fmt.Errorf("wrapped: %w", got)} {
			if v := zkerr.Classify(e); v != want.outcome {
				t.Errorf("code %d: classify(%v) = %d, want %d", code, e, v, want.outcome)
			}
		}
	}
}

func TestErrorCode(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, "OK"},
		{fmt.Errorf("create /x: %w", zk.ErrNoNode), "NONODE"},
		{zk.ErrConnectionClosed, "CONNECTIONLOSS"},
		{zkerr.Unproven, "UNPROVEN"},
		{zkerr.SessionLost, "SESSIONEXPIRED"},
		{context.DeadlineExceeded, "TIMEOUT"},
		{errors.New("anything"), "OTHER"},
	} {
		if got := zkerr.Name(tt.err); got != tt.want {
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
		name := zkerr.Name(errors.New("unknown error: " + strconv.Itoa(int(code))))
		if names[name] {
			t.Errorf("code %d has the name %s, as another one", code, name)
		}
		names[name] = true
	}
}

func TestMaybeAppliedLooksIntoWrappedErrors(t *testing.T) {
	err := error(&zkerr.Op{Op: "create", Path: "/a", Err: zk.ErrNoNode, Maybe: true})
	wrapped := fmt.Errorf("locks: %w", err)
	if !errors.Is(wrapped, zk.ErrNoNode) || !zkerr.MaybeApplied(wrapped) || zkerr.MaybeApplied(zk.ErrNoNode) || zkerr.MaybeApplied(nil) {
		t.Error("an operation's error must keep the wire's and say whether it may have been applied")
	}
}

// What happened in the background is found in an error, but not as if the
// caller's context had ended.
func TestBackgroundErrors(t *testing.T) {
	refused := fmt.Errorf("dial: %w", zk.ErrNoServer)
	for _, tt := range []struct {
		err, target error
		want        bool
	}{
		{refused, zk.ErrNoServer, true},
		{refused, zk.ErrNoAuth, false},
		{context.DeadlineExceeded, context.DeadlineExceeded, false},
		{context.Canceled, context.Canceled, false},
	} {
		if got := errors.Is(zkerr.Explanation(tt.err), tt.target); got != tt.want {
			t.Errorf("%v is %v: %v", tt.err, tt.target, got)
		}
	}
}
