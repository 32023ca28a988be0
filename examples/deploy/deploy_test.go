// Package deploy checks the files for systemd and Kubernetes that are here.
package deploy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/guardian"
	"github.com/zkrecipes/zkrecipes/internal/test/tlstest"
	"github.com/zkrecipes/zkrecipes/internal/zkr/cli"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// systemd finds nothing to complain of in the units. Their programs are put
// where the test may put them, zkr included, which the units give no directory:
// systemd looks where packages and people install programs.
func TestUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		missing(t, err)
	}
	units, err := filepath.Glob("systemd/*.*")
	if err != nil || len(units) < 4 {
		t.Fatalf("units %q, %v", units, err)
	}
	dir := t.TempDir()
	program := regexp.MustCompile(`/usr/local/bin/(\w+)`)
	bare := regexp.MustCompile(`(?m)^ExecStart=zkr `)
	var copies []string
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		text = bare.ReplaceAll(text, []byte("ExecStart=/usr/local/bin/zkr "))
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

// A unit that runs zkr takes the end by SIGTERM for a success, and is not
// started again if its program is missing. It is after wrong usage, which is
// also a file of TLS or SASL that cannot be read yet.
func TestUnitsKnowTheExitCodes(t *testing.T) {
	success, prevent := "143", fmt.Sprintf("RestartPreventExitStatus=%d %d", cli.ExitCannotRun, cli.ExitNotFound)
	for unit, restarts := range map[string]bool{"nightly": false, "scheduler": true} {
		text, err := os.ReadFile("systemd/" + unit + ".service")
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^SuccessExitStatus=(.*)$`).FindSubmatch(text)
		if m == nil || !slices.Contains(strings.Fields(string(m[1])), success) {
			t.Errorf("%s: systemctl stop leaves it failed: %q", unit, m)
		}
		if strings.Contains(string(text), "\nRestart=") != restarts || strings.Contains(string(text), "\n"+prevent+"\n") != restarts {
			t.Errorf("%s: it does not say %s", unit, prevent)
		}
	}
}

// The job that nightly.service shows works once a day, and leaves the day on
// which it began: midnight comes while it works.
func TestTheJobLeavesItsDay(t *testing.T) {
	text, err := os.ReadFile("systemd/nightly.service")
	if err != nil {
		t.Fatal(err)
	}
	var job strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^#   (.*)$`).FindAllSubmatch(text, -1) {
		job.Write(append(m[1], '\n'))
	}
	dir := t.TempDir()
	const day, next = "2026-10-24", "2026-10-25"
	clock := filepath.Join(dir, "clock")
	for name, script := range map[string]string{"nightly": job.String(), "date": "#!/bin/sh\ncat " + clock + "\necho " + next + " >" + clock + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "zkr"), "../../cmd/zkr").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	servers := testutil.Start(t).Servers()
	run := func(program string, args ...string) string {
		cmd := exec.Command(filepath.Join(dir, program), args...)
		cmd.Env = append(os.Environ(), "ZKR_SERVERS="+servers, "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v: %s", program, args, err, out)
		}
		return string(out)
	}
	run("zkr", "create", "--parents", "/done/nightly")
	for _, night := range []struct{ day, prints string }{{day, "the work\n"}, {day, ""}, {next, "the work\n"}, {next, ""}} {
		if err := os.WriteFile(clock, []byte(night.day+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := run("nightly"); got != night.prints {
			t.Errorf("on %s it prints %q, want %q", night.day, got, night.prints)
		}
		if left := run("zkr", "get", "/done/nightly"); left != night.day {
			t.Errorf("on %s it leaves %q", night.day, left)
		}
	}
}

// The environment of the units has variables that zkr reads; that of the
// guardian is no global flag's.
func TestTheEnvironmentOfTheUnits(t *testing.T) {
	text, err := os.ReadFile("systemd/environment")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/command-line.md") // its table of them is made
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^#?(\w+)=`).FindAllStringSubmatch(string(text), -1)
	if len(all) != 10 {
		t.Errorf("%d variables: %q", len(all), all)
	}
	for _, m := range all {
		if m[1] != guardian.Variable && !strings.Contains(string(page), " | `"+m[1]+"` | ") {
			t.Errorf("zkr does not read %s", m[1])
		}
	}
}

// HAProxy accepts its configuration in the manifest.
func TestHAProxyOfTheManifest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(haproxyConfig(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(haproxy(t), "-c", "-f", file).CombinedOutput(); err != nil {
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

// What the manifest says to take out for an ensemble without TLS or SASL leaves
// nothing of it.
func TestAManifestForAPlainEnsemble(t *testing.T) {
	text, err := os.ReadFile("kubernetes/scheduler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sasl, tls := []string{"ZKR_SASL", "password"}, []string{"ZKR_TLS", ":2281", "/etc/zkr", "secret", "fsGroup"}
	for script, gone := range map[string][]string{
		"/# SASL/d":                            sasl,
		"/# TLS/d; /# SASL/d; s/:2281/:2181/g": slices.Concat(sasl, tls),
	} {
		if !strings.Contains(string(text), "sed '"+script+"' scheduler.yaml") {
			t.Errorf("the manifest does not say %s", script)
		}
		out, err := exec.Command("sed", script+"; s/ *#.*//", "kubernetes/scheduler.yaml").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range slices.Concat(sasl, tls, []string{"ZKR_SERVERS", "ZKR_GUARDIAN"}) {
			if is := strings.Contains(string(out), what); is == slices.Contains(gone, what) {
				t.Errorf("%s: it has %s: %v", script, what, is)
			}
		}
	}
}

// The guardian can be made the first of the containers, for an ensemble with
// TLS and SASL or without.
func TestAManifestBeforeInitContainersGoOn(t *testing.T) {
	for manifest, scripts := range map[string][]string{
		"scheduler.yaml": {
			"/^      containers:/d; s/initContainers:/containers:/; /restartPolicy:/d",
			"/# TLS/d; /# SASL/d; s/:2281/:2181/g",
		},
		"billing.yaml": {"1,/^---/{ /^      containers:/d; s/initContainers:/containers:/; /restartPolicy:/d; }"},
	} {
		text, err := os.ReadFile("kubernetes/" + manifest)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "sed '"+scripts[0]+"' "+manifest) {
			t.Errorf("%s does not say %s", manifest, scripts[0])
		}
		for n := range scripts {
			sed := exec.Command("sed", "/^ *#/d\n"+strings.Join(scripts[:n+1], "\n"))
			sed.Stdin = strings.NewReader(string(text))
			out, err := sed.Output()
			if err != nil {
				t.Fatal(err)
			}
			pod, _, _ := strings.Cut(string(out), "\n---\n")
			_, containers, _ := strings.Cut(pod, "\n      containers:\n")
			guard, name := strings.Index(containers, "- name: guardian\n"), strings.TrimSuffix(manifest, ".yaml")
			if own := strings.Index(containers, "- name: "+name+"\n"); guard < 0 || own < guard || strings.Contains(pod, "restartPolicy") {
				t.Errorf("%s after %q: %s", manifest, scripts[:n+1], pod)
			}
		}
	}
}

// The script puts what is beside it in place before anything starts, with the
// modes that zkr asks for. It can be run again.
func TestInstall(t *testing.T) {
	from, root, stubs := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.CopyFS(from, os.DirFS("systemd")); err != nil {
		t.Fatal(err)
	}
	write := func(file, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile("systemd/install")
	if err != nil {
		t.Fatal(err)
	}
	install, err := exec.LookPath("install")
	if err != nil {
		missing(t, err)
	}
	write(filepath.Join(from, "install"), regexp.MustCompile(`/(etc|usr)/`).ReplaceAllString(string(script), root+"/$1/"), 0o755)
	for _, name := range []string{"scheduler", "nightly", "billing", "ca.pem", "client.pem", "client.key", "password"} {
		write(filepath.Join(from, name), name+"\n", 0o644)
	}
	for _, dir := range []string{"usr/local/bin", "etc/systemd/system"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	log, znode := filepath.Join(root, "log"), filepath.Join(root, "znode")
	const sh = "#!/bin/sh\n"
	say := sh + "echo \"${0##*/} $*\" >>" + log + "\n"
	for name, stub := range map[string]string{
		"id": sh, "sleep": sh, "systemctl": say,
		"runuser": say + "case $5 in stat) cat " + znode + " ;; create) : >" + znode + " ;; esac\n",
		// Only root may give files away.
		"install": sh + "for each do shift; [ \"$each\" = --owner=app ] && echo \"app $*\" >>" + log + " || set -- \"$@\" \"$each\"; done\nexec " + install + " \"$@\"\n",
	} {
		write(filepath.Join(stubs, name), stub, 0o755)
	}
	run := func() []string {
		t.Helper()
		cmd := exec.Command(filepath.Join(from, "install"), "first")
		cmd.Env = append(os.Environ(), "PATH="+stubs+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(log)
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	etc := root + "/etc/zkr"
	want := []string{
		"app --mode=400 --target-directory=" + etc + " client.key",
		"app --mode=400 --target-directory=" + etc + " password",
		"runuser -u app -- zkr stat /done/nightly",
		"runuser -u app -- zkr create --create-chroot --parents /done/nightly",
		"systemctl daemon-reload",
		"systemctl enable zkr-guard scheduler billing nightly.timer",
		"systemctl restart zkr-guard",
		"systemctl restart scheduler billing nightly.timer",
		"runuser -u app -- zkr doctor --all",
	}
	for _, want := range [][]string{want, slices.Delete(slices.Clone(want), 3, 4)} {
		if got := run(); !slices.Equal(got, want) {
			t.Errorf("it does %q, want %q", got, want)
		}
	}
	for file, mode := range map[string]os.FileMode{
		"etc/zkr/environment": 0o644, "etc/zkr/ca.pem": 0o644, "etc/zkr/client.pem": 0o644,
		"etc/zkr/client.key": 0o400, "etc/zkr/password": 0o400,
		"usr/local/bin/scheduler": 0o755, "usr/local/bin/nightly": 0o755, "usr/local/bin/billing": 0o755,
		"etc/systemd/system/zkr-guard.service": 0o644, "etc/systemd/system/scheduler.service": 0o644,
		"etc/systemd/system/billing.service": 0o644, "etc/systemd/system/nightly.service": 0o644, "etc/systemd/system/nightly.timer": 0o644,
	} {
		if info, err := os.Stat(filepath.Join(root, file)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, want the mode %v", file, err, mode)
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

// Nothing printed means that nobody is left, so the script fails if the member
// does not say who is connected: its own connection is in each answer.
func TestWhoIsLeftNeedsAnAnswer(t *testing.T) {
	const own = " /127.0.0.1:56498[0](queued=0,recved=1,sent=0)\n"
	for _, test := range []struct {
		name, answer, prints string
		ok                   bool
	}{
		{"cons is not allowed", "cons is not executed because it is not in the whitelist.\n", "who-is-left: ADDRESS does not say who is connected: cons is not executed because it is not in the whitelist.\n", false},
		{"nothing", "", "who-is-left: ADDRESS does not say who is connected: no answer\n", false},
		{"another form", "connections: 2\n", "who-is-left: ADDRESS does not say who is connected: connections: 2\n", false},
		{"nobody", own + "\n", "", true},
		{
			"two sessions", " /10.0.0.7:42362[1](queued=0,recved=8,sent=8,sid=0x1000050ab360000,lop=PING,est=1604486046312)\n" + own +
				" /[2001:db8:0:0:0:0:0:7]:42364[1](queued=0,recved=8,sent=8,sid=0x1000050ab360001,lop=NA,est=1604486046312)\n\n",
			"0x1000050ab360000 10.0.0.7:42362\n0x1000050ab360001 [2001:db8:0:0:0:0:0:7]:42364\n", true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if _, err := io.ReadFull(conn, make([]byte, len("cons"))); err == nil {
					_, _ = io.WriteString(conn, test.answer)
				}
			}()
			address := ln.Addr().String()
			out, err := exec.Command("./who-is-left", "plain", address).CombinedOutput()
			if want := strings.ReplaceAll(test.prints, "ADDRESS", address); string(out) != want || (err == nil) != test.ok {
				t.Errorf("%v; it printed %q, want %q", err, out, want)
			}
		})
	}
}

// A member that demands certificates of its clients says who is connected to a
// client that has one. Without one the script fails, and does not say that
// nobody is left.
func TestWhoIsLeftHasACertificate(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		missing(t, err)
	}
	authority, dir := tlstest.NewAuthority(t), t.TempDir()
	ca, cert, key, log := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key"), filepath.Join(dir, "log")
	authority.Write(ca)
	tlstest.WritePair(t, authority.Issue("operator", time.Hour), cert, key)
	line := "INFO org.apache.zookeeper.server.ZooKeeperServer - Session 0x1000050ab360000: adding SASL authorization for authorizationID: app\n"
	if err := os.WriteFile(log, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{authority.Issue("zk1", time.Hour)},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() { // ends with the listener
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if _, err := io.ReadFull(conn, make([]byte, len("cons"))); err == nil {
				_, _ = io.WriteString(conn, " /10.0.0.7:42362[1](queued=0,recved=8,sent=8,sid=0x1000050ab360000,lop=PING,est=1)\n"+
					" /10.0.0.8:42364[1](queued=0,recved=8,sent=8,sid=0x1000050ab360001,lop=PING,est=1)\n")
			}
			_ = conn.Close()
		}
	}()
	args := []string{"sasl", ln.Addr().String(), log, ca}
	if out, err := exec.Command("./who-is-left", args...).CombinedOutput(); err == nil {
		t.Errorf("without a certificate it prints %q", out)
	}
	out, err := exec.Command("./who-is-left", append(args, cert, key)...).CombinedOutput()
	if want := "0x1000050ab360001 10.0.0.8:42364\n"; err != nil || string(out) != want {
		t.Errorf("%v; it printed %q, want %q", err, out, want)
	}
}
