package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Every job is done, and never more of them at a time than the capacity.
func TestExample(t *testing.T) {
	ens := testutil.Start(t, testutil.WithMembers(3))
	var out strings.Builder
	if err := run(t.Context(), ens.Servers(), &out); err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`^job (\d+) (begins|ends): ([0-3]) of 3 in use$`)
	ended := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		m := form.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("line %q in\n%s", line, out.String())
		}
		if m[2] == "ends" {
			ended[m[1]] = true
		}
	}
	if len(ended) != jobs {
		t.Errorf("%d jobs were done, want %d:\n%s", len(ended), jobs, out.String())
	}
}

var seed = flag.Uint64("seed", 0, "of the random test; 0: a new one")

// Hosts are cut off and connections drop at random, so that permits are lost in
// the middle of jobs. Every job is done in the end, and the permits that are
// held at a time are never more than the capacity.
func TestCapacityUnderFaults(t *testing.T) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d", s)
	synctest.Test(t, func(t *testing.T) {
		const jobs = 150
		rng := rand.New(rand.NewPCG(s, 0))
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithLogger(func(string, ...any) {}))
		var mu sync.Mutex
		working := map[*recipes.Lease]int{}
		done, broken, most := map[int]bool{}, 0, 0
		queue := make(chan job, jobs)
		for id := range jobs {
			j := job{id: id, weight: 1 + rng.IntN(capacity)}
			length := time.Duration(rng.IntN(15_000)) * time.Millisecond
			j.do = func(ctx context.Context, permits *recipes.Lease) error {
				mu.Lock()
				working[permits] = j.weight
				sum := 0
				for lease, weight := range working {
					if lease.Held() {
						sum += weight
					}
				}
				most = max(most, sum)
				mu.Unlock()
				var err error
				select {
				case <-time.After(length):
				case <-ctx.Done():
					err = ctx.Err()
				}
				mu.Lock()
				defer mu.Unlock()
				delete(working, permits)
				if err != nil {
					broken++
				} else {
					done[j.id] = true
				}
				return err
			}
			queue <- j
		}
		close(queue)
		var wg sync.WaitGroup
		var nets []*testutil.ClientNet
		for i := range hosts {
			net := ens.ClientNet(fmt.Sprint("host ", i))
			client, err := framework.New(ens.Servers(), framework.WithDialer(net.Dial))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			p, err := newPool(client)
			if err != nil {
				t.Fatal(err)
			}
			nets = append(nets, net)
			for range 2 {
				wg.Go(func() {
					if err := p.work(t.Context(), queue); err != nil {
						t.Error(err)
					}
				})
			}
		}
		ended := make(chan struct{})
		go func() {
			wg.Wait()
			close(ended)
		}()
		start := time.Now()
		for over := false; !over; {
			net := nets[rng.IntN(hosts)]
			switch rng.IntN(3) {
			case 0:
				net.Drop()
			case 1:
				net.Cut()
				time.Sleep(time.Duration(rng.IntN(20)) * time.Second)
				net.Heal()
			}
			select {
			case <-ended:
				over = true
			case <-time.After(time.Duration(rng.IntN(10)) * time.Second):
			}
		}
		if most > capacity {
			t.Errorf("%d were in use at once, of %d", most, capacity)
		}
		if len(done) != jobs {
			t.Errorf("%d jobs were done, want %d", len(done), jobs)
		}
		t.Logf("%d jobs in %v, %d broken off, at most %d in use", len(done), time.Since(start), broken, most)
	})
}
