package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// nestCrosswise makes what two shells leave that nest zkr lock crosswise, and
// returns the sessions. Each zkr has one.
func nestCrosswise(t *testing.T, e *testutil.Embedded) (sessions []string) {
	t.Helper()
	var clients []*framework.Client
	for range 4 {
		c := zkrtest.Dial(t, e)
		if err := c.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		s, err := c.Session()
		if err != nil {
			t.Fatal(err)
		}
		clients, sessions = append(clients, c), append(sessions, wire.SessionText(s.ID()))
	}
	for _, dir := range []string{"/x", "/y"} {
		if _, err := clients[0].Create(t.Context(), dir, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for i, one := range []struct{ path, data string }{
		{"/x/" + zkrtest.SomeID + "lock-0000000000", "web-1 pid 1: sh"},
		{"/y/" + zkrtest.SomeID + "lock-0000000000", "web-1 pid 2: sh"},
		{"/y/" + zkrtest.SomeID + "lock-0000000001", "web-1 pid 3: true parent=" + sessions[0]},
		{"/x/" + zkrtest.SomeID + "lock-0000000001", "web-1 pid 4: true parent=" + sessions[1]},
	} {
		if _, err := clients[i].Create(t.Context(), one.path, []byte(one.data), zk.FlagEphemeral); err != nil {
			t.Fatal(err)
		}
	}
	return sessions
}

// Two shells have nested zkr lock crosswise.
func TestDeadlockOfNestedCommands(t *testing.T) {
	e := testutil.Start(t)
	sessions := nestCrosswise(t, e)
	code, text := findDeadlocks(t, e)
	lines := strings.Split(text, "\n")
	if want := "deadlock: web-1 pid 1: sh holds /x and waits for /y in its command; web-1 pid 2: sh holds /y and waits for /x in its command"; code != cli.ExitDeadlock || lines[0] != want {
		t.Errorf("exit code %d, it printed %q", code, text)
	}
	for i, want := range []string{"web-1 pid 1: sh ", "web-1 pid 3: true parent=" + sessions[0], "web-1 pid 2: sh ", "web-1 pid 4: true parent=" + sessions[1]} {
		if !strings.HasPrefix(strings.TrimSpace(lines[1+i]), want) || !strings.Contains(lines[1+i], "session "+sessions[[]int{0, 2, 1, 3}[i]]) {
			t.Errorf("line %d is %q, want %q", i, lines[1+i], want)
		}
	}
	code, raw := findDeadlocks(t, e, "--json")
	var got deadlocksJSON
	if err := json.Unmarshal([]byte(raw), &got); err != nil || code != cli.ExitDeadlock || len(got.Deadlocks) != 1 {
		t.Fatalf("exit code %d, error %v, it printed %q", code, err, raw)
	}
	for i, step := range got.Deadlocks[0].Steps {
		if step.Session != sessions[i] || !slices.Equal(step.Nested, []string{sessions[2+i]}) || step.Waits.Session != sessions[2+i] {
			t.Errorf("step %d: %+v", i, step)
		}
	}
	if code, dot := findDeadlocks(t, e, "--dot"); code != cli.ExitDeadlock || !strings.Contains(dot, fmt.Sprintf(`"session %s" -> "/y" [label="waits, `, sessions[0])) {
		t.Errorf("exit code %d, it printed %s", code, dot)
	}
}

// A request to release hides no deadlock, and neither the host nor the request
// from zkr top and zkr observe.
func TestAskedToReleaseKeepsWhatIsKnown(t *testing.T) {
	e := testutil.Start(t)
	sessions := nestCrosswise(t, e)
	for range 2 { // a second request changes nothing
		for _, path := range []string{"/x", "/y"} {
			if code, text := zkrtest.Zkr(e, "revoke", "--all", path); code != 0 {
				t.Errorf("exit code %d, it printed %q", code, text)
			}
		}
	}
	code, text := findDeadlocks(t, e)
	const want = "deadlock: web-1 pid 1: sh holds /x and waits for /y in its command; web-1 pid 2: sh holds /y and waits for /x in its command\n"
	if code != cli.ExitDeadlock || !strings.HasPrefix(text, want) || !strings.Contains(text, "web-1 pid 3: true parent="+sessions[0]+" (asked to release)") {
		t.Errorf("exit code %d, it printed %q", code, text)
	}
	_, text = zkrtest.Zkr(e, "top", "--once", "--json", "--interval", "10ms", "/x")
	var row look.Row
	if err := json.Unmarshal([]byte(text), &row); err != nil || row.Host != "web-1" || !row.Asked || row.Holder != "__REVOKE__ web-1 pid 1: sh" {
		t.Errorf("%v, it printed %s", err, text)
	}
	leader := recipes.Participant{Path: "/leader/x", Data: []byte("__REVOKE__ web-1 pid 5")}
	var out bytes.Buffer
	if err := printLeader(&out, time.Time{}, leader); err != nil || !strings.Contains(out.String(), "  web-1 pid 5 (asked to release)  ") {
		t.Errorf("%v, it printed %s", err, out.String())
	}
	out.Reset()
	if err := printLeaderJSON(&out, time.Time{}, leader); err != nil || !strings.Contains(out.String(), `"id":"web-1 pid 5",`) || !strings.Contains(out.String(), `"asked_to_release":true`) {
		t.Errorf("%v, it printed %s", err, out.String())
	}
}

// A holder that was asked to release is shown as that, whatever shows it. Its
// data was replaced by the request.
func TestAskedToRelease(t *testing.T) {
	e := testutil.Start(t)
	a, _ := inTwoOrders(t, e)
	if _, err := a.Set(t.Context(), "/app/x/"+zkrtest.SomeID+"lock-0000000000", []byte("__REVOKE__"), -1); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		var out, complaints bytes.Buffer
		if code := zkrtest.Run(append(args, "--servers", e.Servers()), &out, &complaints); code != 0 && code != cli.ExitDeadlock {
			t.Fatalf("%q: exit code %d: %s", args, code, complaints.String())
		}
		return out.String()
	}
	for _, args := range [][]string{{"inspect", "/app/x"}, {"inspect", "--tree", "/app"}} {
		text := run(args...)
		if strings.Count(text, "  asked to release  ") != 1 || strings.Contains(text, "__REVOKE__") {
			t.Errorf("%q: it printed %s", args, text)
		}
	}
	for _, args := range [][]string{{"inspect", "--json", "/app/x"}, {"inspect", "--json", "--tree", "/app"}} {
		text := run(args...)
		if strings.Count(text, `"data":"__REVOKE__","asked_to_release":true`) != 1 || strings.Count(text, "asked_to_release") != 1 {
			t.Errorf("%q: it printed %s", args, text)
		}
	}
	if text := run("deadlocks", "--pause", "1ms", "/app"); !strings.HasPrefix(text, "deadlock: session 0x") || strings.Contains(text, "__REVOKE__") {
		t.Errorf("it printed %s", text)
	}
}
