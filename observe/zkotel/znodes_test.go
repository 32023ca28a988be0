package zkotel_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkotel"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

var (
	api    = attribute.String("zkrecipes.presence", "api")
	config = attribute.String("zkrecipes.cache", "/config")
)

func state(s string) attribute.KeyValue { return attribute.String("zkrecipes.state", s) }

// Each time that a znode stands again there is a span of the time in which it
// did not. A connection that was lost for a moment makes none.
func TestPresences(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		taken := w.connect("theirs")
		theirs, err := presence.Announce(t.Context(), taken, "/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		c := w.connect("ours", w.observer())
		began := time.Now()
		n, err := presence.New(c, "/a", nil, recipes.WithLabel("api"))
		if err == nil {
			err = n.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if taken, missing := w.age("zkrecipes.presences", api, state("taken")), w.age("zkrecipes.presence.missing_timeouts", api); taken != 1 || missing < 5.9 || missing > 6 {
			t.Errorf("%v taken, missing for %v timeouts", taken, missing)
		}
		if err := theirs.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := n.Standing(t.Context()); err != nil {
			t.Fatal(err)
		}
		session, err := c.Session()
		if err != nil {
			t.Fatal(err)
		}
		span := w.span("announce presence")
		if !span.StartTime.Equal(began) || span.EndTime.Sub(began) < time.Minute || span.Parent.IsValid() {
			t.Errorf("from %v to %v, began at %v", span.StartTime, span.EndTime, began)
		}
		if got := value(span.Attributes, "zkrecipes.session").AsString(); got == "" || session.ID() == 0 || value(span.Attributes, "zkrecipes.path").AsString() != "/a" || value(span.Attributes, "zkrecipes.label").AsString() != "api" {
			t.Errorf("%v", span.Attributes)
		}

		ours := w.ens.ClientNet("ours")
		ours.Cut() // a disconnect of no length need not be seen
		ours.Drop()
		time.Sleep(time.Second)
		ours.Heal()
		time.Sleep(time.Minute)
		w.span("announce presence")
		if standing, missing := w.age("zkrecipes.presences", api, state("standing")), w.age("zkrecipes.presence.missing_timeouts", api); standing != 1 || missing != 0 {
			t.Errorf("%v standing, missing for %v timeouts", standing, missing)
		}
		w.expire(c)
		w.ens.ClientNet("ours").Drop()
		time.Sleep(time.Minute)
		if got := w.ended("announce presence"); len(got) != 2 || got[1].EndTime.Before(got[1].StartTime) {
			t.Errorf("after an expiry there are %v", got)
		}
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := w.sum("zkrecipes.presence.transitions", api, state("standing")); got < 3 {
			t.Errorf("it stood %d times", got)
		}
		if got := w.age("zkrecipes.presences", api); got != 0 {
			t.Errorf("%v after Close", got)
		}
	})
}

