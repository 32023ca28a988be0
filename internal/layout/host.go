package layout

import "strings"

// PlainReadName returns the base of a reader of the plain read/write lock:
// <host>-R-.
func PlainReadName(host string) string { return plainHost(host) + "-" + plainRead }

// PlainWriteName returns the base of a writer of the plain read/write lock:
// <host>-W-.
func PlainWriteName(host string) string { return plainHost(host) + "-" + plainWrite }

// longestHost keeps listings readable. DNS allows 253 bytes.
const longestHost = 64

// plainHost returns host in a form that can be part of a znode's name. It keeps
// ASCII letters, digits, '.', '-' and '_', and replaces each other character by
// '_'. An empty host becomes "host". The result need not be unique, since the
// protection is.
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
