package servers

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/random"
)

// This file has the members that an ensemble names in its config, and which of
// them count: one without a port for clients does not (CURATOR-402), and a name
// is kept as a name (CURATOR-578, CURATOR-638). track.go follows the config.

// members are the members of the ensemble that are called in addition to the
// servers that were given. It is guarded by list.mu.
type members struct {
	names  []string        // "host:port" for clients, in random order
	former map[string]bool // names and addresses of those that were removed
}

const (
	// mostMembers is how many members a config may have that is followed. Votes
	// bound the size of real ensembles, and their numbers end at 255.
	mostMembers = 255
	// mostFormer is how many names and addresses of members that were removed are
	// remembered, about.
	mostFormer  = 1000
	longestHost = 253 // of a name in the DNS
	// memory is how long it counts what a member has shown, as long as none has
	// shown a later version.
	memory = time.Hour
)

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
		if n++; n > mostMembers {
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
	case n > mostMembers:
		return nil, 0, nil, fmt.Errorf("config: %d members: at most %d are followed", n, mostMembers)
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

// isLocal reports whether an address, "host:port", is one that leads to each
// host itself, or stays in one network: nobody else can use it.
func isLocal(address string) bool {
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

// tracked is what members have shown of the config.
type tracked struct {
	known   bool // some member has shown something
	history int  // of the ensemble: see ensemble.histories
	version int64
	latest  []string             // in what was shown last
	earlier map[string]time.Time // in what was shown of this version before: until when
	unsure  []byte               // a config that is older, and nobody has said why yet
	none    bool                 // the latest member has shown no config
	warned  map[string]bool      // what was logged of members that are left out
}

// isNew reports whether a warning was not logged before. A client that goes
// from member to member meets the same ones again and again.
func (t *tracked) isNew(warning string) bool {
	if t.warned[warning] {
		return false
	}
	if t.warned == nil || len(t.warned) >= mostMembers {
		t.warned = make(map[string]bool)
	}
	t.warned[warning] = true
	return true
}

// forget drops what was shown in another history, if that was found only
// afterwards.
func (t *tracked) forget(history int) {
	switch {
	case history == t.history:
	case t.none:
		*t = tracked{history: history, warned: t.warned}
	default:
		t.earlier = nil
	}
}

// change says how what was shown changes the config.
type change int

const (
	sameVersion  change = iota
	laterVersion        // of the same history
	older               // a member that lags, or another history; nothing has changed
	anotherHistory
)

// add adds what a member of the ensemble in a history has shown. anew says that
// it counts even if it is older than what was known: the history was replaced.
func (t *tracked) add(members []string, version int64, history int, anew bool, now time.Time) (how change) {
	switch {
	case !t.known, version == t.version:
	case version > t.version:
		how = laterVersion
	case anew:
		how = anotherHistory
	default:
		return older
	}
	if how == sameVersion && history == t.history {
		for _, name := range t.latest {
			if t.earlier == nil {
				t.earlier = make(map[string]time.Time)
			}
			t.earlier[name] = now
		}
	} else {
		t.earlier = nil
	}
	t.known, t.history, t.version, t.latest = true, history, version, members
	return how
}

// all returns the members that count: those that were shown last, and those
// that were shown at the same version within an hour. If they are too many, the
// ones that were not shown for longest are left out.
func (t *tracked) all(now time.Time) []string {
	var others []string
	for name, until := range t.earlier {
		switch {
		case now.Sub(until) >= memory:
			delete(t.earlier, name)
		case !slices.Contains(t.latest, name):
			others = append(others, name)
		}
	}
	slices.SortFunc(others, func(a, b string) int { return cmp.Or(t.earlier[b].Compare(t.earlier[a]), strings.Compare(a, b)) })
	all := slices.Concat(t.latest, others)
	return slices.Sorted(slices.Values(all[:min(len(all), mostMembers)]))
}

// dropUnlistedLocked drops what is known of names that are not listed any more.
func (r *list) dropUnlistedLocked() {
	listed := make(map[string]bool)
	for _, one := range r.allLocked() {
		listed[one.name] = true
	}
	for _, name := range r.members.names { // those that have been given included
		listed[name] = true
	}
	maps.DeleteFunc(r.known, func(name string, n *knownName) bool {
		if !listed[name] && n.cancel != nil {
			n.cancel()
		}
		return !listed[name]
	})
}

// every returns all names.
func (r *list) every() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.allLocked() {
		names = append(names, one.name)
	}
	return names
}

// setMembers makes names the members of the ensemble. found is what was looked
// up.
func (r *list) setMembers(names []string, found map[string]lookup, how change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.memberKeysLocked()
	r.members.names = slices.Clone(names)
	random.Shuffle(len(names), func(i, j int) { r.members.names[i], r.members.names[j] = r.members.names[j], r.members.names[i] })
	for _, name := range names {
		if l, ok := found[name]; ok {
			r.knownLocked(name).note(l)
		}
	}
	if how == anotherHistory || len(r.members.former) > mostFormer || r.members.former == nil {
		r.members.former = make(map[string]bool)
	}
	if how == laterVersion {
		maps.Copy(r.members.former, before)
	}
	now := r.memberKeysLocked()
	maps.DeleteFunc(r.members.former, func(key string, _ bool) bool { return now[key] })
	r.dropUnlistedLocked()
	r.tellLocked()
}

// wasRemoved reports whether a server was removed from the ensemble.
func (r *list) wasRemoved(at Server) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isFormerLocked(at)
}

// hasLocal reports whether a name that was given is a local one.
func (r *list) hasLocal() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.names {
		if isLocal(name) || slices.ContainsFunc(r.knownLocked(name).addresses, isLocal) {
			return true
		}
	}
	return false
}
