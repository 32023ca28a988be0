package zkprom_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// heldBack says of each alert whether Alertmanager holds it back when the
// ensemble is down for its whole job, and when its process alone has no
// connection.
var heldBack = map[string]struct{ job, process bool }{
	"ZkrecipesEnsembleDown":          {},
	"ZkrecipesClientNotConnected":    {job: true},
	"ZkrecipesSessionsFlap":          {job: true},
	"ZkrecipesConnectionsFlap":       {job: true, process: true},
	"ZkrecipesLeaseLost":             {job: true, process: true},
	"ZkrecipesCallsFail":             {job: true, process: true},
	"ZkrecipesPresenceMissing":       {job: true, process: true},
	"ZkrecipesCacheStale":            {job: true, process: true},
	"ZkrecipesWaitersDoNotMove":      {job: true},
	"ZkrecipesWaitsTooLong":          {job: true},
	"ZkrecipesElectionWithoutLeader": {job: true},
	"ZkrecipesLeaderFlaps":           {job: true},
	"ZkrecipesWorkOverran":           {},
	"ZkrecipesTwoLeaders":            {},
	"ZkrecipesLockHeldTooLong":       {},
	"ZkrecipesEventsDropped":         {},
}

// The inhibit rules are accepted by amtool, and a real Alertmanager
// holds back by them what an outage explains, of that job or process alone.
func TestInhibitRules(t *testing.T) {
	config := alertmanagerConfig(t)
	if out, err := exec.Command(program(t, "amtool"), "check-config", config).CombinedOutput(); err != nil {
		t.Fatalf("amtool: %v\n%s", err, out)
	}
	var alerts []string
	for _, alert := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(readFile(t, "alerts.yml"), -1) {
		alerts = append(alerts, alert[1])
	}
	slices.Sort(alerts)
	if known := slices.Sorted(maps.Keys(heldBack)); !slices.Equal(alerts, known) {
		t.Fatalf("the alerts are %q, the table has %q", alerts, known)
	}

	// All processes of shop have lost the ensemble, of bank one has. Those of post
	// have not.
	fired, want := []firing{}, map[firing]bool{}
	for _, alert := range alerts {
		for _, at := range []firing{{job: "shop", instance: "a"}, {job: "bank", instance: "a"}, {job: "bank", instance: "b"}, {job: "post", instance: "a"}} {
			at.alert = alert
			switch {
			case alert == "ZkrecipesEnsembleDown" && at.job != "shop",
				slices.Contains([]string{"ZkrecipesClientNotConnected", "ZkrecipesSessionsFlap"}, alert) && (at.job == "post" || at.instance == "b"):
				continue
			}
			fired = append(fired, at)
			want[at] = at.job == "shop" && heldBack[alert].job || at.job == "bank" && at.instance == "a" && heldBack[alert].process
		}
	}
	url := startAlertmanager(t, config)
	post(t, url, fired)
	await(t, "Alertmanager to hold back what the outages explain", func() (string, bool) {
		got, err := inhibited(url)
		if err != nil {
			return err.Error(), false
		}
		var differ []string
		for at, held := range want {
			if got[at] != held {
				differ = append(differ, fmt.Sprintf("%v: held back: %t, want %t", at, got[at], held))
			}
		}
		slices.Sort(differ)
		return strings.Join(differ, "\n"), len(differ) == 0 && len(got) == len(want)
	})
}

// alertmanagerConfig returns a file with the rules.
func alertmanagerConfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "alertmanager.yml")
	if err := os.WriteFile(file, []byte("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"+readFile(t, "alertmanager.yml")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// firing is an alert, and whose it is.
type firing struct{ alert, job, instance string }

// startAlertmanager starts Debian's Alertmanager, and returns its address.
func startAlertmanager(t *testing.T, config string) (url string) {
	t.Helper()
	cmd := exec.Command(program(t, "prometheus-alertmanager"), "--config.file="+config, "--storage.path="+t.TempDir(),
		"--web.listen-address=127.0.0.1:0", "--cluster.listen-address=")
	return "http://" + listening(t, cmd) + "/api/v2/alerts"
}

// post sends alerts to Alertmanager, as Prometheus does. It tries again while
// Alertmanager starts.
func post(t *testing.T, url string, fired []firing) {
	t.Helper()
	var alerts []map[string]any
	for _, at := range fired {
		alerts = append(alerts, map[string]any{"labels": at.labels()})
	}
	body, err := json.Marshal(alerts)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "Alertmanager to take alerts", func() (string, bool) {
		response, err := http.Post(url, "application/json", bytes.NewReader(body))
		if err != nil {
			return err.Error(), false
		}
		defer response.Body.Close()
		return response.Status, response.StatusCode == http.StatusOK
	})
}

// labels returns the labels that decide. The alert of a whole job has no
// instance.
func (at firing) labels() map[string]string {
	labels := map[string]string{"alertname": at.alert, "job": at.job, "instance": at.instance}
	if at.alert == "ZkrecipesEnsembleDown" {
		delete(labels, "instance")
	}
	return labels
}

// inhibited returns which alerts Alertmanager has, and whether it holds them
// back.
func inhibited(url string) (map[firing]bool, error) {
	response, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var alerts []struct {
		Labels map[string]string
		Status struct{ InhibitedBy []string }
	}
	if err := json.NewDecoder(response.Body).Decode(&alerts); err != nil {
		return nil, err
	}
	all := map[firing]bool{}
	for _, a := range alerts {
		at := firing{a.Labels["alertname"], a.Labels["job"], a.Labels["instance"]}
		if at.alert == "ZkrecipesEnsembleDown" {
			at.instance = "a"
		}
		all[at] = len(a.Status.InhibitedBy) > 0
	}
	return all, nil
}
