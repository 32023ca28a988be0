package framework

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/internal/random"
	"github.com/zkrecipes/zkrecipes/internal/wire"
	"github.com/zkrecipes/zkrecipes/retry"
)

// The state matches the connection. The next session ends the state LOST, and
// no late event brings it back. A known failure elsewhere: CURATOR-525.
func TestNextState(t *testing.T) {
	for _, tt := range []struct {
		from State
		h    stateEvent
		to   State
	}{
		{Connecting, connected, Connected},
		{Connecting, disconnected, Connecting},
		{Connecting, lost, Connecting}, // it was never usable: no news
		{Connected, connected, Connected},
		{Connected, disconnected, Suspended},
		{Connected, lost, Lost}, // a member answers, but proof of the leader stalls
		{Suspended, connected, Connected},
		{Suspended, disconnected, Suspended},
		{Suspended, lost, Lost},
		{Lost, connected, Connected},
		{Lost, disconnected, Lost},
		{Lost, lost, Lost},
		{Connecting, closed, Closed},
		{Connected, closed, Closed},
		{Suspended, closed, Closed},
		{Lost, closed, Closed},
		{Closed, connected, Closed},
		{Closed, disconnected, Closed},
		{Closed, lost, Closed},
		{Closed, closed, Closed},
	} {
		if got := next(tt.from, tt.h); got != tt.to {
			t.Errorf("next(%v, %d) = %v, want %v", tt.from, tt.h, got, tt.to)
		}
	}
}

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
		{in: "h1,h2/a,", errHas: `as in "h1,h2/a"`},
	} {
		addrs, chroot, err := parseServers(tt.in)
		if tt.errHas != "" {
			if err == nil || !strings.Contains(err.Error(), tt.errHas) || !strings.Contains(err.Error(), fmt.Sprintf("%q", tt.in)) {
				t.Errorf("parseServers(%q): error %v, want one that names it and has %q", tt.in, err, tt.errHas)
			}
			continue
		}
		if got := strings.Join(addrs, " "); err != nil || got != tt.addrs || chroot != tt.chroot {
			t.Errorf("parseServers(%q) = %q, %q, %v; want %q, %q", tt.in, got, chroot, err, tt.addrs, tt.chroot)
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
		addrs, chroot, err := parseServers(servers)
		if err != nil {
			if len(addrs) > 0 || chroot != "" {
				t.Errorf("%q: %v, with %q and %q", servers, err, addrs, chroot)
			}
			return
		}
		if chroot != "" && (chroot == "/" || strings.Contains(chroot, ",") || ValidatePath(chroot) != nil) {
			t.Errorf("%q has the chroot %q", servers, chroot)
		}
		again, chrootAgain, err := parseServers(strings.Join(addrs, ",") + chroot)
		if err != nil || !slices.Equal(addrs, again) || chroot != chrootAgain {
			t.Errorf("%q is %q and %q, and that is %q and %q, %v", servers, addrs, chroot, again, chrootAgain, err)
		}
	})
}

func TestValidatePath(t *testing.T) {
	for path, ok := range map[string]bool{
		"/": true, "/a": true, "/a/b": true, "/a/...": true, "/ü/日本": true, "/_c_x-lock-0000000001": true,
		"": false, "a": false, "a/b": false, "/a/": false, "//": false, "/a//b": false, "/a/./b": false, "/..": false,
		"/a\x00": false, "/a\x1fb": false, "/ ": true, "/~": true, "/\u009f": false, "/\u00a0": true,
		"/\ud7ff": true, "/\ue000": false, "/\uf8ff": false, "/\uf900": true, "/\uffef": true, "/\x7f": false, "/\uf000": false, "/\xff": false, "/\ufff0": false, "/\U0001f511": false,
	} {
		err := ValidatePath(path)
		if (err == nil) != ok {
			t.Errorf("ValidatePath(%q) = %v, want ok: %v", path, err, ok)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%q", path)) {
			t.Errorf("ValidatePath(%q) does not name the path: %v", path, err)
		}
	}
}

