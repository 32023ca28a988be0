package serverlist

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/managed/request"
)

// A chroot behind each server of the list is refused, with the right form in
// the error.
func TestParseServers(t *testing.T) {
	for _, tt := range []struct {
		in     string
		addrs  string
		chroot string
		errHas string
	}{
		{in: "a", addrs: "a:2181"},
		{in: "a:2182", addrs: "a:2182"},
		{in: "a:1,b,c:3", addrs: "a:1 b:2181 c:3"},
		{in: " a:1 , b:2 ", addrs: "a:1 b:2"},
		{in: "a/app", addrs: "a:2181", chroot: "/app"},
		{in: "a:1,b:2/app/x", addrs: "a:1 b:2", chroot: "/app/x"},
		{in: "a/", addrs: "a:2181"},
		{in: "[::1]", addrs: "[::1]:2181"},
		{in: "[::1]:99", addrs: "[::1]:99"},
		{in: "", errHas: "no server"},
		{in: ",,", errHas: "no server"},
		{in: "/app", errHas: "no server"},
		{in: "::1", errHas: "::1"},
		{in: "a:", errHas: "port"},
		{in: ":2181", errHas: "no host"},
		{in: "a:1,b:65535", addrs: "a:1 b:65535"},
		{in: "a:0", errHas: "port"},
		{in: "a:65536", errHas: "port"},
		{in: "a:http", errHas: "port"},
		{in: "a:+80", addrs: "a:80"},
		{in: "[fe80::1%eth0]:7", addrs: "[fe80::1%eth0]:7"},
		{in: "0]0", errHas: "host name"}, // it became an address that cannot be dialed
		{in: "[::1%0]0", errHas: "port"}, // so did this
		{in: "[::1%[]", errHas: "host name"},
		{in: "[a", errHas: "host name"},
		{in: "[]", errHas: "no host"},
		{in: "http://a", errHas: "port"},
		{in: "user@a", errHas: "host name"},
		{in: "a b", errHas: "host name"},
		{in: "\xff", errHas: "host name"},
		{in: "[a:b]:1", errHas: "a:b"},
		{in: "a/app/", errHas: "slash"},
		{in: "a/app//x", errHas: "empty name"},
		{in: "a/../x", errHas: "relative"},
		{in: "h1:2181/a,h2:2181/a", errHas: `behind the last server, as in "h1:2181,h2:2181/a"`}, // it was one server, with the chroot /a,h2:2181/a
		{in: "h1/a/b, h2/a/b", errHas: `as in "h1,h2/a/b"`},
		{in: "h1/a,h2", errHas: `as in "h1,h2/a"`},
		{in: "h1/a,h2/b", errHas: `as in "h1,h2/a"`},
		{in: "h1,h2/a,", errHas: `as in "h1,h2/a"`},
	} {
		addrs, chroot, err := Parse(tt.in)
		if tt.errHas != "" {
			if err == nil || !strings.Contains(err.Error(), tt.errHas) || !strings.Contains(err.Error(), fmt.Sprintf("%q", tt.in)) {
				t.Errorf("Parse(%q): error %v, want one that names it and has %q", tt.in, err, tt.errHas)
			}
			continue
		}
		if got := strings.Join(addrs, " "); err != nil || got != tt.addrs || chroot != tt.chroot {
			t.Errorf("Parse(%q) = %q, %q, %v; want %q, %q", tt.in, got, chroot, err, tt.addrs, tt.chroot)
		}
	}
}

// FuzzParseServers checks that an accepted list can be written down again and
// means the same.
func FuzzParseServers(f *testing.F) {
	for _, servers := range []string{"a", "a:1,b,c:3/app", " a:1 , b:2 /x", "[::1]:2181,[fe80::1%eth0]/a/b", "[::0%0]0", "a:00080", ",a,", "a//", "a/\x00", "\xff", "a/x,b/x"} {
		f.Add(servers)
	}
	f.Fuzz(func(t *testing.T, servers string) {
		addrs, chroot, err := Parse(servers)
		if err != nil {
			if len(addrs) > 0 || chroot != "" {
				t.Errorf("%q: %v, with %q and %q", servers, err, addrs, chroot)
			}
			return
		}
		if chroot != "" && (chroot == "/" || strings.Contains(chroot, ",") || request.ValidatePath(chroot) != nil) {
			t.Errorf("%q has the chroot %q", servers, chroot)
		}
		again, chrootAgain, err := Parse(strings.Join(addrs, ",") + chroot)
		if err != nil || !slices.Equal(addrs, again) || chroot != chrootAgain {
			t.Errorf("%q is %q and %q, and that is %q and %q, %v", servers, addrs, chroot, again, chrootAgain, err)
		}
	})
}
