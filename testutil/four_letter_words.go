package testutil

import (
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

// version returns what a member reports. The date has the form of servers
// before 3.6, which is what programs that parse these answers expect, the wire
// client included.
func (m *member) version() string {
	number := "3.8.0"
	if m.isOld() {
		number = "3.5.10"
	}
	return number + "-embedded, built on 12/29/2024 17:54 UTC"
}

// isWord reports whether the first four bytes of a connection are a four-letter
// word rather than the length of a frame.
func isWord(head [4]byte) bool {
	_, ok := words[string(head[:])]
	return ok
}

// words maps each four-letter word to its answer while the member serves.
var words = map[string]func(m *member, b *strings.Builder){
	"ruok": func(_ *member, b *strings.Builder) { b.WriteString("imok") },
	"isro": func(_ *member, b *strings.Builder) { b.WriteString("rw") },
	"srvr": (*member).serverLocked,
	"stat": (*member).statLocked,
	"mntr": (*member).monitorLocked,
	"envi": (*member).environmentLocked,
	"conf": (*member).settingsLocked,
	"cons": func(m *member, b *strings.Builder) { m.connectionsLocked(b, true) },
	"wchs": (*member).watchesSumLocked,
	"wchc": func(m *member, b *strings.Builder) { m.watchesByLocked(b, true) },
	"wchp": func(m *member, b *strings.Builder) { m.watchesByLocked(b, false) },
	"dump": (*member).dumpLocked,
	"dirs": func(_ *member, b *strings.Builder) { b.WriteString("datadir_size: 0\nlogdir_size: 0\n") },
	"srst": func(m *member, b *strings.Builder) {
		m.traffic = traffic{}
		b.WriteString("Server stats reset.\n")
	},
	"crst": func(m *member, b *strings.Builder) {
		for c := range m.conns {
			c.traffic, c.last = traffic{}, lastAnswer{}
		}
		b.WriteString("Connection stats reset.\n")
	},
}

// wordLocked answers a four-letter word and closes the connection.
func (m *member) wordLocked(c *conn, word string) {
	var b strings.Builder
	switch {
	case m.serving() || word == "ruok" || word == "envi":
		words[word](m, &b)
	case word == "isro":
		b.WriteString("null")
	default:
		b.WriteString("This ZooKeeper instance is not currently serving requests\n")
	}
	c.send([]byte(b.String()))
	c.closeAfterSendingLocked()
}

func (m *member) modeLocked() string {
	switch {
	case m.e.standalone():
		return "standalone"
	case m.lead != nil:
		return "leader"
	}
	return "follower"
}

func (m *member) statLocked(b *strings.Builder) {
	fmt.Fprintf(b, "Zookeeper version: %s\nClients:\n", m.version())
	m.connectionsLocked(b, false)
	m.countsLocked(b)
}

func (m *member) serverLocked(b *strings.Builder) {
	fmt.Fprintf(b, "Zookeeper version: %s\n", m.version())
	m.countsLocked(b)
}

func (m *member) countsLocked(b *strings.Builder) {
	t := &m.traffic
	fmt.Fprintf(b, "Latency min/avg/max: %d/%s/%d\nReceived: %d\nSent: %d\nConnections: %d\nOutstanding: %d\nZxid: %#x\nMode: %s\nNode count: %d\n",
		t.least.Milliseconds(), t.averageText(), t.most.Milliseconds(), t.received, t.sent, len(m.conns), m.outstandingLocked(),
		m.tree.zxid, m.modeLocked(), m.tree.count())
	if m.modeLocked() == "leader" {
		b.WriteString("Proposal sizes last/min/max: -1/-1/-1\n")
	}
}

// count returns the number of znodes as the server counts them: the root twice,
// since the server stores it under two names.
func (t *tree) count() int { return len(t.nodes) + 1 }

func (m *member) outstandingLocked() int {
	n := 0
	for c := range m.conns {
		n += len(c.queue)
		if c.atLeader {
			n++
		}
	}
	return n
}

type metric struct {
	key   string
	value any
}

// monitorLocked prints the common metrics. The real server has about 300 more.
func (m *member) monitorLocked(b *strings.Builder) {
	t, ephemerals, size := &m.traffic, 0, 0
	for _, paths := range m.tree.ephemerals {
		ephemerals += len(paths)
	}
	for path, n := range m.tree.nodes {
		size += len(path) + len(n.data)
	}
	lines := []metric{{"version", m.version()}, {"server_state", m.modeLocked()}}
	if !m.e.standalone() {
		state := "following"
		if m.lead != nil {
			state = "leading"
		}
		lines = append(lines, metric{"peer_state", state + " - broadcast"}, metric{"quorum_size", m.config.voters()})
	}
	lines = append(
		lines, metric{"ephemerals_count", ephemerals}, metric{"num_alive_connections", len(m.conns)},
		metric{"min_latency", t.least.Milliseconds()}, metric{"avg_latency", t.averageText()}, metric{"max_latency", t.most.Milliseconds()},
		metric{"outstanding_requests", m.outstandingLocked()}, metric{"znode_count", m.tree.count()},
		metric{"global_sessions", len(m.tree.sessions)}, metric{"local_sessions", 0},
		metric{"packets_received", t.received}, metric{"packets_sent", t.sent},
		metric{"watch_count", m.dataWatches.size() + m.childWatches.size()},
		metric{"approximate_data_size", size}, metric{"uptime", time.Since(m.booted).Milliseconds()},
	)
	if m.lead != nil && !m.e.standalone() {
		spectators := 0
		for f := range m.lead.followers {
			if !m.config.votes(f) {
				spectators++
			}
		}
		lines = append(
			lines, metric{"learners", len(m.lead.followers)}, metric{"synced_followers", len(m.lead.followers)},
			metric{"synced_non_voting_followers", spectators}, metric{"synced_observers", 0}, metric{"pending_syncs", 0},
		)
	}
	for _, l := range lines {
		fmt.Fprintf(b, "zk_%s\t%v\n", l.key, l.value)
	}
}

// environmentLocked prints the lines of the real server that make sense without
// Java.
func (m *member) environmentLocked(b *strings.Builder) {
	fmt.Fprintf(b, "Environment:\nzookeeper.version=%s\nhost.name=localhost\n", m.version())
	for _, key := range []string{"version", "vendor", "home", "class.path", "library.path", "io.tmpdir", "compiler"} {
		value := "<NA>"
		if key == "version" {
			value = runtime.Version()
		}
		fmt.Fprintf(b, "java.%s=%s\n", key, value)
	}
	fmt.Fprintf(b, "os.name=%s\nos.arch=%s\nos.version=<NA>\n", runtime.GOOS, runtime.GOARCH)
	for _, key := range []string{"user.name", "user.home", "user.dir"} {
		fmt.Fprintf(b, "%s=<NA>\n", key)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	const mb = 1 << 20
	fmt.Fprintf(b, "os.memory.free=%dMB\nos.memory.max=%dMB\nos.memory.total=%dMB\n",
		(memory.HeapIdle-memory.HeapReleased)/mb, memory.Sys/mb, memory.Sys/mb)
}

func (m *member) settingsLocked(b *strings.Builder) {
	cfg, id := &m.e.cfg, m.number()
	if m.e.standalone() {
		id = 0
	}
	_, port, _ := net.SplitHostPort(m.addr)
	fmt.Fprintf(b, "clientPort=%s\nsecureClientPort=-1\ndataDir=memory\ndataDirSize=0\ndataLogDir=memory\ndataLogSize=0\n", port)
	fmt.Fprintf(b, "tickTime=%d\nmaxClientCnxns=0\nminSessionTimeout=%d\nmaxSessionTimeout=%d\nclientPortListenBacklog=-1\nserverId=%d\n",
		m.tick.Milliseconds(), m.least.Milliseconds(), m.most.Milliseconds(), id)
	if !m.e.standalone() {
		fmt.Fprintf(b, "initLimit=%d\nsyncLimit=%[1]d\nelectionAlg=3\nelectionPort=3888\nquorumPort=2888\npeerType=0\nmembership: \n%s",
			cfg.syncLimit, m.config)
	}
}

// connectionsLocked prints the connections, one a line, including the one that
// asks.
func (m *member) connectionsLocked(b *strings.Builder, all bool) {
	lines := make([]string, 0, len(m.conns))
	for c := range m.conns {
		lines = append(lines, c.describeLocked(all))
	}
	slices.Sort(lines)
	b.WriteString(strings.Join(lines, "") + "\n")
}

func (c *conn) describeLocked(all bool) string {
	var b strings.Builder
	interested := 0
	if c.open {
		interested = 1
	}
	t := &c.traffic
	fmt.Fprintf(&b, " /%s[%d](queued=%d,recved=%d,sent=%d", c.nc.RemoteAddr(), interested, len(c.queue), t.received, t.sent)
	if all && c.open {
		last := c.last
		fmt.Fprintf(&b, ",sid=%#x,lop=%s,est=%d,to=%d,lcxid=%#x,lzxid=%#x,lresp=%d,llat=%d,minlat=%d,avglat=%d,maxlat=%d",
			c.session, operationWord(last.op), c.since.UnixMilli(), c.timeout, last.xid, last.zxid, last.at.Sub(c.m.booted).Milliseconds(),
			last.took.Milliseconds(), t.least.Milliseconds(), int64(t.average()), t.most.Milliseconds())
	}
	return b.String() + ")\n"
}

// operationWord returns the server's short name of an operation, NA for none.
func operationWord(op wire.Op) string {
	if word, ok := operationWords[op]; ok {
		return word
	}
	return "NA"
}

var operationWords = map[wire.Op]string{
	wire.OpCreateSession: "SESS", wire.OpCloseSession: "CLOS", wire.OpPing: "PING",
	wire.OpCreate: "CREA", wire.OpCreate2: "CREA", wire.OpCreateContainer: "CREA", wire.OpCreateTTL: "CREA",
	wire.OpDelete: "DELE", wire.OpDeleteContainer: "DELE", wire.OpSetData: "SETD", wire.OpSetACL: "SETA", wire.OpReconfig: "RECO",
	wire.OpMulti: "MULT", wire.OpMultiRead: "MLTR", wire.OpCheck: "CHEC", wire.OpSync: "SYNC",
	wire.OpExists: "EXIS", wire.OpGetData: "GETD", wire.OpGetACL: "GETA",
	wire.OpGetChildren: "GETC", wire.OpGetChildren2: "GETC", wire.OpGetChildrenCount: "GETACN", wire.OpGetEphemerals: "GETE",
	wire.OpSetWatches: "SETW", wire.OpSetWatches2: "STW2", wire.OpAddWatch: "ADDW",
	wire.OpCheckWatches: "CHKW", wire.OpRemoveWatches: "REMW", wire.OpWhoAmI: "HOMI",
}

// watchesSumLocked counts the watches for data only, as the real server does.
func (m *member) watchesSumLocked(b *strings.Builder) {
	w := m.dataWatches
	fmt.Fprintf(b, "%d connections watching %d paths\nTotal watches:%d\n", len(w.byConn), len(w.byPath), w.size())
}

func (w *watchTable) size() int {
	n := 0
	for _, conns := range w.byPath {
		n += len(conns)
	}
	return n
}

// watchesByLocked prints the watches for data, by session or by path.
func (m *member) watchesByLocked(b *strings.Builder, bySession bool) {
	groups := map[string][]string{}
	for path, conns := range m.dataWatches.byPath {
		for _, c := range conns {
			head, line := path, fmt.Sprintf("%#x", c.session)
			if bySession {
				head, line = line, head
			}
			groups[head] = append(groups[head], line)
		}
	}
	for _, head := range slices.Sorted(maps.Keys(groups)) {
		slices.Sort(groups[head])
		fmt.Fprintf(b, "%s\n\t%s\n", head, strings.Join(groups[head], "\n\t"))
	}
	b.WriteByte('\n')
}

func (m *member) dumpLocked(b *strings.Builder) {
	b.WriteString("SessionTracker dump:\n")
	if m.lead != nil {
		m.lead.dumpLocked(b)
	} else {
		fmt.Fprintf(b, "Global Sessions(%d):\n", len(m.tree.sessions))
		for _, id := range slices.Sorted(maps.Keys(m.tree.sessions)) {
			fmt.Fprintf(b, "%#x\t%dms\n", id, m.tree.sessions[id])
		}
	}
	fmt.Fprintf(b, "ephemeral nodes dump:\nSessions with Ephemerals (%d):\n", len(m.tree.ephemerals))
	for _, id := range slices.Sorted(maps.Keys(m.tree.ephemerals)) {
		fmt.Fprintf(b, "%#x:\n\t%s\n", id, strings.Join(m.tree.ephemeralsOf(id), "\n\t"))
	}
	// The server closes a connection some time after its session could have
	// expired.
	const grain = 10 * time.Second
	sets := map[int64][]string{}
	for c := range m.conns {
		at := int64(c.lastPacket.Sub(m.e.start)+time.Duration(c.timeout)*time.Millisecond)/int64(grain) + 1
		sets[at] = append(sets[at], fmt.Sprintf("ip: /%s sessionId: %#x", c.nc.RemoteAddr(), c.session))
	}
	b.WriteString("Connections dump:\n")
	dumpSets(b, "Connections", len(m.conns), sets, m.e.start, grain)
}

func (l *leadership) dumpLocked(b *strings.Builder) {
	sets := map[int64][]string{}
	for id, s := range l.sessions {
		sets[s.expires] = append(sets[s.expires], fmt.Sprintf("%#x", id))
	}
	dumpSets(b, "Session", len(l.sessions), sets, l.m.e.start, l.m.tick)
}

// dumpSets prints what expires, grouped by time.
func dumpSets(b *strings.Builder, what string, n int, sets map[int64][]string, start time.Time, grain time.Duration) {
	fmt.Fprintf(b, "%s Sets (%d)/(%d):\n", what, len(sets), n)
	for _, at := range slices.Sorted(maps.Keys(sets)) {
		slices.Sort(sets[at])
		when := start.Add(time.Duration(at) * grain).Format("Mon Jan 02 15:04:05 MST 2006")
		fmt.Fprintf(b, "%d expire at %s:\n\t%s\n", len(sets[at]), when, strings.Join(sets[at], "\n\t"))
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
	}{{!m.e.standalone() && !m.config.votes(m), "without a vote"}, {m.paused, "paused"}, {m.mute, "mute"}, {m.wedged, "wedged"}, {m.lagging, "lagging"}} {
		if flag.set {
			state += ", " + flag.word
		}
	}
	return fmt.Sprintf("%s (%s) %s, transaction %#x, %d connections", m.name(), m.addr, state, m.tree.zxid, len(m.conns))
}
