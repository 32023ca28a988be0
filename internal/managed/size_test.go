package managed_test

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// maxFrame is the largest frame that a server accepts by default.
const maxFrame = 1<<20 - 1

// sized are all requests that can be too large, each with so many bytes more
// than without data, and the number of bytes that it has then.
var sized = []struct {
	name string
	head int
	make func(t *testing.T, c *framework.Client, s *framework.Session, more int) error
}{
	{"create", 8 + 4 + len("/a/b") + 4 + aclHead + 4, func(t *testing.T, c *framework.Client, _ *framework.Session, more int) error {
		_, err := c.Create(t.Context(), "/a/b", make([]byte, more), 0)
		return err
	}},
	{"create of a container", 8 + 4 + len("/a/b") + 4 + aclHead + 4, func(t *testing.T, c *framework.Client, _ *framework.Session, more int) error {
		_, err := c.Create(t.Context(), "/a/b", make([]byte, more), zk.FlagContainer)
		return err
	}},
	{"create with a time to live", 8 + 4 + len("/a/b") + 4 + aclHead + 4 + 8, func(t *testing.T, c *framework.Client, _ *framework.Session, more int) error {
		_, err := c.CreateTTL(t.Context(), "/a/b", make([]byte, more), zk.FlagTTL, time.Hour)
		return err
	}},
	{"set", 8 + 4 + len("/a") + 4 + 4, func(t *testing.T, c *framework.Client, _ *framework.Session, more int) error {
		_, err := c.Set(t.Context(), "/a", make([]byte, more), -1)
		return err
	}},
	{"multi", 8 + 2*9 + 4 + len("/a") + 4 + 4, func(t *testing.T, c *framework.Client, _ *framework.Session, more int) error {
		_, err := c.Multi(t.Context(), &zk.SetDataRequest{Path: "/a", Data: make([]byte, more), Version: -1})
		return err
	}},
	{"a multi's create", 8 + 2*9 + 4 + len("/a/b") + 4 + aclHead + 4, func(t *testing.T, _ *framework.Client, s *framework.Session, more int) error {
		_, err := s.Multi(t.Context(), &zk.CreateRequest{Path: "/a/b", Data: make([]byte, more)})
		return err
	}},
	{"a multi's delete", 8 + 2*9 + 4 + len("/a/") + 4, func(t *testing.T, c *framework.Client, _ *framework.Session, more int) error {
		_, err := c.Multi(t.Context(), &zk.DeleteRequest{Path: "/a/" + strings.Repeat("x", more), Version: -1})
		return err
	}},
	{"a multi's check", 8 + 2*9 + 4 + len("/a/") + 4, func(t *testing.T, c *framework.Client, _ *framework.Session, more int) error {
		_, err := c.Multi(t.Context(), &zk.CheckVersionRequest{Path: "/a/" + strings.Repeat("x", more), Version: -1})
		return err
	}},
	{"protected create", 8 + 4 + len("/a/_c_-x-") + 36 + 4 + aclHead + 4, func(t *testing.T, _ *framework.Client, s *framework.Session, more int) error {
		_, err := s.CreateProtected(t.Context(), "/a", "x-", make([]byte, more), sequential)
		return err
	}},
	{"batch", 8 + 9 + 1*(9+4+len("/a/_c_-x-")+36+4+aclHead+4), func(t *testing.T, _ *framework.Client, s *framework.Session, more int) error {
		_, _, err := s.CreateAllProtected(t.Context(), framework.ProtectedBatch{Dir: "/a", Name: "x-", N: 1, Data: make([]byte, more), Flags: sequential})
		return err
	}},
	{"set ACL", 8 + 4 + len("/a/b") + aclHead + 4, func(t *testing.T, c *framework.Client, _ *framework.Session, more int) error {
		_, err := c.Create(t.Context(), "/a/b", nil, 0)
		must(t, err)
		acl := zk.WorldACL(zk.PermAll)
		if more > 0 { // a second one, whose id is as long as need be
			acl = append(acl, zk.ACL{Perms: zk.PermRead, Scheme: "digest", ID: "a:" + strings.Repeat("x", more-4-4-len("digest")-4-len("a:"))})
		}
		_, err = c.SetACL(t.Context(), "/a/b", acl, -1)
		return err
	}},
	{"get", 8 + 4 + len("/a/") + 1, func(t *testing.T, c *framework.Client, _ *framework.Session, more int) error {
		_, _, err := c.Get(t.Context(), "/a/"+strings.Repeat("x", more))
		return err
	}},
	{"watch", 8 + 4 + len("/a/") + 1, func(t *testing.T, _ *framework.Client, s *framework.Session, more int) error {
		_, err := s.Watch(t.Context(), "/a/"+strings.Repeat("x", more))
		return err
	}},
	{"arm", 8 + 4 + len("/a/") + 1, func(t *testing.T, _ *framework.Client, s *framework.Session, more int) error {
		_, err := inside(s).Arm(t.Context(), "/a", "/a/"+strings.Repeat("x", more))
		return err
	}},
	{"tree", 8 + 4 + len("/a/") + 4, func(t *testing.T, _ *framework.Client, s *framework.Session, more int) error {
		_, remove, err := inside(s).WatchTree(t.Context(), "/a/"+strings.Repeat("x", more), func(uint64, zk.EventType, string) {})
		if err == nil {
			remove()
		}
		return err
	}},
	{"read all", 8 + 2*9 + 4 + len("/a/") + 1, func(t *testing.T, c *framework.Client, _ *framework.Session, more int) error {
		_, err := c.ReadAll(t.Context(), framework.Read{Path: "/a/" + strings.Repeat("x", more)})
		return err
	}},
	{"create that shares", 8 + 4 + len("/a/b") + 4 + aclHead + 4, func(_ *testing.T, _ *framework.Client, s *framework.Session, more int) error {
		return inside(s).CreateEphemeral("/a/b", make([]byte, more), nil)
	}},
	{"delete", 8 + 4 + len("/a/") + 4, func(t *testing.T, c *framework.Client, _ *framework.Session, more int) error {
		return c.Delete(t.Context(), "/a/"+strings.Repeat("x", more), -1)
	}},
	{"sync", 8 + 4 + len("/a/"), func(t *testing.T, c *framework.Client, _ *framework.Session, more int) error {
		return c.Sync(t.Context(), "/a/"+strings.Repeat("x", more))
	}},
	{"make path", 8 + 4 + len("/a/") + 4 + aclHead + 4, func(t *testing.T, c *framework.Client, _ *framework.Session, more int) error {
		return c.MakeContainerPath(t.Context(), "/a/"+strings.Repeat("x", more))
	}},
}

