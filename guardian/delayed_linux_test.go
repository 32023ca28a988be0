package guardian_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/guarding"
	"github.com/zkrecipes/zkrecipes/internal/test/sim"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// What a process has sent to one member is still on its way when it dies, and
// the guardian's connects take as long. What arrives is not executed once one
// of its sessions is closed.
func TestNothingDelayedIsExecutedLate(t *testing.T) {
	kills := bubble.Draw(1, 10)
	ens := apache.Start(t, 3, apache.WithSessionTimeouts(time.Second, heirTimeout))
	var nets []*testutil.ClientNet
	var addresses []string
	for address := range strings.SplitSeq(ens.Servers(), ",") {
		net := testutil.NewClientNet(address, nil)
		t.Cleanup(func() {
			if err := net.Close(); err != nil {
				t.Error(err)
			}
		})
		relayed, err := net.Listen()
		if err != nil {
			t.Fatal(err)
		}
		nets, addresses = append(nets, net), append(addresses, relayed)
	}
	servers := strings.Join(addresses, ",")
	socket := guarding.Daemon(t, servers)
	heirs := newHeirs(t, ens)
	var deaths []death
	for range kills {
		far := nets[rand.IntN(len(nets))]
		far.Latency(60*time.Millisecond+rand.N(140*time.Millisecond), 0)
		writer, sessions := startWriter(t, servers, socket)
		deaths = append(deaths, death{sessions, killBeside(t, ens, writer, heirs, nil, 0)})
		far.Latency(0, 0)
	}
	time.Sleep(time.Second) // until what was on its way has arrived
	_, written, refusals, late := judgeAll(t, ens, deaths)
	t.Logf("%d kills: %d sessions, %d writes, %d refused behind the end, %d executed behind it", kills, kills*writerSessions, written, refusals, late)
}

// The same test finds late writes if the guardian closes each session by
// itself: there is something to find.
func TestLateWritesAreFound(t *testing.T) {
	bubble.Whole(t)
	m, err := sim.ReadMutant("..", "../internal/test/sim/testdata/mutants/guardian-closes-each-alone.mutant")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := m.Compile("..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run=^TestNothingDelayedIsExecutedLate$", "-test.v")
	cmd.Env = append(os.Environ(), "ZKR_WHOLE=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), ": executed late: ") {
		t.Fatalf("no late write was found: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, " executed behind it") {
			t.Log("with a guardian that closes each session by itself:", strings.TrimSpace(line))
		}
	}
}
