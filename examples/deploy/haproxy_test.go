package deploy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// HAProxy with the configuration of the manifest, in front of two processes of
// httpleader. A request that has begun before SIGTERM is answered, although
// HAProxy sees the drain, and the time of the listener is over, before. A new
// one is refused until the next instance leads. Once HAProxy took an instance
// that drains for lost, and cut its requests: they got 502.
func TestTheDrainBehindHAProxy(t *testing.T) {
	haproxy(t)
	ens := testutil.Start(t, testutil.WithMembers(3))
	program := filepath.Join(t.TempDir(), "httpleader")
	if out, err := exec.Command("go", "build", "-o", program, "../httpleader").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a, b := startService(t, program, ens.Servers()), startService(t, program, ens.Servers())
	front := startHAProxy(t, a.address, b.address)
	count := func() int { return post(front + "/count") }
	await(t, "HAProxy to know the leader", func() bool {
		for range 3 { // HAProxy takes both in turn, until it has asked them
			if count() != http.StatusOK {
				return false
			}
		}
		return true
	})

	begun := make(chan struct{}) // closed: the request's write has reached a server
	var once sync.Once
	const slow = 3 * time.Second
	ens.Control(func(r testutil.Request) testutil.Action {
		action := testutil.Pass()
		if r.Op == testutil.OpMulti {
			once.Do(func() {
				close(begun)
				action = testutil.Delay(slow)
			})
		}
		return action
	})
	answer := make(chan int, 1)
	go func() { answer <- count() }()
	select {
	case <-begun:
	case got := <-answer:
		t.Fatalf("%d before it was slow", got)
	}
	leader := a
	if !leads(a) {
		leader = b
	}
	ended := leader.end()
	// A count would wait behind the slow one.
	await(t, "HAProxy to see the drain", func() bool { return get(front+"/alive") == http.StatusServiceUnavailable })
	if got := <-answer; got != http.StatusOK {
		t.Errorf("the request that had begun: %d", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("httpleader: %v", err)
	}
	await(t, "the next leader", func() bool { return count() == http.StatusOK })
}

// An instance that does not lead any more, and is not in a drain, answers no
// request that it has begun: HAProxy cuts it.
func TestHAProxyCutsWhatHasLostItsLease(t *testing.T) {
	var lost atomic.Bool
	begun, over := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /leader", func(w http.ResponseWriter, _ *http.Request) {
		if lost.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /alive", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /slow", func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-over
	})
	service := httptest.NewServer(mux)
	defer service.Close()
	defer close(over)
	front := startHAProxy(t, service.Listener.Addr().String())
	await(t, "the leader behind HAProxy", func() bool { return get(front+"/alive") == http.StatusOK })
	answer := make(chan int, 1)
	go func() { answer <- get(front + "/slow") }()
	<-begun
	lost.Store(true)
	select {
	case got := <-answer:
		if got != http.StatusBadGateway {
			t.Errorf("the request that had begun: %d", got)
		}
	case <-time.After(20 * time.Second):
		t.Error("the request that had begun is not cut")
	}
}

// service is a process of httpleader.
type service struct {
	address string
	end     func() <-chan error // sends SIGTERM; the channel has the end of the process
}

func startService(t *testing.T, program, servers string) service {
	t.Helper()
	cmd := exec.Command(program, "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "ZKR_SERVERS="+servers)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	end := sync.OnceValue(func() <-chan error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return ended
	})
	t.Cleanup(func() {
		end()
		_ = cmd.Process.Kill()
	})
	return service{strings.TrimPrefix(strings.TrimSpace(line), "serving http://"), end}
}

func leads(s service) bool { return get("http://"+s.address+"/leader") == http.StatusOK }

// startHAProxy starts HAProxy with the configuration of the manifest, of which
// only addresses are changed, and returns its URL.
func startHAProxy(t *testing.T, backends ...string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(haproxyConfig(t), "bind :8080", "bind "+front)
	var servers strings.Builder
	for i, address := range backends {
		fmt.Fprintf(&servers, "  server billing%d %s\n", i, address)
	}
	line := regexp.MustCompile(`(?m)^ *server-template .*\n`)
	if !line.MatchString(text) || !strings.Contains(text, front) {
		t.Fatalf("the configuration has other addresses: %s", text)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(line.ReplaceAllLiteralString(text, servers.String())), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(haproxy(t), "-db", "-f", file)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("haproxy: %s", log.String())
		}
	})
	return "http://" + front
}

// haproxy returns the path of HAProxy.
func haproxy(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("haproxy")
	if err != nil {
		missing(t, err)
	}
	return path
}

// haproxyConfig returns HAProxy's configuration in the manifest.
func haproxyConfig(t *testing.T) string {
	t.Helper()
	manifest, err := os.ReadFile("kubernetes/billing.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(manifest), "  haproxy.cfg: |\n")
	text, _, ok := strings.Cut(text, "\n---\n")
	if !ok {
		t.Fatal("no haproxy.cfg in the manifest")
	}
	return regexp.MustCompile(`(?m)^    `).ReplaceAllString(text, "") + "\n"
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waiting for %s", what)
		}
	}
}

// get and post return the status, 0 if there is no answer. Each request has a
// connection of its own.
var client = http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func get(url string) int { return status(client.Get(url)) }

func post(url string) int { return status(client.Post(url, "", nil)) }

func status(r *http.Response, err error) int {
	if err != nil {
		return 0
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode
}
