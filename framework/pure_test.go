package framework

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/wire"
)

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
	for _, servers := range []string{"a", "a:1,b,c:3/app", " a:1 , b:2 /x", "[::1]:2181,[fe80::1%eth0]/a/b", "[::0%0]0", "a:00080", ",a,", "a//", "a/\x00", "\xff"} {
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
		if chroot != "" && (chroot == "/" || ValidatePath(chroot) != nil) {
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
		"/a\x00": false, "/a\x1fb": false, "/\x7f": false, "/\uf000": false, "/\xff": false, "/\ufff0": false, "/\U0001f511": false,
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

// Codes that the wire client has no error for have a text.
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
				_, ok := in.feed(rest[:n], func(head []byte, first bool) ([]field, bool) {
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

func TestNewIDsAreCuratorsAndDiffer(t *testing.T) {
	seen := make(map[string]bool)
	for range 1000 {
		id, version := newID(false), byte('4')
		if len(seen)%2 == 1 {
			id, version = newID(true), '8'
		}
		if len(id) != 36 || strings.Count(id, "-") != 4 || id[14] != version || !strings.ContainsRune("89ab", rune(id[19])) || seen[id] {
			t.Fatalf("id %q is no fresh random UUID", id)
		}
		seen[id] = true
	}
}

// Servers that accept and drop connections must not be called in a tight loop,
// and the pause must never overflow, however long the outage.
func TestPaceGrowsAfterOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := dialPace{round: 3, longest: time.Second}
		never := make(chan struct{})
		began := time.Now()
		for range 3 {
			p.wait(never)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the first round took %v: each server is tried at once", took)
		}
		for range 1000 {
			before := time.Now()
			if p.wait(never); time.Since(before) > time.Second {
				t.Fatalf("a pause of %v, want at most 1s", time.Since(before))
			}
		}
		if took := time.Since(began); took < 100*time.Second {
			t.Errorf("1000 attempts in %v: that is hammering", took)
		}
		p.reset()
		before := time.Now()
		if p.wait(never); time.Since(before) != 0 {
			t.Error("a proof must make the next attempt immediate")
		}
		stopped := make(chan struct{})
		close(stopped)
		p.tries = 999
		for range 100 {
			if !p.wait(stopped) {
				return
			}
		}
		t.Error("a stopped session goes on dialing")
	})
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
	// bound.
	var longest []time.Duration
	for range 1000 {
		policy := cfg.retry()
		for i := 0; ; i++ {
			pause := policy.NextBackOff()
			if pause == backoff.Stop {
				break
			}
			if i == len(longest) {
				longest = append(longest, 0)
			}
			longest[i] = max(longest[i], pause)
		}
	}
	if len(longest) != 20 {
		t.Fatalf("%d retries, want 20", len(longest))
	}
	for i, got := range longest {
		want := min(50*time.Millisecond<<i, 2*time.Second)
		if got > want || got < want*9/10 {
			t.Errorf("pause %d is up to %v, want %v", i+1, got, want)
		}
	}
}

// An id is a random UUID: of version 4, or of version 8 if it says that the
// znode may linger. Other clients in line recognize it by that.
func TestIDsAreUUIDs(t *testing.T) {
	for custom, form := range map[bool]string{
		false: `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`,
		true:  `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`,
	} {
		seen := map[string]bool{}
		for range 100 {
			id := newID(custom)
			if !regexp.MustCompile(form).MatchString(id) || seen[id] {
				t.Errorf("custom %v: %s", custom, id)
			}
			seen[id] = true
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
		r := &serverList{resolver: silent}
		began := time.Now()
		addresses, err := r.resolve(t.Context(), "zk.example.:2181", 2*time.Second)
		if took := time.Since(began); err == nil || took != 2*time.Second {
			t.Errorf("%v, %v after %v", addresses, err, took)
		}
	})
}
