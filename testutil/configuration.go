package testutil

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// configuration says which servers an ensemble has, by number. It is never
// changed in place, so the members share it.
type configuration struct {
	version int64 // the transaction that has set it; 0 until then
	servers map[int64]server
}

// server is a line of a configuration.
type server struct {
	text     string // what comes after server.N=
	votes    bool
	forUsers bool // it has an address for clients
}

// String returns the data of /zookeeper/config. The servers are sorted; on the
// real server their order is that of a Java hash table.
func (c *configuration) String() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(c.servers)) {
		fmt.Fprintf(&b, "server.%d=%s\n", id, c.servers[id].text)
	}
	fmt.Fprintf(&b, "version=%x", c.version)
	return b.String()
}

// with returns a changed copy.
func (c *configuration) with(change func(*configuration)) *configuration {
	changed := &configuration{c.version, maps.Clone(c.servers)}
	change(changed)
	return changed
}

func (c *configuration) votes(m *member) bool { return c.servers[m.number()].votes }

func (c *configuration) has(m *member) bool {
	_, ok := c.servers[m.number()]
	return ok
}

// voters returns the number of servers that vote.
func (c *configuration) voters() int {
	n := 0
	for _, s := range c.servers {
		if s.votes {
			n++
		}
	}
	return n
}

// quorum reports whether those members that vote are a majority.
func (c *configuration) quorum(members []*member) bool {
	n := 0
	for _, m := range members {
		if c.votes(m) {
			n++
		}
	}
	return n > c.voters()/2
}

// ownServer returns the line that a member stands in by default.
func ownServer(m *member) server {
	host, port, _ := net.SplitHostPort(m.addr)
	return server{text: fmt.Sprintf("%s:2888:3888:participant;%s", host, net.JoinHostPort(host, port)), votes: true, forUsers: true}
}

// parseServer reads what comes after server.N=, in the form
// host:port:port[:role][;[host:]port].
func parseServer(text string) (s server, code wire.Code) {
	peers, clients, forUsers := strings.Cut(text, ";")
	parts, code := splitAddress(peers)
	if code != wire.OK || len(parts) < 3 || len(parts) > 4 || parts[1] == parts[2] || strings.ContainsFunc(text, unicode.IsSpace) {
		return s, wire.BadArguments
	}
	role := "participant"
	if len(parts) == 4 {
		role = strings.ToLower(parts[3])
	}
	if role != "participant" && role != "observer" {
		return s, wire.BadArguments
	}
	ports := parts[1:3]
	s = server{text: strings.Join(append(parts[:3:3], role), ":"), votes: role == "participant", forUsers: forUsers}
	if forUsers {
		parts, code := splitAddress(clients)
		if code != wire.OK || len(parts) > 2 {
			return s, wire.BadArguments
		}
		if len(parts) == 1 {
			parts = slices.Insert(parts, 0, "0.0.0.0")
		}
		s.text += ";" + strings.Join(parts, ":")
		ports = append(ports, parts[1])
	}
	for _, p := range ports {
		if n, err := strconv.ParseInt(p, 10, 32); err != nil {
			return s, wire.BadArguments
		} else if n < 0 || n > 65535 {
			return s, wire.MarshallingError // a Java exception of another kind
		}
	}
	return s, wire.OK
}

// splitAddress splits at colons. An IPv6 address in brackets becomes one part,
// in the form that Java prints.
func splitAddress(text string) (parts []string, code wire.Code) {
	rest, bracket := strings.CutPrefix(text, "[")
	if !bracket {
		return strings.Split(text, ":"), wire.OK
	}
	host, rest, _ := strings.Cut(rest, "]:")
	address, err := netip.ParseAddr(host)
	if err != nil || !address.Is6() {
		return nil, wire.BadArguments
	}
	var groups []string
	for pair := range slices.Chunk(address.AsSlice(), 2) {
		groups = append(groups, fmt.Sprintf("%x", int(pair[0])<<8|int(pair[1])))
	}
	return append([]string{"[" + strings.Join(groups, ":") + "]"}, strings.Split(rest, ":")...), wire.OK
}

// incremental returns the configuration after servers have left and joined.
func (c *configuration) incremental(joining, leaving string) (changed *configuration, code wire.Code) {
	changed = c.with(func(*configuration) {})
	for _, id := range splitList(leaving) {
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			return nil, wire.MarshallingError
		}
		delete(changed.servers, n)
	}
	for _, line := range splitList(joining) {
		parts := strings.Split(line, "=")
		if len(parts) != 2 {
			return nil, wire.BadArguments
		}
		name := strings.TrimSpace(parts[0])
		id, err := strconv.ParseInt(name[strings.LastIndexByte(name, '.')+1:], 10, 64)
		if err != nil {
			return nil, wire.MarshallingError
		}
		s, code := parseServer(strings.TrimSpace(parts[1]))
		if code == wire.OK && !s.forUsers {
			code = wire.BadArguments
		}
		if code != wire.OK {
			return nil, code
		}
		changed.servers[id] = s
	}
	return changed, wire.OK
}

// splitList splits at commas, and leaves empty elements out.
func splitList(text string) (list []string) {
	for element := range strings.SplitSeq(text, ",") {
		if element = strings.TrimSpace(element); element != "" {
			list = append(list, element)
		}
	}
	return list
}

// parseConfiguration reads the lines of a whole configuration.
func parseConfiguration(text string) (*configuration, wire.Code) {
	c := &configuration{servers: map[int64]server{}}
	for line := range strings.SplitSeq(strings.ReplaceAll(text, ",", "\n"), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		id, ok := strings.CutPrefix(strings.TrimSpace(key), "server.")
		switch {
		case key == "version":
			continue // the next one counts
		case !ok:
			return nil, wire.BadArguments
		}
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			return nil, wire.MarshallingError
		}
		s, code := parseServer(strings.TrimSpace(value))
		if code != wire.OK {
			return nil, code
		}
		c.servers[n] = s
	}
	if len(c.servers) > 0 && c.voters() == 0 {
		return nil, wire.MarshallingError
	}
	return c, wire.OK
}
