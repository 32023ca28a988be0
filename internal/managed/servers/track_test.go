package servers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/zkrecipes/zkrecipes/internal/managed/serverlist"
)

// What members show counts together for an hour at one version. A later version
// replaces it, an earlier one does only in another history.
func TestWhatMembersShow(t *testing.T) {
	type step struct {
		after   time.Duration
		names   string
		version int64
		anew    bool
		history int
		how     serverlist.Change
		all     string
	}
	for name, steps := range map[string][]step{
		"files that differ": {
			{0, "a b", 0, false, 0, serverlist.SameVersion, "a b"},
			{time.Minute, "b c", 0, false, 0, serverlist.SameVersion, "a b c"},
			{59 * time.Minute, "b c", 0, false, 0, serverlist.SameVersion, "a b c"},
			{time.Minute, "b c", 0, false, 0, serverlist.SameVersion, "b c"},
		},
		"the latest one stays": {{0, "a b", 0, false, 0, serverlist.SameVersion, "a b"}, {100 * time.Hour, "c", 0, false, 0, serverlist.SameVersion, "a b c"}},
		"a later version":      {{0, "a b", 0, false, 0, serverlist.SameVersion, "a b"}, {0, "c", 7, false, 0, serverlist.LaterVersion, "c"}, {0, "d", 7, false, 0, serverlist.SameVersion, "c d"}},
		"a member that lags":   {{0, "a b", 7, false, 0, serverlist.SameVersion, "a b"}, {0, "a", 6, false, 0, serverlist.Older, "a b"}, {0, "c", 7, true, 0, serverlist.SameVersion, "a b c"}},
		"another ensemble":     {{0, "a b", 0, false, 0, serverlist.SameVersion, "a b"}, {0, "c", 0, false, 1, serverlist.SameVersion, "c"}, {0, "d", 0, false, 1, serverlist.SameVersion, "c d"}},
		"a lagging ensemble":   {{0, "a b", 7, false, 0, serverlist.SameVersion, "a b"}, {0, "a", 6, false, 1, serverlist.Older, "a b"}, {0, "c", 7, false, 1, serverlist.SameVersion, "c"}},
		"another history":      {{0, "a b", 7, false, 0, serverlist.SameVersion, "a b"}, {0, "a", 6, true, 0, serverlist.AnotherHistory, "a"}, {0, "b", 7, false, 0, serverlist.LaterVersion, "b"}},
	} {
		now := time.Now()
		var tr tracked
		for i, s := range steps {
			now = now.Add(s.after)
			how := tr.add(strings.Fields(s.names), s.version, s.history, s.anew, now)
			if got := strings.Join(tr.all(now), " "); how != s.how || got != s.all {
				t.Errorf("%s, step %d: %d, %s", name, i+1, how, got)
			}
		}
	}
	var tr tracked
	now := time.Now()
	for i := range 20 { // members that each show others
		var names []string
		for j := range 200 {
			names = append(names, fmt.Sprintf("m%d-%d:1", i, j))
		}
		tr.add(names, 0, 0, false, now.Add(time.Duration(i)*time.Second))
		all := tr.all(now)
		if len(all) > serverlist.MostMembers || !slices.Contains(all, names[0]) || i > 0 && !slices.ContainsFunc(all, func(n string) bool { return strings.HasPrefix(n, fmt.Sprintf("m%d-", i-1)) }) {
			t.Errorf("%d members after %d configs", len(all), i+1)
		}
	}
}

