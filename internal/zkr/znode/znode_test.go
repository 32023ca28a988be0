package znode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestZnodes: the subcommands do what their help says.
func TestZnodes(t *testing.T) {
	e := testutil.Start(t)
	zkrtest.ExpectZkr(t, e, "/app\n", "create", "/app", "one")
	zkrtest.ExpectZkr(t, e, "/app/a/b\n", "create", "--parents", "/app/a/b", "xy")
	zkrtest.ExpectZkr(t, e, "/app/jobs-0000000001\n", "create", "--sequential", "/app/jobs-")
	zkrtest.ExpectZkr(t, e, `{"path":"/app/c"}`+"\n", "create", "--json", "--container", "/app/c")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"create /app: node already exists"}, "create", "/app")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"/no/such", "--parents"}, "create", "/no/such")

	zkrtest.ExpectZkr(t, e, "a\nc\njobs-0000000001\n", "ls", "/app")
	zkrtest.ExpectZkr(t, e, "app\nzookeeper\n", "ls")
	zkrtest.ExpectZkr(t, e, "/app/a\n/app/a/b\n/app/c\n/app/jobs-0000000001\n", "ls", "--recursive", "/app")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"list /nope: node does not exist", e.Servers(), "check the path"}, "ls", "/nope")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"/nope", "node does not exist"}, "ls", "-l", "/nope")

	zkrtest.ExpectZkr(t, e, "one", "get", "/app")
	zkrtest.ExpectZkr(t, e, "", "set", "/app", "two")
	zkrtest.ExpectZkr(t, e, "two", "get", "--raw", "/app")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"set /app: version conflict", "zkr stat"}, "set", "--version", "0", "/app", "three")
	zkrtest.ExpectZkr(t, e, "", "set", "--version", "1", "/app", "")
	zkrtest.ExpectZkr(t, e, "", "get", "/app")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"get /nope"}, "get", "/nope")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"stat /nope"}, "stat", "/nope")

	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"delete /app/c: version conflict"}, "rm", "--version", "5", "/app/c")
	zkrtest.ExpectZkr(t, e, "deleted /app/c\n", "rm", "--version", "0", "/app/c")
	zkrtest.ExpectZkr(t, e, "deleted /app/a/b\ndeleted /app/jobs-0000000001\n", "rm", "/app/a/b", "/app/jobs-0000000001")
	zkrtest.ExpectZkr(t, e, `{"path":"/app/a"}`+"\n", "rm", "--json", "/app/a")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"/nope"}, "rm", "/nope")
}

// TestSequentialWithoutAName: the number is the name.
func TestSequentialWithoutAName(t *testing.T) {
	e := testutil.Start(t)
	zkrtest.ExpectZkr(t, e, "/queue/0000000000\n", "create", "--sequential", "--parents", "/queue/", "one")
	zkrtest.ExpectZkr(t, e, "/0000000001\n", "create", "--sequential", "/")
	zkrtest.RefusesZkr(t, e, cli.ExitUsage, []string{"ends with a slash"}, "create", "--sequential", "/queue//")
	zkrtest.RefusesZkr(t, e, cli.ExitUsage, []string{"ends with a slash"}, "create", "/queue/")
}

// TestTTL: the ensemble deletes a znode with a time to live.
func TestTTL(t *testing.T) {
	e := testutil.Start(t, testutil.WithExtendedTypes(), testutil.WithContainerInterval(5*time.Millisecond))
	zkrtest.ExpectZkr(t, e, "/long\n", "create", "--ttl", "1h", "/long")
	zkrtest.ExpectZkr(t, e, "/short\n", "create", "--ttl", "1ms", "/short")
	if code, text := zkrtest.Zkr(e, "create", "--ttl", "1h", "--sequential", "/s-"); code != 0 || !strings.HasPrefix(text, "/s-00000") {
		t.Errorf("exit code %d: %s", code, text)
	}
	for deadline := time.Now().Add(time.Minute); e.Exists("/short"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("/short stays")
		}
	}
	if !e.Exists("/long") {
		t.Error("/long is gone")
	}
	zkrtest.RefusesZkr(t, testutil.Start(t), cli.ExitFailed, []string{"create /x: unimplemented", "extendedTypesEnabled=true"}, "create", "--ttl", "1h", "/x")
}

