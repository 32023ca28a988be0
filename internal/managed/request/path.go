// Package request says what a request is: its path, its size, its operations,
// and what its answer may be. It has no state. Two functions call the wire
// client, Create and Multi, since its answers have to be checked.
//
// Callers can rely on this: an argument is never changed. An answer that cannot
// be one to the request is an error whose outcome is unknown, and wraps
// zkerr.Malformed.
//
// Read name.go first, then path.go and size.go, which check a request before it
// is sent, then create.go, multi.go and read.go, which check answers.
package request

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"
)

// ValidatePath returns an error unless path is a valid absolute path of a
// znode. The rules are those of the servers.
func ValidatePath(path string) error {
	if why := pathFault(path); why != "" {
		return fmt.Errorf("path %q: %s", path, why)
	}
	return nil
}

func pathFault(path string) string {
	switch {
	case path == "":
		return "empty"
	case path[0] != '/':
		return "not absolute: it must begin with a slash"
	case path == "/":
		return ""
	case strings.HasSuffix(path, "/"):
		return "ends with a slash"
	case !utf8.ValidString(path):
		return "not valid UTF-8"
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		switch name {
		case "":
			return "has an empty name in it"
		case ".", "..":
			return "relative names are not allowed"
		}
	}
	for _, r := range path { // beyond U+FFFF a Java server sees two surrogates; here none is left
		if r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xe000 && r <= 0xf8ff || r >= 0xfff0 {
			return fmt.Sprintf("character %U is not allowed", r)
		}
	}
	return ""
}

// Prefix is the chroot and the namespaces of a client, without a slash at the
// end.
type Prefix string

// Fix returns the absolute path at the ensemble of a path in the namespace.
// Unfix is its inverse.
func (p Prefix) Fix(path string) string {
	switch {
	case p == "":
		return path
	case path == "/":
		return string(p)
	}
	return string(p) + path
}

// FixNew is ValidatePath and Fix for a create with flags. To the path of a
// sequential znode the servers append a number before they check it: it may end
// in a slash.
func (p Prefix) FixNew(path string, flags int32) (string, error) {
	if !IsSequential(flags) {
		return p.Fix(path), ValidatePath(path)
	}
	if why := pathFault(path + "0"); why != "" {
		return "", fmt.Errorf("path %q: %s", path, why)
	}
	return string(p) + path, nil
}

// Unfix returns the path in the namespace of an absolute path. One that is
// elsewhere stays as it is.
func (p Prefix) Unfix(path string) string {
	rest, ok := strings.CutPrefix(path, string(p))
	switch {
	case !ok || rest != "" && rest[0] != '/':
		return path
	case rest == "":
		return "/"
	}
	return rest
}

// UnfixMade is Unfix for the paths of the znodes that a multi has created.
func (p Prefix) UnfixMade(responses []zk.MultiResponse) {
	for i := range responses {
		if made := &responses[i].String; *made != "" {
			*made = p.Unfix(*made)
		}
	}
}
