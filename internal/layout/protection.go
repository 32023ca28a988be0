package layout

import "strings"

// Protection is an id in front of a name, chosen by the client, by which a create whose answer was lost is found again.
const (
	protectedPrefix = "_c_"
	uuidLen         = 36 // with dashes: Curator, and ours
	hexLen          = 32 // without: go-zookeeper (behind the same prefix) and Kazoo (bare)
)

// Protect returns base with the protection of id in front: _c_<id>-<base>.
func Protect(id, base string) string {
	return protectedPrefix + id + "-" + base
}

// CutProtection takes a name that [Protect] made apart. It reports false, with all of the name as base, where no UUID or 32
// hex digits stand behind the prefix.
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

// Each name in a list is looked at here, at every look of everyone in line.

func isUUID(s string) bool {
	return len(s) == uuidLen && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' &&
		areHexDigits(s[:8]) && areHexDigits(s[9:13]) && areHexDigits(s[14:18]) && areHexDigits(s[19:23]) && areHexDigits(s[24:])
}

// isHex reports whether s is a UUID without its dashes.
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

// PlainReadName returns the base of a reader of the plain read/write lock: <host>-R-.
func PlainReadName(host string) string { return plainHost(host) + "-" + plainRead }

// PlainWriteName returns the base of a writer of the plain read/write lock: <host>-W-.
func PlainWriteName(host string) string { return plainHost(host) + "-" + plainWrite }

// longestHost keeps a name readable in a listing; DNS would allow 253.
const longestHost = 64

// plainHost makes any text fit for the inside of a znode's name: letters, digits, '.', '-' and '_' stay, each other character
// becomes '_', and no text at all becomes "host". It need not be unique: the id in front of the name is.
func plainHost(host string) string {
	if len(host) > longestHost {
		host = host[:longestHost]
	}
	if host == "" {
		return "host"
	}
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '-', r == '_':
			return r
		default:
			return '_'
		}
	}, host)
}
