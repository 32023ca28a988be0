package wire

import "fmt"

// StatSize is the length of a Stat in a message.
const StatSize = 68

// Stat is what the server knows of a znode besides its data.
type Stat struct {
	Czxid, Mzxid   int64 // the transactions that created it and last changed its data
	Ctime, Mtime   int64 // their times, in milliseconds since 1970
	Version        int32 // number of changes of the data
	Cversion       int32 // number of changes of the list of children
	Aversion       int32 // number of changes of the access control list
	EphemeralOwner int64 // the session of an ephemeral znode, 0 for none, ContainerOwner for a container
	DataLength     int32
	NumChildren    int32
	Pzxid          int64 // the transaction that last changed its list of children
}

// Append implements Appender.
func (s *Stat) Append(b []byte) []byte {
	b = AppendInt64(AppendInt64(b, s.Czxid), s.Mzxid)
	b = AppendInt64(AppendInt64(b, s.Ctime), s.Mtime)
	b = AppendInt32(AppendInt32(AppendInt32(b, s.Version), s.Cversion), s.Aversion)
	b = AppendInt64(b, s.EphemeralOwner)
	b = AppendInt32(AppendInt32(b, s.DataLength), s.NumChildren)
	return AppendInt64(b, s.Pzxid)
}

// Decode implements Message.
func (s *Stat) Decode(d *Decoder) {
	s.Czxid, s.Mzxid, s.Ctime, s.Mtime = d.Int64(), d.Int64(), d.Int64(), d.Int64()
	s.Version, s.Cversion, s.Aversion = d.Int32(), d.Int32(), d.Int32()
	s.EphemeralOwner, s.DataLength, s.NumChildren, s.Pzxid = d.Int64(), d.Int32(), d.Int32(), d.Int64()
}

// ID is an identity: a scheme and an id in that scheme.
type ID struct{ Scheme, ID string }

// ACL is one entry of an access control list.
type ACL struct {
	Perms int32
	ID
}

func appendACLs(b []byte, acls []ACL) []byte {
	b = AppendInt32(b, int32(len(acls)))
	for _, a := range acls {
		b = AppendString(AppendString(AppendInt32(b, a.Perms), a.Scheme), a.ID.ID)
	}
	return b
}

func decodeACLs(d *Decoder) []ACL {
	n := d.Count(12)
	if n == 0 {
		return nil
	}
	acls := make([]ACL, 0, n)
	for range n {
		acls = append(acls, ACL{d.Int32(), ID{d.String(), d.String()}})
	}
	return acls
}

// PasswordSize is the length of a session's password.
const PasswordSize = 16

// ConnectRequest opens a connection, with a new session (SessionID 0) or an
// existing one. It has no header.
type ConnectRequest struct {
	ProtocolVersion int32
	LastZxidSeen    int64
	Timeout         int32 // milliseconds
	SessionID       int64
	Password        []byte
	ReadOnly        bool
	HasReadOnly     bool // the request has the last byte, so the reply must have it
}

// Append implements Appender.
func (m *ConnectRequest) Append(b []byte) []byte {
	b = AppendInt64(AppendInt32(b, m.ProtocolVersion), m.LastZxidSeen)
	b = AppendBuffer(AppendInt64(AppendInt32(b, m.Timeout), m.SessionID), m.Password)
	if m.HasReadOnly {
		b = AppendBool(b, m.ReadOnly)
	}
	return b
}

// Decode implements Message.
func (m *ConnectRequest) Decode(d *Decoder) {
	m.ProtocolVersion, m.LastZxidSeen = d.Int32(), d.Int64()
	m.Timeout, m.SessionID, m.Password = d.Int32(), d.Int64(), d.Buffer()
	if m.HasReadOnly = d.Len() > 0; m.HasReadOnly {
		m.ReadOnly = d.Bool()
	}
}

// ConnectResponse answers a ConnectRequest. SessionID 0 means that the session
// has expired.
type ConnectResponse struct {
	ProtocolVersion int32
	Timeout         int32 // milliseconds
	SessionID       int64
	Password        []byte
	ReadOnly        bool
	HasReadOnly     bool
}

// Append implements Appender.
func (m *ConnectResponse) Append(b []byte) []byte {
	b = AppendInt32(AppendInt32(b, m.ProtocolVersion), m.Timeout)
	b = AppendBuffer(AppendInt64(b, m.SessionID), m.Password)
	if m.HasReadOnly {
		b = AppendBool(b, m.ReadOnly)
	}
	return b
}

// Decode implements Message.
func (m *ConnectResponse) Decode(d *Decoder) {
	m.ProtocolVersion, m.Timeout, m.SessionID, m.Password = d.Int32(), d.Int32(), d.Int64(), d.Buffer()
	if m.HasReadOnly = d.Len() > 0; m.HasReadOnly {
		m.ReadOnly = d.Bool()
	}
}

// RequestHeader precedes every request on an open connection.
type RequestHeader struct {
	Xid int32
	Op  Op
}

// Append implements Appender.
func (m *RequestHeader) Append(b []byte) []byte {
	return AppendInt32(AppendInt32(b, m.Xid), int32(m.Op))
}

// Decode implements Message.
func (m *RequestHeader) Decode(d *Decoder) { m.Xid, m.Op = d.Int32(), Op(d.Int32()) }

