package framework

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// errorNames are the names of the errors that are the ensemble's answers, or
// that say why there is none.
var errorNames = []struct {
	err  error
	name string
}{
	{zk.ErrNoNode, "NONODE"},
	{zk.ErrNodeExists, "NODEEXISTS"},
	{zk.ErrBadVersion, "BADVERSION"},
	{zk.ErrConnectionClosed, "CONNECTIONLOSS"},
	{zk.ErrClosing, "CONNECTIONLOSS"},
	{zk.ErrNoServer, "NOSERVER"},
	{zk.ErrSessionExpired, "SESSIONEXPIRED"},
	{zk.ErrSessionMoved, "SESSIONMOVED"},
	{zk.ErrNoAuth, "NOAUTH"},
	{ErrAuthRequired, unknownNames[wire.SessionClosedRequire]},
	{zk.ErrAuthFailed, "AUTHFAILED"},
	{zk.ErrInvalidACL, "INVALIDACL"},
	{zk.ErrNoChildrenForEphemerals, "NOCHILDRENFOREPHEMERALS"},
	{zk.ErrNotEmpty, "NOTEMPTY"},
	{zk.ErrBadArguments, "BADARGUMENTS"},
	{zk.ErrAPIError, "APIERROR"},
	{ErrClosed, "CLOSED"},
	{ErrUnproven, "UNPROVEN"},
	{ErrSessionLost, "SESSIONEXPIRED"},
	{context.DeadlineExceeded, "TIMEOUT"},
	{context.Canceled, "CANCELED"},
}

// ErrorCode returns a short name for an error of this package or of the wire
// client, to be used as a label of metrics. There are fewer than 50 names:
//
//   - "OK" for nil.
//   - The name in ZooKeeper's Java client, such as "NONODE" or
//     "SESSIONEXPIRED". "CONNECTIONLOSS" says that the connection was lost
//     before the answer came.
//   - "NOSERVER", "CLOSED", "UNPROVEN", "TIMEOUT" or "CANCELED" for a request
//     that was not sent or not answered.
//   - "OTHER" for everything else.
func ErrorCode(err error) string {
	if err == nil {
		return "OK"
	}
	for _, c := range errorNames {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	if code, ok := codeOf(err); ok && unknownNames[code] != "" {
		return unknownNames[code]
	}
	return "OTHER"
}

// unknownNames are the names of codes that the wire client calls unknown
// errors.
var unknownNames = map[wire.Code]string{
	wire.SystemError:          "SYSTEMERROR",
	wire.RuntimeInconsistency: "RUNTIMEINCONSISTENCY",
	wire.DataInconsistency:    "DATAINCONSISTENCY",
	wire.ConnectionLoss:       "CONNECTIONLOSS",
	wire.MarshallingError:     "MARSHALLINGERROR",
	wire.Unimplemented:        "UNIMPLEMENTED",
	wire.OperationTimeout:     "OPERATIONTIMEOUT",
	codeUnknownSession:        "UNKNOWNSESSION",
	codeNewConfigNoQuorum:     "NEWCONFIGNOQUORUM",
	codeReconfigInProgress:    "RECONFIGINPROGRESS",
	wire.InvalidCallback:      "INVALIDCALLBACK",
	wire.NotReadOnly:          "NOTREADONLY",
	wire.EphemeralOnLocal:     "EPHEMERALONLOCALSESSION",
	wire.NoWatcher:            "NOWATCHER",
	wire.RequestTimeout:       "REQUESTTIMEOUT",
	wire.SessionClosedRequire: "SESSIONCLOSEDREQUIRESASLAUTH",
	wire.QuotaExceeded:        "QUOTAEXCEEDED",
	wire.Throttled:            "THROTTLEDOP",
}
