package framework

import (
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

const (
	// defaultMaxRequest is the servers' default jute.maxbuffer: 1 MiB less a
	// byte.
	defaultMaxRequest = 1<<20 - 1
	// leastMaxRequest leaves room for a path, an ACL and some data.
	leastMaxRequest = 16 << 10
	// mostMaxRequest keeps what is written readable: no answer is longer than
	// maxAnswer.
	mostMaxRequest = maxAnswer / 2
)

// Sizes on the wire, in bytes.
const (
	requestHead   = 8 // number and operation, without the length before it
	operationHead = 9 // of an operation of a multi, and of the end of the multi
	int32Size     = 4
	int64Size     = 8
	boolSize      = 1
)

func textSize(s string) int { return int32Size + len(s) }
func blobSize(b []byte) int { return int32Size + len(b) }

func aclSize(acl []zk.ACL) int {
	size := int32Size
	for _, a := range acl {
		size += int32Size + textSize(a.Scheme) + textSize(a.ID)
	}
	return size
}

// createSize is the size of the body of a create, without the path.
func createSize(data []byte, acl []zk.ACL) int { return blobSize(data) + aclSize(acl) + int32Size }

// operationSize is the size of an operation of a multi.
func operationSize(op any) int {
	switch op := op.(type) {
	case *zk.CreateRequest:
		return operationHead + textSize(op.Path) + createSize(op.Data, op.Acl)
	case *zk.DeleteRequest:
		return operationHead + textSize(op.Path) + int32Size
	case *zk.SetDataRequest:
		return operationHead + textSize(op.Path) + blobSize(op.Data) + int32Size
	case *zk.CheckVersionRequest:
		return operationHead + textSize(op.Path) + int32Size
	}
	return 0
}

// fits returns an error if a request whose body has size bytes is too large.
func (cfg *config) fits(size int) error {
	if size += requestHead; size > cfg.maxRequest {
		return fmt.Errorf("%w: %d bytes, and the ensemble accepts %d (its jute.maxbuffer; see WithMaxRequest)",
			zkerr.TooLarge, size, cfg.maxRequest)
	}
	return nil
}

// MaxRequest returns the size of the largest request that the client sends, in
// bytes: what WithMaxRequest has set, or its default.
func (c *Client) MaxRequest() int { return c.core().cfg.maxRequest }
