package testutil_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// The wire client's parser of srvr could not read the embedded ensemble's
// answer, and other answers differed from the real server's too: cons lacked
// half of its columns, dump had another form, and wchs counted too much.
// So every word is sent to real servers, with one member and with three, and
// the answers are recorded line by line, with numbers masked.
const recordedWords = "testdata/words.txt"

// The wire client's own functions can read the embedded server's four-letter
// words.
func TestWords(t *testing.T) {
	var got []string
	for _, members := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			e := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(members), testutil.WithTick(time.Second))
			got = append(got, allWords(t, e)...)
		})
	}
	same(t, got, recordedLines(t, recordedWords))
}

func TestWordsOnTheRealServer(t *testing.T) {
	var got []string
	for _, members := range []int{1, 3} {
		got = append(got, allWords(t, apache.Start(t, members, apache.WithTick(time.Second)))...)
	}
	if *record {
		must(t, os.WriteFile(recordedWords, []byte(strings.Join(got, "\n")+"\n"), 0o644))
	}
	same(t, got, recordedLines(t, recordedWords))
}

var everyWord = []string{
	"ruok", "isro", "srvr", "stat", "mntr", "envi", "conf", "cons", "wchs", "wchc", "wchp", "dump", "dirs", "crst", "srst",
}

// moved matches a dump that lists when sessions end before a session gets more
// time, and the sessions behind that: so the real server shows none.
var moved = regexp.MustCompile(`(?m)^0 expire at`)

// allWords sends every word to a leader, to a follower, and to a member that
// does not serve.
func allWords(t *testing.T, ens testutil.Ensemble) []string {
	s := &script{t: t, ens: ens, log: &transcript{sessions: map[int64]string{}}}
	p := s.peer("P", patience)
	p.ok(wire.OpCreate, create("/e", "data", 1))
	p.ok(wire.OpCreate, create("/f", "", 1))
	p.ok(wire.OpGetData, look("/e", true))
	p.code(wire.OpExists, look("/none", true))
	p.ok(wire.OpGetChildren, look("/", true))
	p.ok(wire.OpPing, nil)
	var lines []string
	ask := func(title string, member int) {
		for _, word := range everyWord {
			answer := ""
			bubble.AwaitTrue(t, word, func() bool {
				answer = askWord(t, ens, member, word)
				return word != "dump" || !moved.MatchString(answer)
			})
			lines = append(lines, fmt.Sprintf("# %s: %s", title, word))
			lines = append(lines, shape(word, answer)...)
		}
	}
	lead := ens.Leader()
	if ens.Members() == 1 {
		ask("standalone", 0)
		return lines
	}
	// The first member has the client. Of the others one leads, or both
	// follow.
	if lead == 0 {
		t.Fatal("the member that the client is at leads")
	}
	ask("follower", 0)
	ask("leader", lead)
	must(t, ens.Stop(1))
	must(t, ens.Stop(2))
	bubble.AwaitTrue(t, "the member gives up", func() bool { return askWord(t, ens, 0, "isro") == "null" })
	ask("looking", 0)
	return lines
}

// exact matches the lines whose numbers must agree.
var exact = regexp.MustCompile(`^(Mode|Node count|Zxid|zk_(znode|ephemerals|watch|packets|quorum|synced|learners|global|approx)|Total watches|.*watching|.*Ephemerals|Global Sessions|tickTime)`)

