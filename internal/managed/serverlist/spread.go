package serverlist

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// spread decides whether a client that is connected to present moves when the
// addresses of its list change from old to new, and to which of them. It
// returns the addresses in the order in which they are called, nil if the
// client stays. draw returns a random number from 0 to n-1. Nothing else is
// random but the order among equals, which is that of new.
//
// If the clients were evenly spread over old, and each of them decides in this
// way, they are evenly spread over new (ZOOKEEPER-1355):
//
//   - If present is in new, and new is not larger, the client stays.
//   - If new is larger, a client stays with the probability |old| / |new| if it
//     can. The others go to servers that old has not.
//   - If new is not larger, and present is not in it, the servers that are in
//     both get what they lack, and those that old has not get the rest.
func spread(present string, old, new []string, draw func(n int) int) (to []string) {
	both, added := split(new, isIn(old))
	grows := len(new) > len(old)
	switch stays := isIn(new)(present); {
	case len(new) == 0, stays && !grows, stays && draw(len(new)) < len(old):
		return nil
	case stays:
		return added
	case grows:
		return slices.Concat(added, both)
	}
	// Of the clients of old, len(old)-len(both) parts move. Each server that is in
	// both lacks (len(old)-len(new)) / len(new) of a part.
	all := len(new) * (len(old) - len(both))
	if all > 0 && draw(all) < len(both)*(len(old)-len(new)) {
		return slices.Concat(both, added)
	}
	return slices.Concat(added, both)
}

// split returns those for which fits reports true, and the others.
func split(all []string, fits func(string) bool) (yes, no []string) {
	for _, each := range all {
		if fits(each) {
			yes = append(yes, each)
		} else {
			no = append(no, each)
		}
	}
	return yes, no
}

// isIn returns a function that reports whether an address is one of all.
func isIn(all []string) func(address string) bool {
	keys := make(map[string]bool, len(all))
	for _, a := range all {
		keys[keyOf(a)] = true
	}
	return func(a string) bool { return keys[keyOf(a)] }
}

// isSame reports whether two addresses are the same one, perhaps in different
// forms.
func isSame(a, b string) bool { return a == b || keyOf(a) == keyOf(b) }

// keyOf returns an address in the one form that is compared: a name as it is.
func keyOf(address string) string {
	if a, err := netip.ParseAddrPort(address); err == nil {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
	}
	return address
}

// IsLocal reports whether an address, "host:port", is one that leads to each
// host itself, or stays in one network: nobody else can use it.
func IsLocal(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host = strings.TrimSuffix(strings.ToLower(host), "."); host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	a = a.Unmap()
	return err == nil && (a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast())
}
