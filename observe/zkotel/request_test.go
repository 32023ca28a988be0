package zkotel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// clients returns the CLIENT spans that have ended.
func (tel *telemetry) clients() (found []tracetest.SpanStub) {
	synctest.Wait()
	for _, s := range tel.spans.GetSpans() {
		if s.SpanKind == trace.SpanKindClient {
			found = append(found, s)
		}
	}
	return found
}

// The requests of an Acquire are children of its span, with the times at which
// they were made, though the observer hears of them later.
func TestRequestSpans(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		net := w.ens.ClientNet("a")
		net.Latency(100*time.Millisecond, 100*time.Millisecond)
		m := w.mutex(w.connect("a", w.observer(zkotel.RequestSpans())))
		ctx, caller := w.begin(t.Context(), "caller")
		lease, err := m.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(ctx); err != nil {
			t.Fatal(err)
		}
		caller.End()

		acquire := w.span("acquire mutex")
		creates := 0
		for _, span := range w.clients() {
			op := value(span.Attributes, "db.operation.name").AsString()
			if op == "delete" {
				wantChild(t, span, caller.SpanContext()) // the release is the caller's
				continue
			}
			wantChild(t, span, acquire.SpanContext)
			answer := value(span.Attributes, "db.response.status_code").AsString() // NONODE, where the directory is missing
			if op == "create" && answer == "" && strings.HasPrefix(value(span.Attributes, "zkrecipes.path").AsString(), "/app/lock/") {
				creates++
			}
			if took := span.EndTime.Sub(span.StartTime); took < 200*time.Millisecond || took > 300*time.Millisecond {
				t.Errorf("%s took %v, want two latencies of 100ms", span.Name, took)
			}
			if span.StartTime.Before(acquire.StartTime) || span.EndTime.After(acquire.EndTime) {
				t.Errorf("%s is not within its parent", span.Name)
			}
			server := value(span.Attributes, "server.address").AsString()
			if port := value(span.Attributes, "server.port").AsInt64(); port != 2181 || !strings.HasPrefix(server, "member") {
				t.Errorf("%s was sent to %s, port %d", span.Name, server, port)
			}
			if span.Name != op+" "+server+":2181" || value(span.Attributes, "db.system.name").AsString() != "zookeeper" {
				t.Errorf("%q of the system %v", span.Name, value(span.Attributes, "db.system.name"))
			}
		}
		if creates != 1 {
			t.Errorf("%d spans of the create of the znode, want 1: %v", creates, w.names())
		}
	})
}

// Requests without the option have no spans, but they are measured.
func TestRequestSpansAreOffByDefault(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		m := w.mutex(w.connect("a", w.observer()))
		ctx, _ := w.begin(t.Context(), "caller")
		if _, err := m.Acquire(ctx); err != nil {
			t.Fatal(err)
		}
		if spans := w.clients(); len(spans) > 0 {
			t.Errorf("%d spans of requests", len(spans))
		}
		if n := w.count("db.client.operation.duration", attribute.String("db.operation.name", "create")); n == 0 {
			t.Error("no create was measured")
		}
	})
}

// What the client does for itself, and calls without a span, make no root
// spans.
func TestNoRootSpansOfRequests(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.connect("a", w.observer(zkotel.RequestSpans()))
		if _, err := c.Create(t.Context(), "/app", nil, zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		changes, err := c.WatchData(ctx, "/app")
		if err != nil {
			t.Fatal(err)
		}
		<-changes
		time.Sleep(time.Hour) // heartbeats, reconnects
		w.ens.ClientNet("a").Drop()
		time.Sleep(time.Hour)
		if spans := w.clients(); len(spans) > 0 {
			t.Errorf("%d spans of requests: %v", len(spans), w.names())
		}
		if n := w.count("db.client.operation.duration"); n == 0 {
			t.Error("nothing was measured")
		}
	})
}

