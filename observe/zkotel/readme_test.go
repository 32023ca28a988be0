package zkotel_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// The tables of the README are what is emitted: no span, event, metric, unit or
// attribute more or less.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `") {
			want = append(want, row(strings.Split(strings.Trim(line, "| \n"), "|")))
		}
	}
	tel := newTelemetry(t)
	emitAll(tel)
	got := slices.Concat(spanRows(tel), metricRows(tel))
	slices.Sort(want)
	slices.Sort(got)
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("the README does not have\n%s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("not emitted as the README says:\n%s", line)
		}
	}
}

// row makes a line of a table comparable: its attributes are sorted.
func row(cells []string) string {
	for i := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "`", ""))
	}
	last := strings.Fields(cells[len(cells)-1])
	if strings.Contains(cells[len(cells)-1], ".") {
		slices.Sort(last)
		cells[len(cells)-1] = strings.Join(last, " ")
	} else { // a metric without attributes
		cells = append(cells, "")
	}
	return strings.Join(cells, " | ")
}

// emitAll calls all functions of an observer, with all that they can be told.
func emitAll(tel *telemetry) {
	o := zkotel.New(zkotel.TracerProvider(tel.traces), zkotel.MeterProvider(tel.metrics),
		zkotel.RequestSpans(), zkotel.LockLabel(func(path string) string { return path }))
	ctx, caller := tel.begin(context.Background(), "caller")
	call := framework.Acquire{Recipe: "election", Mode: "exclusive", Path: "/lead", Label: "/lead", Permits: 1}
	grant := framework.Grant{How: framework.GrantedByEnsemble, Token: "1", Session: 1, Znode: "/lead/1"}

	acquiring := o.AcquireStart(ctx, call)
	for _, err := range []error{nil, errors.New("refused")} {
		request := framework.Request{Op: "multi", Path: "/lead/1", Operations: 2, Session: 1, Server: "zk1:2181", Began: time.Now()}
		code := "NOAUTH"
		if err == nil {
			code = "OK"
		}
		o.RequestEnd(acquiring, request, framework.RequestResult{Took: time.Millisecond, Code: code, Err: err})
	}
	o.Retried(acquiring, framework.Retry{Op: "create", Path: "/lead/1", Err: framework.ErrNoSession})
	o.AcquireEnd(acquiring, call, framework.AcquireResult{Grant: grant, Waited: time.Second})
	o.AcquireEnd(o.AcquireStart(ctx, call), call, framework.AcquireResult{Err: recipes.ErrLayout})
	o.Released(ctx, framework.Release{Acquire: call, Grant: grant, Held: time.Second})
	loss := framework.Loss{Acquire: call, Grant: grant, At: time.Now(), Reason: framework.LostSession, Err: framework.ErrSessionLost}
	o.Lost(ctx, loss)
	o.LostReleased(ctx, loss)
	o.Overran(ctx, framework.Overrun{Acquire: call, Grant: grant, By: time.Second})
	o.Revoked(ctx, framework.Revocation{Acquire: call, Grant: grant})
	o.PresenceChanged(framework.PresenceChange{ID: 1, Path: "/a", Label: "/a", From: "pending", To: "standing", Session: 1, Timeout: time.Second})
	info := framework.CacheInfo{ID: 1, Path: "/a", Label: "/a"}
	o.CacheChanged(framework.CacheChange{Cache: info, To: "syncing"})
	for _, err := range []error{nil, errors.New("lost")} {
		o.CacheRead(framework.CacheRead{Cache: info, Reason: framework.ReadFirst, Began: time.Now(), Err: err})
	}
	o.Batched(framework.Batch{Operations: 2})
	o.EphemeralsChanged(framework.EphemeralsChange{Client: 1, Percent: 50})
	o.Opened()
	o.StateChanged(framework.StateChange{From: framework.Connecting, To: framework.Connected})
	o.Abandoned(framework.Abandonment{Reason: framework.AbandonedSilent})
	o.Dropped(framework.Drop{Events: 1})
	caller.End()
}

// keys are the names of attributes.
type keys map[string]bool

func (k keys) add(all ...attribute.KeyValue) {
	for _, a := range all {
		k[string(a.Key)] = true
	}
}

// line returns the row of a table.
func (k keys) line(cells ...string) string {
	var names []string
	for name := range k {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(append(cells, strings.Join(names, " ")), " | ")
}

func spanRows(tel *telemetry) (rows []string) {
	spans, kinds, events := map[string]keys{}, map[string]string{}, map[string]keys{}
	for _, s := range tel.spans.GetSpans() {
		for _, e := range s.Events {
			events[e.Name] = keys{}
			events[e.Name].add(e.Attributes...)
		}
		name := regexp.MustCompile("^acquire .*").ReplaceAllString(s.Name, "acquire <recipe>")
		name = regexp.MustCompile("^multi zk1:2181$").ReplaceAllString(name, "<operation> <server>")
		if name == "caller" {
			continue
		}
		if spans[name] == nil {
			spans[name] = keys{}
		}
		spans[name].add(s.Attributes...)
		kinds[name] = s.SpanKind.String()
	}
	for name, attributes := range spans {
		rows = append(rows, attributes.line(name, kinds[name]))
	}
	for name, attributes := range events {
		rows = append(rows, attributes.line(name))
	}
	return rows
}

func metricRows(tel *telemetry) (rows []string) {
	tel.t.Helper()
	var all metricdata.ResourceMetrics
	if err := tel.reader.Collect(context.Background(), &all); err != nil {
		tel.t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			kind, attributes := describeData(m.Data)
			rows = append(rows, attributes.line(m.Name, kind, m.Unit))
			if m.Description == "" {
				tel.t.Errorf("%s has no description", m.Name)
			}
		}
	}
	return rows
}

// describeData returns the kind of a metric, and the names of its attributes.
func describeData(data metricdata.Aggregation) (kind string, attributes keys) {
	attributes = keys{}
	switch data := data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			attributes.add(p.Attributes.ToSlice()...)
		}
		if data.IsMonotonic {
			return "counter", attributes
		}
		return "up-down counter", attributes
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			attributes.add(p.Attributes.ToSlice()...)
		}
		return "histogram", attributes
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			attributes.add(p.Attributes.ToSlice()...)
		}
		return "gauge", attributes
	case metricdata.Histogram[int64]:
		return "histogram", attributes
	}
	return fmt.Sprintf("%T", data), attributes
}

// The buckets of requests are those that the semantic conventions advise.
func TestRequestBuckets(t *testing.T) {
	tel := newTelemetry(t)
	emitAll(tel)
	requests, ok := tel.collected("db.client.operation.duration").(metricdata.Histogram[float64])
	if !ok {
		t.Fatal("no metric of requests")
	}
	if want := []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10}; !slices.Equal(requests.DataPoints[0].Bounds, want) {
		t.Errorf("bounds %v, want %v", requests.DataPoints[0].Bounds, want)
	}
}