// The namespace and the chroot are added once and removed once, for every path.
// Known failures elsewhere: CURATOR-132, -626.
func FuzzPrefixIsUndone(f *testing.F) {
	f.Add("", "/a")
	f.Add("/app", "/")
	f.Add("/app", "/app")
	f.Add("/a/b", "/a/b/c")
	f.Add("/app", "/apple")
	f.Fuzz(func(t *testing.T, root, path string) {
		if ValidatePath(path) != nil || root == "/" || root != "" && ValidatePath(root) != nil {
			t.Skip()
		}
		full := prefix(root).fix(path)
		if err := ValidatePath(full); err != nil {
			t.Fatalf("fix(%q, %q) = %q is no path: %v", root, path, full, err)
		}
		if got := prefix(root).unfix(full); got != path {
			t.Fatalf("unfix(fix(%q)) under %q = %q", path, root, got)
		}
	})
}

// A server may name a path that is not in the namespace: it stays as it is.
func TestUnfixLeavesOtherPaths(t *testing.T) {
	for path, want := range map[string]string{"/app": "/", "/app/a": "/a", "/apple": "/apple", "/a": "/a", "/other/app": "/other/app", "": ""} {
		if got := prefix("/app").unfix(path); got != want {
			t.Errorf("unfix(%q) = %q, want %q", path, got, want)
		}
	}
}

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want outcome
	}{
		{zk.ErrNoNode, final},
		{zk.ErrNoAuth, final},
		{zk.ErrBadVersion, final},
		{zk.ErrConnectionClosed, ambiguous},
		{zk.ErrClosing, ambiguous},
		{zk.ErrNoServer, unsent},
		{zk.ErrSessionMoved, unsent},
		{zk.ErrSessionExpired, expired},
		{errors.New("unknown error: what"), final},
		{fmt.Errorf("wrapped: %w", zk.ErrNoServer), unsent},
		{withMeaning(errors.New("unknown error: -7")), ambiguous},
		{fmt.Errorf("wrapped: %w", withMeaning(errors.New("unknown error: -127"))), unsent},
	} {
		if got := classify(tt.err); got != tt.want {
			t.Errorf("classify(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

// Codes that the wire client has no error for have a text. A known failure
// elsewhere: go-zookeeper.
func TestErrorsThatTheWireClientDoesNotKnow(t *testing.T) {
	for text, want := range map[string]string{
		"unknown error: -125": "quota exceeded (code -125)",
		"unknown error: -999": "unknown error: -999",
		"zk: not empty":       "zk: not empty",
	} {
		if got := withMeaning(errors.New(text)).Error(); got != want {
			t.Errorf("%q is named %q, want %q", text, got, want)
		}
	}
}

// A server with localSessionsEnabled refused every acquire with "unknown error:
// -120". These are all the codes of ZooKeeper 3.9 (KeeperException.Code). Each
// has a text and a meaning for the operation.
func TestEveryCodeOfTheServerIsKnown(t *testing.T) {
	for code, want := range map[int]struct {
		known   error // the wire client's own; nil: it knows the number only
		text    string
		outcome outcome
	}{
		-1:   {nil, "system error", final},
		-2:   {nil, "runtime inconsistency", final},
		-3:   {nil, "data inconsistency", final},
		-4:   {nil, "connection loss", ambiguous},
		-5:   {nil, "marshalling error", final},
		-6:   {nil, "unimplemented", final},
		-7:   {nil, "operation timeout", ambiguous},
		-8:   {zk.ErrBadArguments, "invalid arguments", final},
		-12:  {nil, "session not known", final},
		-13:  {nil, "no quorum", final},
		-14:  {nil, "reconfiguration is in progress", final},
		-100: {zk.ErrAPIError, "api error", final},
		-101: {zk.ErrNoNode, "does not exist", final},
		-102: {zk.ErrNoAuth, "not authenticated", final},
		-103: {zk.ErrBadVersion, "version conflict", final},
		-108: {zk.ErrNoChildrenForEphemerals, "may not have children", final},
		-110: {zk.ErrNodeExists, "already exists", final},
		-111: {zk.ErrNotEmpty, "has children", final},
		-112: {zk.ErrSessionExpired, "expired", expired},
		-113: {nil, "invalid callback", final},
		-114: {zk.ErrInvalidACL, "invalid ACL", final},
		-115: {zk.ErrAuthFailed, "authentication failed", final},
		-118: {zk.ErrSessionMoved, "moved", unsent},
		-119: {nil, "read-only", unsent},
		-120: {nil, "localSessionsUpgradingEnabled=true", final},
		-121: {nil, "no such watch", final},
		-122: {nil, "request timeout", ambiguous},
		-123: {zk.ErrReconfigDisabled, "disabled", final},
		-124: {nil, "SASL", final},
		-125: {nil, "quota exceeded", final},
		-127: {nil, "throttled", unsent},
	} {
		err := want.known
		if err == nil {
			err = fmt.Errorf("unknown error: %d", code)
		}
		got := withMeaning(err)
		if !strings.Contains(got.Error(), want.text) || strings.Contains(got.Error(), "unknown") {
			t.Errorf("code %d: %q, want %q in it", code, got, want.text)
		}
		for _, e := range []error{err, got, fmt.Errorf("wrapped: %w", got)} {
			if v := classify(e); v != want.outcome {
				t.Errorf("code %d: classify(%v) = %d, want %d", code, e, v, want.outcome)
			}
		}
	}
}

func TestMaybeAppliedLooksIntoWrappedErrors(t *testing.T) {
	err := error(&opError{op: "create", path: "/a", err: zk.ErrNoNode, maybe: true})
	wrapped := fmt.Errorf("locks: %w", err)
	if !errors.Is(wrapped, zk.ErrNoNode) || !MaybeApplied(wrapped) || MaybeApplied(zk.ErrNoNode) || MaybeApplied(nil) {
		t.Error("an operation's error must keep the wire's and say whether it may have been applied")
	}
}

// However the network cuts the answers into pieces, each head is passed on once
// and before the end of its frame.
func TestInboundFindsEveryHead(t *testing.T) {
	frame := func(xid int32, size int) []byte {
		b := make([]byte, 4+size)
		binary.BigEndian.PutUint32(b, uint32(size))
		if size >= 4 {
			binary.BigEndian.PutUint32(b[4:], uint32(xid))
		}
		return b
	}
	var stream []byte
	stream = append(stream, frame(-9, 37)...) // the connect answer
	sizes := []int{16, 17, 1000, 20, 0, 3, 16, 70000}
	for i, size := range sizes {
		stream = append(stream, frame(int32(i), size)...)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var in inbound
		var heads [][]byte
		firsts := 0
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), 1+rnd.IntN(50))
			in.feed(rest[:n], func(head []byte, first bool) ([]field, bool) {
				heads = append(heads, bytes.Clone(head))
				if first {
					firsts++
				}
				return nil, true
			})
			rest = rest[n:]
		}
		if len(heads) != 1+len(sizes) || firsts != 1 {
			t.Fatalf("%d heads, %d of them first; want %d and 1", len(heads), firsts, 1+len(sizes))
		}
		for i, size := range sizes {
			head := heads[i+1]
			if want := 4 + min(size, frameAnswerHead-4); len(head) != want {
				t.Fatalf("head %d has %d bytes, want %d", i, len(head), want)
			}
			if size >= 4 && int(binary.BigEndian.Uint32(head[4:])) != i {
				t.Fatalf("head %d has another frame's xid", i)
			}
		}
	}
}

