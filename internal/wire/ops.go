package wire

import "strconv"

// Op is the operation code of a request, and of one operation inside a multi.
type Op int32

// The operation codes. OpCreateSession never appears in a request header, since
// a connection is opened by a message without a header. Servers use it
// internally, and so does testutil.
const (
	OpNotify           Op = 0
	OpCreate           Op = 1
	OpDelete           Op = 2
	OpExists           Op = 3
	OpGetData          Op = 4
	OpSetData          Op = 5
	OpGetACL           Op = 6
	OpSetACL           Op = 7
	OpGetChildren      Op = 8
	OpSync             Op = 9
	OpPing             Op = 11
	OpGetChildren2     Op = 12
	OpCheck            Op = 13
	OpMulti            Op = 14
	OpCreate2          Op = 15
	OpReconfig         Op = 16
	OpCheckWatches     Op = 17
	OpRemoveWatches    Op = 18
	OpCreateContainer  Op = 19
	OpDeleteContainer  Op = 20
	OpCreateTTL        Op = 21
	OpMultiRead        Op = 22
	OpAuth             Op = 100
	OpSetWatches       Op = 101
	OpSASL             Op = 102
	OpGetEphemerals    Op = 103
	OpGetChildrenCount Op = 104
	OpSetWatches2      Op = 105
	OpAddWatch         Op = 106
	OpWhoAmI           Op = 107
	OpCreateSession    Op = -10
	OpCloseSession     Op = -11
	OpError            Op = -1
)

var opNames = map[Op]string{
	OpNotify: "notify", OpCreate: "create", OpDelete: "delete", OpExists: "exists", OpGetData: "getData",
	OpSetData: "setData", OpGetACL: "getACL", OpSetACL: "setACL", OpGetChildren: "getChildren", OpSync: "sync",
	OpPing: "ping", OpGetChildren2: "getChildren2", OpCheck: "check", OpMulti: "multi", OpCreate2: "create2",
	OpReconfig: "reconfig", OpCheckWatches: "checkWatches", OpRemoveWatches: "removeWatches",
	OpCreateContainer: "createContainer", OpDeleteContainer: "deleteContainer", OpCreateTTL: "createTTL",
	OpMultiRead: "multiRead", OpAuth: "auth", OpSetWatches: "setWatches", OpSASL: "sasl",
	OpGetEphemerals: "getEphemerals", OpGetChildrenCount: "getAllChildrenNumber", OpSetWatches2: "setWatches2",
	OpAddWatch: "addWatch", OpWhoAmI: "whoAmI", OpCreateSession: "createSession", OpCloseSession: "closeSession",
	OpError: "error",
}

// String returns the server's own name for the operation, or its number.
func (o Op) String() string {
	if name, ok := opNames[o]; ok {
		return name
	}
	return "op " + strconv.Itoa(int(o))
}

// Code is the error code of a reply header. It implements error, but OK is no
// failure: compare with OK first.
type Code int32

// The error codes of the protocol.
const (
	OK                    Code = 0
	SystemError           Code = -1
	RuntimeInconsistency  Code = -2
	DataInconsistency     Code = -3
	ConnectionLoss        Code = -4
	MarshallingError      Code = -5
	Unimplemented         Code = -6
	OperationTimeout      Code = -7
	BadArguments          Code = -8
	NewConfigNoQuorum     Code = -13
	ReconfigInProgress    Code = -14
	APIError              Code = -100
	NoNode                Code = -101
	NoAuth                Code = -102
	BadVersion            Code = -103
	NoChildrenOfEphemeral Code = -108
	NodeExists            Code = -110
	NotEmpty              Code = -111
	SessionExpired        Code = -112
	InvalidCallback       Code = -113
	InvalidACL            Code = -114
	AuthFailed            Code = -115
	SessionMoved          Code = -118
	NotReadOnly           Code = -119
	EphemeralOnLocal      Code = -120
	NoWatcher             Code = -121
	RequestTimeout        Code = -122
	ReconfigDisabled      Code = -123
	SessionClosedRequire  Code = -124
	QuotaExceeded         Code = -125
	Throttled             Code = -127
)

