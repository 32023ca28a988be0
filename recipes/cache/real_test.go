package cache_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// Random changes, lost connections, expired sessions and members that stop, on
// the real server: at each quiet moment the view is the truth.
func TestOnTheRealServer(t *testing.T) {
	ens := apache.Start(t, 3)
	t.Run("recursive watch", func(t *testing.T) { playOnReal(t, ens) })
	t.Run("one-shot watches", func(t *testing.T) { playOnReal(t, ens, cache.WithOneShotWatches()) })
}

func playOnReal(t *testing.T, ens *apache.Ensemble, opts ...cache.Option) {
	random := bubble.Random(t)
	connect := func(name string) *framework.Client {
		c, err := framework.New(ens.Servers(), framework.WithSessionTimeout(4*time.Second), framework.WithDialer(ens.ClientNet(name).Dial))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c, other := connect("reader"), connect("writer")
	fill(t, other, 10, 100)
	defer remove(t, other, root)
	k := synced(t, c, opts...)
	network := ens.ClientNet("reader")
	for round := range 12 {
		for range 100 {
			changeReal(t, other, random)
		}
		switch round % 4 {
		case 1:
			network.Drop()
		case 2:
			network.Cut()
			for range 20 {
				changeReal(t, other, random)
			}
			network.Heal()
		case 3:
			s, err := c.Session()
			if err == nil {
				err = ens.ExpireSession(s.ID())
			}
			if err != nil {
				t.Fatal(err)
			}
		case 0:
			member := random.IntN(3)
			if err := ens.Stop(member); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				changeReal(t, other, random)
			}
			if err := ens.Restart(member); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		v, err := k.Fresh(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := text(v), realTruth(t, other, root); got != want {
			t.Fatalf("round %d: the view is\n%s\nand the truth\n%s", round, got, want)
		}
		stat := set(t, other, root, fmt.Sprint(round))
		v, err = k.Reach(t.Context(), stat.Mzxid)
		if n, _ := v.Get(root); err != nil || string(n.Data) != fmt.Sprint(round) {
			t.Fatalf("round %d: %s, %v", round, n.Data, err)
		}
	}
	if got := k.Status(); got.State != cache.Synced {
		t.Errorf("%+v", got)
	}
}

func changeReal(t *testing.T, c *framework.Client, random *rand.Rand) {
	dir := fmt.Sprintf("%s/dir-%03d", root, random.IntN(10))
	path := fmt.Sprintf("%s/znode-%06d", dir, random.IntN(100))
	switch random.IntN(4) {
	case 0, 1:
		_, _ = c.Set(t.Context(), path, fmt.Appendf(nil, "%0*d", 5000*random.IntN(2), random.Int()), -1)
	case 2:
		_ = c.Delete(t.Context(), path, -1)
	case 3:
		_, _ = c.Create(t.Context(), path, nil, zk.FlagPersistent)
		_, _ = c.Create(t.Context(), path+"/below", nil, zk.FlagPersistent)
	}
}

// realTruth reads a tree, one znode after the other.
func realTruth(t *testing.T, c *framework.Client, path string) string {
	var b strings.Builder
	var walk func(path string)
	walk = func(path string) {
		data, stat, err := c.Get(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s=%s czxid=%d mzxid=%d version=%d\n", path, data, stat.Czxid, stat.Mzxid, stat.Version)
		names, _, err := c.Children(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		for _, name := range names {
			walk(path + "/" + name)
		}
	}
	walk(path)
	return b.String()
}
