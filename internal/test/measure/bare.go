package measure

import (
	"encoding/binary"
	"errors"

	"github.com/go-zookeeper/zk"
)

// bareName is a contender's znode without its sequence number: as long as ours.
const bareName = "/_c_00000000-0000-0000-0000-000000000000-lock-"

// BareCycle sends what a cycle of a lock in dir cannot do without, each request
// after the answer to the one before: a create, a list and a delete.
func BareCycle(conn *zk.Conn, dir string) error {
	path, err := BareJoin(conn, dir)
	if err != nil {
		return err
	}
	return conn.Delete(path, -1)
}

// BareJoin creates a contender's znode in dir, lists dir and returns the
// znode's path.
func BareJoin(conn *zk.Conn, dir string) (path string, err error) {
	path, err = conn.Create(dir+bareName, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	if err != nil {
		return "", err
	}
	_, _, err = conn.Children(dir)
	return path, err
}

// BareAdd adds 1 to a counter of 64 bits with the bare wire client: it reads,
// and writes that version, again after each conflict. If an answer is lost it
// is not known whether it has added.
func BareAdd(conn *zk.Conn, path string) error {
	for {
		data, stat, err := conn.Get(path)
		if err != nil {
			return err
		}
		if len(data) == 0 {
			data = make([]byte, 8)
		}
		sum := binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(data)+1)
		if _, err = conn.Set(path, sum, stat.Version); !errors.Is(err, zk.ErrBadVersion) {
			return err
		}
	}
}
