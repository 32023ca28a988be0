package measure_test

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

func concepts(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/concepts.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// docs/concepts.md has a table of session timeouts T and stop margins, which
// says what leases survive. Each row is what happens.
func TestChoices(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^[^|\n]+ \| (\d\S*) \| (\d\S*) \| (\d\S*) \| (\d\S*)$`).FindAllStringSubmatch(concepts(t), -1)
	if len(rows) < 4 {
		t.Fatalf("found %d rows", len(rows))
	}
	for _, row := range rows {
		t.Run(row[1]+" "+row[2], func(t *testing.T) {
			var times [4]time.Duration
			for i := range times {
				var err error
				if times[i], err = time.ParseDuration(row[i+1]); err != nil {
					t.Fatal(err)
				}
			}
			timeout, margin, outage, roundTrip := times[0], times[1], times[2], times[3]
			if least := leastLeft(t, timeout, margin); least < outage-3*time.Nanosecond || least > outage+timeout/100 {
				t.Errorf("a lease survives %v, the page says %v", least, outage)
			}
			if leases, _ := fate(t, timeout, margin, roundTrip); leases != "held" {
				t.Errorf("with round trips of %v leases are %s", roundTrip, leases)
			}
			if leases, _ := fate(t, timeout, margin, 2*roundTrip); leases == "held" {
				t.Errorf("with round trips of %v leases are held, too", 2*roundTrip)
			}
		})
	}
}

// leastLeft is the least time until a settled lease is declared lost.
func leastLeft(t *testing.T, timeout, margin time.Duration) time.Duration {
	least := time.Hour
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("a", framework.WithSessionTimeout(timeout), framework.WithStopMargin(margin))
		m, err := locks.NewMutex(c, "/choices")
		if err != nil {
			t.Fatal(err)
		}
		lease, err := m.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * timeout)
		for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(7 * time.Millisecond) {
			least = min(least, time.Until(lease.Deadline())-margin)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}, testutil.WithMembers(3))
	return least
}

// The ratios of docs/concepts.md are those of the measured table, by and large.
func TestRatiosOfTheChoices(t *testing.T) {
	peers, err := os.ReadFile("../../../bench/results/peers.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range []struct {
		row, measured string // of the page, with the ratio as a group; and of the table: a ratio to another one
		inverse       bool
	}{
		{`WithLinger\S+ \| (\S+) times`, `\| zkrecipes, lingering \| \S+ \((\S+)\)`, true},
		{`WithAsyncRelease\S+ \| (\S+) times`, `\| zkrecipes, async release \| \S+ \((\S+)\)`, true},
		{`handoffs are on \| (\S+) times`, `\| zkrecipes, no handoffs \| \S+ \(\S+\) \| \S+ \((\S+)\)`, false},
	} {
		number := func(pattern, text string) float64 {
			m := regexp.MustCompile(pattern).FindStringSubmatch(text)
			if m == nil {
				t.Fatalf("nothing is as %s", pattern)
			}
			n, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		says, is := number(each.row, concepts(t)), number(each.measured, string(peers))
		if each.inverse {
			is = 1 / is
		}
		if says < 0.8*is || says > 1.25*is {
			t.Errorf("%s: the page says %v, measured is %v", each.row, says, is)
		}
	}
}
