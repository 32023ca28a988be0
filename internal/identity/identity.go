// Package identity writes and reads the data of the znodes in line. They say
// which process a contender belongs to, and whether somebody has asked it to
// release:
//
//	web-1 pid 4711                                  a Go program
//	web-1 pid 4711: sh                              zkr, and its command
//	web-1 pid 4711: sh parent=0x100a2b3c4d50001     the same in the command of another zkr
//	__REVOKE__                                      asked to release, as Curator does
//	__REVOKE__ web-1 pid 4711: sh                   asked to release, with its own data
//
// Any other data is the owner's.
package identity

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// Process returns the host's name and the process id, as "web-1 pid 4711". The
// text stays the same for as long as the process lives, whatever becomes of the
// host's name: znodes of one local queue must not differ. It is valid UTF-8, as
// Kazoo wants it, and the host's name has no space.
var Process = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	return fmt.Sprintf("%s pid %d", strings.ReplaceAll(printable(host), " ", "_"), os.Getpid())
})

// parentMark begins the id of a parent.
const parentMark = " parent=0x"

// OfCommand returns what zkr writes: Process, the name of its command, and the
// session of the zkr whose command has started this one, unless it is 0.
func OfCommand(name string, parent int64) []byte {
	name = strings.ReplaceAll(printable(name), parentMark, "_"+parentMark[1:])
	data := fmt.Appendf(nil, "%s: %s", Process(), name)
	if parent != 0 {
		data = fmt.Appendf(data, "%s%x", parentMark, uint64(parent))
	}
	return data
}

// printable replaces what is no UTF-8, and what would end a line or is another
// space than " ".
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(text, "_"))
}

// request is Curator's request to release.
const request = "__REVOKE__"

// IsRequest reports whether data asks for the release: it is __REVOKE__, or
// that, a space, and any text. Curator compares the whole data.
func IsRequest(data []byte) bool {
	rest, found := bytes.CutPrefix(data, []byte(request))
	return found && (len(rest) == 0 || rest[0] == ' ')
}

// Request returns the data that asks a contender with such data to release. It
// keeps the data that this package writes: their owner understands a request
// that they follow. All others get the plain request, which Curator's clients
// compare.
func Request(data []byte) []byte {
	switch {
	case IsRequest(data):
		return data
	case Parse(data).Host != "":
		return append([]byte(request+" "), data...)
	default:
		return []byte(request)
	}
}

// Identity is what the data of a contender says.
type Identity struct {
	Own    []byte // the data without a request; it shares the memory
	Asked  bool   // it is a request to release
	Host   string // of the process; empty: this package has not written it
	Parent int64  // the session of the zkr whose command has started this one; 0: none
}

// Parse reads the data of a contender. Anybody may write anything there, so
// only exactly what this package writes has a host or a parent.
func Parse(data []byte) Identity {
	id := Identity{Own: data, Asked: IsRequest(data)}
	if id.Asked {
		id.Own = bytes.TrimPrefix(data[len(request):], []byte(" "))
	}
	process, name, _ := bytes.Cut(id.Own, []byte(": "))
	host, pid, _ := bytes.Cut(process, []byte(" pid "))
	if len(host) == 0 || bytes.ContainsFunc(host, unicode.IsSpace) || !isNumber(pid, "0123456789") {
		return id
	}
	id.Host = string(host)
	at := bytes.LastIndex(name, []byte(parentMark))
	if at < 1 || bytes.ContainsRune(name[:at], '\n') {
		return id
	}
	if digits := name[at+len(parentMark):]; isNumber(digits, "0123456789abcdef") {
		parent, err := strconv.ParseUint(string(digits), 16, 64)
		if err == nil {
			id.Parent = int64(parent)
		}
	}
	return id
}

// isNumber reports whether text is a number greater than 0 in such digits, as
// this package writes it.
func isNumber(text []byte, digits string) bool {
	return len(text) > 0 && text[0] != '0' && len(bytes.Trim(text, digits)) == 0
}
