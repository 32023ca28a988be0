package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// The service starts while no server is up, and lives through an outage. It is
// ready while its session has a connection.
func TestProbes(t *testing.T) {
	ens := testutil.Start(t)
	if err := ens.Stop(0); err != nil {
		t.Fatal(err)
	}
	log := &lines{}
	tel, err := newTelemetry(t.Context(), slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	url, _ := startAt(t, ens.Servers(), tel, log)
	want(t, url, "CONNECTING", false)
	if err := ens.Restart(0); err != nil {
		t.Fatal(err)
	}
	want(t, url, "CONNECTED", true)
	if got := post(t, url+"/items/apple/sell", ""); got != "1\n" {
		t.Errorf("the first sale: %q", got)
	}
	if err := ens.Stop(0); err != nil {
		t.Fatal(err)
	}
	want(t, url, "SUSPENDED|LOST", false)
	if err := ens.Restart(0); err != nil {
		t.Fatal(err)
	}
	want(t, url, "CONNECTED", true)
}

// want waits for what the probes answer in a state. The process is live
// throughout.
func want(t *testing.T, url, state string, ready bool) {
	t.Helper()
	await(t, state, func() bool {
		if status, _ := probe(t, url+"/healthz"); status != http.StatusOK {
			t.Fatalf("not live: %d", status)
		}
		status, text := probe(t, url+"/readyz")
		if (status == http.StatusOK) != strings.HasPrefix(text, "CONNECTED") {
			t.Fatalf("%d while %s", status, text)
		}
		return regexp.MustCompile("^("+state+")\n$").MatchString(text) && (status == http.StatusOK) == ready
	})
}

func probe(t *testing.T, url string) (status int, text string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, read(t, answer)
}

// A process whose client is closed does not come back by itself.
func TestAClosedClientIsNotLive(t *testing.T) {
	client, err := framework.New("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	s := &service{client: client}
	answer := httptest.NewRecorder()
	s.healthz(answer, nil)
	if answer.Code != http.StatusServiceUnavailable || answer.Body.String() != "CLOSED\n" {
		t.Errorf("%d %q", answer.Code, answer.Body)
	}
}

// OTEL_SERVICE_NAME is the name of the service in spans and metrics.
func TestServiceName(t *testing.T) {
	for env, want := range map[string]string{"": "observed", "shop": "shop"} {
		t.Setenv("OTEL_SERVICE_NAME", env)
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
		names := exported(t, func(ctx context.Context, tel *telemetry) {
			_, span := tel.traces.Tracer("test").Start(ctx, "span")
			span.End()
			counter, err := tel.metrics.Meter("test").Int64Counter("counter")
			if err != nil {
				t.Fatal(err)
			}
			counter.Add(ctx, 1)
		}, want, "deployment.environment.name")
		for _, path := range []string{"/v1/traces", "/v1/metrics"} {
			for _, text := range []string{want, "deployment.environment.name"} {
				if names[path+" "+text] == 0 {
					t.Errorf("OTEL_SERVICE_NAME=%q: not sent to %s: %s; sent %v", env, path, text, names)
				}
			}
		}
	}
}
