package recipes

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
)

// A Token is a fencing token: of two exclusive leases on one path, the later has
// the greater token. A resource that remembers the greatest token it has seen, and
// refuses what comes with a lesser one, is safe from a holder that acts too late.
//
// It is the zxid of the latest change to the path's children in the list that let
// the lease's znode in; and how often it was handed over at home, or has lingered,
// since. The znode before has left by then, which was such a change; so tokens increase strictly, also over sessions and after the directory itself has
// vanished and come again, and cost no request. A nested lease has the token of
// the outermost. After the ensemble has been rebuilt from nothing, or from an old
// snapshot, they begin anew.
//
// The zero Token is none's, and less than any other. Tokens can be compared with
// ==, and travel as text.
type Token struct {
	zxid   int64
	handed uint32 // how often its znode was handed over at home before
}

// tokenText is the length of a token's text: 16 and 8 hex digits.
const tokenText = 16 + 8

var errToken = errors.New("recipes: not a token")

// ParseToken reads what String made.
func ParseToken(s string) (Token, error) {
	if len(s) != tokenText {
		return Token{}, fmt.Errorf("%w: %q", errToken, s)
	}
	zxid, err := strconv.ParseUint(s[:16], 16, 63)
	if err != nil {
		return Token{}, fmt.Errorf("%w: %q", errToken, s)
	}
	handed, err := strconv.ParseUint(s[16:], 16, 32)
	if err != nil {
		return Token{}, fmt.Errorf("%w: %q", errToken, s)
	}
	return Token{zxid: int64(zxid), handed: uint32(handed)}, nil
}

// Compare is negative if t is less than u, positive if it is greater, and 0 if
// they are equal.
func (t Token) Compare(u Token) int {
	return cmp.Or(cmp.Compare(t.zxid, u.zxid), cmp.Compare(t.handed, u.handed))
}

// IsZero reports whether t is the zero Token.
func (t Token) IsZero() bool { return t == Token{} }

// String is the token as 24 hex digits, which sort as the tokens do.
func (t Token) String() string { return fmt.Sprintf("%016x%08x", uint64(t.zxid), t.handed) }

// MarshalText is String.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is ParseToken.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := ParseToken(string(text))
	if err == nil {
		*t = parsed
	}
	return err
}
