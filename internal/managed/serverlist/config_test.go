package serverlist

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// Which addresses of a config count, and which lines are said to be wrong.
func TestMembersOfAConfig(t *testing.T) {
	for line, want := range map[string]string{
		"zk1:2888:3888:participant;zk1:2181":                                    "zk1:2181",
		"zk1:2888:3888;zk1:2181":                                                "zk1:2181",
		"zk1:2888:3888:observer;zk1:2181":                                       "zk1:2181",
		"zk1:2888:3888:participant;0.0.0.0:2182":                                "zk1:2182",
		"zk1:2888:3888:participant;2182":                                        "zk1:2182",
		"zk1:2888:3888:participant;:2182":                                       "zk1:2182",
		"zk1:2888:3888:participant;[0:0:0:0:0:0:0:0]:2182":                      "zk1:2182",
		"zk1:2888:3888:participant;0:0:0:0:0:0:0:0:2182":                        "zk1:2182",
		"[2001:db8:0:0:0:0:0:1]:2888:3888:participant;0.0.0.0:2181":             "[2001:db8:0:0:0:0:0:1]:2181",
		"zk1:2888:3888:participant;[2001:db8::1]:2181":                          "[2001:db8::1]:2181",
		"zk1:2888:3888|zk1b:2888:3888:participant;0.0.0.0:2181":                 "zk1:2181",
		"10.0.0.1:2888:3888:participant;10.1.0.1:2181;10.1.0.1:2281":            "10.1.0.1:2181",
		"10.0.0.1:2888:3888:participant;;10.1.0.1:2281":                         "wrong",
		"tls1:2888:3888:participant;0.0.0.0:2181;0.0.0.0:2281":                  "tls1:2281",
		"tls1:2888:3888:participant;;2281":                                      "tls1:2281",
		"tls1:2888:3888:participant;0.0.0.0:2181":                               "tls1:2181",
		"tls1:2888:3888:participant;;":                                          "wrong",
		"127.0.0.1:2888:3888:participant;127.0.0.1:2181":                        "127.0.0.1:2181", // see TestLocalMembers
		"zk1:2888:3888:participant":                                             "wrong",
		"zk1:2888:3888":                                                         "wrong",
		"zk1:2888:3888:participant;":                                            "wrong",
		"0.0.0.0:2888:3888:participant;0.0.0.0:2181":                            "wrong",
		"zk1:2888:3888:participant;zk1:0":                                       "wrong",
		"zk1:2888:3888:participant;zk1:port":                                    "wrong",
		"zk1:2888:3888:participant;zk1:99999":                                   "wrong",
		"zk1:2888:3888:participant;zk1/10.0.0.1:2181":                           "wrong",
		"zk1:2888:3888:participant;a b:2181":                                    "wrong",
		"zk1:2888:3888:participant;a,b:2181":                                    "wrong",
		":2888:3888:participant;0.0.0.0:2181":                                   "wrong",
		"zk1:2888:3888:participant;" + strings.Repeat("x", 1<<16) + "\x00:2181": "wrong",
	} {
		names, version, wrong, err := Members([]byte("server.7="+line+"\nversion=10000000f"), strings.Contains(line, "tls"))
		got := strings.Join(names, ",")
		if wrong != nil {
			got = "wrong"
			if !strings.Contains(wrong.Error(), "server.7=") || len(wrong.Error()) > 400 {
				t.Errorf("%.100q: %v", line, wrong)
			}
		}
		if got != want || version != 0x10000000f || err != nil {
			t.Errorf("%.100q: %q, %x, %v; want %q", line, got, version, err, want)
		}
	}
	many := strings.Builder{}
	for i := range 10000 {
		fmt.Fprintf(&many, "server.%d=zk%d:2888:3888:participant;zk%d:2181\n", i, i, i)
	}
	for config, want := range map[string]string{
		many.String() + "version=0":                   "10000 members: at most 255",
		"server.1=zk1:2888:3888:participant;zk1:2181": "no version",
		"version=-1":                            "is not a number",
		"version=x":                             "is not a number",
		"version=ffffffffffffffffff":            "is not a number",
		"version=" + strings.Repeat("9", 1<<20): "is not a number",
		"":                                      "no version",
		strings.Repeat("server.1=", 1<<17):      "no version",
		"garbage\x00\xff" + strings.Repeat("\n=\n;", 1<<10): "no version",
	} {
		if names, _, _, err := Members([]byte(config), false); names != nil || err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 200 {
			t.Errorf("%.30q: %d names, %v", config, len(names), err)
		}
	}
	names, version, wrong, err := Members([]byte("group.1=1\nserver.2=b:1:2;b:3\r\nserver.1=a:1:2;a:3\nserver.3=b:1:2;b:3\nserver.4=c:1:2;c:0\nversion=0\n"), false)
	if !slices.Equal(names, []string{"a:3", "b:3"}) || version != 0 || wrong == nil || err != nil {
		t.Errorf("%v, %d, %v, %v", names, version, wrong, err)
	}
}

// FuzzMembers reads what a member may show as its config: it ends with a short
// error, or with members that can be called, each once, none of which is a
// wildcard. A line of a usable member more is one member more.
func FuzzMembers(f *testing.F) {
	for _, config := range []string{
		"server.1=a:1:2;a:3\nversion=0", "server.1=a:1:2:observer;0.0.0.0:3\nserver.2=[::1]:1:2;;4\nversion=10000000f",
		"server.1=a:1:2|b:1:2;[::]:3\r\ngroup.1=1\nversion=ffffffffffffffffff", "server.=;:\nversion=", "server.1=0.0.0.0:1:2;[::ffff:0.0.0.0]:1\nversion=1",
		"server.1=a:1:2;[[::]]:1\nversion=0", "server.1=[::ffff:0:0]:1:2;:1\nversion=0", "server.1=a:1:2;a:+3\nversion=0", "version=-0",
	} {
		f.Add([]byte(config), false)
		f.Add([]byte(config), true)
	}
	f.Fuzz(func(t *testing.T, config []byte, tls bool) {
		names, version, wrong, err := Members(config, tls)
		for _, failed := range []error{wrong, err} {
			if failed != nil && len(failed.Error()) > 1000 { // of 100 bytes that are shown, each escaped
				t.Errorf("%q: an error of %d bytes", config, len(failed.Error()))
			}
		}
		if err != nil {
			if names != nil || version != 0 || wrong != nil {
				t.Errorf("%q: %v, %d, %v, %v", config, names, version, wrong, err)
			}
			return
		}
		if version < 0 || len(names) > MostMembers || !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) < len(names) {
			t.Errorf("%q: %q, version %d", config, names, version)
		}
		for _, name := range names {
			if read, chroot, err := Parse(name); err != nil || !slices.Equal(read, []string{name}) || chroot != "" {
				t.Errorf("%q: %q is read as %q, %q, %v", config, name, read, chroot, err)
			}
			host, _, err := net.SplitHostPort(name)
			if a, notAnAddress := netip.ParseAddr(host); err != nil || len(host) > longestHost || notAnAddress == nil && a.Unmap().IsUnspecified() {
				t.Errorf("%q: %q, %v", config, name, err)
			}
		}
		more, _, _, err := Members(append([]byte("server.255=one.more.example:1:2;3\n"), config...), tls)
		if want := append([]string{"one.more.example:3"}, names...); len(names) < MostMembers && err == nil && !slices.Contains(names, want[0]) &&
			!slices.Equal(more, slices.Sorted(slices.Values(want))) {
			t.Errorf("%q: %q, and with one more %q", config, names, more)
		}
	})
}
