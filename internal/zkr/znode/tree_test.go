package znode

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// plant creates znodes below /t, one of them ephemeral and one that may not be
// read. It returns the ephemeral one's session.
func plant(t *testing.T, e *testutil.Embedded) string {
	t.Helper()
	c := zkrtest.Dial(t, e)
	for _, each := range []struct {
		path, data string
		flags      int32
		acl        []zk.ACL
	}{
		{path: "/t"},
		{path: "/t/config", data: "12345"},
		{path: "/t/hidden", acl: zk.WorldACL(zk.PermWrite)},
		{path: "/t/locks"},
		{path: "/t/locks/one", data: "host", flags: zk.FlagEphemeral},
		{path: "/t/locks/two"},
	} {
		if _, err := c.Create(t.Context(), each.path, []byte(each.data), each.flags, each.acl...); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	return hex(s.ID())
}

// TestTree: the picture has sizes and sessions; what may not be read is
// reported, and the rest is drawn.
func TestTree(t *testing.T) {
	e := testutil.Start(t)
	session := plant(t, e)
	code, text := zkrtest.Zkr(e, "tree", "/t")
	want := strings.ReplaceAll(`/t
├── config  (5 B)
├── hidden  (cannot be read)
└── locks
    ├── one  (4 B, ephemeral SESSION)
    └── two

znodes: 6, ephemeral: 1, data: 9 B
`, "SESSION", session)
	if picture, complaint, _ := strings.Cut(text, "zkr: "); code != cli.ExitFailed || picture != want || !strings.Contains(complaint, "/t/hidden: its children cannot be read") {
		t.Errorf("exit code %d; it printed\n%s\nwant\n%s", code, text, want)
	}
	_, text = zkrtest.Zkr(e, "tree", "--depth", "1", "/t")
	if !strings.Contains(text, "└── locks  (2 below)\n") || strings.Contains(text, "one") {
		t.Errorf("one level is drawn as\n%s", text)
	}
	zkrtest.ExpectZkr(t, e, "/t/config  (5 B)\n\nznodes: 1, ephemeral: 0, data: 5 B\n", "tree", "--depth", "0", "/t/config")

	code, text = zkrtest.Zkr(e, "tree", "--json", "/t/locks")
	var root twig
	if err := json.Unmarshal([]byte(text), &root); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, text)
	}
	if len(root.Below) != 2 || root.Below[0].Stat.Session != session || root.Below[1].Path != "/t/locks/two" || root.Cut {
		t.Errorf("%+v", root)
	}
	code, text = zkrtest.Zkr(e, "ls", "--long", "--recursive", "/t")
	if code != cli.ExitFailed || !strings.Contains(text, "ephemeral "+session) || !strings.Contains(text, "/t/locks/one\n") || !strings.Contains(text, "/t/hidden\n") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// TestTreeCostsWhatItSays: a sync, and one request for each znode whose stat is
// printed. The names of a level share requests; the first has 32 of them.
func TestTreeCostsWhatItSays(t *testing.T) {
	e := testutil.Start(t)
	c := zkrtest.Dial(t, e)
	const dirs, names = 7, 40
	for d := range dirs {
		dir := fmt.Sprintf("/many/%d", d)
		if err := c.MakePersistentPath(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		for n := range names {
			if _, err := c.Create(t.Context(), fmt.Sprintf("%s/%02d", dir, n), nil, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	const (
		all   = 1 + dirs + dirs*names
		lists = 1 + 1 + (dirs*names+31)/32 // requests that list all, or fewer: they grow
		spare = lists - 3
	)
	for _, test := range []struct {
		args        []string
		most, spare int
	}{
		{[]string{"tree", "/many"}, all + 1, 0},
		{[]string{"tree", "--depth", "1", "/many"}, 1 + dirs + 1, 0},
		{[]string{"ls", "/many"}, 1 + 1, 0},
		{[]string{"ls", "-l", "/many"}, 1 + dirs + 1, 0},
		{[]string{"ls", "-R", "/many"}, 1 + lists, spare},
		{[]string{"ls", "-R", "-l", "/many"}, all + 1, 0},
		{[]string{"rm", "--recursive", "--dry-run", "/many"}, all + 1, 0},
		{[]string{"get", "/many"}, 2, 0},
		{[]string{"stat", "/many"}, 2, 0},
		{[]string{"stat", "--acl", "/many"}, 3, 0},
		{[]string{"set", "/many", "x"}, 1, 0},
		{[]string{"rm", "--recursive", "/many"}, 1 + lists + (all+99)/100, spare},
	} {
		before := requestsOf(e)
		if code, text := zkrtest.Zkr(e, test.args[0], test.args[1:]...); code != 0 {
			t.Fatalf("%q: exit code %d: %s", test.args, code, text)
		}
		if got := requestsOf(e) - before; got > test.most || got < test.most-test.spare {
			t.Errorf("%q cost %d requests, want %d, or up to %d fewer", test.args, got, test.most, test.spare)
		}
	}
}

// requestsOf counts the requests of the ensemble's clients, those that open,
// keep and close a session left out.
func requestsOf(e *testutil.Embedded) (all int) {
	for op, n := range e.Requests() {
		if op != testutil.OpCreateSession && op != testutil.OpCloseSession && op != testutil.OpPing {
			all += n
		}
	}
	return all
}
