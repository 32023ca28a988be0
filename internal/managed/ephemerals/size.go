package ephemerals

import (
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// This file says how many bytes a path has in the transaction that ends a
// session, before its create is answered.

// longestSuffix is the length of the longest sequence number.
const longestSuffix = len("-2147483648")

// Size returns how many bytes the ephemeral znodes that operations create may
// have in the transaction.
func Size(ops ...any) (size int) {
	for _, op := range ops {
		if create, ok := op.(*zk.CreateRequest); ok && request.IsEphemeral(create.Flags) {
			if size += request.TextSize(create.Path); request.IsSequential(create.Flags) {
				size += longestSuffix
			}
		}
	}
	return size
}

// protectedSize is that of one znode, protected and sequential, whose path was
// full without both.
func protectedSize(full string) int {
	return request.TextSize(full) + layout.ProtectionSize + longestSuffix
}
