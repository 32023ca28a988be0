package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// inTwoOrders makes two clients that hold what the other waits for.
func inTwoOrders(t *testing.T, e *testutil.Embedded) (a, b *framework.Client) {
	t.Helper()
	a, b = zkrtest.Dial(t, e), zkrtest.Dial(t, e)
	for _, dir := range []string{"/app", "/app/x", "/app/y", "/app/idle"} {
		if _, err := a.Create(t.Context(), dir, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range []struct {
		c    *framework.Client
		name string
		data string
	}{
		{a, "/app/x/" + zkrtest.SomeID + "lock-0000000000", "web-1"},
		{b, "/app/y/" + zkrtest.SomeID + "lock-0000000000", "web\x1b[2J-\"2\""},
		{a, "/app/y/" + zkrtest.SomeID + "lock-0000000001", "web-1"},
		{b, "/app/x/" + zkrtest.SomeID + "lock-0000000001", "web\x1b[2J-\"2\""},
	} {
		if _, err := one.c.Create(t.Context(), one.name, []byte(one.data), zk.FlagEphemeral); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

// findDeadlocks runs zkr deadlocks, and returns its exit code and what it
// prints.
func findDeadlocks(t *testing.T, e *testutil.Embedded, args ...string) (int, string) {
	t.Helper()
	var out, complaints bytes.Buffer
	code := zkrtest.Run(append([]string{"deadlocks", "--servers", e.Servers(), "--pause", "10ms"}, args...), &out, &complaints)
	return code, out.String() + complaints.String()
}

func TestDeadlocks(t *testing.T) {
	e := testutil.Start(t)
	if code, text := findDeadlocks(t, e); code != 0 || text != "no deadlock; 0 lines at and below /, read with 4 reads\n" {
		t.Errorf("exit code %d, it printed %q", code, text)
	}
	a, b := inTwoOrders(t, e)
	code, text := findDeadlocks(t, e, "/app")
	lines := strings.Split(text, "\n")
	if want := `deadlock: web-1 holds /app/x and waits for /app/y; "web\x1b[2J-\"2\"" holds /app/y and waits for /app/x`; lines[0] != want {
		t.Errorf("it printed %q, want %q", lines[0], want)
	}
	if code != cli.ExitDeadlock || len(lines) != 7 || lines[5] != "1 deadlock; 2 lines at and below /app, read with 14 reads" {
		t.Errorf("exit code %d; it printed\n%s", code, text)
	}
	for i, want := range []string{`holds /app/x `, `waits for /app/y `, `holds /app/y `, `waits for /app/x `} {
		if !strings.Contains(lines[1+i], want) || !strings.Contains(lines[1+i], zkrtest.SomeID) || !regexp.MustCompile(` \d+(\.\d)?m?s `).MatchString(lines[1+i]) {
			t.Errorf("line %d is %q", i, lines[1+i])
		}
	}
	if code, text := findDeadlocks(t, e, "/app/x"); code != 0 || !strings.HasPrefix(text, "no deadlock; 1 line ") {
		t.Errorf("exit code %d, it printed %q", code, text)
	}

	code, raw := findDeadlocks(t, e, "--json")
	var got deadlocksJSON
	if err := json.Unmarshal([]byte(raw), &got); err != nil || code != cli.ExitDeadlock {
		t.Fatalf("exit code %d, error %v, it printed %q", code, err, raw)
	}
	if len(got.Deadlocks) != 1 || len(got.Deadlocks[0].Steps) != 2 || got.Lines != 2 {
		t.Fatalf("it printed %q", raw)
	}
	step := got.Deadlocks[0].Steps[1]
	if step.HasAt != "/app/y" || step.WaitsAt != "/app/x" || step.Has.Data != "web\x1b[2J-\"2\"" || !step.Has.Holds || step.Waits.Holds || len(step.For) != 1 {
		t.Errorf("it printed %+v", step)
	}
	code, dot := findDeadlocks(t, e, "--dot")
	session := func(c *framework.Client) string {
		s, err := c.Session()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%#x", s.ID())
	}
	for _, want := range []string{
		"digraph deadlocks {\n", `"/app/x" [shape=box];`, `"session ` + session(a) + `" [label="web-1"];`,
		`"session ` + session(b) + `" [label="\"web\\x1b[2J-\\\"2\\\"\""];`, `"session ` + session(a) + `" -> "/app/y" [label="waits, `,
		`"/app/y" -> "session ` + session(b) + `" [label="held by, `, "\n}\n",
	} {
		if !strings.Contains(dot, want) {
			t.Errorf("it printed %s\nwant %s in it", dot, want)
		}
	}
	if code != cli.ExitDeadlock || strings.Contains(text+raw+dot, "\x1b") {
		t.Errorf("exit code %d, it printed %q", code, text+raw+dot)
	}
}

// What is a deadlock only under a condition is printed, and does not count.
func TestPossibleDeadlock(t *testing.T) {
	e := testutil.Start(t)
	c := zkrtest.Dial(t, e)
	for _, name := range []string{"/x", "/x/" + zkrtest.SomeID + "__READ__0000000000", "/x/" + zkrtest.SomeID + "__WRIT__0000000001"} {
		flags := int32(zk.FlagEphemeral)
		if name == "/x" {
			flags = 0
		}
		if _, err := c.Create(t.Context(), name, nil, flags); err != nil {
			t.Fatal(err)
		}
	}
	code, text := findDeadlocks(t, e)
	if code != 0 || !strings.HasPrefix(text, "possible deadlock, if one goroutine or thread does both: the session waits for itself: session 0x") || !strings.Contains(text, "\nno deadlock; ") {
		t.Errorf("exit code %d, it printed %q", code, text)
	}
	if code, dot := findDeadlocks(t, e, "--dot"); code != 0 || !strings.Contains(dot, "style=dashed") {
		t.Errorf("exit code %d, it printed %q", code, dot)
	}
}

// A mistyped path must not look like good news.
func TestDeadlocksBelowAMissingPath(t *testing.T) {
	e := testutil.Start(t)
	inTwoOrders(t, e)
	const missing = "/nope: does not exist (the ensemble deletes the directories of unused locks)\n"
	for _, test := range []struct{ flag, want string }{
		{"--pause=1s", missing},
		{"--dot", "// " + missing + "digraph deadlocks {\n}\n"},
		{"--json", `{"deadlocks":[],"possible":[],"exists":false,"lines":0,"reads":1}` + "\n"},
	} {
		if code, text := findDeadlocks(t, e, test.flag, "/nope"); code != 0 || text != test.want {
			t.Errorf("%s: exit code %d, it printed %q", test.flag, code, text)
		}
	}
	if code, text := findDeadlocks(t, e, "--json", "/app"); code != cli.ExitDeadlock || !strings.Contains(text, `"exists":true`) {
		t.Errorf("exit code %d, it printed %q", code, text)
	}
	for _, at := range []string{"/", "/app"} {
		code, text := findDeadlocks(t, e, "--servers", e.Servers()+"/nope", at)
		if code != cli.ExitFailed || !strings.Contains(text, "chroot /nope does not exist") || strings.Contains(text, "no deadlock") {
			t.Errorf("%s: exit code %d, it printed %q", at, code, text)
		}
	}
}

// What may not be read is not said to be without a deadlock.
func TestDeadlocksInForbiddenZnodes(t *testing.T) {
	e := testutil.Start(t)
	if _, err := zkrtest.Dial(t, e).Create(t.Context(), "/secret", nil, 0, zk.DigestACL(zk.PermAll, "user", "password")...); err != nil {
		t.Fatal(err)
	}
	want := "no deadlock in what zkr may read; 0 lines at and below /secret, read with 1 read\nzkr: read /secret: not allowed by the ACL; "
	if code, text := findDeadlocks(t, e, "/secret"); code != cli.ExitFailed || !strings.HasPrefix(text, want) {
		t.Errorf("exit code %d, it printed %q", code, text)
	}
}

func TestDeadlocksUsage(t *testing.T) {
	for _, args := range [][]string{{"--json", "--dot"}, {"--pause", "0s"}, {"--rate", "-1"}, {"relative"}, {"/a", "/b"}} {
		var out, complaints bytes.Buffer
		if code := zkrtest.Run(append([]string{"deadlocks"}, args...), &out, &complaints); code != cli.ExitUsage {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
}

// TestInspectTree: every line below a path, as it is shown alone.
func TestInspectTree(t *testing.T) {
	e := testutil.Start(t)
	inTwoOrders(t, e)
	text := inspected(t, e, "--tree", "/")
	if want := "/app/x: mutex or election (selector), held, 1 waiting\n"; !strings.HasPrefix(text, want) || !strings.Contains(text, "\n/app/y: mutex") {
		t.Errorf("it printed %s", text)
	}
	if n := strings.Count(text, "\n"); n != 6 {
		t.Errorf("%d lines: %s", n, text)
	}
	if text := inspected(t, e, "--tree", "/app/idle"); text != "/app/idle: nothing at or below it is held or waited for\n" {
		t.Errorf("it printed %q", text)
	}
	if text := inspected(t, e, "--tree", "--json", "/app/idle"); text != "" {
		t.Errorf("it printed %q", text)
	}
	raw := strings.Split(strings.TrimSpace(inspected(t, e, "--tree", "--json", "--rate", "1000", "/app")), "\n")
	if len(raw) != 2 {
		t.Fatalf("it printed %q", raw)
	}
	var got Snapshot
	if err := json.Unmarshal([]byte(raw[1]), &got); err != nil || got.Path != "/app/y" || len(got.Waiting) != 1 {
		t.Errorf("%v: %+v", err, got)
	}
	var out, complaints bytes.Buffer
	if code := zkrtest.Run([]string{"inspect", "--tree", "--watch", "/app"}, &out, &complaints); code != cli.ExitUsage {
		t.Errorf("--tree --watch: exit code %d", code)
	}
}
