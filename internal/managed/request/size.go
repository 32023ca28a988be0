package request

import (
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// Sizes on the wire, in bytes.
const (
	HeadSize          = 8 // number and operation, without the length before it
	OperationHeadSize = 9 // of an operation of a multi, and of the end of the multi
	Int32Size         = 4
	Int64Size         = 8
	BoolSize          = 1
)

// Fits returns an error if a request whose body has size bytes is larger than
// the ensemble accepts, which is most bytes.
func Fits(size, most int) error {
	if size += HeadSize; size > most {
		return fmt.Errorf("%w: %d bytes, and the ensemble accepts %d (its jute.maxbuffer; see WithMaxRequest)",
			zkerr.TooLarge, size, most)
	}
	return nil
}

// TextSize is the size of a text.
func TextSize(s string) int { return Int32Size + len(s) }

// BlobSize is the size of data.
func BlobSize(b []byte) int { return Int32Size + len(b) }

// ACLSize is the size of an ACL.
func ACLSize(acl []zk.ACL) int {
	size := Int32Size
	for _, a := range acl {
		size += Int32Size + TextSize(a.Scheme) + TextSize(a.ID)
	}
	return size
}

// CreateSize is the size of the body of a create, without the path.
func CreateSize(data []byte, acl []zk.ACL) int { return BlobSize(data) + ACLSize(acl) + Int32Size }

// OperationSize is the size of an operation of a multi.
func OperationSize(op any) int {
	switch op := op.(type) {
	case *zk.CreateRequest:
		return OperationHeadSize + TextSize(op.Path) + CreateSize(op.Data, op.Acl)
	case *zk.DeleteRequest:
		return OperationHeadSize + TextSize(op.Path) + Int32Size
	case *zk.SetDataRequest:
		return OperationHeadSize + TextSize(op.Path) + BlobSize(op.Data) + Int32Size
	case *zk.CheckVersionRequest:
		return OperationHeadSize + TextSize(op.Path) + Int32Size
	}
	return 0
}
