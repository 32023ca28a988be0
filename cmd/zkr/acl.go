package main

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

// parseACL parses scheme:id:permissions, such as world:anyone:cdrwa. The id may
// have colons in it.
func parseACL(text string) (zk.ACL, error) {
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

// formatACL is the inverse of parseACL.
func formatACL(acl zk.ACL) string {
	var letters strings.Builder
	for _, p := range permissions {
		if acl.Perms&p.bit != 0 {
			letters.WriteRune(p.letter)
		}
	}
	return acl.Scheme + ":" + acl.ID + ":" + letters.String()
}
