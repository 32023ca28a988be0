package wire

// MultiOp is one operation of a multi: its code, and the request that has this
// code outside a multi. A multi may contain check, all kinds of create, delete
// and setData. A multiRead may contain getData and getChildren.
type MultiOp struct {
	Op      Op
	Request Message
}

// MultiRequest is the body of multi, whose operations are executed together or
// not at all, and of multiRead, whose operations are answered separately.
type MultiRequest struct{ Ops []MultiOp }

func appendMultiHeader(b []byte, op Op, done bool, code Code) []byte {
	return AppendInt32(AppendBool(AppendInt32(b, int32(op)), done), int32(code))
}

// Append implements Appender.
func (m *MultiRequest) Append(b []byte) []byte {
	for _, op := range m.Ops {
		b = op.Request.Append(appendMultiHeader(b, op.Op, false, -1))
	}
	return appendMultiHeader(b, -1, true, -1)
}

// Decode implements Message.
func (m *MultiRequest) Decode(d *Decoder) {
	for d.Err() == nil {
		op, done := Op(d.Int32()), d.Bool()
		d.Int32()
		if done || d.Err() != nil {
			return
		}
		request := newMultiRequest(op)
		if request == nil {
			d.fail("%v inside a multi", op)
			return
		}
		request.Decode(d)
		m.Ops = append(m.Ops, MultiOp{op, request})
	}
}

func newMultiRequest(op Op) Message {
	switch op {
	case OpCreate, OpCreate2, OpCreateContainer:
		return new(CreateRequest)
	case OpCreateTTL:
		return new(CreateTTLRequest)
	case OpGetData, OpGetChildren:
		return new(WatchRequest)
	case OpDelete, OpCheck:
		return new(VersionRequest)
	case OpSetData:
		return new(SetDataRequest)
	}
	return nil
}

// MultiResult is the result of one operation. Op is OpError if the multi
// failed. Err is then the code of this operation: OK before the one that
// failed, and RuntimeInconsistency after it. In a multiRead each operation
// fails separately.
type MultiResult struct {
	Op       Op
	Err      Code
	Path     string   // of all kinds of create
	Stat     Stat     // of create2, createContainer, setData and getData
	Data     []byte   // of getData
	Children []string // of getChildren
}

// MultiResponse is the body of the answer to a multi, whether it succeeded or
// failed.
type MultiResponse struct{ Results []MultiResult }

// Append implements Appender.
func (m *MultiResponse) Append(b []byte) []byte {
	for i := range m.Results {
		r := &m.Results[i]
		b = appendMultiHeader(b, r.Op, false, r.Err)
		switch r.Op {
		case OpCreate:
			b = AppendString(b, r.Path)
		case OpCreate2, OpCreateContainer:
			b = r.Stat.Append(AppendString(b, r.Path))
		case OpSetData:
			b = r.Stat.Append(b)
		case OpGetData:
			b = r.Stat.Append(AppendBuffer(b, r.Data))
		case OpGetChildren:
			b = AppendStrings(b, r.Children)
		case OpError:
			b = AppendInt32(b, int32(r.Err))
		}
	}
	return appendMultiHeader(b, -1, true, -1)
}

// Decode implements Message.
func (m *MultiResponse) Decode(d *Decoder) {
	for d.Err() == nil {
		op, done := Op(d.Int32()), d.Bool()
		code := Code(d.Int32())
		if done || d.Err() != nil {
			return
		}
		r := MultiResult{Op: op, Err: code}
		switch op {
		case OpCreate:
			r.Path = d.String()
		case OpCreate2, OpCreateContainer:
			r.Path = d.String()
			r.Stat.Decode(d)
		case OpSetData:
			r.Stat.Decode(d)
		case OpGetData:
			r.Data = d.Buffer()
			r.Stat.Decode(d)
		case OpGetChildren:
			r.Children = d.Strings()
		case OpError:
			r.Err = Code(d.Int32())
		case OpDelete, OpCheck:
		default:
			d.fail("%v among the results of a multi", op)
			return
		}
		m.Results = append(m.Results, r)
	}
}
