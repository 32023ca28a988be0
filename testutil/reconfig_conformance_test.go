package testutil_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The script of reconfigurations is sent to four real members and to four
// embedded ones. The answers and the events of the real ones are recorded.
const recordedReconfigurations = "testdata/reconfig.txt"

// sessionsOfReconfigurations outlive the start of a new member on a busy
// machine.
const sessionsOfReconfigurations = time.Minute

func TestReconfigurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(4), testutil.WithReconfig(), testutil.WithTick(time.Second),
			testutil.WithSessionTimeouts(2*time.Second, sessionsOfReconfigurations), testutil.WithSuperDigest(testutil.Digest(apache.SuperUser)))
		same(t, reconfigurations(t, e), recordedLines(t, recordedReconfigurations))
	})
}

func TestReconfigurationsOnTheRealServer(t *testing.T) {
	got := reconfigurations(t, apache.Start(t, 4, apache.WithReconfig(), apache.WithTick(time.Second),
		apache.WithSessionTimeouts(2*time.Second, sessionsOfReconfigurations)))
	if *record {
		must(t, os.WriteFile(recordedReconfigurations, []byte(strings.Join(got, "\n")+"\n"), 0o644))
	}
	same(t, got, recordedLines(t, recordedReconfigurations))
}

// reconfigurer is the script. Members are written down by their roles, since
// any of them may lead.
type reconfigurer struct {
	*script
	roles []string // of the members
	lines []string // of the configuration, by member
	peers []*peer  // one at each member
}

func reconfigurations(t *testing.T, ens testutil.Ensemble) []string {
	s := &reconfigurer{script: &script{t: t, ens: ens, log: &transcript{sessions: map[int64]string{}}}}
	leader := ens.Leader()
	s.roles = []string{"second", "third", "fourth"}
	s.roles = slices.Insert(s.roles, leader, "leader")
	for member := range ens.Members() {
		s.peers = append(s.peers, s.peerAt(s.roles[member], member))
	}
	s.a, s.b = s.peers[leader], s.peers[s.member("second")]
	s.rebase()
	for line := range strings.Lines(s.config(s.a)) {
		s.lines = append(s.lines, strings.TrimSpace(line))
	}
	for _, part := range []struct {
		name string
		run  func()
	}{
		{"the start", s.shown},
		{"who may", s.whoMay},
		{"what is refused", s.refused},
		{"odd servers", s.oddServers},
		{"whole configurations", s.whole},
		{"watches", s.watchedConfig},
		{"writes", s.written},
		{"leaving and joining", s.leaving},
		{"a new member", s.newMember},
		{"the leader leaves", s.leaderLeaves},
	} {
		s.log.add("# %s", part.name)
		part.run()
	}
	return s.log.lines
}

func (s *reconfigurer) member(role string) int { return slices.Index(s.roles, role) }

// line returns the line of a member in the configuration.
func (s *reconfigurer) line(role string) string { return s.lines[s.member(role)] }

func (s *reconfigurer) id(role string) string { return fmt.Sprint(s.member(role) + 1) }

func (s *reconfigurer) peerAt(name string, member int) *peer {
	s.t.Helper()
	p := newPeer(s.t, name, s.dialAt(member), sessionsOfReconfigurations, s.log)
	p.stalled = func() { s.nudge(p) }
	return p
}

func (s *reconfigurer) dialAt(member int) netConn {
	s.t.Helper()
	nc, err := s.ens.Dial("tcp", strings.Split(s.ens.Servers(), ",")[member], patience)
	must(s.t, err)
	s.t.Cleanup(func() { nc.Close() })
	return nc
}

// rebase makes numbers relative to the present: sessions of an operator take
// some.
func (s *reconfigurer) rebase() {
	s.t.Helper()
	s.log.base = s.peers[s.member("second")].header(wire.OpCreate, create("/base-", "", 2)).Zxid
}

// config returns the data of the configuration.
func (s *reconfigurer) config(p *peer) string {
	s.t.Helper()
	p.send(wire.OpGetData, look("/zookeeper/config", false))
	_, body, err := p.next()
	must(s.t, err)
	var m wire.DataResponse
	must(s.t, wire.Unmarshal(body, &m))
	return string(m.Data)
}

