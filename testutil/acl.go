package testutil

import (
	"crypto/sha1" // the digest scheme is defined by it
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// permitted reports whether somebody with these identities may do what perm says. A nil list is the open one.
func permitted(acl []wire.ACL, perm int32, who []wire.ID) bool {
	if len(acl) == 0 {
		return true
	}
	for _, a := range acl {
		if a.Perms&perm == 0 {
			continue
		}
		if a.Scheme == "world" && a.ID.ID == "anyone" {
			return true
		}
		for _, id := range who {
			if id.Scheme == a.Scheme && matches(a.Scheme, id.ID, a.ID.ID) {
				return true
			}
		}
	}
	return false
}

func matches(scheme, id, pattern string) bool {
	if scheme != "ip" {
		return id == pattern
	}
	addr, err := netip.ParseAddr(id)
	if err != nil {
		return false
	}
	if prefix, err := netip.ParsePrefix(pattern); err == nil {
		return prefix.Contains(addr)
	}
	want, err := netip.ParseAddr(pattern)
	return err == nil && want == addr
}

// fixACL checks the list of a create or setACL and puts the caller's own identities in for the scheme auth.
func fixACL(acl []wire.ACL, who []wire.ID) ([]wire.ACL, wire.Code) {
	if len(acl) == 1 && acl[0] == openACL[0] {
		return nil, wire.OK
	}
	fixed := make([]wire.ACL, 0, len(acl))
	for i, a := range acl {
		if slices.Contains(acl[:i], a) {
			continue
		}
		switch {
		case a.Scheme == "world" && a.ID.ID == "anyone":
			fixed = append(fixed, a)
		case a.Scheme == "auth":
			found := false
			for _, id := range who {
				if id.Scheme == "digest" { // an address authenticates nobody
					found = true
					fixed = append(fixed, wire.ACL{Perms: a.Perms, ID: id})
				}
			}
			if !found {
				return nil, wire.InvalidACL
			}
		case a.Scheme == "digest" && strings.Count(a.ID.ID, ":") == 1 && !strings.HasSuffix(a.ID.ID, ":"):
			fixed = append(fixed, a)
		case a.Scheme == "ip" && validAddress(a.ID.ID):
			fixed = append(fixed, a)
		default:
			return nil, wire.InvalidACL
		}
	}
	if len(fixed) == 0 {
		return nil, wire.InvalidACL
	}
	return fixed, wire.OK
}

func validAddress(s string) bool {
	if _, err := netip.ParsePrefix(s); err == nil {
		return true
	}
	_, err := netip.ParseAddr(s)
	return err == nil
}

// authenticate is the auth request: it returns the identity that the credentials prove.
func authenticate(scheme string, credentials []byte, remote string) (wire.ID, bool) {
	switch scheme {
	case "digest":
		user, _, _ := strings.Cut(string(credentials), ":")
		sum := sha1.Sum(credentials)
		return wire.ID{Scheme: "digest", ID: user + ":" + base64.StdEncoding.EncodeToString(sum[:])}, true
	case "ip":
		return wire.ID{Scheme: "ip", ID: remote}, true
	}
	return wire.ID{}, false
}

// maskDigests hides the password hashes in a list from somebody who may not change it.
func maskDigests(acl []wire.ACL) []wire.ACL {
	masked := slices.Clone(acl)
	for i, a := range masked {
		if a.Scheme == "digest" {
			user, _, _ := strings.Cut(a.ID.ID, ":")
			masked[i].ID.ID = user + ":x"
		}
	}
	return masked
}
