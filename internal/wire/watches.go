package wire

// SetWatchesRequest sets a client's watches after a reconnect. Changes since
// RelativeZxid send their events at once.
type SetWatchesRequest struct {
	RelativeZxid       int64
	Data, Exist, Child []string
}

// Append implements Appender.
func (m *SetWatchesRequest) Append(b []byte) []byte {
	b = AppendStrings(AppendInt64(b, m.RelativeZxid), m.Data)
	return AppendStrings(AppendStrings(b, m.Exist), m.Child)
}

// Decode implements Message.
func (m *SetWatchesRequest) Decode(d *Decoder) {
	m.RelativeZxid = d.Int64()
	m.Data, m.Exist, m.Child = d.Strings(), d.Strings(), d.Strings()
}

// SetWatches2Request is SetWatchesRequest together with the watches of
// addWatch, which send no events for the past.
type SetWatches2Request struct {
	SetWatchesRequest
	Persistent, Recursive []string
}

// Append implements Appender.
func (m *SetWatches2Request) Append(b []byte) []byte {
	return AppendStrings(AppendStrings(m.SetWatchesRequest.Append(b), m.Persistent), m.Recursive)
}

// Decode implements Message.
func (m *SetWatches2Request) Decode(d *Decoder) {
	m.SetWatchesRequest.Decode(d)
	m.Persistent, m.Recursive = d.Strings(), d.Strings()
}

// AddWatchRequest is the body of addWatch.
type AddWatchRequest struct {
	Path string
	Mode WatchMode
}

// Append implements Appender.
func (m *AddWatchRequest) Append(b []byte) []byte {
	return AppendInt32(AppendString(b, m.Path), int32(m.Mode))
}

// Decode implements Message.
func (m *AddWatchRequest) Decode(d *Decoder) { m.Path, m.Mode = d.String(), WatchMode(d.Int32()) }

// WatchesRequest is the body of checkWatches and removeWatches.
type WatchesRequest struct {
	Path string
	Type WatcherType
}

// Append implements Appender.
func (m *WatchesRequest) Append(b []byte) []byte {
	return AppendInt32(AppendString(b, m.Path), int32(m.Type))
}

// Decode implements Message.
func (m *WatchesRequest) Decode(d *Decoder) { m.Path, m.Type = d.String(), WatcherType(d.Int32()) }
