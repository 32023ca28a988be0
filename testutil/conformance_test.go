package testutil_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The conformance script is one sequence of frames. testdata/conformance.txt
// holds the answers of Apache ZooKeeper 3.8, and the embedded ensemble has to
// answer the same, frame by frame. With ZKR_REAL=1 the real server is asked
// again; -record writes its answers down.
var record = flag.Bool("record", false, "write what the real server answers to testdata")

const recorded = "testdata/conformance.txt"

func TestConformance(t *testing.T) {
	for name, opts := range map[string][]testutil.Option{
		"one member over TCP":   {},
		"one member in memory":  {testutil.InMemory()},
		"three over TCP":        {testutil.WithMembers(3)},
		"three in memory":       {testutil.WithMembers(3), testutil.InMemory()},
		"three, through a pipe": {testutil.WithMembers(3)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := testutil.Start(t, append(opts, older()...)...)
			var ens testutil.Ensemble = e
			if strings.Contains(name, "pipe") {
				ens = piped{e}
			}
			compare(t, conformance(t, ens))
		})
	}
}

// TestConformanceInBubble runs the script in virtual time.
func TestConformanceInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		compare(t, conformance(t, testutil.Start(t, append(older(), testutil.InMemory())...)))
		if took := time.Since(began); took != 0 {
			t.Errorf("the script took %v", took)
		}
	})
}

// TestConformanceOfASlowServer runs the script on a server that freezes at the
// worst times: while another client has events to read, and while sessions
// exist whose end would be visible.
func TestConformanceOfASlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := testutil.Start(t, append(older(), testutil.InMemory())...)
		for _, slow := range []*testutil.Fault{
			testutil.NewFault(testutil.Match{Op: testutil.OpDelete, Path: "/lasting/x"}, testutil.Delay(1500*time.Millisecond)),
			testutil.NewFault(testutil.Match{Op: testutil.OpCreate, Path: "/a/z-"}, testutil.Delay(4*time.Second)),
		} {
			defer e.Control(slow.Control)()
			defer func() {
				if slow.Count() != 1 {
					t.Errorf("it stood still %d times, not once", slow.Count())
				}
			}()
		}
		compare(t, conformance(t, e))
	})
}

// TestConformanceOfTheRealServer runs the script on the real server.
func TestConformanceOfTheRealServer(t *testing.T) {
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d members", members), func(t *testing.T) {
			lines := conformance(t, apache.Start(t, members,
				apache.WithTick(time.Second), apache.WithSessionTimeouts(2*time.Second, 20*time.Second)))
			if *record && members == 1 {
				if err := os.WriteFile(recorded, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			compare(t, lines)
		})
	}
}

// older makes the embedded ensemble answer like the release on which the script
// was recorded.
func older() []testutil.Option {
	return []testutil.Option{testutil.WithTick(time.Second), testutil.WithExtendedTypes(), testutil.WithExistsWithoutRead()}
}

func compare(t *testing.T, got []string) {
	t.Helper()
	b, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"))
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("line %d:\n got %s\nwant %s", i+1, g, w)
			if i >= len(got) || i >= len(want) {
				return
			}
		}
	}
}

// piped is an ensemble that is reached through a ClientNet.
type piped struct{ *testutil.Embedded }

func (p piped) Dial(network, address string, timeout time.Duration) (c netConn, err error) {
	return p.ClientNet("script").Dial(network, address, timeout)
}

var anyone = []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "world", ID: "anyone"}}}

func create(path, data string, mode int32) *wire.CreateRequest {
	return &wire.CreateRequest{Path: path, Data: []byte(data), ACL: anyone, Mode: mode}
}

func look(path string, watch bool) *wire.WatchRequest {
	return &wire.WatchRequest{Path: path, Watch: watch}
}

func version(path string, v int32) *wire.VersionRequest {
	return &wire.VersionRequest{Path: path, Version: v}
}

func set(path, data string, v int32) *wire.SetDataRequest {
	return &wire.SetDataRequest{Path: path, Data: []byte(data), Version: v}
}

func multi(ops ...wire.MultiOp) *wire.MultiRequest { return &wire.MultiRequest{Ops: ops} }

