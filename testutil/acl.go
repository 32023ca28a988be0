package testutil

import (
	"crypto/sha1" // the digest scheme is defined with SHA-1
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// superUser is the identity to which no access control list applies. A client
// that proves the super digest gets it in addition to the identity of that
// digest.
var superUser = wire.ID{Scheme: "super"}

// permitted reports whether a client with these identities has the permission.
func permitted(acl []wire.ACL, perm int32, identities []wire.ID) bool {
	if len(acl) == 0 || slices.Contains(identities, superUser) {
		return true
	}
	for _, a := range acl {
		if a.Perms&perm == 0 {
			continue
		}
		if a.Scheme == "world" && a.ID.ID == "anyone" {
			return true
		}
		for _, id := range identities {
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

// mostACLEntries is more than fit into a request. A list gets longer than that
// only if many of its entries stand for each of many identities.
const mostACLEntries = wire.MaxFrame / 12

// authenticated are the schemes that the scheme auth stands for. An address
// does not count.
var authenticated = []string{"digest", "sasl", "x509"}

// fixACL checks the list of a create or setACL, and replaces the scheme auth by
// the client's own identities.
func fixACL(acl []wire.ACL, identities []wire.ID) ([]wire.ACL, wire.Code) {
	if len(acl) == 1 && acl[0] == openACL[0] {
		return nil, wire.OK
	}
	fixed := make([]wire.ACL, 0, len(acl))
	seen := make(map[wire.ACL]bool, len(acl))
	for _, a := range acl {
		if seen[a] {
			continue
		}
		seen[a] = true
		if len(fixed) > mostACLEntries {
			return nil, wire.InvalidACL
		}
		switch {
		case a.Scheme == "world" && a.ID.ID == "anyone":
			fixed = append(fixed, a)
		case a.Scheme == "auth":
			found := false
			for _, id := range identities {
				if slices.Contains(authenticated, id.Scheme) {
					found = true
					fixed = append(fixed, wire.ACL{Perms: a.Perms, ID: id})
				}
			}
			if !found {
				return nil, wire.InvalidACL
			}
		case a.Scheme == "digest" && strings.Count(a.ID.ID, ":") == 1 && !strings.HasSuffix(a.ID.ID, ":"):
			fixed = append(fixed, a)
		case a.Scheme == "sasl" && validName(a.ID.ID):
			fixed = append(fixed, a)
		case a.Scheme == "x509" && strings.Contains(a.ID.ID, "="):
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

// validName reports whether a name can be that of a user of SASL, or of
// Kerberos: one part, perhaps with an instance and a realm.
func validName(s string) bool {
	user, realm, hasRealm := strings.Cut(s, "@")
	return user != "" && strings.Count(user, "/") <= 1 && (!hasRealm || realm != "" && !strings.ContainsAny(realm, "@/"))
}

func validAddress(s string) bool {
	if _, err := netip.ParsePrefix(s); err == nil {
		return true
	}
	_, err := netip.ParseAddr(s)
	return err == nil
}

// authenticate returns the identities that the credentials prove, nil for none.
func authenticate(m *wire.AuthRequest, remote, super string) []wire.ID {
	switch m.Scheme {
	case "digest":
		id := wire.ID{Scheme: "digest", ID: digest(m.Auth)}
		if id.ID == super {
			return []wire.ID{superUser, id}
		}
		return []wire.ID{id}
	case "ip":
		return []wire.ID{{Scheme: "ip", ID: remote}}
	}
	return nil
}

// digest returns the identity of "user:password": the user and a hash of both.
func digest(credentials []byte) string {
	user, _, _ := strings.Cut(string(credentials), ":")
	sum := sha1.Sum(credentials)
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

func validDigest(id string) bool {
	_, hash, _ := strings.Cut(id, ":")
	sum, err := base64.StdEncoding.DecodeString(hash)
	return err == nil && len(sum) == sha1.Size
}

// maskDigests hides the password hashes from a client that may not change the
// list.
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