var masks = []struct {
	find *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\d\.\d\.\d-\S+, built on \S+ \d\d:\d\d`), "VERSION"},
	{regexp.MustCompile(`[A-Z][a-z][a-z] [A-Z][a-z][a-z] \d\d \d\d:\d\d:\d\d [A-Z]+ \d{4}`), "DATE"},
	{regexp.MustCompile(`0x[0-9a-f]+`), "HEX"},
	{regexp.MustCompile(`(127\.0\.0\.1|member\d|pipe):\d+`), "ADDRESS"},
	{regexp.MustCompile(`-?\d+(\.\d+)?`), "N"},
}

// shape removes from an answer what differs from run to run. Of mntr it keeps
// the lines that the embedded ensemble has, and of envi the keys.
func shape(word, answer string) []string {
	var lines []string
	section := ""
	for _, line := range strings.Split(strings.TrimSuffix(answer, "\n"), "\n") {
		key, _, _ := strings.Cut(line, "=")
		key, _, _ = strings.Cut(key, "\t")
		switch {
		case word == "envi":
			line = key
		case word == "mntr" && !slices.Contains(monitored, key):
			continue
		case strings.HasPrefix(line, "data"):
			line = key
		case strings.HasPrefix(line, "server."):
			line = "server.N"
		case strings.HasPrefix(key, "zk_packets"), strings.HasPrefix(key, "zk_approx"):
			line = key
		}
		for _, m := range masks {
			if m.with != "N" || !exact.MatchString(line) {
				line = m.find.ReplaceAllString(line, m.with)
			}
		}
		// The number of sets, and whether empty ones are listed,
		// depends on the moment.
		if line != "N expire at DATE:" || !slices.Contains(lines[slices.Index(lines, section)+1:], line) {
			lines = append(lines, line)
		}
		if strings.Contains(line, " Sets (") {
			section = line
		}
	}
	if word == "mntr" {
		slices.Sort(lines)
	}
	if word == "cons" || word == "stat" || word == "dump" {
		slices.SortStableFunc(lines, func(a, b string) int { // connections come in any order
			if strings.HasPrefix(a, " /") && strings.HasPrefix(b, " /") {
				return len(b) - len(a)
			}
			return 0
		})
	}
	return lines
}

// monitored are the keys of mntr that the embedded ensemble has.
var monitored = strings.Fields(`zk_version zk_server_state zk_peer_state zk_quorum_size zk_ephemerals_count zk_num_alive_connections
	zk_min_latency zk_avg_latency zk_max_latency zk_outstanding_requests zk_znode_count zk_global_sessions zk_local_sessions
	zk_packets_received zk_packets_sent zk_watch_count zk_approximate_data_size zk_uptime zk_learners zk_synced_followers
	zk_synced_non_voting_followers zk_synced_observers zk_pending_syncs This`)

// The wire client's functions can read a member's answers. They treat the line
// of the asking connection as an error, on every server.
func TestWordsAsTheWireClientReadsThem(t *testing.T) {
	for name, ens := range map[string]func(t *testing.T) testutil.Ensemble{
		"embedded": func(t *testing.T) testutil.Ensemble { return testutil.Start(t, testutil.WithMembers(3)) },
		"real":     func(t *testing.T) testutil.Ensemble { return apache.Start(t, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			e := ens(t)
			c := wireClient(t, e.Servers(), e.Dial, 10*time.Second)
			_, err := c.Create("/n", nil, 0, anyACL)
			must(t, err)
			servers := strings.Split(e.Servers(), ",")
			for i, ok := range zk.FLWRuok(servers, patience) {
				if !ok {
					t.Errorf("member %d is not well", i)
				}
			}
			clients, _ := zk.FLWCons(servers, patience)
			var found []*zk.ServerClient
			for _, s := range clients {
				found = append(found, s.Clients...)
			}
			if len(found) != 1 || found[0].SessionID != c.SessionID() || found[0].LastOperation == "NA" || found[0].Timeout != 10000 ||
				found[0].Received < 2 || found[0].Lcxid < 1 {
				t.Errorf("%d clients, the first is %+v", len(found), found[0])
			}
			if name == "real" {
				return // its build date has another form
			}
			stats, ok := zk.FLWSrvr(servers, patience)
			if !ok {
				t.Error("srvr cannot be read")
			}
			for i, s := range stats {
				mode := zk.ModeFollower
				if i == e.Leader() {
					mode = zk.ModeLeader
				}
				if s.Error != nil || s.Mode != mode || s.NodeCount != 6 || s.Epoch != 1 || s.Counter != 2 || s.BuildTime.IsZero() {
					t.Errorf("member %d: %+v", i, s)
				}
			}
		})
	}
}