// FuzzInbound checks that, however the network cuts a stream into pieces, the
// same heads are passed on and the same frame is refused, before its end.
func FuzzInbound(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3}, uint64(1))
	f.Add(append(make([]byte, 41), 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0), uint64(2))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		look := func(cut func(left int) int) (heads [][]byte, refused bool) {
			var in inbound
			for rest := stream; len(rest) > 0; {
				n := cut(len(rest))
				ok := in.feed(rest[:n], func(head []byte, first bool) ([]field, bool) {
					heads = append(heads, bytes.Clone(head))
					if first {
						parseConnectAnswer(head)
						return nil, true
					}
					return bodies[wire.OpGetChildren2], len(head) == frameAnswerHead
				})
				if !ok {
					return heads, true
				}
				rest = rest[n:]
			}
			return heads, false
		}
		rnd := rand.New(rand.NewPCG(seed, 0))
		whole, refused := look(func(left int) int { return left })
		for _, cut := range []func(left int) int{func(int) int { return 1 }, func(left int) int { return 1 + rnd.IntN(left) }} {
			if heads, again := look(cut); again != refused || !slices.EqualFunc(heads, whole, bytes.Equal) {
				t.Errorf("refused %t with heads %x; in other fields %t with %x", refused, whole, again, heads)
			}
		}
	})
}

