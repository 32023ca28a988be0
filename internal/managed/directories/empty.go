package directories

import (
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
)

// This file deletes an empty directory, if it is one that the client would make
// so.
//
// The delete must not hit anything but what was looked at. Since then somebody
// may have joined, or the directory was deleted and a contender has made it
// again, and is about to join. No version tells these two apart: both have 0.
// The number of znodes that were ever created in them does. A new directory has
// had none, and one that has had none is not swept. So one transaction creates
// a sequential znode in the directory, deletes the one that would have the next
// number as of the look, and deletes the directory. If anything was created
// there meanwhile, it fails, however late it arrives, and nobody has seen any
// of it. At worst a contender finds the directory, and finds it missing when it
// joins, as with a container: it makes it again.

// EmptyDelete returns the operations that delete a directory if nothing was
// created in it since a look. acl is that of the client.
func EmptyDelete(full string, looked *zk.Stat, acl []zk.ACL) []any {
	probe := layout.Join(full, sweepName)
	return []any{
		&zk.CreateRequest{Path: probe, Acl: acl, Flags: zk.FlagSequence},
		&zk.DeleteRequest{Path: probe + layout.FormatSequence(looked.Cversion/2), Version: -1}, // one for each create, one for each delete
		&zk.DeleteRequest{Path: full, Version: looked.Version},
	}
}

// sweepName begins the name of the znode that a sweep creates and deletes in
// one transaction.
const sweepName = "sweep-"

// own is the ACL of the directories that a client makes.
type own []zk.ACL

// wouldMake reports whether the client would make a directory as it is.
func (o own) wouldMake(stat *zk.Stat, acl []zk.ACL) bool {
	return stat.DataLength == 0 && stat.Version == 0 && stat.Aversion == 0 && len(acl) >= len(o) && !slices.ContainsFunc(acl, o.isForeign)
}

// isForeign reports whether the client's ACL has no such entry. Servers write
// the ids of whoever creates a znode in place of the scheme auth.
func (o own) isForeign(entry zk.ACL) bool {
	return !slices.ContainsFunc(o, func(own zk.ACL) bool {
		return own == entry || own.Scheme == "auth" && own.Perms == entry.Perms && entry.Scheme != "world"
	})
}
