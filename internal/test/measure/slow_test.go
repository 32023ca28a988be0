package measure_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/tables"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// slowTimeout is T of the tables about slow ensembles.
const slowTimeout = framework.DefaultSessionTimeout

// fate says what becomes of leases with a session timeout T and a stop margin
// in an ensemble whose round trips all take as long, and how many requests a
// client that holds sends in T.
func fate(t *testing.T, timeout, margin, roundTrip time.Duration) (leases, requests string) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.Connect("slow", framework.WithSessionTimeout(timeout), framework.WithStopMargin(margin))
		w.ClientNet("slow").Latency(roundTrip/2, roundTrip/2)
		time.Sleep(timeout)
		s := w.Session(c)
		const tries = 12
		lost, refused := 0, 0
		for _, held := range []time.Duration{timeout / 2, 5 * timeout} {
			for i := range time.Duration(tries) {
				time.Sleep(i * timeout / 7)
				ended := make(chan error, 1)
				release, err := s.Claim(t.Context(), func(err error) { ended <- err })
				if errors.Is(err, framework.ErrUnproven) {
					refused++
					continue
				}
				if err != nil {
					t.Fatalf("a round trip of %v: %v", roundTrip, err)
				}
				select {
				case <-ended:
					lost++
				case <-time.After(held):
				}
				release()
			}
		}
		switch {
		case refused == 2*tries:
			leases, requests = "never granted", "-"
			return
		case refused > 0:
			leases = "some granted"
		case lost > 0:
			leases = "some lost"
		default:
			leases = "held"
		}
		defer s.Keep()()
		time.Sleep(3 * timeout)
		w.ResetRequests()
		measured := bubble.Few(10, 40)
		time.Sleep(time.Duration(measured) * timeout)
		requests = fmt.Sprintf("%.0f", float64(w.Requests()[testutil.OpSync])/float64(measured))
	}, testutil.WithMembers(3))
	return leases, requests
}

// TestSlowEnsembles measures the table of docs/performance.md about slow
// ensembles, and what the pages say of requests: a client that holds sends 10
// to 12 syncs in T while a round trip takes at most 0.02 T, and never more than
// 40. With -short it measures some rows, each of which must be there.
func TestSlowEnsembles(t *testing.T) {
	margins := []time.Duration{10, 6, 4, 3} // T over these
	leases := strings.Builder{}
	requests := strings.Builder{}
	for _, b := range []*strings.Builder{&leases, &requests} {
		b.WriteString("| round trip |")
		for _, part := range margins {
			fmt.Fprintf(b, " margin T/%d |", part)
		}
		b.WriteString("\n|---|---:|---:|---:|---:|\n")
	}
	for _, percent := range bubble.FewOf(4, []time.Duration{1, 2, 5, 8, 9, 12, 15, 20, 25}) {
		begin := fmt.Sprintf("| 0.%02d T |", percent)
		leases.WriteString(begin)
		requests.WriteString(begin)
		for _, part := range margins {
			l, r := fate(t, slowTimeout, slowTimeout/part, slowTimeout*percent/100)
			leases.WriteString(" " + l + " |")
			requests.WriteString(" " + r + " |")
			if n, err := strconv.Atoi(r); err == nil {
				if n > 40 || part == 10 && (percent <= 2 && (n < 10 || n > 12) || percent == 5 && n > 15) {
					t.Errorf("%s a margin of T/%d: %d requests in T, docs/performance.md says something else", begin, part, n)
				}
			}
		}
		leases.WriteString("\n")
		requests.WriteString("\n")
	}
	const page = "../../../docs/performance.md"
	if !testing.Short() {
		tables.Made(t, page, "slow", leases.String())
	} else if table := tables.Read(t, page, "slow"); slices.ContainsFunc(strings.SplitAfter(leases.String(), "\n"), func(line string) bool { return !strings.Contains(table, line) }) {
		t.Errorf("docs/performance.md needs these rows:\n%s", leases.String())
	}
	t.Logf("requests in T, which differ a little from run to run:\n%s", requests.String())
}