// Each create of a contender has its own id, and the prefix is added once. A
// known failure elsewhere: CURATOR-489.
func TestNewIDsAreCuratorsAndDiffer(t *testing.T) {
	const form = "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx" // x: any digit, y: 8 to b
	ids := make(map[string]bool)
	digits := make([]map[byte]bool, len(form))
	same := make(map[[2]int]int) // how often two digits are the same
	for range 1000 {
		id := random.ID()
		if len(id) != len(form) || ids[id] {
			t.Fatalf("id %q is no fresh random UUID", id)
		}
		ids[id] = true
		for i := range form {
			if digits[i] == nil {
				digits[i] = make(map[byte]bool)
			}
			digits[i][id[i]] = true
			for j := range i {
				if id[i] == id[j] {
					same[[2]int{j, i}]++
				}
			}
		}
	}
	for i, c := range digits {
		n, all := 1, string(form[i])
		switch form[i] {
		case 'x':
			n, all = 16, "0123456789abcdef"
		case 'y':
			n, all = 4, "89ab"
		}
		for digit := range c {
			if len(c) != n || !strings.ContainsRune(all, rune(digit)) {
				t.Fatalf("digit %d: %d of them, such as %q; want all of %q", i, len(c), digit, all)
			}
		}
		for j := range i {
			if n > 1 && form[j] != '-' && form[j] != '4' && same[[2]int{j, i}] > 500 {
				t.Errorf("digits %d and %d are the same", j, i)
			}
		}
	}
}

// Servers that accept and drop connections must not be called in a tight loop,
// and the pause must never overflow, however long the outage.
func TestPaceGrowsAfterOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &core{pace: dialPace{round: 3, longest: time.Second}}
		p := &c.pace
		never := make(chan struct{})
		began := time.Now()
		for range 3 {
			c.awaitTurn(never)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the first round took %v: each server is tried at once", took)
		}
		for range 1000 {
			before := time.Now()
			if c.awaitTurn(never); time.Since(before) > time.Second {
				t.Fatalf("a pause of %v, want at most 1s", time.Since(before))
			}
		}
		if took := time.Since(began); took < 100*time.Second {
			t.Errorf("1000 attempts in %v: that is hammering", took)
		}
		p.reset()
		before := time.Now()
		if c.awaitTurn(never); time.Since(before) != 0 {
			t.Error("a proof must make the next attempt immediate")
		}
		longest := make([]time.Duration, 5) // of each further round
		for range 300 {
			p.reset()
			p.tries = p.round
			for i := range longest {
				before := time.Now()
				c.awaitTurn(never)
				longest[i] = max(longest[i], time.Since(before))
				p.tries = p.round
			}
		}
		for i, got := range longest {
			if want := min(125*ms<<i, time.Second); got > want || got < want*9/10 {
				t.Errorf("pause %d is up to %v, want %v", i+1, got, want)
			}
		}
		for timeout, want := range map[time.Duration]time.Duration{5 * time.Second: 500 * ms, time.Minute: time.Second} {
			if got := newCore(config{sessionTimeout: timeout, log: zap.NewNop()}, nil, "").pace.longest; got != want {
				t.Errorf("for T = %v the longest pause is %v, want %v", timeout, got, want)
			}
		}
		for range 2 { // refused, accepted, refused again
			p.refused()
			p.refused()
			for i := range 50 {
				bound := min(time.Second<<min(i, 10), time.Minute)
				if got, rare := p.next(); got < bound/2 || got > bound || !rare {
					t.Errorf("a client that is refused: pause %d is %v, want up to %v", i+1, got, bound)
				}
			}
			p.accepted()
			p.reset()
			if got, rare := p.next(); got != 0 || rare {
				t.Errorf("a pause of %v after the client was accepted", got)
			}
		}
		stopped := make(chan struct{})
		close(stopped)
		p.tries = 999
		for range 100 {
			if !c.awaitTurn(stopped) {
				return
			}
		}
		t.Error("a stopped session goes on dialing")
	})
}

