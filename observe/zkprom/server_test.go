package zkprom_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/zkrecipes/zkrecipes/internal/child"
)

// patience is how long a test waits for what must happen. It only decides how
// soon a failure is reported.
const patience = 2 * time.Minute

// server is a Prometheus that scrapes this process.
type server struct{ url string }

// startServer starts Debian's Prometheus. rules is the file of its alert rules.
func startServer(t *testing.T, g prometheus.Gatherer, rules string, flags ...string) *server {
	t.Helper()
	prometheus := program(t, "prometheus")
	target := httptest.NewServer(promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	t.Cleanup(target.Close)
	rules, err := filepath.Abs(rules)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	err = os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [%q]
scrape_configs:
  - job_name: shop
    static_configs: [{targets: [%q], labels: {instance: "shop-1"}}]
`, rules, target.Listener.Addr()), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(prometheus, append([]string{
		"--config.file=" + config, "--storage.tsdb.path=" + t.TempDir(), "--web.listen-address=127.0.0.1:0",
	}, flags...)...)
	return &server{url: "http://" + listening(t, cmd)}
}

// listening starts one of Prometheus's servers, which ends with the test, and
// returns the address at which it listens.
func listening(t *testing.T, cmd *exec.Cmd) (address string) {
	t.Helper()
	child.DieWithParent(cmd)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	address = addressIn(lines)
	read := make(chan struct{})
	go func() { // or it would block when the pipe is full
		for lines.Scan() {
		}
		close(read)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	if address == "" {
		t.Fatalf("%s does not listen", cmd)
	}
	return address
}

// awaitScrape waits until the server has read the metrics: it begins some
// seconds after its start, and sees no increase of what was counted before.
func (s *server) awaitScrape(t *testing.T) {
	t.Helper()
	await(t, "Prometheus to be ready", func() (string, bool) {
		response, err := http.Get(s.url + "/-/ready")
		if err != nil {
			return err.Error(), false
		}
		defer response.Body.Close()
		return response.Status, response.StatusCode == http.StatusOK
	})
	s.wantValue(t, "up", 1)
}

// addressIn returns the address in the lines of Prometheus's log.
func addressIn(lines *bufio.Scanner) string {
	listening := regexp.MustCompile(`127\.0\.0\.1:[1-9][0-9]*`)
	for lines.Scan() {
		if address := listening.FindString(lines.Text()); address != "" {
			return address
		}
	}
	return ""
}

// await waits until check reports true. Its text says what it has seen.
func await(t *testing.T, what string, check func() (seen string, ok bool)) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		seen, ok := check()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v have passed; waiting for %s; last: %s", patience, what, seen)
		}
	}
}

// sample is one of the values that a query returns.
type sample struct {
	labels map[string]string
	value  float64
}

func (s *server) query(t *testing.T, expr string) (samples []sample) {
	t.Helper()
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	s.get(t, "query?query="+url.QueryEscape(expr), &data)
	for _, r := range data.Result {
		value, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		if !math.IsNaN(value) {
			samples = append(samples, sample{r.Metric, value})
		}
	}
	return samples
}

// get reads what a path of Prometheus's API returns.
func (s *server) get(t *testing.T, path string, data any) {
	t.Helper()
	response, err := http.Get(s.url + "/api/v1/" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if answer.Status != "success" {
		t.Fatalf("%s: %s", path, answer.Error)
	}
}

// wantValue waits until a query has one value.
func (s *server) wantValue(t *testing.T, expr string, want float64) {
	t.Helper()
	await(t, fmt.Sprintf("%s = %v", expr, want), func() (string, bool) {
		samples := s.query(t, expr)
		return fmt.Sprint(samples), len(samples) == 1 && samples[0].value == want
	})
}

// wantValues waits until a query has these values, by one label. Others are 0,
// or not there.
func (s *server) wantValues(t *testing.T, expr, label string, values func() map[string]int) {
	t.Helper()
	await(t, expr, func() (string, bool) {
		found, want := make(map[string]int), values()
		for _, sample := range s.query(t, expr) {
			if sample.value != 0 {
				found[sample.labels[label]] = int(sample.value)
			}
		}
		return fmt.Sprintf("%v, want %v", found, want), maps.Equal(found, want)
	})
}
