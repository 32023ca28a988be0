package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Every version is published, each reader ends with the last one, and nobody
// sees halves of different versions.
func TestExample(t *testing.T) {
	ens := testutil.Start(t, testutil.WithMembers(3))
	var out strings.Builder
	if err := run(t.Context(), ens.Servers(), &out); err != nil {
		t.Fatal(err)
	}
	for v := range versions {
		if want := fmt.Sprintf("published and loaded version %d\n", v+1); !strings.Contains(out.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	for i := range readers {
		if want := fmt.Sprintf("reader %d loaded version %d\n", i+1, versions); !strings.Contains(out.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(out.String(), "with limits of") {
		t.Error("a reader saw halves of two versions")
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

var seed = flag.Uint64("seed", 0, "of the random tests; 0: a new one")

// Connections are cut and dropped at random. A load without an error returns
// both halves of one version. A publish without an error has loaded its own
// version.
func TestNobodySeesHalvesUnderFaults(t *testing.T) {
	torn, loads, published := storm(t, (*node).reload)
	if torn > 0 {
		t.Errorf("%d of %d loads were of two versions", torn, loads)
	}
	if loads < 100 || published < 20 {
		t.Errorf("%d loads and %d versions", loads, published)
	}
	t.Logf("%d loads, %d versions", loads, published)
}

// The test above can fail: without the lock, readers see halves of two
// versions.
func TestHalvesAreSeenWithoutTheLock(t *testing.T) {
	if torn, loads, _ := storm(t, (*node).load); torn == 0 {
		t.Errorf("none of %d loads was of two versions", loads)
	}
}

// storm runs two nodes that publish and three that load, for ten minutes of
// faults, or three with -short.
func storm(t *testing.T, load func(*node, context.Context) (config, error)) (torn, loads, published int64) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d", s)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(s, 0))
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithLogger(func(string, ...any) {}))
		ens.Latency(20 * time.Millisecond)
		var nets []*testutil.ClientNet
		var nodes []*node
		for i := range 5 {
			net := ens.ClientNet(fmt.Sprint("node ", i))
			client, err := framework.New(ens.Servers(), framework.WithDialer(net.Dial))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			n, err := newNode(client)
			if err != nil {
				t.Fatal(err)
			}
			nets, nodes = append(nets, net), append(nodes, n)
		}
		minutes := 10
		if testing.Short() {
			minutes = 3
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(minutes)*time.Minute)
		defer cancel()
		if err := nodes[0].setUp(ctx); err != nil {
			t.Fatal(err)
		}
		var tornLoads, goodLoads, versions atomic.Int64
		var wg sync.WaitGroup
		for i, n := range nodes {
			rng := rand.New(rand.NewPCG(s, uint64(i)))
			wg.Go(func() {
				for v := 0; ctx.Err() == nil; v++ {
					time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
					if i > 1 {
						if c, err := load(n, ctx); err == nil {
							goodLoads.Add(1)
							if c.routes != c.limits {
								tornLoads.Add(1)
							}
						}
						continue
					}
					version := fmt.Sprintf("version %d of node %d", v, i)
					if c, err := n.publish(ctx, version); err == nil {
						versions.Add(1)
						if c != (config{version, version}) {
							t.Errorf("published %s, and loaded %s", version, c)
						}
					} else if errors.Is(err, framework.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		for ctx.Err() == nil {
			i := rng.IntN(len(nets))
			switch rng.IntN(3) {
			case 0:
				nets[i].Drop()
			case 1:
				nets[i].Cut()
				time.Sleep(time.Duration(rng.IntN(15)) * time.Second)
				nets[i].Heal()
			}
			time.Sleep(time.Duration(rng.IntN(10)) * time.Second)
		}
		wg.Wait()
		torn, loads, published = tornLoads.Load(), goodLoads.Load(), versions.Load()
		time.Sleep(time.Minute)
		if left := ens.Children(lockPath); len(left) > 0 {
			t.Errorf("left in line: %v", left)
		}
	})
	return torn, loads, published
}
