package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The service as a user runs it: one of two instances leads, and a signal ends
// both.
func TestExample(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot send itself SIGTERM there")
	}
	ens := testutil.Start(t, testutil.WithMembers(3))
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	out := &lines{}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, ens.Servers(), []string{"127.0.0.1:0", "127.0.0.1:0"}, out) }()

	http.DefaultClient.Timeout = 10 * time.Second
	leads := func() (leading []string) {
		for _, url := range out.urls() {
			if status, _ := get(t, http.DefaultClient, url+"/leader"); status == http.StatusOK {
				leading = append(leading, url)
			}
		}
		return leading
	}
	var leading []string
	for until := time.Now().Add(20 * time.Second); len(leading) != 1 || len(out.urls()) != 2; leading = leads() {
		if time.Now().After(until) {
			t.Fatalf("%v lead of %v", leading, out.urls())
		}
		time.Sleep(10 * time.Millisecond)
	}
	for n := range 3 {
		if status, body := post(t, http.DefaultClient, leading[0]+"/count"); status != http.StatusOK || body != fmt.Sprintln(n+1) {
			t.Errorf("count: %d %q", status, body)
		}
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if data, _ := ens.Data(countPath); string(data) != "3" {
		t.Errorf("the count is %q", data)
	}
	http.DefaultClient.CloseIdleConnections()
}

// What the load balancer asks follows the lease. An instance that is cut off
// from the ensemble leads no longer, a margin before another instance can. Each
// instance that is connected is ready, whether it leads or not.
func TestTheProbesFollowTheLeaseAndTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start("a"), w.start("b")
		w.await(a, http.StatusOK)
		if status, _ := b.get("/leader"); status != http.StatusServiceUnavailable {
			t.Errorf("both lead: %d", status)
		}
		for name, r := range map[string]*running{"the leader": a, "the other": b} {
			if status, body := r.get("/ready"); status != http.StatusOK || body != "CONNECTED\n" {
				t.Errorf("%s is not ready: %d %q", name, status, body)
			}
		}
		if status, _ := b.post("/count"); status != http.StatusServiceUnavailable {
			t.Errorf("an instance that does not lead has counted: %d", status)
		}
		if status, body := a.post("/count"); status != http.StatusOK || body != "1\n" {
			t.Errorf("count: %d %q", status, body)
		}

		w.ens.ClientNet("a").Cut()
		cut := time.Now()
		w.await(a, http.StatusServiceUnavailable)
		gone := time.Now()
		if took := gone.Sub(cut); took > 9*time.Second { // the session timeout without the margin
			t.Errorf("it leads for %v after the cut", took)
		}
		if status, _ := b.get("/leader"); status == http.StatusOK {
			t.Error("the next leads before the margin is over")
		}
		if status, body := a.get("/ready"); status != http.StatusServiceUnavailable || body != "SUSPENDED\n" {
			t.Errorf("ready without a connection: %d %q", status, body)
		}
		if status, _ := a.get("/alive"); status != http.StatusOK {
			t.Error("the process is alive but its probe says otherwise")
		}
		w.await(b, http.StatusOK)
		if between := time.Since(gone); between < 900*time.Millisecond {
			t.Errorf("the next led %v after the first did not", between)
		}
		if status, body := b.post("/count"); status != http.StatusOK || body != "2\n" {
			t.Errorf("count: %d %q", status, body)
		}
		w.ens.ClientNet("a").Heal()
		time.Sleep(time.Minute)
		if status, _ := a.get("/leader"); status != http.StatusServiceUnavailable {
			t.Error("an instance whose network is back leads at once")
		}
		if status, _ := a.get("/ready"); status != http.StatusOK {
			t.Errorf("it is not ready: %d", status)
		}
	})
}

// After SIGTERM an instance is neither ready nor takes new requests, and says
// so until it has finished those that have begun, while it still leads. Then
// the next instance leads at once.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start("a"), w.start("b")
		w.await(a, http.StatusOK)

		slow := make(chan struct{}) // closed when the request's write is delayed by two seconds
		var once sync.Once
		w.ens.Control(func(r testutil.Request) testutil.Action {
			action := testutil.Pass()
			if r.Op == testutil.OpMulti {
				once.Do(func() {
					close(slow)
					action = testutil.Delay(2 * time.Second)
				})
			}
			return action
		})
		answer := make(chan string, 1)
		go func() {
			status, body := a.post("/count")
			answer <- fmt.Sprint(status, " ", body)
		}()
		<-slow
		started := time.Now()
		a.stop()
		synctest.Wait()
		for range 2 { // the second time when probes have failed for long enough
			for path, want := range map[string]int{"/ready": http.StatusServiceUnavailable, "/leader": http.StatusNotFound} {
				if status, body := a.get(path); status != want || !strings.Contains(body, "draining") {
					t.Errorf("%s while it drains: %d %q", path, status, body)
				}
			}
			time.Sleep(2 * drainDelay)
		}
		if got := <-answer; got != "200 1\n" {
			t.Errorf("the request that had begun: %q", got)
		}
		if took := time.Since(started); took < 2*time.Second {
			t.Errorf("the request took %v", took)
		}
		if err := <-a.ended; err != nil {
			t.Errorf("the drain: %v", err)
		}
		ended := time.Now()
		w.await(b, http.StatusOK)
		if took := time.Since(ended); took > 100*time.Millisecond {
			t.Errorf("the next led after %v", took)
		}
	})
}

// world is an ensemble, and instances that are reached over pipes in memory.
type world struct {
	t   *testing.T
	ens *testutil.Embedded
}

func newWorld(t *testing.T) *world {
	return &world{t, testutil.Start(t, testutil.InMemory(), testutil.WithMembers(3), testutil.WithLogger(func(string, ...any) {}))}
}

type running struct {
	t     *testing.T
	http  *http.Client
	stop  context.CancelFunc
	ended chan error
}

// start starts an instance. The test's cleanup waits until it has ended.
func (w *world) start(name string) *running {
	w.t.Helper()
	client, err := framework.New(w.ens.Servers(), framework.WithDialer(w.ens.ClientNet(name).Dial))
	if err != nil {
		w.t.Fatal(err)
	}
	ln := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	ctx, stop := context.WithCancel(w.t.Context())
	transport := &http.Transport{DialContext: ln.dial, DisableKeepAlives: true}
	r := &running{t: w.t, http: &http.Client{Transport: transport}, stop: stop, ended: make(chan error, 1)}
	var wg sync.WaitGroup
	wg.Go(func() { r.ended <- serve(ctx, client, ln) })
	w.t.Cleanup(func() {
		stop()
		wg.Wait()
		_ = client.Close()
	})
	time.Sleep(time.Second) // it leads, or stands in line
	return r
}

// await polls as a load balancer does.
func (w *world) await(r *running, want int) {
	w.t.Helper()
	for range 3000 {
		if status, _ := r.get("/leader"); status == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("/leader did not become %d", want)
}

func (r *running) get(path string) (int, string) { return get(r.t, r.http, "http://instance"+path) }

func (r *running) post(path string) (int, string) { return post(r.t, r.http, "http://instance"+path) }

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	return read(c.Get(url))
}

func post(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	return read(c.Post(url, "", nil))
}

func read(r *http.Response, err error) (int, string) {
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(body)
}

// pipes is a listener of connections in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{} // closed: Close was called
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lines collects what the service prints.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) urls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return regexp.MustCompile(`http://\S+`).FindAllString(l.buf.String(), -1)
}
