package zkprom_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// Presences are counted by label and state. Missing is the one that has not
// stood for most of its session timeouts; one that yields is not missing.
func TestPresences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, o := newMetrics(t, zkprom.LabelLimit(2))
		want := func(missing string, standing, taken, removed int) {
			t.Helper()
			wantMetrics(t, registry, fmt.Sprintf(`
				zkrecipes_presence_missing_timeouts{presence="api"} %s
				zkrecipes_presences{presence="api",state="pending"} 0
				zkrecipes_presences{presence="api",state="removed"} %d
				zkrecipes_presences{presence="api",state="standing"} %d
				zkrecipes_presences{presence="api",state="suspended"} 0
				zkrecipes_presences{presence="api",state="taken"} %d`[1:], missing, removed, standing, taken),
				"zkrecipes_presence_missing_timeouts", "zkrecipes_presences")
		}
		change := func(id uint64, from, to string, away time.Time) {
			o.Presences.StateChanged(presence.StateChange{ID: id, Label: "api", From: from, To: to, At: time.Now(), Away: away, Timeout: 10 * time.Second})
		}
		began := time.Now()
		change(1, "", "pending", began)
		change(1, "pending", "standing", began)
		change(2, "", "pending", began)
		change(2, "pending", "taken", began)
		time.Sleep(25 * time.Second)
		want("2.5", 1, 1, 0)
		change(1, "standing", "removed", time.Now())
		time.Sleep(5 * time.Second)
		want("3", 0, 1, 1)
		change(2, "taken", "standing", began)
		want("0", 1, 0, 1)
		change(1, "removed", "closed", began)
		change(2, "standing", "closed", began)
		want("0", 0, 0, 0)
		wantMetrics(t, registry, `
			zkrecipes_presence_transitions_total{presence="api",to="closed"} 2
			zkrecipes_presence_transitions_total{presence="api",to="pending"} 0
			zkrecipes_presence_transitions_total{presence="api",to="removed"} 1
			zkrecipes_presence_transitions_total{presence="api",to="standing"} 2
			zkrecipes_presence_transitions_total{presence="api",to="suspended"} 0
			zkrecipes_presence_transitions_total{presence="api",to="taken"} 1`[1:], "zkrecipes_presence_transitions_total")

		for id := range uint64(5) {
			o.Presences.StateChanged(presence.StateChange{ID: 10 + id, Label: fmt.Sprint("/", id), To: "pending", Away: time.Now(), Timeout: time.Second})
		}
		wantMetrics(t, registry, `
			zkrecipes_presence_missing_timeouts{presence="(other)"} 0
			zkrecipes_presence_missing_timeouts{presence="/0"} 0
			zkrecipes_presence_missing_timeouts{presence="api"} 0`[1:], "zkrecipes_presence_missing_timeouts")
	})
}

// Caches of one label are added up. Their transaction is that of the one
// farthest behind, and the stale one that of which that is true for longest.
func TestCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, o := newMetrics(t)
		want := func(stale, znodes, bytes, zxid int, states string) {
			t.Helper()
			synced, staleOnes, failed := states[0]-'0', states[1]-'0', states[2]-'0'
			wantMetrics(t, registry, fmt.Sprintf(`
				zkrecipes_cache_memory_bytes{cache="/config"} %d
				zkrecipes_cache_stale_seconds{cache="/config"} %d
				zkrecipes_cache_znodes{cache="/config"} %d
				zkrecipes_cache_zxid{cache="/config"} %d
				zkrecipes_caches{cache="/config",state="failed"} %d
				zkrecipes_caches{cache="/config",state="stale"} %d
				zkrecipes_caches{cache="/config",state="synced"} %d
				zkrecipes_caches{cache="/config",state="syncing"} 0`[1:], bytes, stale, znodes, zxid, failed, staleOnes, synced),
				"zkrecipes_cache_memory_bytes", "zkrecipes_cache_stale_seconds", "zkrecipes_cache_znodes", "zkrecipes_cache_zxid", "zkrecipes_caches")
		}
		info := func(id uint64) cache.Info { return cache.Info{ID: id, Label: "/config"} }
		change := func(id uint64, from, to string) {
			o.Caches.StateChanged(cache.StateChange{Cache: info(id), From: from, To: to, At: time.Now()})
		}
		change(1, "", "syncing")
		change(2, "", "syncing")
		time.Sleep(time.Second)
		o.Caches.Read(cache.Read{Cache: info(1), Reason: cache.ReadFirst, Took: time.Second, Znodes: 3, Bytes: 300, Zxid: 70, Added: 3})
		change(1, "syncing", "synced")
		time.Sleep(time.Second)
		o.Caches.Read(cache.Read{Cache: info(2), Reason: cache.ReadFirst, Took: 2 * time.Second, Znodes: 4, Bytes: 400, Zxid: 80, Added: 4})
		change(2, "syncing", "synced")
		want(0, 7, 700, 70, "200")

		o.Caches.Read(cache.Read{Cache: info(1), Reason: cache.ReadEvents, Took: time.Second, Znodes: 2, Bytes: 200, Zxid: 90, Changed: 2, Removed: 1})
		change(1, "synced", "stale")
		time.Sleep(time.Minute)
		o.Caches.Read(cache.Read{Cache: info(1), Reason: cache.ReadReconnect, Err: errors.New("the connection was lost")})
		change(2, "synced", "stale")
		time.Sleep(time.Second)
		change(2, "stale", "failed")
		time.Sleep(time.Second)
		want(62, 6, 600, 80, "011")
		change(1, "stale", "synced")
		want(2, 6, 600, 80, "101")
		change(2, "failed", "closed")
		want(0, 2, 200, 90, "100")
		change(1, "synced", "closed")
		o.Caches.Read(cache.Read{Cache: info(1), Reason: cache.ReadReconnect, Zxid: 100})
		want(0, 0, 0, 0, "000")
		wantMetrics(t, registry, `
			zkrecipes_cache_changes_total{cache="/config",kind="added"} 7
			zkrecipes_cache_changes_total{cache="/config",kind="changed"} 2
			zkrecipes_cache_changes_total{cache="/config",kind="removed"} 1`[1:], "zkrecipes_cache_changes_total")
		walks := counted(t, registry, "zkrecipes_cache_walk_duration_seconds", "reason")
		if walks["first"] != 2 || walks["reconnect"] != 0 || len(walks) != 4 {
			t.Errorf("walks %v", walks)
		}
	})
}

