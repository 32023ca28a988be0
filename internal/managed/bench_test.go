package managed_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// BenchmarkOps runs the client's operations beside those of the bare wire
// client, on one server. The difference is the cost of contexts, retries and
// the wrapped connection. "CreateProtected and delete" compares with a create,
// a list and a delete, one after the other.
func BenchmarkOps(b *testing.B) {
	b.Run("embedded", func(b *testing.B) {
		benchOps(b, testutil.Start(b, testutil.WithLogger(func(string, ...any) {})).Servers())
	})
	b.Run("real-nosync", func(b *testing.B) { benchOps(b, apache.Start(b, 1).Servers()) })
}

func benchOps(b *testing.B, servers string) {
	ctx := b.Context()
	for _, op := range opsOn(b, servers) {
		b.Run(op.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := op.run(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAllocations keeps the allocations of an operation where they are: what
// grows by accident is noticed. Those of the wire client and of the embedded
// server are counted with them.
func TestAllocations(t *testing.T) {
	most := map[string]float64{ // of the last one 129 were measured, and 130 with the race detector
		"get/client": 36, "set/client": 43, "list/client": 36, "multi/client": 55, "create-list-delete/session": 131,
	}
	ctx := t.Context()
	for _, op := range opsOn(t, testutil.Start(t).Servers()) {
		want, counted := most[op.name]
		if !counted {
			continue
		}
		got := testing.AllocsPerRun(500, func() {
			if err := op.run(ctx); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%s: %v allocations", op.name, got)
		if got > want {
			t.Errorf("%s: want at most %v", op.name, want)
		}
	}
}

// benchOp is one operation, by the bare wire client or by ours.
type benchOp struct {
	name string
	run  func(ctx context.Context) error
}

func opsOn(tb testing.TB, servers string) []benchOp {
	ctx := tb.Context()
	c, err := framework.New(servers)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	s, err := c.AwaitSession(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	conn, events, err := zk.Connect([]string{servers}, framework.DefaultSessionTimeout, zk.WithLogInfo(false))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		conn.Close()
		for range events { //nolint:revive // its closing is the only sign that the wire client has ended
		}
	})
	if _, err := c.Create(ctx, "/bench", []byte("some data"), 0); err != nil {
		tb.Fatal(err)
	}
	all := zk.WorldACL(zk.PermAll)
	const seq = zk.FlagEphemeralSequential
	return []benchOp{
		{"get/bare", func(context.Context) error { _, _, err := conn.Get("/bench"); return err }},
		{"get/client", func(ctx context.Context) error { _, _, err := c.Get(ctx, "/bench"); return err }},
		{"get/session", func(ctx context.Context) error { _, _, err := s.Get(ctx, "/bench"); return err }},
		{"set/bare", func(context.Context) error { _, err := conn.Set("/bench", []byte("data"), -1); return err }},
		{"set/client", func(ctx context.Context) error { _, err := c.Set(ctx, "/bench", []byte("data"), -1); return err }},
		{"list/bare", func(context.Context) error { _, _, err := conn.Children("/bench"); return err }},
		{"list/client", func(ctx context.Context) error { _, _, err := c.Children(ctx, "/bench"); return err }},
		{"multi/bare", func(context.Context) error {
			_, err := conn.Multi(&zk.CheckVersionRequest{Path: "/bench", Version: -1})
			return err
		}},
		{"multi/client", func(ctx context.Context) error {
			_, err := c.Multi(ctx, &zk.CheckVersionRequest{Path: "/bench", Version: -1})
			return err
		}},
		{"create-list-delete/bare", func(context.Context) error {
			path, err := conn.Create("/bench/_c_01234567-89ab-cdef-0123-456789abcdef-lock-", nil, seq, all)
			if err != nil {
				return err
			}
			if _, _, err := conn.Children("/bench"); err != nil {
				return err
			}
			return conn.Delete(path, -1)
		}},
		{"create-list-delete/session", func(ctx context.Context) error {
			made, err := s.CreateProtected(ctx, "/bench", "lock-", nil, seq)
			if err != nil {
				return err
			}
			return s.Delete(ctx, made.Path, -1)
		}},
	}
}

// BenchmarkConnect measures a client from New to a session, and its Close.
func BenchmarkConnect(b *testing.B) {
	ens := testutil.Start(b, testutil.WithLogger(func(string, ...any) {}))
	b.ReportAllocs()
	for b.Loop() {
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(10*time.Second))
		if err != nil {
			b.Fatal(err)
		}
		if err := c.WaitConnected(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
