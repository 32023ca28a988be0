package bridge

import "github.com/go-zookeeper/zk"

// ZnodeOption is an option of package recipes that is also one of recipes that
// have no line, such as presence.
type ZnodeOption interface {
	SetZnode(acl *[]zk.ACL, label *string)
}

// SnapshotOf is an option of cache.New that names what the snapshot is of: so
// several caches can have one option for their files.
type SnapshotOf string

// ForCache makes SnapshotOf an option of cache.New.
func (SnapshotOf) ForCache() {}

// DataOption is recipes.WithData, or an option that such a recipe does not
// have: then SetData reports false.
type DataOption interface {
	SetData(data *[]byte) bool
}