// patience limits how long an answer may take. It is also the timeout of the
// script's sessions, none of which may expire, however slow the machine.
const patience = 20 * time.Second

// script is shared by the parts of the conformance script.
type script struct {
	t    *testing.T
	ens  testutil.Ensemble
	log  *transcript
	a, b *peer
}

func conformance(t *testing.T, ens testutil.Ensemble) []string {
	s := &script{t: t, ens: ens, log: &transcript{sessions: map[int64]string{0: "nobody"}}}
	s.a = s.peer("A", patience)
	s.a.send(wire.OpPing, nil)
	head, _, err := s.a.next()
	if err != nil {
		t.Fatal(err)
	}
	s.log.base = head.Zxid
	s.b = s.peer("B", patience)
	for _, part := range []struct {
		name string
		run  func()
	}{
		{"fresh", s.fresh},
		{"creates", s.creates},
		{"kinds", s.kinds},
		{"counters", s.counters},
		{"data", s.data},
		{"deletes", s.deletes},
		{"multis", s.multis},
		{"watches", s.watches},
		{"set watches", s.setWatches},
		{"permissions", s.permissions},
		{"authentication", s.authentication},
		{"multis that build on themselves", s.dependentMultis},
		{"times to live", s.timesToLive},
		{"lasting watches", s.lastingWatches},
		{"recursive watches", s.recursiveWatches},
		{"kinds of watches on one path", s.kindsOfWatches},
		{"removed watches", s.removedWatches},
		{"set watches that last", s.setWatches2},
		{"hidden events", s.hiddenEvents},
		{"other reads", s.otherReads},
		{"several reads", s.multiReads},
		{"odd requests", s.odd},
		{"odd bodies", s.oddBodies},
		{"watches below a tree", s.watchesBelowATree},
		{"set watches on what is watched", s.keptWatches},
		{"sessions", s.sessions},
		{"endings", s.endings},
		{"new sessions", s.newSessions},
	} {
		s.log.add("# %s", part.name)
		part.run()
	}
	return s.log.lines
}

func (s *script) peer(name string, timeout time.Duration) *peer {
	s.t.Helper()
	nudged := make(chan struct{})
	nudge := time.AfterFunc(time.Second, func() {
		defer close(nudged)
		s.nudge(nil)
	})
	p := newPeer(s.t, name, s.dial(), timeout, s.log)
	if !nudge.Stop() {
		<-nudged
	}
	p.stalled = func() { s.nudge(p) }
	return p
}

// nudge makes a client other than p send something: a replicated server may
// hold an answer back until then.
func (s *script) nudge(p *peer) {
	for _, other := range []*peer{s.a, s.b} {
		if other != nil && other != p {
			stalled := other.stalled
			other.stalled = nil // one nudge is enough
			other.nudge()
			other.stalled = stalled
			return
		}
	}
}

// settle waits until all members have applied the same transactions. A real
// leader answers for its followers before it has applied a new access control
// list, and checks writes by the old list until then.
func (s *script) settle() {
	s.t.Helper()
	zxid := regexp.MustCompile(`(?m)^Zxid: (\S+)$`)
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		applied := map[string]bool{}
		for member := range s.ens.Members() {
			if m := zxid.FindStringSubmatch(askWord(s.t, s.ens, member, "srvr")); m != nil {
				applied[m[1]] = true
			}
		}
		if len(applied) == 1 {
			return
		}
		if time.Since(began) > patience {
			s.t.Fatalf("the members have applied up to %v", applied)
		}
	}
}

func (s *script) dial() netConn {
	s.t.Helper()
	first, _, _ := strings.Cut(s.ens.Servers(), ",")
	nc, err := s.ens.Dial("tcp", first, 5*time.Second)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { nc.Close() })
	return nc
}

func (s *script) fresh() {
	for _, path := range []string{"/", "/zookeeper", "/zookeeper/quota"} {
		s.a.do(wire.OpExists, look(path, false))
		s.a.do(wire.OpGetChildren2, look(path, false))
		s.a.do(wire.OpGetACL, &wire.PathRequest{Path: path})
	}
	s.a.do(wire.OpGetData, look("/", false))
}