// TestZnodesRefuse: wrong usage is noticed before a server is asked.
func TestZnodesRefuse(t *testing.T) {
	for _, args := range [][]string{
		{"ls", "relative"},
		{"ls", "/a", "/b"},
		{"tree", "--depth", "-2", "/"},
		{"get"},
		{"get", "--raw", "--json", "/a"},
		{"stat", "/a/"},
		{"set", "/a"},
		{"set", "--version", "-2", "/a", "x"},
		{"set", "--acl", "world:anyone:r"},
		{"set", "--acl", "world:anyone:r", "/a", "x"},
		{"set", "--acl", "world:anyone", "/a"},
		{"create"},
		{"create", "/a", "b", "c"},
		{"create", "--container", "--ephemeral", "/a"},
		{"create", "--ttl", "1h", "--ephemeral", "/a"},
		{"create", "--ttl", "1h", "--container", "/a"},
		{"create", "--ttl", "0s", "/a"},
		{"create", "--acl", "world:anyone", "/a"},
		{"create", "--acl", "world:anyone:x", "/a"},
		{"rm"},
		{"rm", "--version", "1", "--recursive", "/a"},
		{"rm", "--version", "1", "/a", "/b"},
		{"rm", "/"},
		{"rm", "--recursive", "/zookeeper"},
		{"rm", "--recursive", "/zookeeper/quota"},
		{"rm", "--dry-run", "--recursive", "/"},
		{"watch"},
		{"watch", "--of", "none", "/a"},
	} {
		var out bytes.Buffer
		args = append([]string{args[0], "--servers", "127.0.0.1:1"}, args[1:]...)
		if code := zkrtest.Run(args, &out, &out); code != cli.ExitUsage {
			t.Errorf("%q: exit code %d: %s", args, code, out.String())
		}
	}
	for _, args := range [][]string{
		{"rm", "--servers", "127.0.0.1:1/zookeeper", "/quota"},
		{"rm", "--servers", "127.0.0.1:1/app", "/"},
	} {
		var out bytes.Buffer
		if code := zkrtest.Run(args, &out, &out); code != cli.ExitUsage || !strings.Contains(out.String(), "never deleted") {
			t.Errorf("%q: exit code %d: %s", args, code, out.String())
		}
	}
}

// TestZnodesInJSON: programs get names, data and numbers as they are.
func TestZnodesInJSON(t *testing.T) {
	e := testutil.Start(t)
	c := zkrtest.Dial(t, e)
	for path, data := range map[string]string{"/j": "", "/j/text": "a\x1b[2Jé", "/j/binary": "\xff\x00", "/j/na\u202eme": ""} {
		if path == "/j" {
			continue
		}
		if err := c.MakePersistentPath(t.Context(), "/j"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Create(t.Context(), path, []byte(data), 0); err != nil {
			t.Fatal(err)
		}
	}
	read := func(verb string, args ...string) (all []znode) {
		code, text := zkrtest.Zkr(e, verb, append([]string{"--json"}, args...)...)
		if code != 0 || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Fatalf("exit code %d: %q", code, text)
		}
		for line := range strings.Lines(text) {
			var z znode
			if err := json.Unmarshal([]byte(line), &z); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			all = append(all, z)
		}
		return all
	}
	if z := read("get", "/j/text")[0]; z.Data == nil || *z.Data != "a\x1b[2Jé" || z.Size != 7 || z.Path != "/j/text" {
		t.Errorf("%+v", z)
	}
	if z := read("get", "/j/binary")[0]; z.Data != nil || string(z.Binary) != "\xff\x00" {
		t.Errorf("%+v", z)
	}
	if all := read("ls", "/j"); len(all) != 3 || all[1].Path != "/j/na\u202eme" {
		t.Errorf("%+v", all)
	}
	if z := read("stat", "--acl", "/j")[0]; z.Children != 3 || fmt.Sprint(z.ACL) != "[world:anyone:cdrwa]" || z.Session != "" {
		t.Errorf("%+v", z)
	}
	if z := read("set", "/j", "x")[0]; z.Version != 1 {
		t.Errorf("%+v", z)
	}
	code, text := zkrtest.Zkr(e, "ls", "/j")
	if want := "binary\nna\\u202eme\ntext\n"; code != 0 || text != want {
		t.Errorf("exit code %d: %q", code, text)
	}
}

// TestStdin: - stands for the bytes of stdin.
func TestStdin(t *testing.T) {
	e := testutil.Start(t)
	if _, err := zkrtest.Dial(t, e).Create(t.Context(), "/in", nil, 0); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ verb, path, data string }{{"set", "/in", "a\n\xff\x00"}, {"create", "/other", "b\n"}, {"set", "/in", ""}} {
		file := filepath.Join(t.TempDir(), "data")
		if err := os.WriteFile(file, []byte(test.data), 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		var to cli.Ensemble
		root := cli.NewRoot(&to, Commands)
		root.SetArgs([]string{test.verb, "--servers", e.Servers(), test.path, "-"})
		root.SetIn(in)
		root.SetOut(&bytes.Buffer{})
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		if got, ok := e.Data(test.path); !ok || string(got) != test.data {
			t.Errorf("%s %s: %q, want %q", test.verb, test.path, got, test.data)
		}
	}
}

