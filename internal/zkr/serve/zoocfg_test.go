package serve

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// superHash is the base64 of the SHA-1 of super:secret.
const superHash = "lK75jTNcA+U9vtVEw5vB51mj/w4="

func TestParseZooCfg(t *testing.T) {
	const s = time.Second
	for _, test := range []struct {
		name  string
		file  string
		want  serverSettings
		notes int
	}{
		{
			"as Debian installs it",
			"# http://hadoop.apache.org/zookeeper/docs/current/zookeeperAdmin.html\n\ntickTime=2000\ninitLimit=10\nsyncLimit=5\n" +
				"dataDir=/var/lib/zookeeper\n# dataLogDir=/disk2/zookeeper\nclientPort=2181\n#server.1=zookeeper1:2888:3888\n#maxClientCnxns=60\n",
			serverSettings{members: 1, listen: []string{":2181"}, tick: 2 * s, minSession: 4 * s, maxSession: 40 * s},
			3,
		},
		{
			"all that is read",
			"clientPort=2182\nclientPortAddress=127.0.0.1\ntickTime=500\nminSessionTimeout=100\nmaxSessionTimeout=60000\n" +
				"extendedTypesEnabled=true\n",
			serverSettings{
				members: 1, listen: []string{"127.0.0.1:2182"}, tick: s / 2, minSession: s / 10, maxSession: 60 * s, extended: true,
			},
			0,
		},
		{
			"defaults",
			"clientPort=2181",
			serverSettings{members: 1, listen: []string{":2181"}, tick: 3 * s, minSession: 6 * s, maxSession: 60 * s},
			0,
		},
		{
			"minus one is not set",
			"clientPort=2181\ntickTime=1000\nminSessionTimeout=-1\nmaxSessionTimeout=-1\n",
			serverSettings{members: 1, listen: []string{":2181"}, tick: s, minSession: 2 * s, maxSession: 20 * s},
			0,
		},
		{
			"one of the bounds",
			"clientPort=2181\ntickTime=1000\nmaxSessionTimeout=5000\n",
			serverSettings{members: 1, listen: []string{":2181"}, tick: s, minSession: 2 * s, maxSession: 5 * s},
			0,
		},
		{
			"every way to write a property, and Windows's line ends",
			"  clientPort : 2181\r\nclientPortAddress=::1\r\ntickTime 1000\r\n! a comment\r\n   \r\n",
			serverSettings{members: 1, listen: []string{"[::1]:2181"}, tick: s, minSession: 2 * s, maxSession: 20 * s},
			0,
		},
		{
			"the last line counts",
			"clientPort=1\ntickTime=1000\nclientPort=0\n",
			serverSettings{members: 1, listen: []string{":0"}, tick: s, minSession: 2 * s, maxSession: 20 * s},
			0,
		},
		{
			"one server is a single member",
			"clientPort=2181\ntickTime=1000\nserver.1=localhost:2888:3888\n",
			serverSettings{members: 1, listen: []string{":2181"}, tick: s, minSession: 2 * s, maxSession: 20 * s},
			1,
		},
		{
			"settings without a meaning here",
			"clientPort=2181\ntickTime=1000\nautopurge.purgeInterval=24\nadmin.enableServer=false\n4lw.commands.whitelist=*\ndataLogDir=/x\n",
			serverSettings{members: 1, listen: []string{":2181"}, tick: s, minSession: 2 * s, maxSession: 20 * s},
			4,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, notes, err := parseZooCfg(strings.NewReader(test.file))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("\n got %+v\nwant %+v", got, test.want)
			}
			if len(notes) != test.notes {
				t.Errorf("%d notes, want %d: %q", len(notes), test.notes, notes)
			}
		})
	}
}