// The servers refuse a client when each was tried since the first refusal.
// Refusals that a round without one lies between do not belong together.
func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		round    int
		attempts []int // that are refused
		want     int   // at which each server was tried; 0: at none
	}{
		{1, []int{1}, 1},
		{1, []int{9}, 9},
		{3, []int{1, 2, 3}, 3},
		{3, []int{7}, 0},
		{3, []int{7, 8, 9}, 9},
		{3, []int{1, 4}, 4},           // the others do not answer
		{3, []int{1, 5}, 0},           // there was an outage
		{3, []int{1, 5, 6, 7}, 7},     //
		{3, []int{1, 20, 40, 60}, 0},  //
		{3, []int{10, 11, 15, 16}, 0}, //
	} {
		var r refusals
		got := 0
		for _, attempt := range tt.attempts {
			if r.add(attempt, tt.round) && got == 0 {
				got = attempt
			}
		}
		if got != tt.want {
			t.Errorf("%d servers, refused at %v: all at %d, want %d", tt.round, tt.attempts, got, tt.want)
		}
	}
}

// The defaults are those that the doc comments of the options name.
func TestDefaults(t *testing.T) {
	cfg, err := newConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.sessionTimeout != 10*time.Second || cfg.margin(cfg.sessionTimeout) != time.Second || cfg.maxRequest != 1048575 ||
		cfg.proof != ProofSync || cfg.errorPolicy != ErrorPolicySession || !slices.Equal(cfg.acl, zk.WorldACL(zk.PermAll)) {
		t.Errorf("%+v", cfg)
	}
	// retry.Exponential(50ms, 2s, 20): each pause is drawn evenly up to its
	// bound. A watch is retried with the same pauses, without end.
	for retries, policy := range map[int]retry.Policy{20: cfg.retry, 25: endless} {
		longest := make([]time.Duration, 25)
		most := 0
		for range 1000 {
			again := policy()
			for i := range longest {
				pause := again.NextBackOff()
				if pause == backoff.Stop {
					break
				}
				most = max(most, i+1)
				longest[i] = max(longest[i], pause)
			}
		}
		if most != retries {
			t.Fatalf("%d retries, want %d", most, retries)
		}
		for i, got := range longest[:most] {
			want := min(50*time.Millisecond<<i, 2*time.Second)
			if got > want || got < want*9/10 {
				t.Errorf("pause %d is up to %v, want %v", i+1, got, want)
			}
		}
	}
}