func joining(lines string) *wire.ReconfigRequest {
	return &wire.ReconfigRequest{Joining: []byte(lines), Version: -1}
}

func leaving(ids string) *wire.ReconfigRequest {
	return &wire.ReconfigRequest{Leaving: []byte(ids), Version: -1}
}

func whole(lines string) *wire.ReconfigRequest {
	return &wire.ReconfigRequest{Members: []byte(lines), Version: -1}
}

// reconfig sends a request and writes down the answer.
func (s *reconfigurer) reconfig(p *peer, what string, ask *wire.ReconfigRequest) {
	s.t.Helper()
	xid := p.send(wire.OpReconfig, ask)
	s.await(p, xid, wire.OpGetData, "reconfig "+what) // the answers have the same form
}

func (s *reconfigurer) do(p *peer, op wire.Op, body wire.Appender) {
	s.t.Helper()
	s.await(p, p.send(op, body), op, p.words(op, body))
}

// await writes down an answer, masked.
func (s *reconfigurer) await(p *peer, xid int32, op wire.Op, what string) {
	s.t.Helper()
	from := len(s.log.lines)
	p.await(xid, op, what)
	for i := from; i < len(s.log.lines); i++ {
		head, answer, _ := strings.Cut(s.log.lines[i], " -> ")
		s.log.lines[i] = head + " -> " + s.masked(answer)
	}
}

var (
	serverLine  = regexp.MustCompile(`server\.(\d+)=([^;,\\]*)(?:;([^ ,"\\]*))?(?:\\n)?`)
	versionLine = regexp.MustCompile(`version=([0-9a-f]+)`)
	length      = regexp.MustCompile(` len \d{2,} `)
)

// masked replaces what differs between ensembles: the numbers and addresses of
// their members, and the order in which they are listed.
func (s *reconfigurer) masked(text string) string {
	var servers []string
	text = serverLine.ReplaceAllStringFunc(text, func(line string) string {
		m := serverLine.FindStringSubmatch(line)
		id, _ := strconv.Atoi(m[1])
		if id > len(s.roles) || id < 1 {
			servers = append(servers, strings.TrimSuffix(line, `\n`))
			return "\x00"
		}
		role, peers, clients := s.roles[id-1], m[2], m[3]
		host, port, _ := strings.Cut(strings.Split(s.ens.Servers(), ",")[id-1], ":")
		peers = regexp.MustCompile(regexp.QuoteMeta(host)+`:\d+:\d+`).ReplaceAllString(peers, "its:ports")
		clients = strings.ReplaceAll(strings.ReplaceAll(clients, host, "host"), port, "port")
		servers = append(servers, fmt.Sprintf("%s=%s;%s", role, peers, clients))
		return "\x00"
	})
	slices.Sort(servers)
	text = strings.Replace(text, "\x00", strings.Join(servers, " "), 1)
	text = strings.ReplaceAll(text, "\x00", "")
	text = versionLine.ReplaceAllStringFunc(text, func(v string) string {
		n, _ := strconv.ParseInt(strings.TrimPrefix(v, "version="), 16, 64)
		return " version " + s.log.zxid(n)
	})
	return length.ReplaceAllString(text, " ")
}

// each calls f for each member.
func (s *reconfigurer) each(f func(*peer)) {
	for _, role := range []string{"leader", "second", "third", "fourth", "new"} {
		if at := s.member(role); at >= 0 {
			f(s.peers[at])
		}
	}
}

// shown writes down what each member shows.
func (s *reconfigurer) shown() {
	s.t.Helper()
	s.each(func(p *peer) {
		p.do(wire.OpSync, &wire.PathRequest{Path: "/"})
		s.do(p, wire.OpGetData, look("/zookeeper/config", false))
	})
}

func (s *reconfigurer) whoMay() {
	s.do(s.a, wire.OpGetACL, &wire.PathRequest{Path: "/zookeeper/config"})
	s.reconfig(s.a, "by anyone", leaving("99"))
	s.reconfig(s.a, "by anyone, another version", &wire.ReconfigRequest{Leaving: []byte("99"), Version: 7})
	s.reconfig(s.a, "by anyone, a bad number", leaving("x"))
	s.reconfig(s.a, "by anyone, a bad server", joining("nonsense"))
	s.each(func(p *peer) { p.ok(wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte(apache.SuperUser)}) })
	s.reconfig(s.a, "by the super user", leaving("99"))
	s.shown()
}

