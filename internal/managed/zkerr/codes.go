package zkerr

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Codes of the protocol that the package wire does not name.
const (
	codeUnknownSession     wire.Code = -12
	codeNewConfigNoQuorum  wire.Code = -13
	codeReconfigInProgress wire.Code = -14
)

// meaning is what is known of an error.
type meaning struct {
	code wire.Code // 0: no server answers with it
	err  error     // the wire client's; with a text: what the unknown error also is
	name string    // in ZooKeeper's Java client, if it has the error
	text string    // of a code that the wire client calls an unknown error
}

// meanings are the ensemble's answers, and what says why there is none. The
// first one that an error is has its name.
var meanings = []meaning{
	{wire.NoNode, zk.ErrNoNode, "NONODE", ""},
	{wire.NodeExists, zk.ErrNodeExists, "NODEEXISTS", ""},
	{wire.BadVersion, zk.ErrBadVersion, "BADVERSION", ""},
	{0, zk.ErrConnectionClosed, "CONNECTIONLOSS", ""},
	{0, zk.ErrClosing, "CONNECTIONLOSS", ""},
	{0, zk.ErrNoServer, "NOSERVER", ""},
	{wire.SessionExpired, zk.ErrSessionExpired, "SESSIONEXPIRED", ""},
	{wire.SessionMoved, zk.ErrSessionMoved, "SESSIONMOVED", ""},
	{wire.NoAuth, zk.ErrNoAuth, "NOAUTH", ""},
	{
		wire.SessionClosedRequire, AuthRequired, "SESSIONCLOSEDREQUIRESASLAUTH",
		"the server requires SASL authentication, which this client does not have, " +
			"or credentials with another scheme (its enforce.auth.schemes)",
	},
	{wire.AuthFailed, zk.ErrAuthFailed, "AUTHFAILED", ""},
	{wire.InvalidACL, zk.ErrInvalidACL, "INVALIDACL", ""},
	{wire.NoChildrenOfEphemeral, zk.ErrNoChildrenForEphemerals, "NOCHILDRENFOREPHEMERALS", ""},
	{wire.NotEmpty, zk.ErrNotEmpty, "NOTEMPTY", ""},
	{wire.BadArguments, zk.ErrBadArguments, "BADARGUMENTS", ""},
	{wire.APIError, zk.ErrAPIError, "APIERROR", ""},
	{0, Closed, "CLOSED", ""},
	{0, Unproven, "UNPROVEN", ""},
	{0, SessionLost, "SESSIONEXPIRED", ""},
	{0, context.DeadlineExceeded, "TIMEOUT", ""},
	{0, context.Canceled, "CANCELED", ""},

	{wire.SystemError, nil, "SYSTEMERROR", "system error"},
	{wire.RuntimeInconsistency, nil, "RUNTIMEINCONSISTENCY", "runtime inconsistency"},
	{wire.DataInconsistency, nil, "DATAINCONSISTENCY", "data inconsistency"},
	{wire.ConnectionLoss, nil, "CONNECTIONLOSS", "connection loss"},
	{wire.MarshallingError, nil, "MARSHALLINGERROR", "marshalling error"},
	{wire.Unimplemented, nil, "UNIMPLEMENTED", "unimplemented"},
	{wire.OperationTimeout, nil, "OPERATIONTIMEOUT", "operation timeout"},
	{codeUnknownSession, nil, "UNKNOWNSESSION", "session not known to the server"},
	{codeNewConfigNoQuorum, nil, "NEWCONFIGNOQUORUM", "no quorum of the new configuration"},
	{codeReconfigInProgress, nil, "RECONFIGINPROGRESS", "another reconfiguration is in progress"},
	{wire.InvalidCallback, nil, "INVALIDCALLBACK", "invalid callback"},
	{wire.NotReadOnly, nil, "NOTREADONLY", "the server is read-only"},
	{
		wire.EphemeralOnLocal, nil, "EPHEMERALONLOCALSESSION",
		"ephemeral znode on a local session: the servers have localSessionsEnabled=true; " +
			"set localSessionsUpgradingEnabled=true on them as well",
	},
	{wire.NoWatcher, nil, "NOWATCHER", "no such watch"},
	{wire.RequestTimeout, nil, "REQUESTTIMEOUT", "request timeout"},
	{wire.QuotaExceeded, nil, "QUOTAEXCEEDED", "quota exceeded"},
	{wire.Throttled, nil, "THROTTLEDOP", "throttled"},
}

// meaningOf returns what is known of a code, the zero value if nothing is.
func meaningOf(code wire.Code) meaning {
	for _, m := range meanings {
		if m.code == code && code != 0 {
			return m
		}
	}
	return meaning{}
}

// Of returns the error that the wire client has for a code.
func Of(code wire.Code) error {
	if code == wire.OK {
		return nil
	}
	if m := meaningOf(code); m.err != nil && m.text == "" {
		return m.err
	}
	return fmt.Errorf("unknown error: %d", int32(code))
}

// unknown is an error of the wire client that has only a code, and what the
// code means.
type unknown struct {
	error
	meaning
}

func (e *unknown) Error() string        { return fmt.Sprintf("%s (code %d)", e.text, e.code) }
func (e *unknown) Unwrap() error        { return e.error }
func (e *unknown) Is(target error) bool { return errors.Is(e.err, target) }

// WithMeaning adds the meaning to an error that the wire client calls unknown.
func WithMeaning(err error) error {
	if errors.As(err, new(*unknown)) { // it has the meaning
		return err
	}
	if code, ok := Code(err); ok {
		if m := meaningOf(code); m.text != "" {
			return &unknown{err, m}
		}
	}
	return err
}

// Code returns the code in an error that the wire client calls unknown. Only
// its text has the code.
func Code(err error) (code wire.Code, ok bool) {
	var e *unknown
	if errors.As(err, &e) {
		return e.code, true
	}
	text, ok := strings.CutPrefix(err.Error(), "unknown error: ")
	if !ok {
		return 0, false
	}
	n, convErr := strconv.Atoi(text)
	return wire.Code(n), convErr == nil
}

// Name returns a short name for err: see framework.ErrorCode.
func Name(err error) string {
	if err == nil {
		return "OK"
	}
	for _, m := range meanings {
		if m.err != nil && errors.Is(err, m.err) {
			return m.name
		}
	}
	if code, ok := Code(err); ok {
		if m := meaningOf(code); m.name != "" {
			return m.name
		}
	}
	return "OTHER"
}
