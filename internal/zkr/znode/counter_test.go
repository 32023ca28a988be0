package znode

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/test/judge"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestCounter: the value stands alone on a line, and an id counts once.
func TestCounter(t *testing.T) {
	e := testutil.Start(t)
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"get /n: node does not exist", "check the path"}, "counter", "get", "/n")
	zkrtest.ExpectZkr(t, e, "5\n", "counter", "add", "/n", "5")
	zkrtest.ExpectZkr(t, e, "3\n", "counter", "add", "--", "/n", "-2")
	zkrtest.ExpectZkr(t, e, "3\n", "counter", "get", "/n")
	zkrtest.ExpectZkr(t, e, "10\n", "counter", "add", "--once", "a", "/n", "7")
	zkrtest.ExpectZkr(t, e, "-1\n", "counter", "set", "--", "/n", "-1")
	zkrtest.ExpectZkr(t, e, "10\n", "counter", "add", "--once", "a", "/n", "7")
	zkrtest.ExpectZkr(t, e, `{"path":"/n","value":10,"repeated":true}`+"\n", "counter", "add", "--json", "--once", "a", "/n", "7")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{`id "a" was counted with another amount: 7, not 8`}, "counter", "add", "--once", "a", "/n", "8")
	zkrtest.ExpectZkr(t, e, `{"path":"/n","value":-1}`+"\n", "counter", "get", "--json", "/n")

	zkrtest.ExpectZkr(t, e, "1\n", "counter", "add", "--layout", "kazoo", "/deep/k", "1")
	zkrtest.ExpectZkr(t, e, "1", "get", "/deep/k")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"counter: add /deep/k", "31"}, "counter", "add", "/deep/k", "1")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"overflow"}, "counter", "set", "--layout", "count", "/c", "2147483648")
}

// TestCounterRemovesOldMarkers: each run adds once, and now and then one
// removes the markers in its directory that are older than the counter's age.
// That none of 120 does so has a chance of one in nine million.
func TestCounterRemovesOldMarkers(t *testing.T) {
	e := testutil.Start(t)
	zkrtest.ExpectZkr(t, e, "/n-once\n", "create", "/n-once", "1ms")
	count := 0
	for i := 0; count < 120; i++ {
		h := fnv.New32a()
		_, _ = fmt.Fprint(h, i)
		if h.Sum32()%256 != 0x80 {
			continue
		}
		count++
		zkrtest.ExpectZkr(t, e, fmt.Sprintln(count), "counter", "add", "--once", fmt.Sprint(i), "/n", "1")
	}
	if left := e.Children("/n-once/80"); len(left) == 0 || len(left) == count {
		judge.Errorf(t, "%d markers are left of %d", len(left), count)
	}
}

// TestCounterRefuses: wrong usage is noticed before a server is asked.
func TestCounterRefuses(t *testing.T) {
	e := testutil.Start(t)
	for args, want := range map[string]string{
		"":                           "want get, add or set",
		"raise /n":                   `"raise": want get, add or set`,
		"get":                        "want one PATH",
		"get /n 1":                   "want one PATH",
		"get n":                      `path "n"`,
		"add /n":                     "want PATH and N",
		"set /n":                     "want PATH and N",
		"add /n one":                 `"one": want a whole number`,
		"add /n 1.5":                 `"1.5": want a whole number`,
		"add / 1":                    "is the root",
		"add --once= /n 1":           "--once: the id is empty",
		"set --once a /n 1":          "--once is for add",
		"add --layout other /n 1":    "want one of: long, count, kazoo",
		"get --once a /n":            "--once is for add",
		"add /n 9223372036854775808": "want a whole number of 64 bits",
	} {
		zkrtest.RefusesZkr(t, e, cli.ExitUsage, []string{want}, "counter", strings.Fields(args)...)
	}
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"cannot have a slash"}, "counter", "add", "--once", "a/b", "/n", "1")
	if e.Exists("/n") {
		t.Error("created")
	}
}