func (s *reconfigurer) refused() {
	for _, line := range []string{
		"nonsense", "server.7=10.0.0.1:1:2", "server.7=10.0.0.1:1:2:participant", "server.7=10.0.0.1:1:2:participant;",
		"server.x=10.0.0.1:1:2:participant;3", "server.7=10.0.0.1:1:2:participant;3=5", "server.7=10.0.0.1:1:2:boss;3",
		"server.7=10.0.0.1:1:1:participant;3", "server.7=10.0.0.1:1:2:participant;10.0.0.1:70000", "server.7=10.0.0.1:1:2;x",
		"server.7=10.0.0.1:x:2:participant;3", "server.7=10.0.0.1:1:2 ; 3", "server.7=10.0.0.1:1;3", "server.7=10.0.0.1:1:2:participant:4;3",
		"server.7=10.0.0.1:1:2;10.0.0.1:3:4",
		"server.7=10.0.0.1:1:2;3,server.8=10.0.0.2:1:2;3,server.9=10.0.0.3:1:2;3,server.10=10.0.0.4:1:2;3", // no majority in step
	} {
		s.reconfig(s.a, "joining "+line, joining(line))
	}
	for _, ids := range []string{"x", "9x", "server.1", "1.5", "1,2,3", "1,2,3,4"} {
		s.reconfig(s.a, "leaving "+ids, leaving(ids))
	}
	for _, lines := range []string{
		"", "gibberish", "x=y", "server.x=10.0.0.1:1:2;3", "server.7=10.0.0.1:1:2;3", "server.7=10.0.0.1:1:2:observer;3",
		"server.7=10.0.0.1:1:2;3,server.8=10.0.0.2:1:2;3,x=y", "server.7=10.0.0.1:1:2;3,server.8=10.0.0.2:1:2;3", // no majority in step
	} {
		s.reconfig(s.a, "whole "+lines, whole(lines))
	}
	s.shown()
}

func (s *reconfigurer) oddServers() {
	for _, line := range []string{
		",", "server.7=10.0.0.1:1:2;3", " x.7 = 10.0.0.1:1:2:Observer;10.0.0.2:3 , ", "7=[::1]:1:2;[::]:3",
		"server.7=10.0.0.1:1:2;3,server.7=10.0.0.3:4:5;10.0.0.4:6", "server.70=10.0.0.1:1:2:observer;0",
	} {
		s.reconfig(s.a, "joining "+line, joining(line))
	}
	s.reconfig(s.a, "both", &wire.ReconfigRequest{Joining: []byte("server.8=10.0.0.1:1:2;3"), Leaving: []byte(" 7,,70,99 "), Version: -1})
	s.reconfig(s.a, "leaving, and an empty list", &wire.ReconfigRequest{Joining: []byte{}, Leaving: []byte("8"), Version: -1})
	s.reconfig(s.a, "nothing", leaving(""))
	s.reconfig(s.a, "null", &wire.ReconfigRequest{Version: -1})
	s.shown()
}

func (s *reconfigurer) whole() {
	all := strings.Join(s.lines[:len(s.roles)], "\n")
	s.reconfig(s.a, "whole", whole(all+"\n\n# comment\nversion=77\n"))
	s.reconfig(s.a, "without addresses for clients", whole(regexp.MustCompile(`(?m);.*$`).ReplaceAllString(all, "")))
	s.shown()
	var present int64
	_, err := fmt.Sscanf(versionLine.FindString(s.config(s.a)), "version=%x", &present)
	must(s.t, err)
	s.reconfig(s.a, "with the version", &wire.ReconfigRequest{Members: []byte(strings.ReplaceAll(all, "\n", ",")), Version: present})
	s.reconfig(s.a, "with an old version", &wire.ReconfigRequest{Members: []byte(all), Version: present})
	s.shown()
}

