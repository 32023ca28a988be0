package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/zkrecipes/zkrecipes/testutil"
)

// The service as its operators see it: it counts, and its metrics and spans say
// how.
func TestService(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	log := &lines{}
	tel, err := newTelemetry(t.Context(), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	tel.traces.RegisterSpanProcessor(sdk.NewSimpleSpanProcessor(spans))
	url, _ := start(t, tel, log)

	const trace = "0af7651916cd43dd8448eb211c80319c"
	for n := range 3 {
		if got := post(t, url+"/items/apple/sell", trace); got != fmt.Sprintln(n+1) {
			t.Errorf("sale %d: %q", n+1, got)
		}
	}
	await(t, "the term", func() bool { return strings.Contains(log.String(), "msg=leading") })
	wantMetrics(t, url)
	wantSpans(t, spans, trace)
	for _, want := range []string{"msg=serving", "msg=span", `span="acquire mutex"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s", want)
		}
	}
}

// With an endpoint, spans and metrics are sent there over OTLP.
func TestExport(t *testing.T) {
	log := &lines{}
	sent := exported(t, func(ctx context.Context, tel *telemetry) {
		url, stop := start(t, tel, log)
		post(t, url+"/items/apple/sell", "")
		stop() // the client tells of requests a moment after their ends, and of all before it is closed
	}, "acquire mutex", "db.client.operation.duration", "zkrecipes.held")
	for _, want := range []string{"/v1/traces acquire mutex", "/v1/metrics db.client.operation.duration", "/v1/metrics zkrecipes.held"} {
		if sent[want] == 0 {
			t.Errorf("not sent: %s; sent %v", want, sent)
		}
	}
}

// exported returns how often these texts were exported by what do does, by
// path.
func exported(t *testing.T, do func(context.Context, *telemetry), texts ...string) map[string]int {
	t.Helper()
	var mu sync.Mutex
	sent := map[string]int{}
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		for _, text := range texts {
			sent[r.URL.Path+" "+text] += bytes.Count(body, []byte(text))
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer endpoint.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
	tel, err := newTelemetry(t.Context(), slog.New(slog.NewTextHandler(&lines{}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	do(t.Context(), tel)
	if err := tel.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	return sent
}

// start starts a service on an ensemble of its own, until stop is called or the
// test ends, and returns its URL.
func start(t *testing.T, tel *telemetry, log io.Writer) (url string, stop func()) {
	t.Helper()
	return startAt(t, testutil.Start(t).Servers(), tel, log)
}

// startAt starts a service on the ensemble at servers.
func startAt(t *testing.T, servers string, tel *telemetry, log io.Writer) (url string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, servers, listener, tel, slog.New(slog.NewTextHandler(log, nil))) }()
	stop = sync.OnceFunc(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the service has ended: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		_ = tel.close(context.Background())
	})
	return "http://" + listener.Addr().String(), stop
}

// post returns the answer to a request, which is a part of the trace.
func post(t *testing.T, url, trace string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if trace != "" {
		request.Header.Set("traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %q (%v)", url, answer.Status, body, err)
	}
	return string(body)
}

// wantMetrics checks what Prometheus scrapes. The client's state is told a
// moment after it has changed.
func wantMetrics(t *testing.T, url string) {
	t.Helper()
	for _, want := range []string{
		`(?m)^zkrecipes_connected 1$`,
		`(?m)^zkrecipes_leader\{election="/examples/observed/leader"\} 1$`,
		`(?m)^zkrecipes_hold_duration_seconds_count\{mode="exclusive",recipe="mutex"\} 3$`,
		`(?m)^zkrecipes_held\{mode="exclusive",recipe="mutex"\} 0$`,
	} {
		await(t, "the metric "+want, func() bool { return regexp.MustCompile(want).MatchString(get(t, url+"/metrics")) })
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, answer)
}

func read(t *testing.T, answer *http.Response) string {
	t.Helper()
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// wantSpans checks the spans of the three sales: each request is a part of the
// client's trace, and the acquire and the work are its children.
func wantSpans(t *testing.T, spans *tracetest.InMemoryExporter, trace string) {
	t.Helper()
	requests := map[string]bool{}
	await(t, "the spans of the requests", func() bool {
		for _, s := range spans.GetSpans() {
			if s.Name == "POST /items/{item}/sell" && s.SpanContext.TraceID().String() == trace {
				requests[s.SpanContext.SpanID().String()] = true
			}
		}
		return len(requests) == 3
	})
	children := map[string]int{}
	for _, s := range spans.GetSpans() {
		if requests[s.Parent.SpanID().String()] {
			children[s.Name]++
		}
	}
	for _, name := range []string{"acquire mutex", "count"} {
		if children[name] != 3 {
			t.Errorf("%d spans %q below the requests, want 3: %v", children[name], name, children)
		}
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not in a minute: %s", what)
		}
	}
}

// lines collects the log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
