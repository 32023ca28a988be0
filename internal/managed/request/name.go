package request

import "github.com/go-zookeeper/zk"

// The names of the operations, in errors and for observers.
const (
	NameCreate     = "create"
	NameDelete     = "delete"
	NameSet        = "set"
	NameMulti      = "multi"
	NameSetACL     = "set ACL"
	NameGet        = "get"
	NameExists     = "exists"
	NameList       = "list"
	NameSync       = "sync"
	NameGetACL     = "get ACL"
	NameWatch      = "watch"
	NameReadAll    = "read all"
	NameUpdate     = "update"
	NameEphemerals = "get ephemerals"
)

// IsWrite reports whether an operation changes anything. Only then it matters
// whether a try was executed.
func IsWrite(name string) bool {
	switch name {
	case NameGet, NameExists, NameList, NameSync, NameGetACL, NameWatch, NameReadAll:
		return false
	}
	return true
}

// NameOf returns the name of an operation of a multi.
func NameOf(op any) string {
	switch op.(type) {
	case *zk.CreateRequest:
		return NameCreate
	case *zk.DeleteRequest:
		return NameDelete
	case *zk.SetDataRequest:
		return NameSet
	}
	return "check"
}
