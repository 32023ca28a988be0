package bridge

import "github.com/go-zookeeper/zk"

// ZnodeOption is an option of package recipes that is also one of recipes that
// have no line, such as presence.
type ZnodeOption interface {
	SetZnode(acl *[]zk.ACL, label *string)
}