// What happened in the background is found in an error, but not as if the
// caller's context had ended.
func TestBackgroundErrors(t *testing.T) {
	refused := fmt.Errorf("dial: %w", zk.ErrNoServer)
	for _, tt := range []struct {
		err, target error
		want        bool
	}{
		{refused, zk.ErrNoServer, true},
		{refused, zk.ErrNoAuth, false},
		{context.DeadlineExceeded, context.DeadlineExceeded, false},
		{context.Canceled, context.Canceled, false},
	} {
		if got := errors.Is(explanation{tt.err}, tt.target); got != tt.want {
			t.Errorf("%v is %v: %v", tt.err, tt.target, got)
		}
	}
}

// Ids that are given up one by one share looks: the next look is a while after
// the latest.
func TestTheNextLookForStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		s := &session{timeout: 32 * time.Second}
		h := &straySearch{session: s, ids: map[string]*stray{"a": {due: now}, "b": {due: now.Add(time.Hour)}}}
		for _, tt := range []struct {
			looked time.Time
			want   time.Duration
		}{
			{time.Time{}, 0},
			{now.Add(-time.Second), 0},
			{now.Add(-time.Second / 4), time.Second * 3 / 4},
			{now, time.Second},
		} {
			if wait, ok := h.next(tt.looked); !ok || wait != tt.want {
				t.Errorf("looked %v ago: next in %v, %v, want %v", now.Sub(tt.looked), wait, ok, tt.want)
			}
		}
	})
}

// The first lookup of a process creates a channel that all later ones share. If
// it were created in a bubble, it could not be used outside, so it is created
// before any test.
func init() {
	_, _ = (&net.Resolver{PreferGo: true}).LookupIPAddr(context.Background(), "localhost")
}

// A name server that does not answer delays nobody for longer than a connection
// may take.
func TestResolvingIsBounded(t *testing.T) {
	silent := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	synctest.Test(t, func(t *testing.T) {
		const name = "zk.example.:2181"
		c := newCore(config{log: zap.NewNop(), resolver: silent}, []string{name}, "")
		for what, resolve := range map[string]func() bool{
			"a name": func() bool {
				found, err := c.servers.resolve(t.Context(), name, 2*time.Second)
				return err == nil || found != nil
			},
			"the next": func() bool { _, _, err := c.servers.next(2 * time.Second); return err == nil },
			"all":      func() bool { return len(c.servers.all(t.Context(), 2*time.Second)) > 0 },
			"to close": func() bool { return c.tryClose(t.Context(), orphan{id: 7, timeout: 6 * time.Second}) },
			"to dial":  func() bool { _, _, _, err := c.dialNext("tcp", nil, 2*time.Second); return err == nil },
			"by hand":  func() bool { _, err := (raw{core: c}).Resolve(t.Context(), name, 2*time.Second); return err == nil },
		} {
			began := time.Now()
			if found := resolve(); found || time.Since(began) != 2*time.Second {
				t.Errorf("%s: found %t after %v", what, found, time.Since(began))
			}
		}
	})
}

