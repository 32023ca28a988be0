package live

import (
	"bytes"
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/escape"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestInspectKnowsEveryLayout: znodes of any program are recognized.
func TestInspectKnowsEveryLayout(t *testing.T) {
	const kazooID = "2f1b6a5e9c0d4e4f8a390f4f6f2c1d77"
	for _, test := range []struct {
		name     string
		data     string
		children []string
		beside   []string // appended to the path
		headline string
		holds    []string
		waits    []string
	}{
		{name: "empty", headline: "free, no waiters"},
		{
			name: "mutex", children: []string{zkrtest.SomeID + "lock-0000000002", zkrtest.SomeID + "lock-0000000001"},
			headline: "mutex or election (selector), held, 1 waiting",
			holds:    []string{zkrtest.SomeID + "lock-0000000001"}, waits: []string{zkrtest.SomeID + "lock-0000000002"},
		},
		{
			name: "mutex at the wrap", children: []string{zkrtest.SomeID + "lock--2147483648", zkrtest.SomeID + "lock-2147483647"},
			headline: "mutex or election (selector), held, 1 waiting",
			holds:    []string{zkrtest.SomeID + "lock-2147483647"}, waits: []string{zkrtest.SomeID + "lock--2147483648"},
		},
		{
			name:     "readers share, and wait behind a waiting writer",
			children: []string{"a-R-0000000001", "b-R-0000000002", "c-W-0000000003", "d-R-0000000004"},
			headline: "read/write lock, 2 holders, 2 waiting",
			holds:    []string{"a-R-0000000001", "b-R-0000000002"}, waits: []string{"c-W-0000000003", "d-R-0000000004"},
		},
		{
			name:     "a writer and its downgraded read",
			children: []string{zkrtest.SomeID + "__WRIT__0000000001", zkrtest.SomeID + "__READ__0000000001", zkrtest.SomeID + "__READ__0000000002", zkrtest.SomeID + "__WRIT__0000000003"},
			headline: "read/write lock (Curator), 2 holders, 2 waiting",
			holds:    []string{zkrtest.SomeID + "__WRIT__0000000001", zkrtest.SomeID + "__READ__0000000001"}, waits: []string{zkrtest.SomeID + "__READ__0000000002", zkrtest.SomeID + "__WRIT__0000000003"},
		},
		{
			name: "latch", children: []string{zkrtest.SomeID + "latch-0000000000"},
			headline: "election (latch), led, 0 waiting", holds: []string{zkrtest.SomeID + "latch-0000000000"},
		},
		{
			name: "Kazoo's readers, and ours behind its writer", children: []string{kazooID + "__rlock__0000000001", kazooID + "__lock__0000000002", zkrtest.SomeID + "__rlock__0000000003", zkrtest.SomeID + "__rlock__0000000000"},
			headline: "read/write lock (Kazoo), 2 holders, 2 waiting",
			holds:    []string{zkrtest.SomeID + "__rlock__0000000000", kazooID + "__rlock__0000000001"}, waits: []string{kazooID + "__lock__0000000002", zkrtest.SomeID + "__rlock__0000000003"},
		},
		{
			name: "Kazoo's lock, and ours", children: []string{zkrtest.SomeID + "__lock__0000000001", kazooID + "__lock__0000000000"},
			headline: "lock or election (Kazoo), held, 1 waiting",
			holds:    []string{kazooID + "__lock__0000000000"}, waits: []string{zkrtest.SomeID + "__lock__0000000001"},
		},
		{
			name: "Kazoo's lock", children: []string{kazooID + "__lock__0000000000"},
			headline: "lock or election (Kazoo), held, 0 waiting", holds: []string{kazooID + "__lock__0000000000"},
		},
		{
			name: "Kazoo's read/write lock", children: []string{kazooID + "__lock__0000000001", kazooID + "__rlock__0000000000"},
			headline: "read/write lock (Kazoo), held, 1 waiting",
			holds:    []string{kazooID + "__rlock__0000000000"}, waits: []string{kazooID + "__lock__0000000001"},
		},
		{
			name: "semaphore", data: "2",
			children: []string{
				"locks", "leases", "leases/" + zkrtest.SomeID + "lease-0000000007", "leases/" + zkrtest.SomeID + "lease-0000000003",
				"locks/" + zkrtest.SomeID + "lock-0000000009", "locks/" + zkrtest.SomeID + "lock-0000000008",
			},
			headline: "semaphore, 2 of 2 permits held, 2 waiting",
			holds:    []string{zkrtest.SomeID + "lease-0000000003", zkrtest.SomeID + "lease-0000000007"},
			waits:    []string{zkrtest.SomeID + "lock-0000000008", zkrtest.SomeID + "lock-0000000009"},
		},
		{
			name: "semaphore that lowered its limit", data: "1",
			children: []string{
				"limit", "locks", "leases", "leases/" + zkrtest.SomeID + "lease-0000000001", "leases/" + zkrtest.SomeID + "lease-0000000002",
				"locks/" + zkrtest.SomeID + "lock-0000000005",
			},
			headline: "semaphore, 2 of 1 permits held, 1 waiting",
			holds:    []string{zkrtest.SomeID + "lease-0000000001", zkrtest.SomeID + "lease-0000000002"},
			waits:    []string{zkrtest.SomeID + "lock-0000000005"},
		},
		{
			name: "semaphore of unknown limit", children: []string{"locks", "leases"},
			headline: "semaphore, free, 0 waiting",
		},
		{
			name: "unused semaphore", data: "3", children: []string{"limit"},
			headline: "free, no waiters; 3 leases if it is a semaphore",
		},
		{
			name: "Kazoo's semaphore", data: "2", children: []string{kazooID, "2f1b6a5e9c0d4e4f8a390f4f6f2c1d76"},
			beside:   []string{"-__lock__", "-__lock__/" + kazooID + "__lock__0000000004", "-__lock__/" + kazooID + "__lock__0000000003"},
			headline: "semaphore (Kazoo), 2 of 2 permits held, 2 waiting",
			holds:    []string{kazooID, "2f1b6a5e9c0d4e4f8a390f4f6f2c1d76"},
			waits:    []string{kazooID + "__lock__0000000003", kazooID + "__lock__0000000004"},
		},
		{
			name:     "an election of several",
			children: []string{zkrtest.SomeID + "latch-0000000005", zkrtest.SomeID + "latch-0000000003"},
			headline: "election (latch), led, 1 waiting",
			holds:    []string{zkrtest.SomeID + "latch-0000000003"}, waits: []string{zkrtest.SomeID + "latch-0000000005"},
		},
		{
			name:     "a downgraded read remains",
			children: []string{zkrtest.SomeID + "a-R-0000000003", zkrtest.SomeID + "b-W-0000000004", zkrtest.SomeID + "b-R-0000000005"},
			headline: "read/write lock, held, 2 waiting",
			holds:    []string{zkrtest.SomeID + "a-R-0000000003"}, waits: []string{zkrtest.SomeID + "b-W-0000000004", zkrtest.SomeID + "b-R-0000000005"},
		},
		{
			name: "a conflict", children: []string{zkrtest.SomeID + "lock-0000000001", zkrtest.SomeID + "latch-0000000002"},
			headline: "mutex or election (selector), held, 1 waiting; CONFLICT: ",
			holds:    []string{zkrtest.SomeID + "lock-0000000001"}, waits: []string{zkrtest.SomeID + "latch-0000000002"},
		},
		{name: "foreign", children: []string{"config"}, headline: "no recipe recognized"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := testutil.Start(t)
			client := zkrtest.Dial(t, e)
			at := "/inspected"
			for i, znode := range slices.Concat([]string{""}, test.children) {
				data, flags := "", int32(0)
				if i == 0 {
					data = test.data
				} else if strings.Contains(znode, "-0") || strings.Contains(znode, "_0") {
					data, flags = "owner of "+path.Base(znode), zk.FlagEphemeral
				}
				if _, err := client.Create(t.Context(), path.Join(at, znode), []byte(data), flags); err != nil {
					t.Fatal(err)
				}
			}
			for _, znode := range test.beside {
				if _, err := client.Create(t.Context(), at+znode, nil, 0); err != nil {
					t.Fatal(err)
				}
			}
			text, raw := inspected(t, e, at), inspected(t, e, "--json", at)
			if first, _, _ := strings.Cut(text, "\n"); !strings.HasPrefix(first, at+": "+test.headline) {
				t.Errorf("it says %q, want %q", first, test.headline)
			}
			var got Snapshot
			if err := json.Unmarshal([]byte(raw), &got); err != nil {
				t.Fatal(err)
			}
			for _, side := range []struct {
				name  string
				got   []Contender
				want  []string
				holds bool
			}{{"holders", got.Holders, test.holds, true}, {"waiting", got.Waiting, test.waits, false}} {
				var names []string
				for _, c := range side.got {
					names = append(names, path.Base(c.Path))
					if c.Holds != side.holds || strings.Contains(c.Data, "owner") && c.Data != "owner of "+path.Base(c.Path) {
						t.Errorf("%s: %+v", side.name, c)
					}
				}
				if !slices.Equal(names, side.want) {
					t.Errorf("%s: %q, want %q", side.name, names, side.want)
				}
			}
		})
	}
}