// A client leaves a member that was removed, even a given one, and no other
// server.
func TestStandingWithMembers(t *testing.T) {
	at := func(a string) Server { return Server{Name: a, Address: a} }
	s := New(Config{Names: []string{"a:1", "lb:1"}, Timeout: time.Second, Dial: (&answering{}).dial, Log: zap.NewNop()}, nil, nil, nil)
	set := func(how serverlist.Change, names ...string) { s.list.SetMembers(names, nil, how) }
	check := func(what string, want map[string]serverlist.Standing) {
		t.Helper()
		for a, standing := range want {
			if got := s.Standing(at(a)); got != standing {
				t.Errorf("%s: %s: %v, want %v", what, a, got, standing)
			}
		}
	}
	set(serverlist.SameVersion, "a:1", "b:1", "c:1")
	check("at first", map[string]serverlist.Standing{"a:1": serverlist.Stays, "lb:1": serverlist.Stays, "b:1": serverlist.Stays, "c:1": serverlist.Stays})
	set(serverlist.LaterVersion, "c:1", "d:1")
	check("after a change", map[string]serverlist.Standing{"a:1": serverlist.Leaves, "lb:1": serverlist.Stays, "b:1": serverlist.Leaves, "c:1": serverlist.Stays, "d:1": serverlist.Stays})
	for range 10 {
		var to []string
		for _, one := range s.list.Candidates(at("a:1")) {
			to = append(to, one.Name)
			if !one.IsDoubtful() {
				t.Errorf("%+v", one)
			}
		}
		if slices.Sort(to); !slices.Equal(to, []string{"c:1", "d:1", "lb:1"}) {
			t.Errorf("may move to %v", to)
		}
	}
	set(serverlist.SameVersion, "c:1") // an hour later
	check("after an hour", map[string]serverlist.Standing{"d:1": serverlist.Stays, "a:1": serverlist.Leaves})
	set(serverlist.LaterVersion, "a:1", "c:1")
	check("when it has come back", map[string]serverlist.Standing{"a:1": serverlist.Stays, "b:1": serverlist.Leaves})
	set(serverlist.AnotherHistory, "c:1")
	check("in another history", map[string]serverlist.Standing{"a:1": serverlist.Stays, "b:1": serverlist.Stays})
	if err := s.Replace(t.Context(), []string{"z:1"}, at("c:1")); err != nil {
		t.Fatal(err)
	}
	check("when the list was replaced", map[string]serverlist.Standing{"a:1": serverlist.Leaves, "c:1": serverlist.Stays, "z:1": serverlist.Stays})
	if all, _ := s.Status(); len(all) != 2 || all[0].Name != "c:1" || all[1].Name != "z:1" {
		t.Error(all)
	}
}

// shower is a client that follows a config.
type shower struct {
	*Servers
	logged *observer.ObservedLogs
	shown  chan Shown

	mu      sync.Mutex // guards what follows
	again   Shown
	failure error
	asked   int
	changed int
}

func startShower(t *testing.T, given ...string) *shower {
	core, logged := observer.New(zapcore.InfoLevel)
	s := &shower{logged: logged, shown: make(chan Shown)}
	closing := make(chan struct{})
	s.Servers = New(Config{
		Names: given, Root: "/", Timeout: 8 * time.Second, Dial: (&answering{}).dial, Log: zap.New(core),
		Source: Source{
			Tracking: Tracking{
				Follow: func(context.Context) (<-chan Shown, error) { return s.shown, nil },
				Again: func(context.Context) (Shown, error) {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.asked++
					return s.again, s.failure
				},
			},
			Present: func() Server { return Server{} },
			Changed: func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.changed++
			},
		},
	}, nil, closing, closing)
	s.Start()
	t.Cleanup(func() {
		close(closing)
		s.Wait()
		s.Servers.Close()
	})
	return s
}

// shows lets the ensemble show a config.
func (s *shower) shows(version int64, hosts string) {
	s.shown <- Shown{Config: config(version, hosts)}
	synctest.Wait()
}

func (s *shower) syncs(shown Shown, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again, s.failure = shown, err
}

func (s *shower) counts() (asked, changed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.changed
}

func config(version int64, hosts string) []byte {
	text := ""
	for i, h := range strings.Fields(hosts) {
		text += fmt.Sprintf("server.%d=%s:2888:3888:participant;0.0.0.0:1\n", i+1, h)
	}
	return fmt.Appendf([]byte(text), "version=%x", version)
}

func (s *shower) tracked() string {
	return strings.ReplaceAll(strings.Join(s.list.MemberNames(), " "), ":1", "")
}

