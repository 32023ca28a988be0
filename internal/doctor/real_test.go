package doctor_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/doctor"
	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/sasl/digestmd5"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// TestRealServersAreHealthy: all promises hold on Apache ZooKeeper. Releases
// before 3.5 have no containers, and those before 3.6 no recursive watches,
// which are notes. Sessions and znodes are gone after that.
func TestRealServersAreHealthy(t *testing.T) {
	for _, members := range []int{1, 3} {
		e := apache.Start(t, members, apache.WithTick(time.Second), apache.WithSessionTimeouts(2*time.Second, 20*time.Second), apache.WithProperty("znode.container.checkIntervalMs", "1000"))
		x := examine(t, e.Servers(), true, framework.WithSessionTimeout(4*time.Second))
		for _, a := range x.answers {
			if a.Question == "local" && a.Seen != "it has no local sessions" {
				t.Errorf("%+v", a)
			}
			if a.Verdict == doctor.Fails || a.Verdict == doctor.Note && a.Question != "containers" && a.Question != "watches" {
				t.Errorf("%+v", a)
			}
		}
		if x.Left != nil || x.Reached != members || len(x.answers) < 16*members {
			t.Errorf("%+v\n%s", x.Result, x)
		}
		leaves(t, e)
	}
}

// TestRealServersWithLocalSessions: the doctor says so of each member. No other
// one resumes such a session.
func TestRealServersWithLocalSessions(t *testing.T) {
	e := apache.Start(t, 3, apache.WithTick(time.Second), apache.WithSessionTimeouts(2*time.Second, 20*time.Second),
		apache.WithSetting("localSessionsEnabled=true"), apache.WithSetting("localSessionsUpgradingEnabled=true"))
	x := examine(t, e.Servers(), false, framework.WithSessionTimeout(4*time.Second))
	told := 0
	for _, a := range x.answers {
		if a.Question == "local" && a.Verdict == doctor.Fails {
			told++
		}
	}
	bad := slices.DeleteFunc(x.unwell(), func(q string) bool { return q == "watches note" }) // of servers before 3.6
	if told != 3 || !slices.Equal(bad, []string{"local FAILS", "resume FAILS"}) {
		t.Errorf("%d members, %q\n%s", told, bad, x)
	}
	if x.Left != nil {
		judge.Errorf(t, "left: %v", x.Left)
	}
}

// TestRealServersWithSASL: where SASL is required, all promises hold for who
// has the password, and the doctor says who that is. Who has not is told.
// Releases before 3.5 cannot require it.
func TestRealServersWithSASL(t *testing.T) {
	jaas := filepath.Join(t.TempDir(), "jaas.conf")
	users := `Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_app="secret"; };`
	if err := os.WriteFile(jaas, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	e := apache.Start(t, 1, apache.WithTick(time.Second), apache.WithSessionTimeouts(2*time.Second, 20*time.Second),
		apache.WithProperty("java.security.auth.login.config", jaas),
		apache.WithProperty("zookeeper.authProvider.1", "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"),
		apache.WithProperty("zookeeper.sessionRequireClientSASLAuth", "true"))
	timeout, app := framework.WithSessionTimeout(4*time.Second), framework.WithSASL(digestmd5.New("app", "secret"))
	x := examine(t, e.Servers(), false, timeout, app)
	text := x.String()
	if len(x.Fails) > 0 || !strings.Contains(text, "SASL DIGEST-MD5; credentials are required; this client is sasl:app") &&
		!strings.Contains(text, "SASL DIGEST-MD5; none are required; this client is sasl:app") {
		t.Errorf("found %q\n%s", x.Fails, text)
	}
	leaves(t, e, app)
	x = examine(t, e.Servers(), false, timeout, framework.WithSASL(digestmd5.New("app", "hunter2")))
	if bad := x.unwell(); !slices.Equal(bad, []string{"session FAILS"}) || strings.Contains(x.String(), "hunter2") || x.Reached != 1 {
		t.Errorf("with a wrong password: %q\n%s", bad, x)
	}
}

var sessionID = regexp.MustCompile(`0x[0-9a-f]{10,}`)

// leaves checks that no session and no znode of a doctor is left: the only
// session is that of the check. The leader is asked: once it knows that one, it
// knows of all that ended before.
func leaves(t *testing.T, e *apache.Ensemble, opts ...framework.Option) {
	t.Helper()
	c, err := framework.New(e.Servers(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if left, _, err := c.Children(t.Context(), "/"); err != nil || len(left) != 1 {
		judge.Errorf(t, "znodes are left: %q, %v", left, err)
	}
	s, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	own := wire.SessionText(s.ID())
	leader := strings.Split(e.Servers(), ",")[e.Leader()]
	found := sessionsAt(t, leader)
	for end := time.Now().Add(time.Minute); !found[own] && time.Now().Before(end); found = sessionsAt(t, leader) {
		time.Sleep(time.Millisecond) // it may be behind the member that has answered
	}
	if len(found) != 1 || !found[own] {
		t.Errorf("sessions: %v, and ours is %s", found, own)
	}
}

// sessionsAt returns the sessions that a member knows. It may go on listing a
// connection that was closed when its session was resumed.
func sessionsAt(t *testing.T, address string) map[string]bool {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "dump"); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	sessions, _, _ := strings.Cut(string(text), "Connections dump:")
	found := map[string]bool{}
	for _, id := range sessionID.FindAllString(sessions, -1) {
		found[id] = true
	}
	return found
}