// ReplyHeader precedes every reply and notification. There is no body if Err is
// not OK.
type ReplyHeader struct {
	Xid  int32
	Zxid int64
	Err  Code
}

// Append implements Appender.
func (m *ReplyHeader) Append(b []byte) []byte {
	return AppendInt32(AppendInt64(AppendInt32(b, m.Xid), m.Zxid), int32(m.Err))
}

// Decode implements Message.
func (m *ReplyHeader) Decode(d *Decoder) {
	m.Xid, m.Zxid, m.Err = d.Int32(), d.Int64(), Code(d.Int32())
}

// PathRequest is the body of sync, getACL, getEphemerals and
// getAllChildrenNumber.
type PathRequest struct{ Path string }

// Append implements Appender.
func (m *PathRequest) Append(b []byte) []byte { return AppendString(b, m.Path) }

// Decode implements Message.
func (m *PathRequest) Decode(d *Decoder) { m.Path = d.String() }

// WatchRequest is the body of exists, getData, getChildren and getChildren2.
type WatchRequest struct {
	Path  string
	Watch bool
}

// Append implements Appender.
func (m *WatchRequest) Append(b []byte) []byte { return AppendBool(AppendString(b, m.Path), m.Watch) }

// Decode implements Message.
func (m *WatchRequest) Decode(d *Decoder) { m.Path, m.Watch = d.String(), d.Bool() }

// VersionRequest is the body of delete and check.
type VersionRequest struct {
	Path    string
	Version int32
}

// Append implements Appender.
func (m *VersionRequest) Append(b []byte) []byte {
	return AppendInt32(AppendString(b, m.Path), m.Version)
}

// Decode implements Message.
func (m *VersionRequest) Decode(d *Decoder) { m.Path, m.Version = d.String(), d.Int32() }

// CreateRequest is the body of create, create2 and createContainer.
type CreateRequest struct {
	Path string
	Data []byte
	ACL  []ACL
	Mode int32
}

// Append implements Appender.
func (m *CreateRequest) Append(b []byte) []byte {
	return AppendInt32(appendACLs(AppendBuffer(AppendString(b, m.Path), m.Data), m.ACL), m.Mode)
}

// Decode implements Message.
func (m *CreateRequest) Decode(d *Decoder) {
	m.Path, m.Data, m.ACL, m.Mode = d.String(), d.Buffer(), decodeACLs(d), d.Int32()
}

// CreateTTLRequest is the body of createTTL.
type CreateTTLRequest struct {
	CreateRequest
	TTL int64 // milliseconds
}

// Append implements Appender.
func (m *CreateTTLRequest) Append(b []byte) []byte {
	return AppendInt64(m.CreateRequest.Append(b), m.TTL)
}

// Decode implements Message.
func (m *CreateTTLRequest) Decode(d *Decoder) {
	m.CreateRequest.Decode(d)
	m.TTL = d.Int64()
}

// SetDataRequest is the body of setData.
type SetDataRequest struct {
	Path    string
	Data    []byte
	Version int32
}

// Append implements Appender.
func (m *SetDataRequest) Append(b []byte) []byte {
	return AppendInt32(AppendBuffer(AppendString(b, m.Path), m.Data), m.Version)
}

// Decode implements Message.
func (m *SetDataRequest) Decode(d *Decoder) {
	m.Path, m.Data, m.Version = d.String(), d.Buffer(), d.Int32()
}

// SetACLRequest is the body of setACL.
type SetACLRequest struct {
	Path    string
	ACL     []ACL
	Version int32
}

// Append implements Appender.
func (m *SetACLRequest) Append(b []byte) []byte {
	return AppendInt32(appendACLs(AppendString(b, m.Path), m.ACL), m.Version)
}

// Decode implements Message.
func (m *SetACLRequest) Decode(d *Decoder) {
	m.Path, m.ACL, m.Version = d.String(), decodeACLs(d), d.Int32()
}

// AuthRequest is the body of auth.
type AuthRequest struct {
	Type   int32
	Scheme string
	Auth   []byte
}

// Append implements Appender.
func (m *AuthRequest) Append(b []byte) []byte {
	return AppendBuffer(AppendString(AppendInt32(b, m.Type), m.Scheme), m.Auth)
}

// Decode implements Message.
func (m *AuthRequest) Decode(d *Decoder) {
	m.Type, m.Scheme, m.Auth = d.Int32(), d.String(), d.Buffer()
}

// SessionText returns the id of a session as the logs of the servers have it.
func SessionText(id int64) string { return fmt.Sprintf("0x%x", uint64(id)) }

// ReconfigRequest asks for another ensemble: for changes of it, or for all of
// its members.
type ReconfigRequest struct {
	Joining, Leaving []byte // servers separated by commas, and ids; nil: none
	Members          []byte // all servers, a line each, or separated by commas; nil: the changes above
	Version          int64  // that the present configuration must have; -1: any
}

// Append implements Appender.
func (m *ReconfigRequest) Append(b []byte) []byte {
	for _, list := range [][]byte{m.Joining, m.Leaving, m.Members} {
		b = AppendBuffer(b, list)
	}
	return AppendInt64(b, m.Version)
}

// Decode implements Message.
func (m *ReconfigRequest) Decode(d *Decoder) {
	m.Joining, m.Leaving, m.Members, m.Version = d.Buffer(), d.Buffer(), d.Buffer(), d.Int64()
}