// aclHead is the size of an ACL that allows everybody everything.
const aclHead = 4 + 4 + 4 + len("world") + 4 + len("anyone")

// A server closed the shared connection of a client ten times because of one
// request that was too large, and then the client said "could not connect to a
// server".
func TestRequestsThatAreTooLargeAreNotSent(t *testing.T) {
	for _, tt := range sized {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
				c, _ := connect(t, ens)
				_, err := c.Create(t.Context(), "/a", nil, 0)
				must(t, err)
				states := record(c)
				if err := tt.make(t, c, session(t, c), maxFrame-tt.head); err != nil && !errors.Is(err, zk.ErrNoNode) {
					t.Errorf("as large as may be: %.100v", err)
				}
				if strings.Contains(tt.name, "create") || tt.name == "set ACL" {
					_ = c.Delete(t.Context(), "/a/b", -1) // to be made again
				}
				ens.ResetRequests()
				err = tt.make(t, c, session(t, c), maxFrame-tt.head+1)
				if !errors.Is(err, framework.ErrTooLarge) || framework.MaybeApplied(err) ||
					!strings.Contains(err.Error(), "1048576 bytes") || !strings.Contains(err.Error(), "accepts 1048575") {
					t.Errorf("a byte more: %.300v", err)
				}
				must(t, c.Sync(t.Context(), "/"))
				if got := states.states(); got != "CONNECTED " {
					t.Errorf("states %s", got)
				}
			}, testutil.WithExtendedTypes())
		})
	}
}

// The option sets what the ensemble accepts, more or less than by default.
func TestWithMaxRequest(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, ens *testutil.Embedded) {
		small, _ := connect(t, ens, framework.WithMaxRequest(1<<16))
		if _, err := small.Create(t.Context(), "/a", make([]byte, 1<<16), 0); !errors.Is(err, framework.ErrTooLarge) {
			t.Errorf("more than the ensemble takes: %v", err)
		}
		// The wire client has room for 1.5 MiB unless it is told otherwise. The
		// embedded ensemble hangs up on what a server with a larger
		// jute.maxbuffer would take.
		network := ens.ClientNet("large")
		var longest atomic.Int64
		large, _ := connect(t, ens, framework.WithMaxRequest(8<<20),
			framework.WithDialer(func(kind, address string, limit time.Duration) (net.Conn, error) {
				conn, err := network.Dial(kind, address, limit)
				return measured{conn, &longest}, err
			}))
		head := 8 + 4 + len("/a") + 4 + aclHead + 4
		for _, n := range []int{2 << 20, 8<<20 - head} {
			_, err := large.Create(within(t, 10*time.Second), "/a", make([]byte, n), 0)
			if errors.Is(err, framework.ErrTooLarge) || longest.Load() != int64(4+head+n) {
				t.Errorf("%d bytes: sent %d, %v", n, longest.Load(), err)
			}
		}
		if _, err := large.Create(t.Context(), "/a", make([]byte, 8<<20-head+1), 0); !errors.Is(err, framework.ErrTooLarge) {
			t.Errorf("a byte more: %v", err)
		}
	})
}

// measured is a connection that knows its longest write.
type measured struct {
	net.Conn
	longest *atomic.Int64
}

func (m measured) Write(p []byte) (int, error) {
	if n := int64(len(p)); n > m.longest.Load() {
		m.longest.Store(n)
	}
	return m.Conn.Write(p)
}