// Each walk of a cache is a span, one that has failed as well. What the cache
// shows is measured.
func TestCaches(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		writer := w.connect("writer")
		create := func(path, data string) {
			t.Helper()
			if _, err := writer.Create(t.Context(), path, []byte(data), zk.FlagPersistent); err != nil {
				t.Fatal(err)
			}
		}
		create("/config", "")
		// Two observers of one provider count once, and one with other attributes by
		// itself.
		c := w.connect("reader", w.observer(), w.observer(), w.observer(zkotel.Attributes(attribute.String("client", "b"))))
		k, err := cache.New(c, "/config", cache.WithMaxBytes(10_000))
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		k.Start()
		if _, err := k.Synced(t.Context()); err != nil {
			t.Fatal(err)
		}
		create("/config/a", "a")
		view, err := k.Fresh(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]float64{
			"zkrecipes.cache.znodes": 2, "zkrecipes.cache.memory": float64(k.Status().Bytes), "zkrecipes.cache.zxid": float64(view.Zxid()), "zkrecipes.cache.stale": 0,
		} {
			if got := w.age(name, config); got != want {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
			points := w.metric(name).(metricdata.Gauge[float64]).DataPoints
			if len(points) != 2 || w.age(name, config, attribute.String("client", "b")) != want {
				t.Errorf("%s: %d points", name, len(points))
			}
		}
		if got := w.age("zkrecipes.caches", config, state("synced")); got != 1 {
			t.Errorf("%v caches are synced", got)
		}
		if n := w.sum("zkrecipes.cache.changes", config, attribute.String("client", "b"), attribute.String("zkrecipes.kind", "added")); n != 2 {
			t.Errorf("%d added, want 2", n)
		}
		if n := w.count("zkrecipes.cache.walk.duration", attribute.String("client", "b"), attribute.String("zkrecipes.reason", "first")); n != 1 {
			t.Errorf("%d walks, want 1", n)
		}
		first := w.ended("walk cache")
		if len(first) != 3 || first[0].Status.Code != codes.Unset || value(first[0].Attributes, "zkrecipes.reason").AsString() != "first" ||
			value(first[0].Attributes, "zkrecipes.znodes").AsInt64() != 1 || first[0].EndTime.Before(first[0].StartTime) {
			t.Errorf("walks: %v", first)
		}

		create("/config/large", strings.Repeat("x", 20_000))
		time.Sleep(time.Minute)
		synctest.Wait()
		all := w.ended("walk cache")
		last := all[len(all)-1]
		if len(all) != 6 || last.Status.Code != codes.Error || value(last.Attributes, "zkrecipes.reason").AsString() != "size" || value(last.Attributes, "zkrecipes.failure").AsString() == "" {
			t.Errorf("walks: %v", all)
		}
		if failed, stale := w.age("zkrecipes.caches", config, state("failed")), w.age("zkrecipes.cache.stale", config); failed != 1 || stale < 59 || stale > 61 {
			t.Errorf("%v failed, stale for %v", failed, stale)
		}
		k.Close()
		for _, name := range []string{"zkrecipes.caches", "zkrecipes.cache.znodes", "zkrecipes.cache.memory", "zkrecipes.cache.zxid", "zkrecipes.cache.stale"} {
			if got := w.age(name, config); got != 0 {
				t.Errorf("%s: %v after Close", name, got)
			}
		}
	})
}

// What comes of a cache after its end is not counted.
func TestACacheThatIsClosed(t *testing.T) {
	tel := newTelemetry(t)
	o := zkotel.NewObservers(zkotel.TracerProvider(tel.traces), zkotel.MeterProvider(tel.metrics))
	info := cache.Info{ID: 1, Path: "/config", Label: "/config"}
	o.Caches.StateChanged(cache.StateChange{Cache: info, To: "syncing"})
	o.Caches.StateChanged(cache.StateChange{Cache: info, From: "syncing", To: "closed"})
	o.Caches.Read(cache.Read{Cache: info, Reason: cache.ReadFirst, Znodes: 5, Added: 5})
	data, ok := tel.collected("zkrecipes.cache.znodes").(metricdata.Gauge[float64])
	if !ok || len(data.DataPoints) != 1 || data.DataPoints[0].Value != 0 {
		t.Errorf("%v", data)
	}
}

// The fullest client counts, until it is empty.
func TestEphemeralPaths(t *testing.T) {
	tel := newTelemetry(t)
	o := zkotel.NewObservers(zkotel.TracerProvider(tel.traces), zkotel.MeterProvider(tel.metrics))
	for _, change := range []struct {
		client  uint64
		percent int
		want    float64
	}{{1, 40, .4}, {2, 90, .9}, {2, 10, .4}, {1, 0, .1}, {2, 0, 0}} {
		o.EphemeralsChanged(framework.EphemeralsChange{Client: change.client, Percent: change.percent})
		data, ok := tel.collected("zkrecipes.ephemeral_paths").(metricdata.Gauge[float64])
		if !ok || len(data.DataPoints) != 1 || data.DataPoints[0].Value != change.want {
			t.Errorf("after %v: %v", change, data.DataPoints)
		}
	}
}