// The errors of requests: which are failures, and which names they have. An
// answer about the tree is no failure, whoever has asked.
func TestRequestErrors(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.connect("a", w.observer(zkotel.RequestSpans()))
		ctx, _ := w.begin(t.Context(), "caller")
		for path, flags := range map[string]int32{"/parent": zk.FlagPersistent, "/ephemeral": zk.FlagEphemeral} {
			if _, err := c.Create(ctx, path, nil, flags); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Create(ctx, "/parent/child", nil, zk.FlagPersistent); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			op            string
			call          func() error
			code, errType string
			status        codes.Code
		}{
			{"get", func() error { _, _, err := c.Get(ctx, "/missing"); return err }, "NONODE", "", codes.Unset},
			{"create", func() error { _, err := c.Create(ctx, "/zookeeper", nil, 0); return err }, "NODEEXISTS", "", codes.Unset},
			{"set", func() error { _, err := c.Set(ctx, "/zookeeper", nil, 7); return err }, "BADVERSION", "", codes.Unset},
			{"delete", func() error { return c.Delete(ctx, "/parent", -1) }, "NOTEMPTY", "", codes.Unset},
			{"create", func() error { _, err := c.Create(ctx, "/ephemeral/child", nil, 0); return err }, "NOCHILDRENFOREPHEMERALS", "NOCHILDRENFOREPHEMERALS", codes.Error},
			{"exists", func() error { _, _, err := c.Exists(ctx, "/missing"); return err }, "", "", codes.Unset},
		} {
			synctest.Wait()
			w.spans.Reset()
			err := tt.call()
			synctest.Wait()
			spans := w.clients()
			if len(spans) != 1 {
				t.Fatalf("%s: %d spans: %v (%v)", tt.op, len(spans), w.names(), err)
			}
			span := spans[0]
			if got := value(span.Attributes, "db.response.status_code").AsString(); got != tt.code {
				t.Errorf("%s: status code %q, want %q", tt.op, got, tt.code)
			}
			if got := value(span.Attributes, "error.type").AsString(); got != tt.errType {
				t.Errorf("%s: error type %q, want %q", tt.op, got, tt.errType)
			}
			if span.Status.Code != tt.status {
				t.Errorf("%s: status %v, want %v", tt.op, span.Status, tt.status)
			}
		}
		if n := w.count("db.client.operation.duration", attribute.String("db.response.status_code", "NONODE")); n != 1 {
			t.Errorf("%d requests have the answer NONODE, want 1", n)
		}
		for _, answer := range []string{"NONODE", "NODEEXISTS", "BADVERSION", "NOTEMPTY"} {
			if n := w.count("db.client.operation.duration", attribute.String("error.type", answer)); n != 0 {
				t.Errorf("%d requests have failed with %s, want 0", n, answer)
			}
		}
	})
}

// A request that was not answered: it has an error type, and no status code,
// since the ensemble has given none. The operation is tried again, which is
// counted.
func TestRetries(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.connect("a", w.observer(zkotel.RequestSpans()))
		ctx, _ := w.begin(t.Context(), "caller")
		if _, _, err := c.Children(ctx, "/"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.spans.Reset()
		lost := testutil.NewFault(testutil.Match{Op: testutil.OpGetData}, testutil.DropAfter())
		defer w.ens.ClientNet("a").Control(lost.Control)()
		if _, _, err := c.Get(ctx, "/zookeeper"); err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Fatal(err)
		}
		spans := w.clients()
		if len(spans) != 2 {
			t.Fatalf("%d spans, want 2: %v", len(spans), w.names())
		}
		if got := value(spans[0].Attributes, "error.type").AsString(); got != "CONNECTIONLOSS" || spans[0].Status.Code != codes.Error {
			t.Errorf("the first try: %q, %v", got, spans[0].Status)
		}
		if got := value(spans[0].Attributes, "db.response.status_code").AsString(); got != "" {
			t.Errorf("the first try has the status code %q", got)
		}
		if n := w.sum("zkrecipes.request.retries", attribute.String("db.operation.name", "get"), attribute.String("error.type", "CONNECTIONLOSS")); n != 1 {
			t.Errorf("%d retries, want 1", n)
		}
	})
}

