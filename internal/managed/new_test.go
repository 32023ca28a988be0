package managed_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/managed"
)

// The constructor returns an error that names the bad input.
func TestNewRejectsBadInput(t *testing.T) {
	for _, tt := range []struct {
		name, servers string
		opt           framework.Option
		want          string
	}{
		{"no servers", "", nil, `servers ""`},
		{"only separators", ",,", nil, `servers ",,"`},
		{"a bad port", "a:port", nil, `"port"`},
		{"a relative chroot part", "a/x/../y", nil, `chroot: path "/x/../y"`},
		{"a chroot that ends with a slash", "a/x/", nil, `chroot: path "/x/"`},
		{"a chroot behind each server", "a/x,b/x", nil, `as in "a,b/x"`},
		{"no session timeout", "a", framework.WithSessionTimeout(0), "session timeout 0s"},
		{"a negative session timeout", "a", framework.WithSessionTimeout(-time.Second), "session timeout -1s"},
		{"an overlong session timeout", "a", framework.WithSessionTimeout(1000 * time.Hour), "session timeout 1000h"},
		{"a negative margin", "a", framework.WithStopMargin(-1), "stop margin -1ns"},
		{"a margin beyond a third", "a", framework.WithStopMargin(4 * time.Second), "stop margin 4s"},
		{"a negative tick", "a", framework.WithServerTick(-1), "server tick"},
		{"a tick beyond half the timeout", "a", framework.WithServerTick(6 * time.Second), "server tick 6s"},
		{"no retry policy", "a", framework.WithRetry(nil), "retry policy"},
		{"no logger", "a", framework.WithLogger(nil), "logger"},
		{"an empty ACL", "a", framework.WithACL(), "ACL"},
		{"no TLS configuration", "a", framework.WithTLS(nil), "TLS"},
		{"an unknown proof", "a", framework.WithProof(7), "proof 7"},
		{"no resolver", "a", framework.WithResolver(nil), "resolver"},
		{"room for no request", "a", framework.WithMaxRequest(100), "100 bytes"},
		{"room for no ephemerals", "a", framework.WithMaxEphemerals(0), "0 bytes"},
		{"room for endless requests", "a", framework.WithMaxRequest(1 << 30), "1073741824 bytes"},
		{"endless credentials", "a", framework.WithAuth("digest", make([]byte, 1<<20)), "auth digest"},
		{"an unknown error policy", "a", framework.WithErrorPolicy(7), "error policy 7"},
		{"a sweep at once", "a", framework.WithSweep(0), "sweep after 0s"},
		{"a negative sweep", "a", framework.WithSweep(-time.Hour), "sweep after -1h"},
		{"a sweep without a pause", "a", framework.WithSweep(999 * time.Millisecond), "sweep after 999ms"},
		{"credentials without a scheme", "a", framework.WithAuth("", nil), "auth"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var opts []framework.Option
			if tt.opt != nil {
				opts = append(opts, tt.opt)
			}
			c, err := framework.New(tt.servers, opts...)
			if err == nil {
				c.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "framework: ") {
				t.Errorf("error %q, want one that has %q", err, tt.want)
			}
		})
	}
	if _, err := framework.New("a", framework.WithACL(), nil); err == nil || !strings.Contains(err.Error(), "option 1: nil") {
		t.Errorf("an option that is nil: %v", err)
	}
}

