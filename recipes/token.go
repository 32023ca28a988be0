package recipes

import (
	"cmp"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/recipes/internal/line"
)

// A Token is a fencing token: of two exclusive leases on one path, the later
// one has the greater token. A resource that remembers the greatest token it
// has seen, and refuses requests with a smaller one, is safe from a holder that
// acts too late.
//
// Tokens increase strictly, over sessions, restarts of servers, and a directory
// that was removed and created again. They cost no request. After the ensemble
// was rebuilt from nothing, or from an old snapshot, they start over.
//
// A token has three parts, compared in this order:
//
//  1. the czxid of the lock's directory, in the latest list of its children
//     before the grant;
//  2. the sequence number of the lease's znode in that directory;
//  3. how often that znode was handed off in-process, or has lingered, before.
//
// Why they never go back:
//
//   - In one directory the server numbers children upward, and a contender is
//     granted only after every contender with a smaller number that it excludes
//     has left. So the later of two grants that exclude each other has the
//     greater number, or has the same znode, and then the greater third part.
//   - A directory that was removed and created again numbers from the
//     beginning, but its czxid is that of a later transaction. Its removal took
//     the znode of every earlier holder with it, even if a single multi removed
//     and created everything: a grant in the new directory is a later one.
//   - A list gives the lease's own znode and the czxid of the directory that
//     this znode stands in, in one answer. Where an event grants, the znode is
//     known to have stood since that list, and its directory with it.
//   - A server writes both when it creates the znodes, never changes them, and
//     restores both exactly from any snapshot and log. It does not restore the
//     directory's pzxid exactly: before 3.6, a server that restarts from a
//     snapshot that it took while a session was closed does not count that
//     close (ZOOKEEPER-3145). Nor would the zxid in the header of an answer do:
//     releases differ in whether they read it before or after they execute the
//     request.
//   - The number is unsigned here. A server that counts past 2^31 writes
//     negative numbers, which are greater this way; the recipes fail with
//     ErrExhausted before a counter ends.
//
// A nested lease has the token of the outermost. A read lease that a write
// lease was downgraded to stands at the same place in line and has the writer's
// token. Readers exclude no readers: those that share a znode have equal
// tokens, and of others the later may have the smaller one; but each has a
// greater token than every writer before it, and a smaller one than every
// writer after it. A semaphore lets in several at once: its tokens order
// nothing.
//
// The zero Token belongs to no grant and compares less than every other. Tokens
// can be compared with ==, and have a text form.
type Token struct {
	dir    int64  // the czxid of the line's directory
	seq    uint32 // of the znode
	handed uint32 // how often the znode was handed off before
}

// tokenOf returns the token of a share.
func tokenOf(s *line.Share) Token {
	r := s.Rank()
	return Token{dir: r.Dir, seq: r.Seq, handed: r.Handoffs}
}

var errToken = errors.New("recipes: not a token, which is 32 hex digits")

// ParseToken reads a token from the 32 hex digits that String returns.
func ParseToken(s string) (Token, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 16 || int8(b[0]) < 0 { // no czxid is negative
		return Token{}, fmt.Errorf("%w: %q", errToken, s)
	}
	return Token{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])}, nil
}

// Compare is negative if t is less than u, positive if it is greater, and 0 if
// they are equal.
func (t Token) Compare(u Token) int {
	return cmp.Or(cmp.Compare(t.dir, u.dir), cmp.Compare(t.seq, u.seq), cmp.Compare(t.handed, u.handed))
}

// IsZero reports whether t is the zero Token.
func (t Token) IsZero() bool { return t == Token{} }

// String returns the token as 32 hex digits. The texts sort as the tokens do.
func (t Token) String() string { return fmt.Sprintf("%016x%08x%08x", uint64(t.dir), t.seq, t.handed) }

// MarshalText returns what String does.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText has written.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := ParseToken(string(text))
	if err == nil {
		*t = parsed
	}
	return err
}

var (
	_ driver.Valuer = Token{}
	_ sql.Scanner   = (*Token)(nil)
)

// Value returns what String does, for a column of a database: char(32) compares
// as the tokens do.
func (t Token) Value() (driver.Value, error) { return t.String(), nil }

// Scan reads what Value has written. NULL is the zero Token.
func (t *Token) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		*t = Token{}
		return nil
	case string:
		return t.UnmarshalText([]byte(value))
	case []byte:
		return t.UnmarshalText(value)
	}
	return fmt.Errorf("%w: %T", errToken, value)
}
