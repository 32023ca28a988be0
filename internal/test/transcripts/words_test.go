package transcripts_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

var verbs = map[wire.Op]string{
	wire.OpCreateContainer: "create container", wire.OpGetData: "get", wire.OpSetData: "set",
	wire.OpGetChildren: "list", wire.OpGetChildren2: "list",
}

var events = map[wire.EventType]string{
	wire.EventCreated: "created", wire.EventDeleted: "deleted", wire.EventDataChanged: "changed",
	wire.EventChildrenChanged: "children changed",
}

// asks says what a request asks for, in a row for each of its operations, and
// whether it is a read without a watch.
func asks(op wire.Op, d *wire.Decoder) (rows []string, plain bool) {
	var m wire.Message
	switch op {
	case wire.OpMulti, wire.OpMultiRead:
		var m wire.MultiRequest
		m.Decode(d)
		for _, each := range m.Ops {
			rows = append(rows, "│ "+words(each.Op, each.Request))
		}
		return rows, false
	case wire.OpCreate, wire.OpCreateContainer:
		m = new(wire.CreateRequest)
	case wire.OpDelete:
		m = new(wire.VersionRequest)
	case wire.OpSetData:
		m = new(wire.SetDataRequest)
	case wire.OpExists, wire.OpGetData, wire.OpGetChildren2:
		m = new(wire.WatchRequest)
	case wire.OpSync:
		m = new(wire.PathRequest)
	default:
		return []string{op.String()}, false
	}
	m.Decode(d)
	read, ok := m.(*wire.WatchRequest)
	return []string{words(op, m)}, ok && !read.Watch
}

func words(op wire.Op, body wire.Message) string {
	verb := cmp.Or(verbs[op], op.String()) + " "
	switch m := body.(type) {
	case *wire.CreateRequest:
		return verb + m.Path
	case *wire.VersionRequest:
		return verb + m.Path
	case *wire.PathRequest:
		return verb + m.Path
	case *wire.SetDataRequest:
		return verb + m.Path + " to " + quoted(m.Data)
	case *wire.WatchRequest:
		if m.Watch {
			return verb + m.Path + ", watch"
		}
		return verb + m.Path
	}
	return verb
}

// says says what an answer has, for each operation: "" if only that it was
// executed.
func says(op wire.Op, d *wire.Decoder) []string {
	switch op {
	case wire.OpCreate:
		var m wire.PathResponse
		m.Decode(d)
		return []string{m.Path}
	case wire.OpGetData:
		var m wire.DataResponse
		m.Decode(d)
		return []string{quoted(m.Data)}
	case wire.OpGetChildren2:
		var m wire.ChildrenResponse
		m.Decode(d)
		return []string{names(m.Children)}
	case wire.OpMulti, wire.OpMultiRead:
		return results(d)
	}
	return nil
}

func results(d *wire.Decoder) (all []string) {
	var m wire.MultiResponse
	m.Decode(d)
	for _, r := range m.Results {
		switch {
		case r.Err != wire.OK:
			all = append(all, r.Err.String())
		case r.Op == wire.OpGetData:
			all = append(all, quoted(r.Data))
		case r.Op == wire.OpGetChildren:
			all = append(all, names(r.Children))
		default:
			all = append(all, r.Path)
		}
	}
	return all
}

func quoted(data []byte) string { return fmt.Sprintf("%q", data) }

// names returns the names of znodes in the order of their numbers.
func names(of []string) string {
	number := func(name string) string { return name[max(0, len(name)-10):] }
	slices.SortFunc(of, func(a, b string) int { return cmp.Or(cmp.Compare(number(a), number(b)), cmp.Compare(a, b)) })
	return cmp.Or(strings.Join(of, " "), "empty")
}