// What is shown becomes part of the list, and the given servers stay. What an
// old member shows does not count.
func TestAClientFollowsAConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startShower(t, "given:1")
		expect := func(what, want string, changes int) {
			t.Helper()
			_, changed := s.counts()
			if got := s.tracked(); got != want || changed != changes || !slices.Equal(s.Names(), []string{"given:1"}) {
				t.Errorf("%s: %q, given %v, %d changes", what, got, s.Names(), changed)
			}
		}
		s.shown <- Shown{}
		synctest.Wait()
		expect("no config", "", 0)
		s.shows(0, "a b")
		expect("a config", "a b", 1)
		s.shows(0, "b c")
		expect("another file", "a b c", 2)
		time.Sleep(58 * time.Minute)
		expect("nearly an hour later", "a b c", 2)
		time.Sleep(5 * time.Minute)
		expect("an hour later", "b c", 3)
		s.shows(8, "c d")
		expect("a later version", "c d", 4)
		s.syncs(Shown{}, errors.New("no connection"))
		s.shows(7, "a")
		expect("an earlier version, and no sync", "c d", 4)
		s.syncs(Shown{Config: config(8, "c d")}, nil)
		time.Sleep(3 * time.Minute)
		if asked, _ := s.counts(); asked != 2 {
			t.Errorf("asked %d times", asked)
		}
		expect("a member that lags", "c d", 4)
		s.syncs(Shown{Config: config(7, "a")}, nil)
		s.shows(7, "a")
		expect("another history", "a", 5)
		status, _ := s.Status()
		if len(status) != 2 || !status[0].Tracked || status[1].Tracked {
			t.Errorf("%+v", status)
		}
	})
}

// What an ensemble has shown ends with its history: a given address may lead to
// another ensemble now, which is also at version 0.
func TestAConfigOfAnotherEnsemble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startShower(t, "given:1")
		expect := func(what, want string) {
			t.Helper()
			if got := s.tracked(); got != want {
				t.Errorf("%s: %q", what, got)
			}
		}
		s.NoteRoot(7, 7, 100)
		s.shows(0, "a b")
		s.NoteRoot(7, 7, 200)
		s.shows(0, "b c")
		expect("the same", "a b c")
		s.NoteRoot(8, 8, 300)
		s.shows(0, "d")
		expect("another one", "d")
		s.shows(0, "e")
		s.NoteRoot(8, 8, 250) // transactions were lost
		expect("read before that is known", "d e")
		time.Sleep(3 * time.Minute)
		expect("a moment later", "e")
		s.syncs(Shown{}, errors.New("no connection"))
		s.NoteRoot(9, 9, 300)
		s.shows(1, "f")
		s.NoteRoot(10, 10, 300)
		s.shows(0, "g")
		expect("an earlier version, and no sync", "f")
		time.Sleep(3 * time.Minute)
		expect("later", "f")
		s.shown <- Shown{}
		time.Sleep(3 * time.Minute)
		expect("a standalone server", "")
	})
}