func TestInspectNothing(t *testing.T) {
	e := testutil.Start(t)
	if text := inspected(t, e, "/not/there"); text != "/not/there: does not exist (the ensemble deletes the directories of unused locks)\n" {
		t.Errorf("it says %q", text)
	}
	if text := inspected(t, e, "--json", "/not/there"); text != `{"path":"/not/there","exists":false,"holders":[],"waiting":[]}`+"\n" {
		t.Errorf("it says %q", text)
	}
	if text := inspected(t, e, "/"); !strings.HasPrefix(text, "/: no recipe recognized\n  other: zookeeper\n") {
		t.Errorf("it says %q", text)
	}
}

// TestInspectIsNotFooled: data and names are not trusted, and cannot control
// the terminal.
func TestInspectIsNotFooled(t *testing.T) {
	for _, test := range []struct{ data, want string }{
		{"", "-"},
		{"host 1", "host 1"},
		{"größe", "größe"},
		{"a\x1b[2Jb", `"a\x1b[2Jb"`},
		{"two\nlines", `"two\nlines"`},
		{"\xff\xfe", `"\xff\xfe"`},
		{strings.Repeat("ä", 70), strings.Repeat("ä", 60) + "..."},
		{strings.Repeat("\x00", 70), `"` + strings.Repeat(`\x00`, 60) + `"...`},
	} {
		if got := escape.Data(test.data); got != test.want {
			t.Errorf("%q shows as %s, want %s", test.data, got, test.want)
		}
	}
}

