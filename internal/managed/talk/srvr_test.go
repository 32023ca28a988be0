package talk

import (
	"io"
	"strings"
	"testing"
)

const serverAnswer = "Zookeeper version: 3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on 2022-02-25 08:49 UTC\n" +
	"Latency min/avg/max: 0/0.0/0\nReceived: 1\nSent: 0\nConnections: 1\nOutstanding: 0\nZxid: 0x100000002\nMode: follower\nNode count: 5\n"

// What servers answer to the word srvr, and whether a client that has seen
// transaction 0x100000002 can move there.
func TestWhetherAServerServes(t *testing.T) {
	for _, tt := range []struct{ name, answer, want string }{
		{"a follower", serverAnswer, ""},
		{"a leader", strings.ReplaceAll(serverAnswer, "follower", "leader"), ""},
		{"an observer", strings.ReplaceAll(serverAnswer, "follower", "observer"), ""},
		{"standalone", strings.ReplaceAll(serverAnswer, "follower", "standalone"), ""},
		{"one that is ahead", strings.ReplaceAll(serverAnswer, "0x100000002", "0x200000000"), ""},
		{"one that lags", strings.ReplaceAll(serverAnswer, "0x100000002", "0x100000001"), "it lags: its latest transaction is 0x100000001, this session has seen 0x100000002"},
		{"read-only", strings.ReplaceAll(serverAnswer, "follower", "read-only"), `it does not serve: its mode is "read-only"`},
		{"an unknown mode", strings.ReplaceAll(serverAnswer, "follower", "looking"), "does not serve"},
		{"no quorum", "This ZooKeeper instance is not currently serving requests\n", `unexpected answer: "This ZooKeeper instance is not currently serving requests"`},
		{"not allowed", "srvr is not executed because it is not in the whitelist.\n", "not in the whitelist"},
		{"no zxid", "Mode: leader\n", "a mode and no zxid"},
		{"a zxid that is none", "Zxid: here\nMode: leader\n", "zxid"},
		{"nothing", "", "unexpected answer"},
		{"a web server", "HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP/1.1 400"},
		{"no end of the line", strings.Repeat("x", 1<<20), "unexpected answer"},
	} {
		is, err := parseCondition(io.LimitReader(strings.NewReader(tt.answer), mostCondition))
		if err == nil {
			err = is.Serves(0x100000002)
		}
		if text := errorText(err); (text == "") != (tt.want == "") || !strings.Contains(text, tt.want) || len(text) > 300 {
			t.Errorf("%s: %q, want %q", tt.name, text, tt.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