func (s *script) creates() {
	s.a.do(wire.OpCreate, create("/a", "data", 0))
	s.a.do(wire.OpExists, look("/", false))
	s.a.do(wire.OpCreate, create("/a", "data", 0))
	s.a.do(wire.OpExists, look("/a", false))
	s.a.do(wire.OpCreate, create("/none/a", "", 0))
	s.a.do(wire.OpPing, nil)
	for _, path := range []string{
		"", "/", "a", "/x/", "/a//b", "/a/.", "/a/../b", "/a/\x00", "/a/\x01b", "/a/\u007f", "/a/\ufff0", "/a/\U0001f511", "/a/ü", "/ ", "/a/b/",
	} {
		s.a.do(wire.OpCreate, create(path, "", 0))
	}
	s.a.do(wire.OpCreate, create("/a/\x02-", "", 2))
	s.a.do(wire.OpCreate, create("/a/", "", 2))
	s.a.do(wire.OpCreate, create("/", "", 2))
	for _, mode := range []int32{-1, 7, 99} {
		s.a.do(wire.OpCreate, create("/m", "", mode))
	}
	s.a.do(wire.OpCreate, &wire.CreateRequest{Path: "/null", ACL: anyone})
	s.a.do(wire.OpGetData, look("/null", false))
	s.a.do(wire.OpCreate, create("/empty", "", 0))
	s.a.do(wire.OpGetData, look("/empty", false))
}

func (s *script) kinds() {
	s.a.do(wire.OpCreate2, create("/e", "mine", 1))
	s.a.do(wire.OpCreate, create("/e/below", "", 0))
	s.a.do(wire.OpCreate2, create("/a/s-", "", 2))
	s.a.do(wire.OpCreate2, create("/a/s-", "", 3))
	s.b.do(wire.OpCreate2, create("/a/t-", "", 3))
	s.a.do(wire.OpGetChildren, look("/a", false))
	s.a.do(wire.OpCreateContainer, create("/c", "", 4))
	s.a.do(wire.OpCreateContainer, create("/c", "", 4))
	s.a.do(wire.OpCreateContainer, create("/c0", "", 0))
	s.a.do(wire.OpExists, look("/c0", false))
	s.a.do(wire.OpCreate2, create("/c/below", "", 0))
	s.a.do(wire.OpExists, look("/c", false))
	s.a.do(wire.OpDelete, version("/c/below", -1))
	s.a.do(wire.OpDelete, version("/c", 0))
	s.a.do(wire.OpDelete, version("/c0", 0))
}

func (s *script) counters() {
	s.a.do(wire.OpCreate, create("/q", "", 0))
	for range 3 {
		s.a.do(wire.OpCreate, create("/q/n-", "", 2))
	}
	s.a.do(wire.OpDelete, version("/q/n-0000000001", -1))
	s.a.do(wire.OpGetChildren2, look("/q", false))
	s.a.do(wire.OpCreate, create("/q/plain", "", 0))
	s.a.do(wire.OpCreate, create("/q/n-", "", 2))
	s.a.do(wire.OpSetData, set("/q", "x", -1))
	s.a.do(wire.OpCreate, create("/q/plain", "", 0)) // fails: the counter must not change
	s.a.do(wire.OpCreate, create("/q/n-", "", 2))
	s.a.do(wire.OpGetChildren2, look("/q", false))
}

func (s *script) data() {
	s.a.do(wire.OpSetData, set("/a", "one", 0))
	s.a.do(wire.OpSetData, set("/a", "two", 0))
	s.a.do(wire.OpSetData, set("/a", "two", -1))
	s.a.do(wire.OpSetData, set("/none", "two", -1))
	s.a.do(wire.OpSetData, set("relative", "two", -1))
	s.a.do(wire.OpSetData, set("/a", "", 2))
	s.a.do(wire.OpGetData, look("/a", false))
	s.a.do(wire.OpGetData, look("/none", false))
	s.a.do(wire.OpGetData, look("", false))
	s.a.do(wire.OpGetData, look("relative", false))
	s.a.do(wire.OpExists, look("/none", false))
	s.a.do(wire.OpGetChildren, look("/none", false))
	s.a.do(wire.OpGetChildren2, look("/none", false))
	s.a.do(wire.OpSync, &wire.PathRequest{Path: "/a"})
	s.a.do(wire.OpSync, &wire.PathRequest{Path: "/none"})
	s.a.do(wire.OpSync, &wire.PathRequest{Path: ""})
	s.a.do(wire.OpPing, nil)
}

