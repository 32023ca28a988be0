package testutil

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// version is what the server says of itself in its answers to four-letter words.
const version = "3.8.0-embedded"

// isWord reports whether the first four bytes of a connection are a four-letter word rather than the length of a frame.
func isWord(head [4]byte) bool {
	switch string(head[:]) {
	case "ruok", "srvr", "stat", "mntr", "envi", "cons", "wchs", "isro", "dump", "conf":
		return true
	}
	return false
}

// wordLocked answers a four-letter word and closes the connection.
func (m *member) wordLocked(c *conn, word string) {
	var b strings.Builder
	switch {
	case word == "ruok":
		b.WriteString("imok")
	case !m.serving() && word == "isro":
		b.WriteString("null")
	case !m.serving():
		b.WriteString("This ZooKeeper instance is not currently serving requests\n")
	case word == "isro":
		b.WriteString("rw")
	case word == "srvr" || word == "stat":
		m.statLocked(&b, word == "stat")
	case word == "mntr":
		m.monitorLocked(&b)
	case word == "cons":
		m.connectionsLocked(&b)
		b.WriteByte('\n')
	case word == "wchs":
		conns := map[*conn]struct{}{}
		for _, table := range []*watchTable{m.dataWatches, m.childWatches} {
			for o := range table.byConn {
				conns[o] = struct{}{}
			}
		}
		fmt.Fprintf(&b, "%d connections watching %d paths\nTotal watches:%d\n",
			len(conns), len(m.dataWatches.byPath)+len(m.childWatches.byPath), m.watchCountLocked())
	case word == "dump":
		m.dumpLocked(&b)
	case word == "envi":
		fmt.Fprintf(&b, "Environment:\nzookeeper.version=%s\n", version)
	case word == "conf":
		fmt.Fprintf(&b, "tickTime=%d\nminSessionTimeout=%d\nmaxSessionTimeout=%d\nserverId=%d\n", m.e.cfg.tick.Milliseconds(),
			m.e.cfg.minTimeout.Milliseconds(), m.e.cfg.maxTimeout.Milliseconds(), m.number())
	}
	c.send([]byte(b.String()))
	c.finishLocked()
}

func (m *member) modeLocked() string {
	switch {
	case len(m.e.members) == 1:
		return "standalone"
	case m.lead != nil:
		return "leader"
	}
	return "follower"
}

func (m *member) trafficLocked() (received, sent, open int) {
	for c := range m.conns {
		received += c.received
		sent += c.replied
	}
	return received, sent, len(m.conns)
}

func (m *member) watchCountLocked() int {
	n := 0
	for _, table := range []*watchTable{m.dataWatches, m.childWatches} {
		for _, conns := range table.byPath {
			n += len(conns)
		}
	}
	return n
}

func (m *member) statLocked(b *strings.Builder, clients bool) {
	fmt.Fprintf(b, "Zookeeper version: %s\n", version)
	if clients {
		b.WriteString("Clients:\n")
		m.connectionsLocked(b)
		b.WriteByte('\n')
	}
	received, sent, open := m.trafficLocked()
	fmt.Fprintf(b, "Latency min/avg/max: 0/0.0/0\nReceived: %d\nSent: %d\nConnections: %d\nOutstanding: %d\nZxid: %#x\nMode: %s\nNode count: %d\n",
		received, sent, open, m.outstandingLocked(), m.tree.zxid, m.modeLocked(), len(m.tree.nodes)+1)
}

func (m *member) outstandingLocked() int {
	n := 0
	for c := range m.conns {
		n += len(c.queue)
		if c.busy {
			n++
		}
	}
	return n
}

func (m *member) monitorLocked(b *strings.Builder) {
	received, sent, open := m.trafficLocked()
	ephemerals := 0
	for _, paths := range m.tree.ephemerals {
		ephemerals += len(paths)
	}
	lines := []struct {
		key   string
		value any
	}{
		{"version", version},
		{"server_state", m.modeLocked()},
		{"packets_received", received},
		{"packets_sent", sent},
		{"num_alive_connections", open},
		{"outstanding_requests", m.outstandingLocked()},
		{"znode_count", len(m.tree.nodes)},
		{"watch_count", m.watchCountLocked()},
		{"ephemerals_count", ephemerals},
		{"global_sessions", len(m.tree.sessions)},
	}
	for _, l := range lines {
		fmt.Fprintf(b, "zk_%s\t%v\n", l.key, l.value)
	}
	if m.lead != nil && len(m.e.members) > 1 {
		fmt.Fprintf(b, "zk_learners\t%d\nzk_synced_followers\t%d\n", len(m.lead.followers), len(m.lead.followers))
	}
}

func (m *member) connectionsLocked(b *strings.Builder) {
	lines := make([]string, 0, len(m.conns))
	for c := range m.conns {
		lines = append(lines, fmt.Sprintf(" /%s[1](queued=%d,recved=%d,sent=%d,sid=%#x,to=%d,est=%d)\n",
			c.nc.RemoteAddr(), len(c.queue), c.received, c.replied, c.session, c.timeout, c.since.UnixMilli()))
	}
	slices.Sort(lines)
	b.WriteString(strings.Join(lines, ""))
}

func (m *member) dumpLocked(b *strings.Builder) {
	fmt.Fprintf(b, "Sessions (%d):\n", len(m.tree.sessions))
	for _, id := range slices.Sorted(maps.Keys(m.tree.sessions)) {
		fmt.Fprintf(b, "%#x\t%dms\n", id, m.tree.sessions[id])
	}
	fmt.Fprintf(b, "Sessions with Ephemerals (%d):\n", len(m.tree.ephemerals))
	for _, id := range slices.Sorted(maps.Keys(m.tree.ephemerals)) {
		fmt.Fprintf(b, "%#x:\n\t%s\n", id, strings.Join(m.tree.ephemeralsOf(id), "\n\t"))
	}
}

func (m *member) describeLocked() string {
	state := "looks for a leader"
	switch {
	case !m.up:
		state = "is stopped"
	case m.lead != nil:
		state = "leads"
	case m.leader != nil:
		state = "follows " + m.leader.name()
	}
	for _, flag := range []struct {
		set  bool
		word string
	}{{m.paused, "paused"}, {m.mute, "mute"}, {m.wedged, "wedged"}, {m.lagging, "lagging"}} {
		if flag.set {
			state += ", " + flag.word
		}
	}
	return fmt.Sprintf("%s (%s) %s, transaction %#x, %d connections", m.name(), m.addr, state, m.tree.zxid, len(m.conns))
}
