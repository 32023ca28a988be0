package framework

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
)

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want outcome
	}{
		{zk.ErrNoNode, final},
		{zk.ErrNoAuth, final},
		{zk.ErrBadVersion, final},
		{zk.ErrConnectionClosed, ambiguous},
		{zk.ErrClosing, ambiguous},
		{zk.ErrNoServer, unsent},
		{zk.ErrSessionMoved, unsent},
		{zk.ErrSessionExpired, expired},
		{errors.New("unknown error: what"), final},
		{fmt.Errorf("wrapped: %w", zk.ErrNoServer), unsent},
		{withMeaning(errors.New("unknown error: -7")), ambiguous},
		{fmt.Errorf("wrapped: %w", withMeaning(errors.New("unknown error: -127"))), unsent},
	} {
		if got := classify(tt.err); got != tt.want {
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
		if got := withMeaning(errors.New(text)).Error(); got != want {
			t.Errorf("%q is named %q, want %q", text, got, want)
		}
	}
}

// A server with localSessionsEnabled refused every acquire with "unknown error:
// -120". These are all the codes of ZooKeeper 3.9 (KeeperException.Code). Each
// has a text and a meaning for the operation.
func TestEveryCodeOfTheServerIsKnown(t *testing.T) {
	for code, want := range map[int]struct {
		known   error // the wire client's own; nil: it knows the number only
		text    string
		outcome outcome
	}{
		-1:   {nil, "system error", final},
		-2:   {nil, "runtime inconsistency", final},
		-3:   {nil, "data inconsistency", final},
		-4:   {nil, "connection loss", ambiguous},
		-5:   {nil, "marshalling error", final},
		-6:   {nil, "unimplemented", final},
		-7:   {nil, "operation timeout", ambiguous},
		-8:   {zk.ErrBadArguments, "invalid arguments", final},
		-12:  {nil, "session not known", final},
		-13:  {nil, "no quorum", final},
		-14:  {nil, "reconfiguration is in progress", final},
		-100: {zk.ErrAPIError, "api error", final},
		-101: {zk.ErrNoNode, "does not exist", final},
		-102: {zk.ErrNoAuth, "not authenticated", final},
		-103: {zk.ErrBadVersion, "version conflict", final},
		-108: {zk.ErrNoChildrenForEphemerals, "may not have children", final},
		-110: {zk.ErrNodeExists, "already exists", final},
		-111: {zk.ErrNotEmpty, "has children", final},
		-112: {zk.ErrSessionExpired, "expired", expired},
		-113: {nil, "invalid callback", final},
		-114: {zk.ErrInvalidACL, "invalid ACL", final},
		-115: {zk.ErrAuthFailed, "authentication failed", final},
		-118: {zk.ErrSessionMoved, "moved", unsent},
		-119: {nil, "read-only", unsent},
		-120: {nil, "localSessionsUpgradingEnabled=true", final},
		-121: {nil, "no such watch", final},
		-122: {nil, "request timeout", ambiguous},
		-123: {zk.ErrReconfigDisabled, "disabled", final},
		-124: {nil, "SASL", final},
		-125: {nil, "quota exceeded", final},
		-127: {nil, "throttled", unsent},
	} {
		err := want.known
		if err == nil {
			err = fmt.Errorf("unknown error: %d", code)
		}
		got := withMeaning(err)
		if !strings.Contains(got.Error(), want.text) || strings.Contains(got.Error(), "unknown") {
			t.Errorf("code %d: %q, want %q in it", code, got, want.text)
		}
		for _, e := range []error{err, got, fmt.Errorf("wrapped: %w", got)} {
			if v := classify(e); v != want.outcome {
				t.Errorf("code %d: classify(%v) = %d, want %d", code, e, v, want.outcome)
			}
		}
	}
}

func TestMaybeAppliedLooksIntoWrappedErrors(t *testing.T) {
	err := error(&opError{op: "create", path: "/a", err: zk.ErrNoNode, maybe: true})
	wrapped := fmt.Errorf("locks: %w", err)
	if !errors.Is(wrapped, zk.ErrNoNode) || !MaybeApplied(wrapped) || MaybeApplied(zk.ErrNoNode) || MaybeApplied(nil) {
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
		if got := errors.Is(explanation{tt.err}, tt.target); got != tt.want {
			t.Errorf("%v is %v: %v", tt.err, tt.target, got)
		}
	}
}