func (s *script) deletes() {
	s.a.do(wire.OpDelete, version("/none", -1))
	s.a.do(wire.OpDelete, version("/none/below", -1))
	s.a.do(wire.OpDelete, version("/a", -1))
	s.a.do(wire.OpDelete, version("/a", 99))
	s.a.do(wire.OpDelete, version("/q/plain", 1))
	for _, path := range []string{"/", "/zookeeper", "/zookeeper/quota", "relative", "", "/a/", "/q/\x00"} {
		s.a.do(wire.OpDelete, version(path, -1))
	}
	s.a.do(wire.OpDelete, version("/null", 0))
	s.a.do(wire.OpExists, look("/null", false))
	s.a.do(wire.OpDelete, version("/null", 0))
}

func (s *script) multis() {
	mc := func(path string, mode int32) wire.MultiOp {
		return wire.MultiOp{Op: wire.OpCreate, Request: create(path, "m", mode)}
	}
	mc2 := func(path string) wire.MultiOp { return wire.MultiOp{Op: wire.OpCreate2, Request: create(path, "m", 0)} }
	container := func(path string) wire.MultiOp {
		return wire.MultiOp{Op: wire.OpCreateContainer, Request: create(path, "", 4)}
	}
	md := func(path string, v int32) wire.MultiOp {
		return wire.MultiOp{Op: wire.OpDelete, Request: version(path, v)}
	}
	ms := func(path string, v int32) wire.MultiOp {
		return wire.MultiOp{Op: wire.OpSetData, Request: set(path, "ms", v)}
	}
	check := func(path string, v int32) wire.MultiOp {
		return wire.MultiOp{Op: wire.OpCheck, Request: version(path, v)}
	}

	s.a.do(wire.OpMulti, multi())
	s.a.do(wire.OpMulti, multi(mc("/u", 0), mc("/u/s-", 2), mc("/u/s-", 3), ms("/u", 0), ms("/u", 1), check("/u", 2), mc2("/u/two")))
	s.a.do(wire.OpGetChildren2, look("/u", false))
	s.a.do(wire.OpMulti, multi(md("/u/two", 0), mc2("/u/two"), md("/u/two", 0)))
	s.a.do(wire.OpGetChildren2, look("/u", false))
	s.a.do(wire.OpMulti, multi(mc("/v", 0), mc("/v/w", 0), check("/none", 0), mc("/v/x", 0), md("/u", -1)))
	s.a.do(wire.OpExists, look("/v", false))
	s.a.do(wire.OpMulti, multi(check("/u", 0), mc("/v", 0)))
	s.a.do(wire.OpMulti, multi(mc("/v", 0), mc("/v", 0)))
	s.a.do(wire.OpMulti, multi(mc("/v", 0), md("/u", 2)))
	s.a.do(wire.OpMulti, multi(mc("/v", 0), md("/v", 0), check("/v", 0)))
	s.a.do(wire.OpMulti, multi(check("/u", -1)))
	s.a.do(wire.OpMulti, multi(check("/none", -1)))
	s.a.do(wire.OpMulti, multi(container("/k"), mc("/k/x", 0), md("/k/x", 0), md("/k", 0)))
	s.a.do(wire.OpMulti, multi(mc("relative", 0)))
	s.a.do(wire.OpMulti, multi(mc("/v/", 0), mc("/v", 99)))
	s.a.do(wire.OpMulti, multi(mc("/v", 99)))
	s.a.do(wire.OpMulti, multi(mc("/k", 4), md("/k", -1)))
	s.a.do(wire.OpMulti, multi(mc("/e/below", 0)))
	s.a.do(wire.OpPing, nil)
}
