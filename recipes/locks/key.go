package locks

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A key's name is the key itself, with each byte of what no name can have
// written as %XX: the slash, the percent sign, the characters that ZooKeeper
// refuses, what is not UTF-8, and the dots of "." and "..". The name of the
// empty key is a lone percent sign. One key has one name, and one name is one
// key's.

// maxName is the longest name of a key, in bytes: a path must go into a
// request, and thousands of them into the answer to a list.
const maxName = 1024

const upperHex = "0123456789ABCDEF"

// keyName is the name of key.
func keyName(key string) string {
	if key == "" {
		return "%"
	}
	if key == "." || key == ".." {
		return strings.ReplaceAll(key, ".", "%2E")
	}
	var name strings.Builder
	for i := 0; i < len(key); {
		r, size := utf8.DecodeRuneInString(key[i:])
		if plain(r) {
			name.WriteString(key[i : i+size])
		} else {
			for _, b := range []byte(key[i : i+size]) {
				name.Write([]byte{'%', upperHex[b>>4], upperHex[b&15]})
			}
		}
		i += size
	}
	return name.String()
}

// plain reports whether a name can have r. Java's servers see a character
// beyond the basic plane as two surrogates, and refuse those.
func plain(r rune) bool {
	switch {
	case r == '/', r == '%', unicode.IsControl(r), unicode.Is(unicode.Co, r), r >= 0xfff0: // as utf8.RuneError
		return false
	}
	return true
}

// keyOf is keyName's inverse; ok is false for what is no key's name.
func keyOf(name string) (key string, ok bool) {
	if name == "%" {
		return "", true
	}
	var b strings.Builder
	for rest := name; rest != ""; {
		plain, escaped, found := strings.Cut(rest, "%")
		b.WriteString(plain)
		if !found {
			break
		}
		if len(escaped) < 2 {
			return "", false
		}
		high, low := strings.IndexByte(upperHex, escaped[0]), strings.IndexByte(upperHex, escaped[1])
		if high < 0 || low < 0 {
			return "", false
		}
		b.WriteByte(byte(high<<4 | low))
		rest = escaped[2:]
	}
	key = b.String()
	return key, keyName(key) == name // not another way to write it
}

// checkName tells why name cannot be used.
func checkName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("key too long: its name has %d bytes, at most %d are allowed", len(name), maxName)
	}
	return nil
}