// What a client tells of its presences and caches is counted by the labels that
// they have.
func TestPresencesAndCachesOfAClient(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, c *framework.Client, registry *prometheus.Registry) {
		group := made(presence.NewGroup(c, "/services"))
		a, b := made(group.Join(t.Context(), "a", nil)), made(group.Join(t.Context(), "b", nil))
		roster := group.Follow()
		named := made(cache.New(c, "/services", recipes.WithLabel("again")))
		named.Start()
		if all, err := roster.Members(t.Context()); err != nil || len(all) != 2 {
			t.Fatal(all, err)
		}
		view, err := named.Synced(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantMetrics(t, registry, fmt.Sprintf(`
			zkrecipes_cache_changes_total{cache="/app/services",kind="added"} 3
			zkrecipes_cache_changes_total{cache="/app/services",kind="changed"} 0
			zkrecipes_cache_changes_total{cache="/app/services",kind="removed"} 0
			zkrecipes_cache_changes_total{cache="again",kind="added"} 3
			zkrecipes_cache_changes_total{cache="again",kind="changed"} 0
			zkrecipes_cache_changes_total{cache="again",kind="removed"} 0
			zkrecipes_cache_stale_seconds{cache="/app/services"} 0
			zkrecipes_cache_stale_seconds{cache="again"} 0
			zkrecipes_cache_znodes{cache="/app/services"} 3
			zkrecipes_cache_znodes{cache="again"} 3
			zkrecipes_cache_zxid{cache="/app/services"} %[1]d
			zkrecipes_cache_zxid{cache="again"} %[1]d
			zkrecipes_presences{presence="/app/services",state="pending"} 0
			zkrecipes_presences{presence="/app/services",state="removed"} 0
			zkrecipes_presences{presence="/app/services",state="standing"} 2
			zkrecipes_presences{presence="/app/services",state="suspended"} 0
			zkrecipes_presences{presence="/app/services",state="taken"} 0`[1:], view.Zxid()),
			"zkrecipes_cache_changes_total", "zkrecipes_cache_stale_seconds", "zkrecipes_cache_znodes", "zkrecipes_cache_zxid", "zkrecipes_presences")
		if err := errors.Join(a.Close(t.Context()), b.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		if _, err := named.Fresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		named.Close()
		roster.Close()
		synctest.Wait()
		for _, name := range []string{"zkrecipes_presences", "zkrecipes_caches"} {
			if n := sum(t, registry, name); n != 0 {
				t.Errorf("%s: %v after all were closed", name, n)
			}
		}
		if _, _, err := c.Get(t.Context(), "/services/a"); !errors.Is(err, zk.ErrNoNode) {
			t.Error(err)
		}
	})
}

// sum adds up all series of a gauge.
func sum(t *testing.T, g prometheus.Gatherer, name string) (n float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name {
				n += metric.GetGauge().GetValue()
			}
		}
	}
	return n
}
