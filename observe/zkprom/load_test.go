package zkprom_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/observe/zkprom"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipes/counter"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/testutil"
	"github.com/zkrecipes/zkrecipes/testutil/apache"
)

// A Prometheus scrapes a program under load, while members of its ensemble are
// killed, and sessions, znodes, answers and the network are lost. What it knows
// at the end is what has happened to the program's callers, and each query of
// the dashboard has data. Where Prometheus has native histograms alone, waiters
// that do not move are no false alarm, and the alerts for long waits and failed
// calls see them.
func TestPrometheusScrapesAProgramUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("under the race detector a busy machine does not keep its sessions of three seconds alive")
	}
	t.Run("embedded", func(t *testing.T) {
		program(t, "prometheus")
		testLoad(t, testutil.Start(t, testutil.WithMembers(3), testutil.WithTick(500*time.Millisecond)), 0, 1, 2)
	})
	t.Run("apache", func(t *testing.T) {
		program(t, "prometheus")
		ens := apache.Start(t, 3, apache.WithTick(500*time.Millisecond))
		testLoad(t, ens, ens.Leader()) // one, because it takes long
	})
}

func testLoad(t *testing.T, ens testutil.Ensemble, kill ...int) {
	registry := prometheus.NewPedanticRegistry()
	metrics, err := zkprom.New(zkprom.Registerer(registry))
	if err != nil {
		t.Fatal(err)
	}
	classic := startServer(t, registry, "alerts.yml")
	native := startServer(t, registry, "alerts.yml", "--enable-feature=native-histograms")
	classic.awaitScrape(t)
	native.awaitScrape(t)
	began := time.Now()
	s := openShop(t, ens, metrics)
	first, second := s.connect(ens.Dial), s.connect(ens.Dial)
	network := ens.ClientNet("third")
	third := s.connect(network.Dial)
	s.open(first)
	s.open(second)
	s.killMembers(kill...)
	s.loseALease(first, recipes.LostSession, func(*recipes.Lease) { s.expire(first) })
	s.loseALease(second, recipes.LostDeleted, func(l *recipes.Lease) { _ = first.Delete(t.Context(), l.Path(), -1) })
	s.loseALease(third, recipes.LostUnproven, func(l *recipes.Lease) {
		network.Cut()
		awaitLost(t, l)
		s.awaitCount(s.abandoned, string(framework.AbandonedUnproven), func() {})
		network.Heal()
	})
	s.overrun(second)
	s.share(first)
	s.revoke(first, second)
	s.loseAnAnswer(third, network)
	s.crowd(third)
	s.failACall(first, second)
	classic.wantAlert(t, "ZkrecipesLeaseLost", "firing")
	s.close()

	s.compare(classic)
	native.wantValues(t, "histogram_count(sum by (recipe) (zkrecipes_hold_duration_seconds))", "recipe", s.copied(s.ended))
	runDashboard(t, classic)
	if dir := os.Getenv("ZKR_PICTURES"); dir != "" {
		drawDashboard(t, classic, began, filepath.Join(dir, "dashboard.svg"))
	}
	for _, p := range []*server{classic, native} {
		p.wantHealthyRules(t)
		p.wantAlertsOfHistograms(t)
	}
	if classic := native.query(t, "zkrecipes_acquire_duration_seconds_count"); len(classic) > 0 {
		t.Errorf("the server of native histograms has classic ones: %v", classic)
	}
	for _, client := range s.clients {
		if err := client.Close(); err != nil {
			t.Log(err)
		}
	}
	classic.wantValue(t, "sum(zkrecipes_presences)", 0)
	classic.wantValue(t, "sum(zkrecipes_caches)", 0)
	classic.wantValue(t, "zkrecipes_clients", 0)
	classic.wantValue(t, "zkrecipes_connected", 0)
}