func (s *reconfigurer) watchedConfig() {
	s.each(func(p *peer) { s.do(p, wire.OpGetData, look("/zookeeper/config", true)) })
	recursive := s.peerAt("R", s.member("third"))
	recursive.do(wire.OpAddWatch, addWatch("/zookeeper", wire.WatchPersistentRecursive))
	once := s.peerAt("O", s.member("third"))
	s.do(once, wire.OpExists, look("/zookeeper/config", true))
	s.reconfig(s.a, "watched", leaving("99"))
	s.shown()
	for _, p := range []*peer{recursive, once} {
		p.do(wire.OpSync, &wire.PathRequest{Path: "/"})
		p.do(wire.OpCloseSession, nil)
	}
}

// written has the super user write the znode, which changes no configuration.
func (s *reconfigurer) written() {
	s.do(s.a, wire.OpSetData, set("/zookeeper/config", "x", 5))
	s.do(s.a, wire.OpSetData, set("/zookeeper/config", "x", -1))
	s.shown()
	s.reconfig(s.a, "after a write", leaving("99"))
	may := func(perms int32) *wire.SetACLRequest {
		return &wire.SetACLRequest{Path: "/zookeeper/config", ACL: acl(perms, "world", "anyone"), Version: -1}
	}
	s.do(s.a, wire.OpSetACL, may(wire.PermRead|wire.PermWrite))
	s.settle()
	plain := s.peerAt("P", s.member("third"))
	s.reconfig(plain, "by anyone who may write", leaving("99"))
	s.do(plain, wire.OpSetACL, may(wire.PermRead))
	s.do(s.a, wire.OpSetACL, may(wire.PermRead))
	s.settle()
	s.reconfig(plain, "by anyone again", leaving("99"))
	plain.do(wire.OpCloseSession, nil)
	s.a.do(wire.OpDelete, version("/zookeeper/config", -1))
	s.shown()
}

// leaving removes a member, which goes on as a follower, and adds it again.
func (s *reconfigurer) leaving() {
	id := s.id("second")
	s.reconfig(s.a, "the second leaves", leaving(id))
	s.shown()
	s.mode("second")
	s.b.do(wire.OpCreate, create("/by the removed", "", 0))
	s.reconfig(s.a, "the second joins", joining(s.line("second")))
	s.shown()
	s.reconfig(s.a, "it leaves and joins", &wire.ReconfigRequest{Leaving: []byte(id), Joining: []byte(s.line("second")), Version: -1})
	s.reconfig(s.peers[s.member("third")], "it leaves", leaving(id))
	s.shown()
}

func (s *reconfigurer) newMember() {
	member, err := s.ens.AddMember(s.within())
	must(s.t, err)
	s.roles = append(s.roles, "new")
	s.peers = append(s.peers, s.peerAt("new", member))
	s.rebase()
	s.mode("new")
	s.shown()
	s.peers[member].do(wire.OpCreate, create("/by the new", "", 0))
	must(s.t, s.ens.RemoveMember(s.within(), s.member("third")))
	s.rebase()
	s.shown()
	if err := s.ens.RemoveMember(s.within(), len(s.roles)); err == nil {
		s.t.Error("removed a member that is not there")
	}
}

func (s *reconfigurer) leaderLeaves() {
	must(s.t, s.ens.RemoveMember(s.within(), s.member("leader")))
	for _, p := range s.peers {
		p.ended()
	}
	ctx := s.within()
	for s.ens.Leader() < 0 || s.ens.WaitServing(ctx) != nil {
		must(s.t, ctx.Err())
		time.Sleep(50 * time.Millisecond)
	}
	for member, role := range s.roles {
		s.peers[member] = s.peerAt(role, member)
	}
	s.rebase()
	s.shown()
	s.mode("leader")
	if now := s.roles[s.ens.Leader()]; now != "new" && now != "fourth" {
		s.t.Errorf("%s leads", now)
	}
}

// ended reads until the connection ends.
func (p *peer) ended() {
	p.t.Helper()
	for began := time.Now(); ; {
		if _, _, err := p.next(); err != nil && !isTimeout(err) {
			return
		} else if time.Since(began) > patience {
			p.t.Fatalf("%s is still connected", p.name)
		}
	}
}

func (s *reconfigurer) mode(role string) {
	mode := regexp.MustCompile(`Mode: \w+`).FindString(askWord(s.t, s.ens, s.member(role), "srvr"))
	s.log.add("%s %s", role, mode)
}

func (s *reconfigurer) within() context.Context {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	s.t.Cleanup(cancel)
	return ctx
}