// An option accepts values up to the limit that its doc comment names.
func TestTheLimitsOfOptions(t *testing.T) {
	const least = 16384 // of a largest request
	digest := func(bytes int) framework.Option {
		return framework.WithAuth("digest", make([]byte, bytes-8-4-4-len("digest")-4))
	}
	acl := func(bytes int) framework.Option {
		return framework.WithACL(zk.ACL{Scheme: "ip", ID: strings.Repeat("x", bytes-8-4-4-4-len("ip")-4)})
	}
	small := framework.WithMaxRequest(least)
	for _, tt := range []struct {
		name        string
		in, outside []framework.Option
	}{
		{"the shortest session", opts(framework.WithSessionTimeout(time.Millisecond)), opts(framework.WithSessionTimeout(time.Millisecond - 1))},
		{"the longest session", opts(framework.WithSessionTimeout(math.MaxInt32 * time.Millisecond)), opts(framework.WithSessionTimeout((math.MaxInt32 + 1) * time.Millisecond))},
		{"no margin", opts(framework.WithStopMargin(0)), opts(framework.WithStopMargin(-1))},
		{"the longest margin", opts(framework.WithSessionTimeout(9*time.Second), framework.WithStopMargin(3*time.Second)), opts(framework.WithSessionTimeout(9*time.Second), framework.WithStopMargin(3*time.Second+1))},
		{"the longest tick", opts(framework.WithSessionTimeout(9*time.Second), framework.WithServerTick(4500*time.Millisecond)), opts(framework.WithSessionTimeout(9*time.Second), framework.WithServerTick(4500*time.Millisecond+1))},
		{"the smallest request", opts(small), opts(framework.WithMaxRequest(least - 1))},
		{"the fewest ephemerals", opts(framework.WithMaxEphemerals(least)), opts(framework.WithMaxEphemerals(least - 1))},
		{"the most ephemerals", opts(framework.WithMaxEphemerals(2147483647)), opts(framework.WithMaxEphemerals(-1))},
		{"the largest request", opts(framework.WithMaxRequest(33554432)), opts(framework.WithMaxRequest(33554432 + 1))},
		{"the largest credentials", opts(small, digest(least)), opts(small, digest(least+1))},
		{"the largest ACL", opts(small, acl(least)), opts(small, acl(least+1))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := framework.New("a", append(tt.in, framework.WithDialer(refuse))...)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			if c, err = framework.New("a", append(tt.outside, framework.WithDialer(refuse))...); err == nil {
				c.Close()
				t.Error("accepted beyond it")
			}
		})
	}
}

func opts(all ...framework.Option) []framework.Option { return all }

func TestNamespaceRejectsBadNames(t *testing.T) {
	c, err := framework.New("127.0.0.1:1")
	must(t, err)
	defer c.Close()
	for _, name := range []string{"", "/a", "a/", "a//b", "..", "a/./b"} {
		if _, err := c.Namespace(name); err == nil || !strings.Contains(err.Error(), "namespace") {
			t.Errorf("Namespace(%q): %v", name, err)
		}
	}
	for _, path := range []string{"", "a", "/a/", "/a//b"} {
		if _, _, err := c.Get(t.Context(), path); err == nil || !strings.Contains(err.Error(), "path") {
			t.Errorf("Get(%q): %v", path, err)
		}
	}
}

func FuzzNew(f *testing.F) {
	f.Add("a:1,b/c")
	f.Add("[::1]:2181")
	f.Fuzz(func(t *testing.T, servers string) {
		c, err := framework.New(servers, framework.WithDialer(refuse))
		if err == nil {
			c.Close()
		} else if !strings.HasPrefix(err.Error(), "framework: servers ") {
			t.Errorf("error %q does not say what is wrong", err)
		}
	})
}

// The session timeout without an option is the one that the face names, and its
// values of Proof and ErrorPolicy, and its states, are those of the inside.
func TestTheFaceNamesWhatTheInsideHas(t *testing.T) {
	if cfg, err := managed.Configure[framework.Option](); err != nil || cfg.SessionTimeout != framework.DefaultSessionTimeout {
		t.Errorf("%v, %v", cfg.SessionTimeout, err)
	}
	cfg, err := managed.Configure(framework.WithProof(framework.ProofWrite), framework.WithErrorPolicy(framework.ErrorPolicyConnection))
	if err != nil || cfg.Proof != managed.ProofWrite || cfg.ErrorPolicy != managed.ErrorPolicyConnection {
		t.Errorf("%+v, %v", cfg, err)
	}
	for inside, face := range map[managed.State]framework.State{
		managed.Connecting: framework.Connecting, managed.Connected: framework.Connected, managed.Suspended: framework.Suspended,
		managed.Lost: framework.Lost, managed.Closed: framework.Closed,
	} {
		if framework.State(inside) != face || inside.String() != face.String() {
			t.Errorf("%v is %v", inside, face)
		}
	}
}
