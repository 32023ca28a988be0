package testutil_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// sweep is the container interval of the programs: never, since a sweep
// consumes transaction numbers at times of its choice.
const sweep = time.Hour

func startForPrograms(t *testing.T, members int) testutil.Ensemble {
	return testutil.Start(t, testutil.WithMembers(members), testutil.WithContainerInterval(sweep), testutil.WithExtendedTypes(),
		testutil.WithExistsWithoutRead())
}

func startRealForPrograms(t *testing.T, members int) testutil.Ensemble {
	return apache.Start(t, members, apache.WithProperty("znode.container.checkIntervalMs", fmt.Sprint(sweep.Milliseconds())))
}

// TestRandomProgramsOnTheRealServer runs random programs on the embedded
// ensemble and on the real server. Every answer and event has to be the same.
// -seed selects a single program.
func TestRandomProgramsOnTheRealServer(t *testing.T) {
	for _, c := range []struct {
		name     string
		members  int
		programs uint64
		spread   bool
	}{{"one member", 1, 200, false}, {"one member of three", 3, 25, false}, {"three members", 3, 15, true}} {
		t.Run(c.name, func(t *testing.T) {
			first, programs := *seed, uint64(1)
			if first == 0 {
				first, programs = uint64(time.Now().UnixNano()), c.programs
			}
			real, embedded := startRealForPrograms(t, c.members), startForPrograms(t, c.members)
			lines := 0
			for s := first; s < first+programs && !t.Failed(); s++ {
				p := draw(s)
				if p.local && c.spread {
					continue
				}
				got := run(t, embedded, p, c.spread)
				agree(t, p, got, run(t, real, p, c.spread))
				lines += len(got)
			}
			t.Logf("%d programs from seed %d on: %d answers and events", programs, first, lines)
		})
	}
}

// agree compares the output of two ensembles and shows what led to the first
// difference.
func agree(t *testing.T, p *program, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("-seed %d, after\n%s\n the embedded ensemble says %s\n and the real server says %s",
				p.seed, strings.Join(got[max(0, i-40):i], "\n"), g, w)
			return
		}
	}
}

// The real server's output for the programs 1 to recordedPrograms is kept as
// one hash each.
const (
	recordedPrograms = 100
	hashes           = "testdata/random.txt"
)

func hash(lines []string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(lines, "\n"))))[:16]
}

// TestRandomPrograms compares the embedded ensemble with recorded output of the
// real server.
func TestRandomPrograms(t *testing.T) {
	b, err := os.ReadFile(hashes)
	must(t, err)
	want := strings.Fields(string(b))
	if len(want) != recordedPrograms {
		t.Fatalf("%d hashes in %s", len(want), hashes)
	}
	for _, c := range []struct {
		name     string
		members  int
		programs int
		spread   bool
	}{{"one member", 1, recordedPrograms, false}, {"one member of three", 3, 30, false}, {"three members", 3, 30, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := startForPrograms(t, c.members)
			for i, w := range want[:c.programs] {
				p := draw(uint64(i + 1))
				if p.local && c.spread {
					continue
				}
				if got := hash(run(t, e, p, c.spread)); got != w {
					t.Errorf("program %d gets other answers than from the real server: "+
						"ZKR_REAL=1 go test ./testutil -run RandomProgramsOnTheRealServer -seed %d shows which", i+1, i+1)
				}
			}
		})
	}
}

// TestRecordRandomPrograms records the real server's output for
// TestRandomPrograms.
func TestRecordRandomPrograms(t *testing.T) {
	if !*record {
		t.Skip("records only with -record")
	}
	real := startRealForPrograms(t, 1)
	var b strings.Builder
	for i := range uint64(recordedPrograms) {
		fmt.Fprintln(&b, hash(run(t, real, draw(i+1), false)))
	}
	must(t, os.WriteFile(hashes, []byte(b.String()), 0o644))
}