// Writes of several callers that share a request: one span, with how many there
// were.
func TestBatches(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.ens.ClientNet("a").Latency(50*time.Millisecond, 50*time.Millisecond)
		c := w.connect("a", w.observer(zkotel.RequestSpans()))
		ctx, _ := w.begin(t.Context(), "caller")
		done := make(chan error)
		const callers = 40
		for i := range callers {
			m := w.mutexAt(c, "/app/"+strings.Repeat("x", i+1))
			go func() {
				lease, err := m.Acquire(ctx)
				if err == nil {
					err = lease.Release(ctx)
				}
				done <- err
			}()
		}
		for range callers {
			if err := await(t, "a caller", done); err != nil {
				t.Error(err)
			}
		}
		largest := int64(0)
		for _, span := range w.clients() {
			largest = max(largest, value(span.Attributes, "db.operation.batch.size").AsInt64())
		}
		if largest < 2 {
			t.Errorf("no span of a batch: the largest has %d operations", largest)
		}
		batches, ok := w.metric("zkrecipes.batch.operations").(metricdata.Histogram[int64])
		if !ok || len(batches.DataPoints) != 1 {
			t.Fatalf("batches: %v", batches)
		}
		if most, _ := batches.DataPoints[0].Max.Value(); most != largest {
			t.Errorf("the largest batch has %d operations, its span says %d", most, largest)
		}
	})
}

// The client's state: transitions, and how many are connected.
func TestStates(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		observed := w.observer()
		a, b := w.connect("a", observed), w.connect("b", observed)
		for _, c := range []*framework.Client{a, b} {
			if _, err := c.AwaitSession(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.sum("zkrecipes.connected"); n != 2 {
			t.Errorf("%d are connected, want 2", n)
		}
		w.ens.ClientNet("a").Cut()
		time.Sleep(time.Minute)
		if n := w.sum("zkrecipes.connected"); n != 1 {
			t.Errorf("%d are connected while one is cut off, want 1", n)
		}
		w.ens.ClientNet("a").Heal() // and the client hears that its session has expired
		time.Sleep(time.Minute)
		for _, state := range []string{"suspended", "lost"} {
			if n := w.sum("zkrecipes.session.transitions", attribute.String("zkrecipes.state", state)); n != 1 {
				t.Errorf("%d transitions to %s, want 1", n, state)
			}
		}
		if n := w.sum("zkrecipes.connected"); n != 2 {
			t.Errorf("%d are connected after the heal, want 2", n)
		}
		_, _ = a.Close(), b.Close()
		if n := w.sum("zkrecipes.connected"); n != 0 {
			t.Errorf("%d are connected after Close, want 0", n)
		}
	})
}

// A status code is what a server has sent. An error has a type in any case.
func TestCodes(t *testing.T) {
	for code, want := range map[string]struct{ status, errorType string }{
		"OK":             {"", ""},
		"NODEEXISTS":     {"NODEEXISTS", ""},
		"NOAUTH":         {"NOAUTH", "NOAUTH"},
		"SESSIONEXPIRED": {"SESSIONEXPIRED", "SESSIONEXPIRED"},
		"CONNECTIONLOSS": {"", "CONNECTIONLOSS"},
		"NOSERVER":       {"", "NOSERVER"},
		"CLOSED":         {"", "CLOSED"},
		"OTHER":          {"", "_OTHER"},
	} {
		t.Run(code, func(t *testing.T) {
			tel := newTelemetry(t)
			o := zkotel.NewObservers(zkotel.TracerProvider(tel.traces), zkotel.MeterProvider(tel.metrics), zkotel.RequestSpans())
			ctx, _ := tel.begin(t.Context(), "caller")
			var err error
			if code != "OK" {
				err = errors.New("refused")
			}
			began := time.Now().Add(-time.Hour) // the observer hears of it much later
			o.RequestEnd(ctx, framework.Request{Op: "create", Operations: 1, Server: "[::1]:2182", Began: began},
				framework.RequestResult{Took: time.Second, Code: code, Err: err})
			span := tel.spans.GetSpans()[0]
			if !span.StartTime.Equal(began) || span.EndTime.Sub(began) != time.Second {
				t.Errorf("from %v to %v, want a second from %v", span.StartTime, span.EndTime, began)
			}
			if got := value(span.Attributes, "db.response.status_code").AsString(); got != want.status {
				t.Errorf("status code %q, want %q", got, want.status)
			}
			if got := value(span.Attributes, "error.type").AsString(); got != want.errorType {
				t.Errorf("error type %q, want %q", got, want.errorType)
			}
			if address, port := value(span.Attributes, "server.address").AsString(), value(span.Attributes, "server.port").AsInt64(); address != "::1" || port != 2182 {
				t.Errorf("server %s, port %d", address, port)
			}
			if size := value(span.Attributes, "db.operation.batch.size").AsInt64(); size != 0 {
				t.Errorf("a batch of %d", size)
			}
		})
	}
}