// compare waits until Prometheus knows what the callers know.
func (s *shop) compare(p *server) {
	t := s.t
	t.Helper()
	if granted, ended := s.of(s.granted), s.of(s.ended); !maps.Equal(granted, ended) {
		t.Errorf("granted %v, ended %v", granted, ended)
	}
	p.wantValue(t, "sum(zkrecipes_waiting)", 0)
	p.wantValue(t, "sum(zkrecipes_held)", 0)
	p.wantValue(t, "max(zkrecipes_oldest_wait_seconds)", 0)
	p.wantValue(t, "max(zkrecipes_oldest_hold_seconds)", 0)
	p.wantValue(t, "zkrecipes_leader", 0)
	p.wantValue(t, `sum(zkrecipes_presences{state="standing"})`, float64(len(s.nodes)))
	p.wantValue(t, "sum(zkrecipes_presences)", float64(len(s.nodes)))
	p.wantValue(t, `sum(zkrecipes_caches{state="synced"})`, float64(len(s.rosters)))
	p.wantValue(t, "sum(zkrecipes_caches)", float64(len(s.rosters)))
	p.wantValue(t, "sum(zkrecipes_cache_znodes)", float64(len(s.rosters)*(1+len(s.nodes))))
	p.wantValue(t, "zkrecipes_clients", float64(len(s.clients)))
	p.wantValue(t, "zkrecipes_connected", float64(len(s.clients)))
	p.wantValue(t, "zkrecipes_events_dropped_total", 0)
	const granted = `outcome=~"ensemble|handoff|linger|share|reentry"`
	for _, tt := range []struct {
		expr, label string
		want        map[string]int // as it is when it is compared
	}{
		{`sum by (recipe) (zkrecipes_acquire_duration_seconds_count{` + granted + `})`, "recipe", s.granted},
		{`sum by (recipe) (zkrecipes_acquire_duration_seconds_count{` + strings.Replace(granted, "=~", "!~", 1) + `})`, "recipe", s.failed},
		{`sum by (recipe) (zkrecipes_hold_duration_seconds_count)`, "recipe", s.ended},
		{`sum by (recipe) (zkrecipes_lost_total)`, "recipe", s.lost},
		{`sum by (reason) (zkrecipes_lost_total)`, "reason", s.reasons},
		{`zkrecipes_session_transitions_total`, "to", s.states},
		{`zkrecipes_connections_abandoned_total`, "reason", s.abandoned},
		{`zkrecipes_request_retries_total`, "op", s.retried},
	} {
		p.wantValues(t, tt.expr, tt.label, s.copied(tt.want))
	}
	for what, metric := range map[string]string{
		"batches": "zkrecipes_batch_operations_count", "overruns": "zkrecipes_overruns_total", "revocations": "zkrecipes_revocations_total",
	} {
		p.wantValues(t, "sum("+metric+")", "", func() map[string]int { return map[string]int{"": s.of(s.rare)[what]} })
	}
	for _, expr := range []string{"zkrecipes_waiting", "zkrecipes_held", "zkrecipes_leader"} {
		expr = "max_over_time(sum(" + expr + ")[10m:500ms])"
		if samples := p.query(t, expr); len(samples) != 1 || samples[0].value < 1 {
			t.Errorf("%s: %v, want at least 1", expr, samples)
		}
	}
}

// killMembers stops one member after the other, and starts it again.
func (s *shop) killMembers(members ...int) {
	s.t.Helper()
	for _, member := range members {
		if err := s.ens.Stop(member); err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond) // the load goes on
		if err := s.ens.Restart(member); err != nil {
			s.t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), patience)
		if err := s.ens.WaitServing(ctx); err != nil {
			s.t.Fatal(err)
		}
		cancel()
		for _, client := range s.clients {
			s.awaitConnected(client)
		}
	}
}

func (s *shop) awaitConnected(c *framework.Client) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if err := c.WaitConnected(ctx); err != nil {
		s.t.Fatal(err)
	}
}

// mutex returns a lock that no other caller uses.
func (s *shop) mutex(c *framework.Client, what string) *locks.Mutex {
	s.t.Helper()
	s.awaitConnected(c)
	return made(locks.NewMutex(c, "/locks/"+what))
}

// hold acquires, until it is granted: members may be away for a moment.
func (s *shop) hold(m *locks.Mutex, work func(*recipes.Lease)) {
	s.t.Helper()
	for held, end := false, time.Now().Add(patience); !held; {
		if time.Now().After(end) {
			s.t.Fatalf("%s is not granted", m.Path())
		}
		s.use(s.t.Context(), "mutex", m, func(l *recipes.Lease) {
			held = true
			work(l)
		})
	}
}

// loseALease holds leases, until one is lost by what lose does. A loss is
// counted a moment later, so lose may be called again.
func (s *shop) loseALease(c *framework.Client, reason recipes.LossReason, lose func(*recipes.Lease)) {
	s.t.Helper()
	s.awaitCount(s.reasons, string(reason), func() {
		s.hold(s.mutex(c, "lost"), func(l *recipes.Lease) {
			lose(l)
			awaitLost(s.t, l)
		})
	})
}

func awaitLost(t *testing.T, l *recipes.Lease) {
	t.Helper()
	select {
	case <-l.Lost():
	case <-time.After(patience):
		t.Errorf("%s is not lost", l.Path())
	}
}

// expire ends the session of a client.
func (s *shop) expire(c *framework.Client) {
	if session, err := c.Session(); err == nil {
		_ = s.ens.ExpireSession(session.ID()) // it may be over already
	}
}

// share adds to a counter, and enters and leaves a double barrier, until both
// have been done: the connection may end.
func (s *shop) share(c *framework.Client) {
	s.t.Helper()
	n := made(counter.New(c, "/shop/orders"))
	alone := made(barrier.NewDouble(c, "/shop/start", 1))
	await(s.t, "an addition and a round", func() (string, bool) {
		_, err := n.Add(s.t.Context(), 1)
		if err != nil {
			return err.Error(), false
		}
		in, err := alone.Enter(s.t.Context())
		if err == nil {
			err = in.Leave(s.t.Context())
		}
		return fmt.Sprint(err), err == nil
	})
}

