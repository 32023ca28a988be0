package request

import (
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/managed/zkerr"
)

// Create is the wire client's Create, with a check of the path that the server
// answers.
func Create(conn *zk.Conn, full string, data []byte, flags int32, acl []zk.ACL) (string, error) {
	made, err := conn.Create(full, data, flags, acl)
	if err == nil {
		err = CheckMade(full, made, flags)
	}
	return made, err
}

// IsEphemeral reports whether znodes that are created with these flags end with
// their session.
func IsEphemeral(flags int32) bool { return flags&zk.FlagEphemeral != 0 && flags < zk.FlagContainer }

// IsSequential reports whether the server appends a number to the names of
// znodes that are created with these flags.
func IsSequential(flags int32) bool {
	return flags&zk.FlagSequence != 0 && flags < zk.FlagContainer || flags == zk.FlagPersistentSequentialWithTTL
}

// CheckMade returns an error unless a create of the path asked, with flags, can
// have made the znode at the path made. Otherwise the outcome is unknown: what
// was really made is to be looked for, and nothing is to be done to the other
// znode.
func CheckMade(asked, made string, flags int32) error {
	number, ok := strings.CutPrefix(made, asked)
	if IsSequential(flags) {
		_, ok = layout.ParseSequence(number)
	} else {
		ok = ok && number == ""
	}
	if ok {
		return nil
	}
	return fmt.Errorf("%w: %w: path %q after a create of %q", zk.ErrConnectionClosed, zkerr.Malformed, made, asked)
}
