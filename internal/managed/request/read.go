package request

import (
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// Read is one read of many.
type Read struct {
	Path     string
	Children bool // the names of the children instead of the data
}

// Op returns what a read does.
func (r Read) Op() (name string, op wire.Op) {
	if r.Children {
		return NameList, wire.OpGetChildren
	}
	return NameGet, wire.OpGetData
}

// ReadSize is the size of a read in a request.
func ReadSize(path string) int {
	return OperationHeadSize + TextSize(path) + BoolSize
}

// Result is what one read of many has found.
type Result struct {
	Data     []byte
	Stat     *zk.Stat // nil after an error, and for most lists
	Children []string // of a list, in no order
	Err      error    // of this read
	Zxid     int64    // the latest transaction that the server had applied when it answered
	Order    uint64   // of the answer among such answers, and the events, of the session
}

// ResultOf returns what an answer has found, at its place.
func ResultOf(found *wire.MultiResult, zxid int64, order uint64) Result {
	result := Result{Zxid: zxid, Order: order}
	switch found.Op {
	case wire.OpGetData:
		result.Data = slices.Clone(found.Data) // it is a part of the whole answer
		stat := zk.Stat(found.Stat)
		result.Stat = &stat
	case wire.OpGetChildren:
		result.Children = found.Children
		if stat := zk.Stat(found.Stat); stat != (zk.Stat{}) {
			result.Stat = &stat
		}
	default:
		result.Err = zkerr.Of(found.Err)
	}
	return result
}
