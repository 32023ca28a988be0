package serverlist

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// This file reads the members in the config of an ensemble. One without a port
// for clients does not count (CURATOR-402), and a name is kept as a name
// (CURATOR-578, CURATOR-638).

// MostMembers is how many members a config may have that is followed. Votes
// bound the size of real ensembles, and their numbers end at 255.
const MostMembers = 255

const longestHost = 253 // of a name in the DNS

// Members returns the addresses for clients, "host:port", in the config of an
// ensemble, and its version: those for TLS if tls is true and there are such.
// Where an address is a wildcard it is the member's host with that port. wrong
// is why the first of the members that are left out is: it has no such address,
// or cannot be read. It is nil if none is left out. Members fails if the config
// has no version, or too many members.
func Members(config []byte, tls bool) (members []string, version int64, wrong, err error) {
	version = -1
	n, unusable := 0, 0
	for line := range strings.Lines(string(config)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if key == "version" {
			if version, err = strconv.ParseInt(value, 16, 64); err != nil || version < 0 {
				return nil, 0, nil, fmt.Errorf("config: version %.40q is not a number", value)
			}
			continue
		}
		if !strings.HasPrefix(key, "server.") {
			continue
		}
		if n++; n > MostMembers {
			continue
		}
		name, err := memberAddress(value, tls)
		if err != nil {
			unusable++
			wrong = cmp.Or(wrong, fmt.Errorf("config: %.100q: %w", strings.TrimSpace(line), err))
			continue
		}
		members = append(members, name)
	}
	switch {
	case n > MostMembers:
		return nil, 0, nil, fmt.Errorf("config: %d members: at most %d are followed", n, MostMembers)
	case version < 0:
		return nil, 0, nil, errors.New("config: it has no version")
	}
	if unusable > 1 {
		wrong = fmt.Errorf("%w; %d more members are left out", wrong, unusable-1)
	}
	return slices.Compact(slices.Sorted(slices.Values(members))), version, wrong, nil
}

// memberAddress reads what a config has behind server.N=, and returns the
// address for clients. It fails if there is none.
//
// The form is host:port:port[:role][;[[host:]port][;[host:]port]]. Instead of
// host:port:port there may be several with a bar between them; the first
// counts. The last address is that for TLS, since ZooKeeper 3.10: before, and
// where it is missing, one port may be for both.
func memberAddress(text string, tls bool) (string, error) {
	peers, clients, _ := strings.Cut(text, ";")
	client, secure, _ := strings.Cut(clients, ";")
	if tls {
		client = cmp.Or(secure, client)
	}
	if client == "" {
		return "", errNotForClients
	}
	host, port := "", client
	if i := strings.LastIndexByte(client, ':'); i >= 0 {
		host, port = bare(client[:i]), client[i+1:]
	}
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.Unmap().IsUnspecified() {
		host = peerHost(peers)
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Unmap().IsUnspecified() {
		return "", errNotForClients
	}
	if host == "" || len(host) > longestHost || strings.ContainsAny(host, "/,;|%") || len(port) > len("65535") {
		return "", errNotForClients
	}
	return parseAddress(net.JoinHostPort(host, port))
}

var errNotForClients = errors.New("no address for clients")

// peerHost returns the host of host:port:port[:role].
func peerHost(peers string) string {
	if strings.HasPrefix(peers, "[") {
		host, _, _ := strings.Cut(peers[1:], "]")
		return host
	}
	host, _, _ := strings.Cut(peers, ":")
	return host
}

// bare returns a host without brackets.
func bare(host string) string { return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]") }