// Whatever an ensemble shows, the client goes on with what it had, and a line
// names what is wrong.
func TestAConfigThatIsWrong(t *testing.T) {
	for name, tt := range map[string]struct{ config, line, want string }{
		"no members":            {"group.1=1\nversion=3", "", ""},
		"no client port":        {"server.1=c:1:2:participant\nserver.2=b:1:2;b:1\nversion=3", `"server.1=c:1:2:participant": no address for clients`, "b"},
		"no client port at all": {"server.1=c:1:2\nserver.2=b:1:2:participant;\nversion=3", "no address for clients; 1 more members are left out", ""},
		"wildcards only":        {"server.1=0.0.0.0:1:2;0.0.0.0:1\nversion=3", "no address for clients", ""},
		"too many":              {string(config(3, strings.Repeat("x ", 10000))), "10000 members", "a"},
		"no version":            {"server.1=b:2888:3888:participant;b:1", "no version", "a"},
		"not text":              {"\x00\xff", "no version", "a"},
		"loopback":              {"server.1=127.0.0.1:1:2:participant;127.0.0.1:1\nserver.2=b:1:2;b:1\nversion=3", "127.0.0.1:1: a local address", "b"},
		"loopback for all":      {"server.1=127.0.0.1:1:2:participant;127.0.0.1:1\nserver.2=[::1]:1:2;[::1]:1\nversion=3", "127.0.0.1:1: a local address", ""},
		"a line is wrong":       {"server.1=c:1:2:participant;c:0\nserver.2=b:1:2;b:1\nversion=3", "server.1=c", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startShower(t, "given:1")
				s.shows(2, "a")
				s.shown <- Shown{Config: []byte(tt.config)}
				synctest.Wait()
				text := ""
				for _, line := range s.logged.FilterLevelExact(zapcore.WarnLevel).All() {
					text += fmt.Sprintln(line.Message, line.ContextMap()["error"])
				}
				if got := s.tracked(); got != tt.want || strings.Count(text, "\n") != min(len(tt.line), 1) || !strings.Contains(text, tt.line) {
					t.Errorf("%q, %s", got, text)
				}
				s.shows(4, "d e")
				if got := s.tracked(); got != "d e" {
					t.Errorf("afterwards: %q", got)
				}
			})
		})
	}
}

// A member that is left out is told once, however often it is shown.
func TestAWarningIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startShower(t, "given:1")
		for range 5 {
			for _, member := range []string{"1", "2"} {
				s.shown <- Shown{Config: []byte("server." + member + "=c:1:2\nserver.3=b:1:2;b:1\nversion=0")}
				synctest.Wait()
			}
		}
		if lines := s.logged.FilterLevelExact(zapcore.WarnLevel).All(); len(lines) != 2 {
			t.Errorf("%v", lines)
		}
	})
}

// With TLS the members are called at their ports for it, as far as those are
// shown.
func TestAConfigForTLS(t *testing.T) {
	const text = "server.1=a:1:2;0.0.0.0:2181;0.0.0.0:2281\nserver.2=b:1:2;;b2:2281\nserver.3=c:1:2;c:2181\nversion=0"
	for name, tt := range map[string]struct {
		tls  func() (*tls.Config, error)
		want string
	}{
		"with TLS":    {func() (*tls.Config, error) { return &tls.Config{}, nil }, "a:2281 b2:2281 c:2181"},
		"without TLS": {nil, "a:2181 c:2181"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startShower(t, "given:2181")
				s.cfg.TLS = tt.tls
				s.shown <- Shown{Config: []byte(text)}
				synctest.Wait()
				if got := strings.Join(s.list.MemberNames(), " "); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
			})
		})
	}
}

// A config that cannot be read is asked for again, with pauses.
func TestAConfigThatCannotBeFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startShower(t, "given:1")
		for range 5 {
			s.shown <- Shown{Err: errors.New("no permission")}
		}
		s.shows(1, "a")
		if got := s.tracked(); got != "a" {
			t.Error(got)
		}
	})
}

// A silent server that is neither given nor a member does not end a round.
func TestASilentServerThatIsNoMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := of(Config{Names: []string{"a:1"}, Timeout: time.Second, Dial: func(string, string, time.Duration) (net.Conn, error) {
			time.Sleep(2 * time.Second)
			return nil, errors.New("silent")
		}})
		s.list.SetMembers([]string{"b:1", "c:1"}, nil, serverlist.SameVersion)
		s.list.NoteConnected(Server{Name: "b:1", Address: "b:1"})
		s.list.BeginRound()
		_, _, _, _ = s.DialBack("tcp", Server{Name: "left:1", Address: "left:1"}, nil, 2*time.Second)
		called := map[string]bool{}
		for range 3 {
			to, _, _ := s.list.Next(nil, 2*time.Second)
			called[to.Name] = true
		}
		if len(called) != 3 {
			t.Errorf("called %v of 3 servers", called)
		}
	})
}
