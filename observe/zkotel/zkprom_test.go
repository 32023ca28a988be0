package zkotel_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
)

func ofZkprom(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile("../zkprom/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The metrics are zkprom's, with its names: those that OpenTelemetry's
// exporters for Prometheus make of ours. Requests are the exception.
func TestTheNamesAreThoseOfZkprom(t *testing.T) {
	suffixes := map[string]string{"counter s": "_seconds_total", "counter": "_total", "histogram s": "_seconds", "gauge s": "_seconds", "gauge By": "_bytes", "gauge 1": "_ratio"}
	tel := newTelemetry(t)
	emitAll(tel)
	var got []string
	for line := range strings.Lines(metricRows(tel)) {
		cells := strings.Split(strings.Trim(strings.ReplaceAll(line, "`", ""), "| \n"), " | ")
		kind := strings.TrimSpace(cells[1] + " " + regexp.MustCompile(`\{.*\}`).ReplaceAllString(cells[2], ""))
		got = append(got, strings.ReplaceAll(cells[0], ".", "_")+suffixes[kind])
	}
	var want []string
	for _, match := range regexp.MustCompile("(?m)^`(zkrecipes_\\w+)`").FindAllStringSubmatch(ofZkprom(t, "README.md"), -1) {
		want = append(want, strings.Replace(match[1], "zkrecipes_request_duration", "db_client_operation_duration", 1))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("metrics\n%q, zkprom has\n%q", got, want)
	}
}

// The bounds of histograms are zkprom's. Requests have those that the semantic
// conventions advise, which zkprom has among others.
func TestTheBucketsAreThoseOfZkprom(t *testing.T) {
	tel := newTelemetry(t)
	emitAll(tel)
	source := ofZkprom(t, "histogram.go")
	for name, metric := range map[string]string{
		"acquire": "zkrecipes.acquire.duration", "hold": "zkrecipes.hold.duration", "batch": "zkrecipes.batch.operations",
		"request": "db.client.operation.duration",
	} {
		var got []float64
		switch data := tel.collected(metric).(type) {
		case metricdata.Histogram[float64]:
			got = data.DataPoints[0].Bounds
		case metricdata.Histogram[int64]:
			got = data.DataPoints[0].Bounds
		}
		match := regexp.MustCompile(name + `Buckets += \[\]float64\{(.*)\}`).FindStringSubmatch(source)
		if match == nil {
			t.Fatalf("zkprom has no buckets of %s", name)
		}
		var want []float64
		for _, text := range strings.Split(match[1], ", ") {
			bound, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			if name != "request" || slices.Contains(got, bound) {
				want = append(want, bound)
			}
		}
		if len(got) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: bounds %v, zkprom has %v", metric, got, want)
		}
	}
}

// What is no error on a span is none on zkprom's dashboard, and the other way
// round.
func TestTheErrorsAreThoseOfZkprom(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(ofZkprom(t, "dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{} // by panel
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			if match := regexp.MustCompile(`code[!=]~"(?:OK\|)?([A-Z|]+)"`).FindStringSubmatch(target.Expr); match != nil {
				answers[panel.Title] = match[1]
			}
		}
	}
	shown := strings.Split(answers["Answers about the tree"], "|")
	if answers["Errors"] != answers["Answers about the tree"] || len(shown) < 2 {
		t.Fatalf("answers that are no errors: %q", answers)
	}
	tel := newTelemetry(t)
	o := zkotel.NewObservers(zkotel.TracerProvider(tel.traces), zkotel.MeterProvider(tel.metrics), zkotel.RequestSpans())
	ctx, _ := tel.begin(t.Context(), "caller")
	for _, code := range append([]string{
		"NOAUTH", "CONNECTIONLOSS", "SESSIONEXPIRED", "INVALIDACL", "BADARGUMENTS", "OTHER", "NOCHILDRENFOREPHEMERALS", "THROTTLEDOP",
	}, shown...) {
		tel.spans.Reset()
		o.RequestEnd(ctx, framework.Request{Op: "create"}, framework.RequestResult{Code: code, Err: fmt.Errorf("refused: %s", code)})
		if failed := tel.spans.GetSpans()[0].Status.Code == codes.Error; failed == slices.Contains(shown, code) {
			t.Errorf("%s: an error on a span: %t, among the panel's answers: %t", code, failed, !failed)
		}
	}
}