// TestInspectWatch: it prints a line for each change, and none without a
// change.
func TestInspectWatch(t *testing.T) {
	e := testutil.Start(t)
	client := zkrtest.Dial(t, e)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	shown := make(chan Snapshot)
	ended := make(chan error, 1)
	go func() { // ends with ctx
		ended <- follow(ctx, client, "/watched", func(s Snapshot) error {
			select {
			case shown <- s:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	see := func(holders, waiting int) {
		t.Helper()
		for {
			s := <-shown // a snapshot taken during a change may show part of it
			if len(s.Holders) == holders && len(s.Waiting) == waiting {
				return
			}
		}
	}
	see(0, 0)
	create := func(path string, flags int32) {
		t.Helper()
		if _, err := client.Create(t.Context(), path, nil, flags); err != nil {
			t.Fatal(err)
		}
	}
	create("/watched", 0)
	create("/watched/"+zkrtest.SomeID+"lock-0000000001", zk.FlagEphemeral)
	see(1, 0)
	create("/watched/"+zkrtest.SomeID+"lock-0000000002", zk.FlagEphemeral)
	see(1, 1)
	if err := client.Delete(t.Context(), "/watched/"+zkrtest.SomeID+"lock-0000000001", -1); err != nil {
		t.Fatal(err)
	}
	see(1, 0)
	if err := client.Delete(t.Context(), "/watched/"+zkrtest.SomeID+"lock-0000000002", -1); err != nil {
		t.Fatal(err)
	}
	see(0, 0)
	create("/watched/leases", 0)
	create("/watched/locks", 0)
	create("/watched/leases/"+zkrtest.SomeID+"lease-0000000002", zk.FlagEphemeral)
	see(1, 0)
	if _, err := client.Set(t.Context(), "/watched", []byte("7"), -1); err != nil {
		t.Fatal(err)
	}
	for s := <-shown; s.MaxLeases != 7; s = <-shown {
	}
	stop()
	if err := <-ended; err == nil {
		t.Error("inspect has ended")
	}
}

func inspected(t *testing.T, e *testutil.Embedded, args ...string) string {
	t.Helper()
	var out, complaints bytes.Buffer
	if code := zkrtest.Run(append([]string{"inspect", "--servers", e.Servers()}, args...), &out, &complaints); code != 0 || complaints.Len() > 0 {
		t.Fatalf("inspect %q: exit code %d: %s", args, code, complaints.String())
	}
	return out.String()
}