// TestShown: on a terminal, data of several lines stays readable, and nothing
// in it is obeyed.
func TestShown(t *testing.T) {
	for data, want := range map[string]string{
		"":                    "",
		"one":                 "one\n",
		"one\n\ttwo\n":        "one\n\ttwo\n",
		"é\x1b[2J\xff\u202e":  `é\x1b[2J\xff\u202e` + "\n",
		"\r\n":                `\r` + "\n",
		"\ufffd is printable": "\ufffd is printable\n",
	} {
		var out bytes.Buffer
		if err := printData(&out, []byte(data), true); err != nil || out.String() != want {
			t.Errorf("%q is shown as %q, want %q", data, out.String(), want)
		}
		out.Reset()
		if err := printData(&out, []byte(data), false); err != nil || out.String() != data {
			t.Errorf("%q is printed raw as %q", data, out.String())
		}
	}
	if cli.IsTerminal(&bytes.Buffer{}) {
		t.Error("a buffer counts as a terminal")
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if cli.IsTerminal(file) {
		t.Error("a file counts as a terminal")
	}
}

func TestACL(t *testing.T) {
	for text, want := range map[string]zk.ACL{
		"world:anyone:cdrwa":     {Scheme: "world", ID: "anyone", Perms: zk.PermAll},
		"digest:user:aGFzaA==:r": {Scheme: "digest", ID: "user:aGFzaA==", Perms: zk.PermRead},
		"auth::cw":               {Scheme: "auth", Perms: zk.PermCreate | zk.PermWrite},
		"ip:10.0.0.0/8:da":       {Scheme: "ip", ID: "10.0.0.0/8", Perms: zk.PermDelete | zk.PermAdmin},
	} {
		got, err := cli.ParseACL(text)
		if err != nil || got != want || cli.FormatACL(got) != text {
			t.Errorf("%s is %+v (%v), which is %s", text, got, err, cli.FormatACL(got))
		}
	}
	for _, text := range []string{"", "world", "world:anyone", "world:anyone:", ":x:r", "world:anyone:rx"} {
		if got, err := cli.ParseACL(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
	e := testutil.Start(t)
	zkrtest.ExpectZkr(t, e, "/pub\n", "create", "--acl", "world:anyone:r", "/pub", "x")
	if _, text := zkrtest.Zkr(e, "stat", "--acl", "/pub"); !strings.Contains(text, "world:anyone:r\n") {
		t.Errorf("stat prints %s", text)
	}
	zkrtest.ExpectZkr(t, e, "/shut\n", "create", "--acl", "world:anyone:ra", "--acl", "ip:127.0.0.1:d", "/shut")
	zkrtest.ExpectZkr(t, e, "", "set", "--version", "0", "--acl", "world:anyone:wa", "--acl", "ip:127.0.0.1:r", "/shut")
	if _, text := zkrtest.Zkr(e, "stat", "--acl", "/shut"); !strings.Contains(text, "acl                      world:anyone:wa\nacl                      ip:127.0.0.1:r\n") {
		t.Errorf("stat prints %s", text)
	}
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"/shut: version conflict"}, "set", "--version", "0", "--acl", "world:anyone:r", "/shut")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"invalid ACL", "--acl"}, "set", "--acl", "nosuch:x:r", "/shut")
	zkrtest.RefusesZkr(t, e, cli.ExitFailed, []string{"set /pub: not allowed by the ACL", e.Servers(), "--auth-file"}, "set", "/pub", "y")
}

