package zkprom_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// runbook is the page that the alerts link to.
const runbook = "../../docs/errors.md"

// promtool accepts the alert rules, and plays the series of testdata, which
// fire each alert and do not. The alert for waiters that do not move counts the
// first grant of a process. Two processes that lead one election for a minute
// are an alert. A hand-over between two scrapes, a process that is no longer
// scraped, and an election that changes its leader between all scrapes are
// none, although the sum of leaders is two. Elections, sessions and connections
// that flap, long waits and calls that fail are alerts, by client or by share;
// a rolling restart, an outage, a few calls and callers who cancel are none.
func TestAlerts(t *testing.T) {
	promtool := program(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "alerts.yml"},
		{"test", "rules", "testdata/alerts_test.yml"},
	} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Each alert says what it is about and what to do, and is tested both ways.
func TestAlertsAreComplete(t *testing.T) {
	rules, tests := readFile(t, "alerts.yml"), readFile(t, "testdata/alerts_test.yml")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	parts := strings.Split(rules, "- alert: ")[1:]
	if len(alerts) == 0 || len(alerts) != len(parts) {
		t.Fatalf("%d alerts in %d parts", len(alerts), len(parts))
	}
	for i, alert := range alerts {
		for _, key := range []string{"severity:", "summary:", "description:", "action:"} {
			if !strings.Contains(parts[i], key) {
				t.Errorf("%s has no %s", alert[1], key)
			}
		}
		looks := regexp.MustCompile(`alertname: `+alert[1]+`\n( +exp_alerts:)?`).FindAllStringSubmatch(tests, -1)
		fires := slices.ContainsFunc(looks, func(look []string) bool { return look[1] != "" })
		rests := slices.ContainsFunc(looks, func(look []string) bool { return look[1] == "" })
		if !fires || !rests {
			t.Errorf("%s: a test in which it fires: %t, in which it does not: %t", alert[1], fires, rests)
		}
	}
}

// Each alert links to a section of the page that says what to do, and the page
// has no section of another alert.
func TestEachAlertHasARunbook(t *testing.T) {
	const url = "https://github.com/zkrecipes/zkrecipes/blob/main/docs/errors.md#"
	_, page, ok := strings.Cut(readFile(t, runbook), "\n## Alerts\n")
	if !ok {
		t.Fatal("the page has no section Alerts")
	}
	page, _, _ = strings.Cut(page, "\n## ")
	var want, got []string
	for _, rule := range strings.Split(readFile(t, "alerts.yml"), "- alert: ")[1:] {
		name, _, _ := strings.Cut(rule, "\n")
		want = append(want, name)
		if link := "runbook_url: " + url + strings.ToLower(name) + "\n"; strings.Count(rule, link) != 1 {
			t.Errorf("%s has no %s", name, link)
		}
	}
	for _, heading := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(page, -1) {
		got = append(got, heading[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the page has the sections %q, want %q", got, want)
	}
}

// Rules and tests name no metric that does not exist.
func TestAlertsUseMetricsThatExist(t *testing.T) {
	for _, name := range metricsIn(readFile(t, "alerts.yml")) {
		if !slices.Contains(names, name) {
			t.Errorf("alerts.yml has zkrecipes_%s, which is no metric", name)
		}
	}
}

// metricsIn returns the names of our metrics in a text, without what all of
// them begin with and without what histograms end with.
func metricsIn(text string) (found []string) {
	for _, match := range regexp.MustCompile(`\bzkrecipes_(\w+)`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(match[1], "")
		if !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return found
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