// overrun works on for a second after a loss.
func (s *shop) overrun(c *framework.Client) {
	s.t.Helper()
	s.awaitCount(s.rare, "overruns", func() {
		s.hold(s.mutex(c, "overrun"), func(l *recipes.Lease) {
			_ = l.Do(s.t.Context(), func(_ context.Context, l *recipes.Lease) error {
				s.expire(c)
				awaitLost(s.t, l)
				time.Sleep(time.Until(l.Deadline().Add(time.Second)))
				return nil
			})
		})
	})
}

// revoke has a holder asked to release, until it knows.
func (s *shop) revoke(holder, other *framework.Client) {
	s.t.Helper()
	asker := s.mutex(other, "revoked")
	s.awaitCount(s.rare, "revocations", func() {
		s.hold(s.mutex(holder, "revoked"), func(l *recipes.Lease) {
			revoked := l.Revoked()
			participants, _ := asker.Participants(s.t.Context())
			for _, p := range participants {
				_ = asker.Revoke(s.t.Context(), p)
			}
			select {
			case <-revoked:
			case <-l.Lost():
			case <-time.After(patience):
				s.t.Error("not revoked")
			}
		})
	})
}

// loseAnAnswer loses the answer to a create that is tried again: that of a
// directory, which does no harm twice. Client.Create is never repeated. The
// load of the client may take the fault instead, so each try has a fault and a
// path.
func (s *shop) loseAnAnswer(c *framework.Client, network *testutil.ClientNet) {
	s.t.Helper()
	s.awaitConnected(c)
	tries := 0
	s.awaitCount(s.retried, "create", func() {
		tries++
		fault := testutil.NewFault(testutil.Match{Op: testutil.OpCreate}, testutil.DropAfter())
		defer network.Control(fault.Control)()
		_ = c.MakePersistentPath(s.t.Context(), fmt.Sprintf("/answers/%d", tries))
	})
}

// crowd has many callers acquire at once, until some of their writes share a
// request.
func (s *shop) crowd(c *framework.Client) {
	s.t.Helper()
	keyed := made(locks.NewKeyed(c, "/crowd"))
	s.awaitCount(s.rare, "batches", func() {
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() { s.use(s.t.Context(), "mutex", keyed.Key(fmt.Sprint(i)), work) })
		}
		all.Wait()
	})
}

// failACall has a call time out, because another client holds the lock.
func (s *shop) failACall(holder, other *framework.Client) {
	s.t.Helper()
	for failed := false; !failed; {
		s.hold(s.mutex(holder, "busy"), func(*recipes.Lease) {
			failed = true
			soon := recipes.Within(s.mutex(other, "busy"), 10*time.Millisecond)
			s.use(s.t.Context(), "mutex", soon, func(*recipes.Lease) { failed = false }) // the holder's lease was lost
		})
	}
}

// wantAlert waits until an alert is in a state.
func (s *server) wantAlert(t *testing.T, name, state string) {
	t.Helper()
	await(t, name+" to be "+state, func() (string, bool) {
		states := s.alerts(t)[name]
		return fmt.Sprint(states), slices.Contains(states, state)
	})
}

// alerts returns the states of the alerts that are pending or firing, by name.
func (s *server) alerts(t *testing.T) map[string][]string {
	t.Helper()
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	s.get(t, "alerts", &data)
	states := make(map[string][]string)
	for _, alert := range data.Alerts {
		name := alert.Labels["alertname"]
		states[name] = append(states[name], alert.State)
	}
	return states
}

// wantAlertsOfHistograms runs the alerts that look at histograms, without their
// limits, and for locks that were granted instead of those that were not. They
// have data from classic histograms, and from native ones alone.
func (s *server) wantAlertsOfHistograms(t *testing.T) {
	t.Helper()
	unlimited := strings.NewReplacer(" > 300 unless on", " >= 0 and on", " > 30", " >= 0", " >= 100", " >= 1", " >= 10", " >= 0", " > 0.05", " >= 0")
	for _, alert := range []string{"ZkrecipesWaitsTooLong", "ZkrecipesCallsFail", "ZkrecipesWaitersDoNotMove"} {
		await(t, alert+" without limits", func() (string, bool) {
			samples := s.query(t, unlimited.Replace(s.rules(t)[alert].Query))
			return fmt.Sprint(samples), len(samples) > 0
		})
	}
}

// rule is an alert as Prometheus knows it.
type rule struct{ Name, Query, Health, LastError string }

// rules returns the alerts, by name.
func (s *server) rules(t *testing.T) map[string]rule {
	t.Helper()
	var data struct{ Groups []struct{ Rules []rule } }
	s.get(t, "rules", &data)
	rules := make(map[string]rule)
	for _, group := range data.Groups {
		for _, rule := range group.Rules {
			rules[rule.Name] = rule
		}
	}
	return rules
}

// wantHealthyRules fails the test if Prometheus could not evaluate a rule.
func (s *server) wantHealthyRules(t *testing.T) {
	t.Helper()
	rules := s.rules(t)
	for _, rule := range rules {
		if rule.Health != "ok" {
			t.Errorf("%s: %s: %s", rule.Name, rule.Health, rule.LastError)
		}
	}
	if len(rules) == 0 {
		t.Error("no rules")
	}
}
