// Package version identifies znodes and what was written to them, in whatever
// history of the ensemble.
//
// Transaction ids have an order in one history only. An ensemble that was
// rebuilt by the same script has the same ids, and other data. So the time of
// the transaction belongs to an identity.
package version

import (
	"bytes"

	"github.com/go-zookeeper/zk"
)

// Created identifies a znode: one that is created at the same path later is
// another one.
type Created struct{ Czxid, Ctime int64 }

// CreatedOf returns which znode a stat is of.
func CreatedOf(s *zk.Stat) Created { return Created{s.Czxid, s.Ctime} }

// Version identifies the data of a znode. The znode's own version does not: it
// begins at 0 again when a path is created again.
type Version struct {
	Created
	Mzxid, Mtime int64
}

// Of returns which data a stat is of.
func Of(s *zk.Stat) Version { return Version{CreatedOf(s), s.Mzxid, s.Mtime} }

// Is reports whether two reads of a path have found the same, with these data.
// The servers' own znodes, such as /zookeeper/config, have czxid 0. Each member
// writes them itself, with a stat of its own: they are compared by their data.
func (v Version) Is(o Version, data, other []byte) bool {
	return (v == o || v.Czxid == 0 && o.Czxid == 0) && bytes.Equal(data, other)
}

// Epoch returns the epoch of a transaction. Each leader has a greater one than
// the leader before.
func Epoch(zxid int64) int64 { return zxid >> 32 }

// IsBefore reports whether v cannot follow o in one history: it was created, or
// written, before.
func (v Version) IsBefore(o Version) bool {
	return o.Czxid != 0 && (v.Czxid < o.Czxid || v.Mzxid < o.Mzxid)
}
