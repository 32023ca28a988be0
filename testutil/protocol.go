package testutil

import "github.com/zkrecipes/zkrecipes/internal/wire"

// Op is the operation code of a request, as the protocol numbers it.
type Op int32

// The operations that clients send. OpCreateSession stands for the message that
// opens a connection, with a new session or an old one; on the wire that
// message has no code. Requests counts any other operation by its number.
const (
	OpCreateSession   Op = -10
	OpCloseSession    Op = -11
	OpCreate          Op = 1
	OpCreate2         Op = 15
	OpCreateContainer Op = 19
	OpCreateTTL       Op = 21
	OpDelete          Op = 2
	OpExists          Op = 3
	OpGetData         Op = 4
	OpSetData         Op = 5
	OpGetACL          Op = 6
	OpSetACL          Op = 7
	OpGetChildren     Op = 8
	OpGetChildren2    Op = 12
	OpSync            Op = 9
	OpPing            Op = 11
	OpMulti           Op = 14
	OpMultiRead       Op = 22
	OpReconfig        Op = 16
	OpAuth            Op = 100
	OpSetWatches      Op = 101
	OpSetWatches2     Op = 105
	OpAddWatch        Op = 106
	OpCheckWatches    Op = 17
	OpRemoveWatches   Op = 18
)

// String returns the server's own name for the operation, or its number.
func (o Op) String() string { return wire.Op(o).String() }

// Code is the error code of a reply, as the protocol numbers it.
type Code int32

// The error codes that tests inject most. Any other code of the protocol can be
// written as a number, such as Code(-125).
const (
	CodeSystemError        Code = -1
	CodeConnectionLoss     Code = -4
	CodeUnimplemented      Code = -6
	CodeOperationTimeout   Code = -7
	CodeNewConfigNoQuorum  Code = -13
	CodeReconfigInProgress Code = -14
	CodeNoNode             Code = -101
	CodeNoAuth             Code = -102
	CodeBadVersion         Code = -103
	CodeNodeExists         Code = -110
	CodeNotEmpty           Code = -111
	CodeSessionExpired     Code = -112
	CodeAuthFailed         Code = -115
	CodeSessionMoved       Code = -118
	CodeRequestTimeout     Code = -122
	CodeReconfigDisabled   Code = -123
	CodeQuotaExceeded      Code = -125
	CodeThrottled          Code = -127
)

// String returns the code in words, or its number.
func (c Code) String() string { return wire.Code(c).String() }

// Stat is what a server knows of a znode besides its data.
type Stat struct {
	Czxid, Mzxid   int64 // the transactions that created it and last changed its data
	Ctime, Mtime   int64 // their times, in milliseconds since 1970
	Version        int32 // number of changes of the data
	Cversion       int32 // number of changes of the list of children
	Aversion       int32 // number of changes of the access control list
	EphemeralOwner int64 // the session it lives and dies with, 0 for none
	DataLength     int32 // in bytes
	NumChildren    int32
	Pzxid          int64 // the transaction that last changed its list of children
}
