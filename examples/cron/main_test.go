package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// Each tick is run once, and the second leader continues where the first one
// left.
func TestExample(t *testing.T) {
	ens := testutil.Start(t, testutil.WithMembers(3))
	var out strings.Builder
	if err := run(t.Context(), ens.Servers(), 100*time.Millisecond, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != ticks {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), ticks, out.String())
	}
	form := regexp.MustCompile(`^(host \d) ran tick (\d+) under token ([0-9a-f]+)$`)
	last, token, hosts := int64(0), "", map[string]bool{}
	for i, line := range lines {
		m := form.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("line %d is %q", i+1, line)
		}
		tick, _ := strconv.ParseInt(m[2], 10, 64)
		if tick <= last || m[3] < token {
			t.Errorf("line %d is %q, after tick %d and token %s", i+1, line, last, token)
		}
		last, token, hosts[m[1]] = tick, m[3], true
	}
	if len(hosts) < 2 {
		t.Errorf("all ticks were run by one host:\n%s", out.String())
	}
}

var seed = flag.Uint64("seed", 0, "of the random test; 0: a new one")

// For an hour the clocks of the hosts differ by up to a minute, hosts are cut
// off, connections drop and sessions expire. No tick is run twice. No job
// begins while another host works under a lease that is held. Few ticks are
// missed, and every host has its share.
func TestOncePerTickUnderFaults(t *testing.T) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d", s)
	synctest.Test(t, func(t *testing.T) {
		const period, hosts, hour = 10 * time.Second, 3, time.Hour
		rng := rand.New(rand.NewPCG(s, 0))
		ens := testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithLogger(func(string, ...any) {}))
		ctx, stop := context.WithTimeout(t.Context(), hour)
		defer stop()
		var mu sync.Mutex
		ran := map[int64]string{}
		share := map[string]int{}
		var working *recipes.Lease
		var wg sync.WaitGroup
		var nets []*testutil.ClientNet
		for i := range hosts {
			name := fmt.Sprint("host ", i)
			net := ens.ClientNet(name)
			client, err := framework.New(ens.Servers(), framework.WithDialer(net.Dial))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			nets = append(nets, net)
			skew := time.Duration(rng.Int64N(int64(time.Minute))) - 30*time.Second
			h := &host{name: name, client: client, period: period, now: func() time.Time { return time.Now().Add(skew) }}
			h.job = func(ctx context.Context, tick int64, term *recipes.Lease) error {
				mu.Lock()
				if other, twice := ran[tick]; twice {
					t.Errorf("tick %d is run by %s, and was by %s", tick, name, other)
				}
				if working != nil && working != term && working.Held() {
					t.Errorf("tick %d is run by %s while another works", tick, name)
				}
				ran[tick], working = name, term
				share[name]++
				mu.Unlock()
				select { // the work
				case <-time.After(2 * time.Second):
				case <-ctx.Done():
				}
				mu.Lock()
				defer mu.Unlock()
				if working == term {
					working = nil
				}
				return nil
			}
			wg.Go(func() {
				if err := h.run(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		for ctx.Err() == nil {
			net := nets[rng.IntN(hosts)]
			switch rng.IntN(3) {
			case 0:
				net.Drop()
			case 1:
				net.Cut() // sometimes for long enough that the session expires
				time.Sleep(time.Duration(rng.IntN(25)) * time.Second)
				net.Heal()
			}
			time.Sleep(time.Duration(rng.IntN(60)) * time.Second)
		}
		wg.Wait()
		// A leader whose clock is behind waits until its clock reaches the next
		// tick.
		if least := int(hour/period) / 2; len(ran) < least {
			t.Errorf("%d ticks were run, want %d at least", len(ran), least)
		}
		for i := range hosts {
			if share[fmt.Sprint("host ", i)] == 0 {
				t.Errorf("host %d had no share: %v", i, share)
			}
		}
		t.Logf("%d ticks in %v: %v", len(ran), hour, share)
		var last record
		data, _ := ens.Data(recordPath)
		if err := json.Unmarshal(data, &last); err != nil || last.Host == "" || last.Token.IsZero() {
			t.Errorf("the record: %s, %v", data, err)
		}
	})
}