var codeNames = map[Code]string{
	OK: "ok", SystemError: "system error", RuntimeInconsistency: "runtime inconsistency",
	DataInconsistency: "data inconsistency", ConnectionLoss: "connection loss", MarshallingError: "marshalling error",
	Unimplemented: "unimplemented", OperationTimeout: "operation timeout", BadArguments: "bad arguments",
	NewConfigNoQuorum: "new configuration has no quorum", ReconfigInProgress: "reconfiguration in progress",
	APIError: "api error", NoNode: "no node", NoAuth: "not authenticated", BadVersion: "bad version",
	NoChildrenOfEphemeral: "no children for ephemerals", NodeExists: "node exists", NotEmpty: "not empty",
	SessionExpired: "session expired", InvalidCallback: "invalid callback", InvalidACL: "invalid acl",
	AuthFailed: "auth failed", SessionMoved: "session moved", NotReadOnly: "not read-only",
	EphemeralOnLocal: "ephemeral on local session", NoWatcher: "no watcher", RequestTimeout: "request timeout",
	ReconfigDisabled: "reconfig disabled", SessionClosedRequire: "session closed: sasl required",
	QuotaExceeded: "quota exceeded", Throttled: "throttled",
}

// String returns the code in words, or its number.
func (c Code) String() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return "code " + strconv.Itoa(int(c))
}

// Error makes a Code an error.
func (c Code) Error() string { return "zookeeper: " + c.String() }

// Reserved xids. The reply to an authentication has the xid of the request: -4
// from Java, an ordinary one from the Go client.
const (
	XidNotification int32 = -1
	XidPing         int32 = -2
	XidAuth         int32 = -4
	XidSetWatches   int32 = -8
)

// EventType says what happened to the znode of a notification.
type EventType int32

// The event types.
const (
	EventNone            EventType = -1
	EventCreated         EventType = 1
	EventDeleted         EventType = 2
	EventDataChanged     EventType = 3
	EventChildrenChanged EventType = 4
)

// WatcherType selects the watches of a path in checkWatches and removeWatches.
type WatcherType int32

// The watcher types.
const (
	WatcherChildren WatcherType = 1
	WatcherData     WatcherType = 2
	WatcherAny      WatcherType = 3
)

// WatchMode says what a watch of addWatch covers. In each mode it lasts until
// it is removed.
type WatchMode int32

// The watch modes: a znode and its list of children, or a znode and everything
// below it.
const (
	WatchPersistent          WatchMode = 0
	WatchPersistentRecursive WatchMode = 1
)

// StateConnected is the connection state in every notification about a znode.
const StateConnected int32 = 3

// The create modes, which are the flags of a create request.
const (
	ModePersistent              int32 = 0
	ModeEphemeral               int32 = 1
	ModeSequential              int32 = 2
	ModeEphemeralSequential     int32 = 3
	ModeContainer               int32 = 4
	ModePersistentTTL           int32 = 5
	ModePersistentSequentialTTL int32 = 6
)

// The permissions of an access control list.
const (
	PermRead   int32 = 1
	PermWrite  int32 = 2
	PermCreate int32 = 4
	PermDelete int32 = 8
	PermAdmin  int32 = 16
	PermAll    int32 = 31
)

// ContainerOwner is the ephemeral owner that marks a container znode.
const ContainerOwner int64 = -1 << 63

// MaxTTL is the longest time to live of a znode, in milliseconds.
const MaxTTL int64 = 1<<40 - 1

// ttlOwner marks the ephemeral owner of a znode with a time to live. The other
// bits are the time.
const ttlOwner = -1 << 56

// TTLOwner returns the ephemeral owner of a znode with a time to live of ttl
// milliseconds, from 1 to MaxTTL.
func TTLOwner(ttl int64) int64 { return ttlOwner | ttl }

// TTLOf returns the time to live, in milliseconds, that an ephemeral owner
// stands for, and false if it stands for none.
func TTLOf(owner int64) (int64, bool) { return owner & MaxTTL, owner&ttlOwner == ttlOwner }
