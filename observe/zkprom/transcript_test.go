package zkprom_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
)

const transcriptFile = "testdata/transcript.txt"

// An alert fires in a real Prometheus when the ensemble has lost its quorum,
// and ends when the members are back. The transcript shows just that.
func TestTranscriptOfAnAlert(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics, err := zkprom.New(zkprom.Registerer(registry))
	if err != nil {
		t.Fatal(err)
	}
	story := &transcript{t: t, server: startServer(t, registry, quickRules(t))}
	ens := testutil.Start(t, testutil.WithMembers(3), testutil.WithTick(500*time.Millisecond))
	client, err := framework.New(ens.Servers(), framework.WithDialer(ens.Dial), framework.WithSessionTimeout(3*time.Second),
		metrics.Option())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	story.server.awaitScrape(t)
	report, term := acquired(t, made(locks.NewMutex(client, "/locks/report"))), acquired(t, made(leader.New(client, "/leader")))
	story.server.wantValue(t, "sum(zkrecipes_held)", 2)
	story.say("The program is connected, holds a lock and leads an election.")
	story.tellInactive()

	stop := func(member int) {
		t.Helper()
		if err := ens.Stop(member); err != nil {
			t.Fatal(err)
		}
	}
	stop(0)
	story.server.wantValue(t, "zkrecipes_connected", 1)
	story.say("Member 0 of three is killed. The client goes on with another one.")
	story.tellInactive()

	pending, firing := story.evaluations("pending"), story.evaluations("firing")
	stop(1)
	story.say("Member 1 is killed, too. One member of three is no quorum.")
	story.tellOnceMore("pending", pending)
	story.tellOnceMore("firing", firing)
	story.tellAnnotations()
	awaitLost(t, report)
	awaitLost(t, term)
	story.server.wantValue(t, "sum(zkrecipes_lost_total)", 2)
	story.say("The program has lost: " + story.losses())

	for member := range 2 {
		if err := ens.Restart(member); err != nil {
			t.Fatal(err)
		}
	}
	story.server.wantValue(t, "zkrecipes_connected", 1)
	story.say("Members 0 and 1 are started again.")
	story.tellInactive()
	story.compare()
}

// quickRules returns a file with the alert rules, of which those that wait for
// a minute wait for two seconds.
func quickRules(t *testing.T) string {
	t.Helper()
	rules := strings.ReplaceAll(readFile(t, "alerts.yml"), "for: 1m", "for: 2s")
	file := filepath.Join(t.TempDir(), "alerts.yml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func acquired(t *testing.T, a recipes.Acquirer) *recipes.Lease {
	t.Helper()
	lease, err := a.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// watched is the alert of the transcript.
const watched = "ZkrecipesClientNotConnected"

// transcript is what has happened.
type transcript struct {
	t      *testing.T
	server *server
	text   strings.Builder
}

func (s *transcript) say(line string) { s.text.WriteString(line + "\n") }

func (s *transcript) tell(state string) { fmt.Fprintf(&s.text, "    %s: %s\n", watched, state) }

// tellInactive waits until the alert is neither pending nor firing.
func (s *transcript) tellInactive() {
	s.t.Helper()
	await(s.t, watched+" to be inactive", func() (string, bool) {
		states := s.server.alerts(s.t)[watched]
		return fmt.Sprint(states), len(states) == 0
	})
	s.tell("inactive")
}

// tellOnceMore waits until Prometheus has found the alert in a state more often
// than before. It need not be in that state any longer.
func (s *transcript) tellOnceMore(state string, before float64) {
	s.t.Helper()
	await(s.t, watched+" to be "+state, func() (string, bool) {
		n := s.evaluations(state)
		return fmt.Sprintf("%v evaluations, %v before", n, before), n > before
	})
	s.tell(state)
}

// evaluations returns how often Prometheus has found the alert in a state.
func (s *transcript) evaluations(state string) (n float64) {
	s.t.Helper()
	for _, sample := range s.server.query(s.t, fmt.Sprintf(`count_over_time(ALERTS{alertname=%q, alertstate=%q}[1h])`, watched, state)) {
		n += sample.value
	}
	return n
}

// tellAnnotations writes what the alert says while it fires. It waits for that:
// where a look at the program comes too late, the alert ends for a moment.
func (s *transcript) tellAnnotations() {
	s.t.Helper()
	await(s.t, watched+" to say what it is about", func() (string, bool) {
		var data struct {
			Alerts []struct{ Labels, Annotations map[string]string }
		}
		s.server.get(s.t, "alerts", &data)
		for _, alert := range data.Alerts {
			if alert.Labels["alertname"] == watched {
				for _, key := range []string{"summary", "description", "action"} {
					fmt.Fprintf(&s.text, "        %s: %s\n", key, alert.Annotations[key])
				}
				return "", true
			}
		}
		return fmt.Sprint(data.Alerts), false
	})
}

// losses returns which leases were lost.
func (s *transcript) losses() string {
	s.t.Helper()
	var lost []string
	for _, sample := range s.server.query(s.t, "sort_desc(sum by (recipe) (zkrecipes_lost_total))") {
		lost = append(lost, fmt.Sprintf("%v %s", sample.value, sample.labels["recipe"]))
	}
	slices.Sort(lost)
	return strings.Join(lost, ", ") + "."
}

// compare compares the transcript with what has happened.
func (s *transcript) compare() {
	s.t.Helper()
	want := s.text.String()
	if *update {
		if err := os.WriteFile(transcriptFile, []byte(want), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	if found := readFile(s.t, transcriptFile); found != want {
		s.t.Errorf("%s differs; run the test with -update. Want:\n%s", transcriptFile, want)
	}
}