// FuzzZnodePrinted: whatever names and data znodes have, each command prints
// one line for each of them, and nothing that a terminal may obey. JSON has the
// same names and data.
func FuzzZnodePrinted(f *testing.F) {
	f.Add("name", []byte("data"))
	f.Add("\x1b[2J", []byte("\x1b]0;title\a"))
	f.Add("\u202efdp.exe", []byte("\xff\x00\r\n"))
	f.Add("\u2028\u2029\u200b\ufeff\U000e0001", []byte("\u009b31m"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		stat := &zk.Stat{EphemeralOwner: 7, DataLength: int32(len(data))}
		root := &branch{path: "/at", stat: stat, below: []*branch{{path: cli.ChildPath("/at", name), stat: stat}}}
		shows := func(what string, lines int, print func(out *bytes.Buffer) error) string {
			var out bytes.Buffer
			if err := print(&out); err != nil {
				t.Fatal(err)
			}
			text := out.String()
			if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || strings.Count(text, "\n") != lines {
				t.Errorf("%s prints %q", what, text)
			}
			return text
		}
		shows("ls", 1, func(out *bytes.Buffer) error { return list{}.print(out, root) })
		shows("ls -l", 1, func(out *bytes.Buffer) error { return list{long: true, recursive: true}.print(out, root) })
		shows("tree", 4, func(out *bytes.Buffer) error { return draw(out, root) })
		shows("rm", 1, func(out *bytes.Buffer) error { return (&removal{out: out}).removed(root.below[0].path) })
		shows("rm --dry-run", 1, func(out *bytes.Buffer) error { return (&removal{out: out}).previewed(root.below[0]) })
		shows("watch", 2, func(out *bytes.Buffer) error {
			w := watcher{path: root.below[0].path, out: out}
			if err := w.print(changeTo(eventChanged, w.path, stat.Version, data), true); err != nil {
				return err
			}
			return w.print(change{Event: eventAdded, Child: "c" + name}, true)
		})
		if text := shown(data); strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }) {
			t.Errorf("get prints %q", text)
		}
		z := newZnode(root.below[0].path, stat)
		z.setData(data)
		text := shows("--json", 1, func(out *bytes.Buffer) error { return cli.JSONLine(out, z) })
		var again znode
		if err := json.Unmarshal([]byte(text), &again); err != nil {
			t.Fatal(err)
		}
		if utf8.ValidString(name) && again.Path != z.Path {
			t.Errorf("the path %q is read as %q", z.Path, again.Path)
		}
		if got := again.Binary; again.Data != nil && *again.Data != string(data) || again.Data == nil && !bytes.Equal(got, data) {
			t.Errorf("the data %q is read as %+v", data, again)
		}
	})
}

// TestInParallel: no more calls than allowed run at the same time, each index
// is called once, and the first error ends it.
func TestInParallel(t *testing.T) {
	var now, most, calls atomic.Int32
	seen := make([]atomic.Bool, 1000)
	err := inParallel(t.Context(), len(seen), func(_ context.Context, i int) error {
		defer now.Add(-1)
		for n := now.Add(1); ; {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		if seen[i].Swap(true) {
			t.Errorf("%d is called twice", i)
		}
		calls.Add(1)
		return nil
	})
	if err != nil || calls.Load() != int32(len(seen)) || most.Load() > requestsAtOnce {
		t.Errorf("%v: %d calls, %d at the same time", err, calls.Load(), most.Load())
	}
	wrong := errors.New("wrong")
	calls.Store(0)
	if err := inParallel(t.Context(), len(seen), func(_ context.Context, _ int) error {
		calls.Add(1)
		return wrong
	}); !errors.Is(err, wrong) || calls.Load() > 2*requestsAtOnce {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
	ended, end := context.WithCancelCause(t.Context())
	end(wrong)
	if err := inParallel(ended, 1, func(context.Context, int) error { return nil }); !errors.Is(err, wrong) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if err := inParallel(t.Context(), 0, nil); err != nil {
		t.Error(err)
	}
}

// TestLostAnswers: where an answer is lost, the error says that the request may
// have been executed, unless zkr can know.
func TestLostAnswers(t *testing.T) {
	const unsure = "no answer came to a request, so it may have been executed"
	for _, test := range []struct {
		name string
		op   []testutil.Op
		args []string
		want int
		says string
	}{
		{"a guarded set", []testutil.Op{testutil.OpSetData}, []string{"set", "--version", "0", "/x", "new"}, cli.ExitFailed, unsure},
		{"a set", []testutil.Op{testutil.OpSetData}, []string{"set", "/x", "new"}, 0, ""},
		{"a create", []testutil.Op{testutil.OpCreate, testutil.OpCreate2}, []string{"create", "/y"}, cli.ExitFailed, unsure},
		{"a sequential create", []testutil.Op{testutil.OpCreate, testutil.OpCreate2}, []string{"create", "--sequential", "/y-"}, cli.ExitFailed, unsure},
		{"a delete", []testutil.Op{testutil.OpDelete}, []string{"rm", "/x"}, 0, "deleted /x\n"},
		{"a read", []testutil.Op{testutil.OpGetData}, []string{"get", "/x"}, 0, "old"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := testutil.Start(t)
			if _, err := zkrtest.Dial(t, e).Create(t.Context(), "/x", []byte("old"), 0); err != nil {
				t.Fatal(err)
			}
			var lost atomic.Bool
			t.Cleanup(e.Control(func(r testutil.Request) testutil.Action {
				if slices.Contains(test.op, r.Op) && lost.CompareAndSwap(false, true) {
					return testutil.DropAfter()
				}
				return testutil.Pass()
			}))
			code, text := zkrtest.Zkr(e, test.args[0], test.args[1:]...)
			if code != test.want || !strings.Contains(text, test.says) || !lost.Load() {
				t.Errorf("exit code %d, want %d; it printed %q, want %q in it", code, test.want, text, test.says)
			}
		})
	}
}
