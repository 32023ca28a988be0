package cli

import (
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
)

// permissions are the letters of ZooKeeper's own tools, in their order.
var permissions = []struct {
	letter rune
	bit    int32
}{
	{'c', zk.PermCreate},
	{'d', zk.PermDelete},
	{'r', zk.PermRead},
	{'w', zk.PermWrite},
	{'a', zk.PermAdmin},
}

// ParseACL parses scheme:id:permissions, such as world:anyone:cdrwa. The id may
// have colons in it.
func ParseACL(text string) (zk.ACL, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	last := strings.LastIndexByte(rest, ':')
	if !ok || last < 0 || scheme == "" || rest[last+1:] == "" {
		return zk.ACL{}, fmt.Errorf("%q: want scheme:id:permissions, as in world:anyone:r", text)
	}
	acl := zk.ACL{Scheme: scheme, ID: rest[:last]}
letters:
	for _, letter := range rest[last+1:] {
		for _, p := range permissions {
			if p.letter == letter {
				acl.Perms |= p.bit
				continue letters
			}
		}
		return zk.ACL{}, fmt.Errorf("%q: no permission %q: want some of cdrwa", text, letter)
	}
	return acl, nil
}

// FormatACL is the inverse of ParseACL.
func FormatACL(acl zk.ACL) string {
	var letters strings.Builder
	for _, p := range permissions {
		if acl.Perms&p.bit != 0 {
			letters.WriteRune(p.letter)
		}
	}
	return acl.Scheme + ":" + acl.ID + ":" + letters.String()
}

// ACLFlag is a flag that may be repeated, for the entries of an ACL.
type ACLFlag []zk.ACL

func (f *ACLFlag) Set(text string) error {
	entry, err := ParseACL(text)
	if err == nil {
		*f = append(*f, entry)
	}
	return err
}

func (f *ACLFlag) String() string {
	var all []string
	for _, entry := range *f {
		all = append(all, FormatACL(entry))
	}
	return strings.Join(all, ",")
}

// Type returns what the help shows as the flag's argument.
func (f *ACLFlag) Type() string { return "acl" }