func TestZooCfgRefusals(t *testing.T) {
	for _, test := range []struct {
		file string
		want string // prefix of the error
	}{
		{"", " clientPort is not set"},
		{"tickTime=2000\n", " clientPort is not set"},
		{"clientPort=2181\nserver.1=a:2888:3888\nserver.2=b:2888:3888\nserver.3=c:2888:3888\n", "3: server.2: several servers"},
		{"\n\nclientPort=none\n", `3: clientPort: "none" is not a port`},
		{"clientPort=65536\n", `1: clientPort: "65536" is not a port`},
		{"clientPort=\n", `1: clientPort: "" is not a port`},
		{"clientPort=2181\ntickTime=0\n", `2: tickTime: "0": must be at least 1`},
		{"clientPort=2181\ntickTime=-1\n", `2: tickTime: "-1": must be at least 1`},
		{"clientPort=2181\ntickTime=2s\n", `2: tickTime: "2s" is not a number of milliseconds`},
		{"clientPort=2181\ntickTime=99999999999\n", `2: tickTime: "99999999999" is not a number`},
		{"clientPort=2181\nminSessionTimeout=-2\n", `2: minSessionTimeout: "-2"`},
		{"clientPort=2181\nminSessionTimeout=5000\nmaxSessionTimeout=4000\n", " minSessionTimeout (5s) is more than maxSessionTimeout (4s)"},
		{"clientPort=2181\ntickTime=1000\nminSessionTimeout=30000\n", " minSessionTimeout (30s) is more than maxSessionTimeout (20s)"},
		{"clientPort=2181\nsecureClientPort=2281\n", "2: secureClientPort: not supported"},
		{"clientPort=2181\nssl.keyStore.location=/x\n", "2: ssl.keyStore.location: not supported"},
		{"clientPort=2181\nauthProvider.sasl=x\n", "2: authProvider.sasl: not supported"},
		{"clientPort=2181\ndynamicConfigFile=/x\n", "2: dynamicConfigFile: not supported"},
		{"clientPort=\\\n2181\n", "1: continued lines"},
		{"clientPort=" + strings.Repeat("1", 1<<17), ""},
	} {
		_, _, err := parseZooCfg(strings.NewReader(test.file))
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%.60q: %v, want %q", test.file, err, test.want)
		}
	}
}

// FuzzParseZooCfg: no file causes a panic, and every accepted one can be
// served.
func FuzzParseZooCfg(f *testing.F) {
	f.Add("clientPort=2181\ntickTime=2000\nserver.1=a:1:2;[::1]:3\n")
	f.Add("clientPort :: 1\nminSessionTimeout=-1\n=\n:\n")
	f.Fuzz(func(t *testing.T, file string) {
		got, _, err := parseZooCfg(strings.NewReader(file))
		if err != nil {
			return
		}
		if got.members != 1 || len(got.listen) != 1 || got.tick <= 0 || got.minSession <= 0 || got.maxSession < got.minSession {
			t.Errorf("%q became %+v", file, got)
		}
	})
}

func TestAddresses(t *testing.T) {
	for _, test := range []struct {
		listen  []string
		members int
		want    []string // nil: refused
	}{
		{[]string{"127.0.0.1:2181"}, 1, []string{"127.0.0.1:2181"}},
		{[]string{"127.0.0.1:2181"}, 3, []string{"127.0.0.1:2181", "127.0.0.1:2182", "127.0.0.1:2183"}},
		{[]string{"127.0.0.1:0"}, 3, []string{"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"}},
		{[]string{"[::1]:65534"}, 2, []string{"[::1]:65534", "[::1]:65535"}},
		{[]string{":1", ":7", "a:1"}, 3, []string{":1", ":7", "a:1"}},
		{[]string{"127.0.0.1:65535"}, 2, nil},
		{[]string{":1", ":2"}, 3, nil},
		{[]string{":1", ":2"}, 1, nil},
		{[]string{"127.0.0.1"}, 1, nil},
		{[]string{"127.0.0.1:http"}, 1, nil},
		{[]string{":2181"}, 0, nil},
		{nil, 1, nil},
	} {
		name := fmt.Sprintf("%d members on %q", test.members, test.listen)
		got, err := addresses(test.listen, test.members)
		if (err == nil) != (test.want != nil) || !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, test.want)
		}
	}
}