// What cannot be resolved, and why.
func TestWhatCannotBeResolved(t *testing.T) {
	failing := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no name server") }}
	r := &serverList{resolver: failing}
	for name, want := range map[string]string{"zk.example.": "missing port", "zk.example.:2181": "resolve zk.example."} {
		if found, err := r.resolve(t.Context(), name, time.Second); found != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
	if found, err := (&serverList{}).resolve(t.Context(), "zk.example.", time.Second); err != nil || !slices.Equal(found, []string{"zk.example."}) {
		t.Errorf("without a resolver: %v, %v", found, err)
	}
	if found, err := r.resolve(t.Context(), "127.0.0.1:7", time.Second); err != nil || !slices.Equal(found, []string{"127.0.0.1:7"}) {
		t.Errorf("an address: %v, %v", found, err)
	}
}

// What a create can have made, by what was asked for.
func TestCheckMade(t *testing.T) {
	for _, tt := range []struct {
		flags int32
		made  string
		ok    bool
	}{
		{zk.FlagPersistent, "/a", true},
		{zk.FlagEphemeral, "/a", true},
		{zk.FlagEphemeral, "/a0000000001", false},
		{zk.FlagEphemeral, "/b", false},
		{zk.FlagContainer, "/a", true},
		{zk.FlagTTL, "/a", true},
		{zk.FlagTTL, "/a0000000001", false},
		{zk.FlagSequence, "/a0000000001", true},
		{zk.FlagSequence, "/a", false},
		{zk.FlagSequence, "/b0000000001", false},
		{zk.FlagSequence | zk.FlagEphemeral, "/a0000000001", true},
		{zk.FlagPersistentSequentialWithTTL, "/a0000000001", true},
		{zk.FlagPersistentSequentialWithTTL, "/a", false},
	} {
		err := checkMade("/a", tt.made, isSequential(tt.flags))
		if (err == nil) != tt.ok || err != nil && (classify(err) != ambiguous || !errors.Is(err, errMalformed)) {
			t.Errorf("flags %d, made %s: %v", tt.flags, tt.made, err)
		}
	}
}

// A server may shorten a session, or extend it, up to these bounds.
func TestTimeoutsThatAreAccepted(t *testing.T) {
	const second, hour = time.Second, time.Hour
	for _, tt := range []struct {
		requested, granted time.Duration
		ok                 bool
	}{
		{second, 100 * ms, true},
		{second, 99 * ms, false},
		{50 * ms, 50 * ms, true},
		{50*ms + 1, 50 * ms, true}, // as it is sent
		{50 * ms, 49 * ms, false},
		{second, hour, true},
		{second, hour + ms, false},
		{2 * hour, 2 * hour, true},
		{2 * hour, 2*hour + ms, false},
	} {
		if err := (&config{sessionTimeout: tt.requested}).accepts(tt.granted); (err == nil) != tt.ok {
			t.Errorf("%v requested, %v granted: %v", tt.requested, tt.granted, err)
		}
	}
	for _, tt := range []struct {
		set                   bool
		margin, timeout, want time.Duration
	}{{false, 0, 6 * second, 600 * ms}, {true, 0, 6 * second, 0}, {true, second, 6 * second, second}, {true, 2 * second, 3 * second, second}} {
		if got := (&config{stopMarginSet: tt.set, stopMargin: tt.margin}).margin(tt.timeout); got != tt.want {
			t.Errorf("margin %+v: %v", tt, got)
		}
	}
}

// What is known of a frame that ends too early.
func TestPathOfWrite(t *testing.T) {
	for op, head := range map[wire.Op]int{wire.OpCreate: 12, wire.OpDelete: 12, wire.OpMulti: 21} {
		frame := append(make([]byte, head), 0, 0, 0, 2, '/', 'a')
		binary.BigEndian.PutUint32(frame[8:], uint32(op))
		for n := range len(frame) + 1 {
			wantOp, want := op, ""
			if n < 12 {
				wantOp = 0
			}
			if n == len(frame) {
				want = "/a"
			}
			if got := string(pathOfWrite(frame[:n], op)); got != want || opOf(frame[:n]) != wantOp {
				t.Errorf("%v, %d bytes: path %q, operation %v", op, n, got, opOf(frame[:n]))
			}
		}
	}
	if got := pathOfWrite([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02/a"), wire.OpSetData); got != nil {
		t.Errorf("a write that nobody waits for: %q", got)
	}
	if got := pathIn([]byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, 4); got != nil {
		t.Errorf("a length of -1: %q", got)
	}
}

// An answer to a request of a conversation.
func TestReadSuccess(t *testing.T) {
	for name, tt := range map[string]struct {
		answer wire.ReplyHeader
		cut    int
		want   error
	}{
		"success":          {wire.ReplyHeader{Xid: 1, Zxid: 7}, 0, nil},
		"another's":        {wire.ReplyHeader{Xid: 2, Zxid: 7}, 0, errBadAnswer},
		"refused":          {wire.ReplyHeader{Xid: 1, Zxid: 7, Err: wire.NoAuth}, 0, wire.NoAuth},
		"not accepted":     {wire.ReplyHeader{Xid: 1, Zxid: 7, Err: wire.AuthFailed}, 0, zk.ErrAuthFailed},
		"ends too early":   {wire.ReplyHeader{Xid: 1, Zxid: 7}, 1, io.ErrUnexpectedEOF},
		"never comes":      {wire.ReplyHeader{Xid: 1, Zxid: 7}, 20, io.EOF},
		"another, refused": {wire.ReplyHeader{Xid: 2, Err: wire.AuthFailed}, 0, errBadAnswer},
	} {
		frame := wire.AppendFrame(nil, &tt.answer)
		zxid, err := readSuccess(bytes.NewReader(frame[:len(frame)-tt.cut]), 1)
		if !errors.Is(err, tt.want) || tt.want == nil && err != nil || (zxid == 7) != (tt.want == nil) {
			t.Errorf("%s: %d, %v", name, zxid, err)
		}
	}
	for size, ok := range map[int]bool{4096: true, 4097: false} {
		frame := make([]byte, 4+size)
		binary.BigEndian.PutUint32(frame, uint32(size))
		if err := readAnswer(bytes.NewReader(frame), &wire.ConnectResponse{}); (err == nil) != ok {
			t.Errorf("an answer of %d bytes: %v", size, err)
		}
	}
}

// The address that is called next: the least recent one, of the other family if
// there is a choice.
func TestLeastRecent(t *testing.T) {
	for _, tt := range []struct {
		addresses string
		calls     map[string]int
		want      string
	}{
		{"1 2 3", nil, "1"},
		{"1 2 3", map[string]int{"1": 1}, "2"},
		{"1 2 3", map[string]int{"1": 4, "2": 5, "3": 3}, "3"},
		{"1 [2 3", nil, "1"}, // none was called: any family
		{"[1 2 3", nil, "[1"},
		{"1 2 [3", map[string]int{"1": 1}, "[3"},
		{"1 [2 3 [4", map[string]int{"1": 1}, "[2"},
		{"1 2 [3 [4", map[string]int{"[3": 1}, "1"},
		{"[1 [2 3", map[string]int{"[1": 1}, "3"},
		{"1 [2 [3", map[string]int{"1": 1, "[2": 2, "[3": 2}, "1"},
		{"1 2 [3", map[string]int{"1": 1, "2": 1, "[3": 2}, "1"},
		{"[3 1 2", map[string]int{"1": 1, "2": 1, "[3": 2}, "1"},
		{"1 2 [3 [4", map[string]int{"1": 2, "2": 3, "[3": 2, "[4": 4}, "1"},
	} {
		if got := leastRecent(strings.Fields(tt.addresses), tt.calls); got != tt.want {
			t.Errorf("%s, called %v: %s, want %s", tt.addresses, tt.calls, got, tt.want)
		}
	}
}

// Names are called in turn, and a round has an attempt for each.
func TestServersInTurn(t *testing.T) {
	r := &serverList{names: []string{"a:1", "b:2", "c:3"}}
	for i, want := range []string{"a:1", "b:2", "c:3", "a:1", "b:2"} {
		s, round, err := r.next(time.Second)
		if s != (server{name: want, address: want}) || round != 3 || err != nil || r.attempts != i+1 {
			t.Errorf("attempt %d: %+v, %d, %v", i, s, round, err)
		}
	}
	if s := (server{name: "a:1", address: "10.0.0.1:1"}); s.String() != "a:1 at 10.0.0.1:1" || (server{name: "a", address: "a"}).String() != "a" {
		t.Errorf("%v", s)
	}
}

// An observer that wants neither the start nor the end of a request gets none.
func TestAnObserverOfNoRequests(t *testing.T) {
	o := &observer{Observer: Observer{Retried: func(context.Context, Retry) {}}}
	if o.startRequest(t.Context(), Request{}) != nil {
		t.Error("it gets the end of a request")
	}
}
