package wire

// PathResponse is the body of the answers to create and sync.
type PathResponse struct{ Path string }

// Append implements Appender.
func (m *PathResponse) Append(b []byte) []byte { return AppendString(b, m.Path) }

// Decode implements Message.
func (m *PathResponse) Decode(d *Decoder) { m.Path = d.String() }

// CreateResponse is the body of the answers to create2 and createContainer.
type CreateResponse struct {
	Path string
	Stat Stat
}

// Append implements Appender.
func (m *CreateResponse) Append(b []byte) []byte { return m.Stat.Append(AppendString(b, m.Path)) }

// Decode implements Message.
func (m *CreateResponse) Decode(d *Decoder) {
	m.Path = d.String()
	m.Stat.Decode(d)
}

// The answers to exists, setData and setACL are a Stat without anything around
// it.

// DataResponse is the body of the answer to getData.
type DataResponse struct {
	Data []byte
	Stat Stat
}

// Append implements Appender.
func (m *DataResponse) Append(b []byte) []byte { return m.Stat.Append(AppendBuffer(b, m.Data)) }

// Decode implements Message.
func (m *DataResponse) Decode(d *Decoder) {
	m.Data = d.Buffer()
	m.Stat.Decode(d)
}

// ChildrenResponse is the body of the answers to getChildren, to getEphemerals
// (absolute paths), and with HasStat to getChildren2.
type ChildrenResponse struct {
	Children []string
	Stat     Stat
	HasStat  bool // set it before decoding
}

// Append implements Appender.
func (m *ChildrenResponse) Append(b []byte) []byte {
	b = AppendStrings(b, m.Children)
	if m.HasStat {
		b = m.Stat.Append(b)
	}
	return b
}

// Decode implements Message.
func (m *ChildrenResponse) Decode(d *Decoder) {
	m.Children = d.Strings()
	if m.HasStat {
		m.Stat.Decode(d)
	}
}

// ACLResponse is the body of the answer to getACL.
type ACLResponse struct {
	ACL  []ACL
	Stat Stat
}

// Append implements Appender.
func (m *ACLResponse) Append(b []byte) []byte { return m.Stat.Append(appendACLs(b, m.ACL)) }

// Decode implements Message.
func (m *ACLResponse) Decode(d *Decoder) {
	m.ACL = decodeACLs(d)
	m.Stat.Decode(d)
}

// CountResponse is the body of the answer to getAllChildrenNumber, and to
// addWatch, where it repeats the code OK.
type CountResponse struct{ Count int32 }

// Append implements Appender.
func (m *CountResponse) Append(b []byte) []byte { return AppendInt32(b, m.Count) }

// Decode implements Message.
func (m *CountResponse) Decode(d *Decoder) { m.Count = d.Int32() }

// Token is the body of sasl and of its answer.
type Token struct{ Token []byte }

// Append implements Appender.
func (m *Token) Append(b []byte) []byte { return AppendBuffer(b, m.Token) }

// Decode implements Message.
func (m *Token) Decode(d *Decoder) { m.Token = d.Buffer() }

// WhoAmIResponse is the body of the answer to whoAmI: the client's identities,
// without passwords.
type WhoAmIResponse struct{ Identities []ID }

// Append implements Appender.
func (m *WhoAmIResponse) Append(b []byte) []byte {
	b = AppendInt32(b, int32(len(m.Identities)))
	for _, id := range m.Identities {
		b = AppendString(AppendString(b, id.Scheme), id.ID)
	}
	return b
}

// Decode implements Message.
func (m *WhoAmIResponse) Decode(d *Decoder) {
	m.Identities = nil
	for range d.Count(8) {
		m.Identities = append(m.Identities, ID{d.String(), d.String()})
	}
}

// WatcherEvent is the body of a notification.
type WatcherEvent struct {
	Type  EventType
	State int32
	Path  string
}

// Append implements Appender.
func (m *WatcherEvent) Append(b []byte) []byte {
	return AppendString(AppendInt32(AppendInt32(b, int32(m.Type)), m.State), m.Path)
}

// Decode implements Message.
func (m *WatcherEvent) Decode(d *Decoder) {
	m.Type, m.State, m.Path = EventType(d.Int32()), d.Int32(), d.String()
}
