package layout

import "strings"

// A protection is an id at the front of a name. The client chooses it, and
// finds the znode by it if the reply to the create was lost.
const (
	protectedPrefix = "_c_"
	uuidLen         = 36 // with dashes: Curator, and ours
	hexLen          = 32 // without: go-zookeeper (after the same prefix) and Kazoo (no prefix)
)

// ProtectionSize is how many bytes longer a base is with a UUID.
const ProtectionSize = len(protectedPrefix) + uuidLen + len("-")

// Protect returns base with a protection: _c_<id>-<base>.
func Protect(id, base string) string {
	return protectedPrefix + id + "-" + base
}

// CutProtection splits a name that [Protect] has made. If the prefix, or the
// UUID or 32 hex digits after it, is missing, it returns false and the whole
// name as base.
func CutProtection(name string) (id, base string, found bool) {
	rest, ok := strings.CutPrefix(name, protectedPrefix)
	if !ok {
		return "", name, false
	}
	for _, length := range [...]int{uuidLen, hexLen} {
		if len(rest) <= length || rest[length] != '-' {
			continue
		}
		if id := rest[:length]; isUUID(id) || isHex(id) {
			return id, rest[length+1:], true
		}
	}
	return "", name, false
}

// The functions below check every name of every list, so they must be fast.

func isUUID(s string) bool {
	return len(s) == uuidLen && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' &&
		areHexDigits(s[:8]) && areHexDigits(s[9:13]) && areHexDigits(s[14:18]) && areHexDigits(s[19:23]) && areHexDigits(s[24:])
}

// isHex reports whether s is a UUID without dashes.
func isHex(s string) bool { return len(s) == hexLen && areHexDigits(s) }

func areHexDigits(s string) bool {
	for i := range len(s) {
		if !hexDigits[s[i]] {
			return false
		}
	}
	return true
}

var hexDigits = func() (is [256]bool) {
	for _, c := range []byte("0123456789abcdefABCDEF") {
		is[c] = true
	}
	return is
}()
