// Package deploy checks the files for systemd and Kubernetes that are here.
package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// systemd finds nothing to complain of in the units. Their programs are put
// where the test may put them.
func TestUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		missing(t, err)
	}
	units, err := filepath.Glob("systemd/*")
	if err != nil || len(units) < 4 {
		t.Fatalf("units %q, %v", units, err)
	}
	dir := t.TempDir()
	program := regexp.MustCompile(`/usr/local/bin/(\w+)`)
	var copies []string
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range program.FindAllStringSubmatch(string(text), -1) {
			if err := os.WriteFile(filepath.Join(dir, m[1]), []byte("#!/bin/sh\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		at := filepath.Join(dir, filepath.Base(unit))
		if err := os.WriteFile(at, program.ReplaceAll(text, []byte(dir+"/$1")), 0o644); err != nil {
			t.Fatal(err)
		}
		copies = append(copies, at)
	}
	verify := func(units ...string) string {
		out, err := exec.Command(analyze, append([]string{"verify", "--man=no"}, units...)...).CombinedOutput()
		text := string(out)
		if err != nil {
			text += err.Error()
		}
		return text
	}
	for _, unit := range copies {
		if text := verify(unit); text != "" {
			t.Errorf("%s: %s", filepath.Base(unit), text)
		}
	}
	wrong := filepath.Join(dir, "wrong.service")
	if err := os.WriteFile(wrong, []byte("[Service]\nExecStart=/bin/sh\nKillModus=mixed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text := verify(wrong); !strings.Contains(text, "KillModus") {
		t.Errorf("a unit with a wrong name passes: %s", text)
	}
}

// HAProxy accepts its configuration in the manifest.
func TestHAProxyOfTheManifest(t *testing.T) {
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		missing(t, err)
	}
	manifest, err := os.ReadFile("kubernetes/billing.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(manifest), "  haproxy.cfg: |\n")
	text, _, ok := strings.Cut(text, "\n---\n")
	if !ok {
		t.Fatal("no haproxy.cfg in the manifest")
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(regexp.MustCompile(`(?m)^    `).ReplaceAllString(text, "")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(haproxy, "-c", "-f", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// The manifests probe what examples/httpleader serves.
func TestProbedPathsAreServed(t *testing.T) {
	manifest, err := os.ReadFile("kubernetes/billing.yaml")
	if err != nil {
		t.Fatal(err)
	}
	service, err := os.ReadFile("../httpleader/main.go")
	if err != nil {
		t.Fatal(err)
	}
	probed := regexp.MustCompile(`httpGet: \{path: (/\w+), port: http\}|httpchk GET (/\w+)`).FindAllStringSubmatch(string(manifest), -1)
	if len(probed) != 5 {
		t.Fatalf("%d probes: %q", len(probed), probed)
	}
	for _, m := range probed {
		if path := m[1] + m[2]; path != "/haproxy" && !strings.Contains(string(service), `"GET `+path+`"`) {
			t.Errorf("httpleader does not serve %s", path)
		}
	}
}

// missing skips a test whose program is not installed. In CI it fails the test.
func missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// A server before 3.6 does not say in its log whose connection has SASL. Then
// the script would name every session.
func TestWhoIsLeftNeedsSessionsInTheLog(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	line := "INFO org.apache.zookeeper.server.ZooKeeperServer - adding SASL authorization for authorizationID: app\n"
	if err := os.WriteFile(log, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("./who-is-left", "sasl", "127.0.0.1:1", log, "ca.pem").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "names no sessions: this needs ZooKeeper 3.6 or later") {
		t.Errorf("%v; it printed %q", err, out)
	}
}
