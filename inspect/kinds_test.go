package inspect_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/inspect"
)

// Each layout is recognized by its names. What shares a path and does not see
// each other is a conflict, and what only looks like a semaphore is none.
func TestWhatIsRecognized(t *testing.T) {
	const kazoo = "0123456789abcdef0123456789abcdef"
	for _, test := range []struct {
		znodes   string // below /at
		recipe   string
		conflict bool
		others   string
	}{
		{id(1) + "lock-0000000001", "mutex or election (selector)", false, ""},
		{id(1) + "latch-0000000001", "election (latch)", false, ""},
		{id(1) + "web-1-R-0000000001 " + id(2) + "web-1-W-0000000002", "read/write lock", false, ""},
		{id(1) + "__READ__0000000001", "read/write lock (Curator)", false, ""},
		{kazoo + "__lock__0000000001", "lock or election (Kazoo)", false, ""},
		{kazoo + "__lock__0000000001 " + kazoo + "__rlock__0000000002", "read/write lock (Kazoo)", false, ""},
		{kazoo + "__rlock__0000000001 " + kazoo + "__lock__0000000002", "read/write lock (Kazoo)", false, ""},
		{id(1) + "odd~a~0000000001", "line of kind odd", false, ""},
		{id(1) + "odd~a~0000000001 " + id(2) + "even~a~0000000002", "line of kind odd", true, ""},
		{id(1) + "lock-0000000001 " + id(2) + "latch-0000000002", "mutex or election (selector)", true, ""},
		{id(1) + "lock-0000000001 " + kazoo + "__lock__0000000002", "mutex or election (selector)", true, ""},
		{"leases/" + id(1) + "lease-0000000001 leases/config locks/" + id(2) + "lock-0000000001 limit", "semaphore", false, "leases/config"},
		{"leases/" + id(1) + "lease-0000000001", "semaphore", false, ""},
		{"leases/" + id(1) + "lock-0000000001", "", false, "leases"}, // a lock by that name
		{"leases/config", "", false, "leases"},
		{"limit", "", false, ""},                          // an unused semaphore
		{"limit x", "", false, "limit x"},                 // anything
		{kazoo + " config", "", false, "config " + kazoo}, // looks like Kazoo's permit, whose waiters have no directory
	} {
		f := &fake{}
		for i, name := range strings.Fields(test.znodes) {
			f.add("/at/"+name, "", int64(i+1))
		}
		l, err := inspect.Read(t.Context(), f, "/at")
		if err != nil || l.Recipe != test.recipe || (l.Conflict != "") != test.conflict {
			t.Errorf("%s: %q, conflict %q, %v", test.znodes, l.Recipe, l.Conflict, err)
		}
		others := strings.Fields(test.others)
		slices.Sort(others)
		slices.Sort(l.Others)
		if !slices.Equal(l.Others, others) {
			t.Errorf("%s: others %q, want %q", test.znodes, l.Others, others)
		}
		if test.recipe == "" && len(l.Holders)+len(l.Waiting) > 0 {
			t.Errorf("%s: in line: %v %v", test.znodes, l.Holders, l.Waiting)
		}
	}
}

// A limit is a positive number. Anything else that the path of a semaphore has
// is no limit that is known.
func TestWhatIsALimit(t *testing.T) {
	for data, want := range map[string]int{"5": 5, " 5\n": 5, "": 0, "0": 0, "-1": 0, "five": 0, "99999999999999999999": 0} {
		f := &fake{}
		f.add("/at/leases/"+id(1)+"lease-0000000001", "", 1)
		f.add("/at", data, 0)
		if l, err := inspect.Read(t.Context(), f, "/at"); err != nil || l.Limit != want || len(l.Holders) != 1 {
			t.Errorf("%q: limit %d, %v", data, l.Limit, err)
		}
	}
}
