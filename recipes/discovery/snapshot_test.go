package discovery_test

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/discovery"
)

// A consumer that starts while no server answers uses the instances that the
// one before it has known, and says so. Once a server answers it has those that
// are there.
func TestAServiceStartsFromASnapshot(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		c := w.ConnectNext()
		d := open(t, c)
		r := register(t, d, a("x"))
		file := cache.WithSnapshot(filepath.Join(t.TempDir(), "snapshot"))
		before := open(t, w.ConnectNext(), file)
		billing(t, before)
		before.Close()
		ended := time.Now()
		time.Sleep(time.Hour)
		must(t, r.Update(t.Context(), instance{Payload: "y"}))

		net := w.ClientNet("consumer")
		net.Cut()
		consumer, err := w.Open("consumer")
		must(t, err)
		t.Cleanup(func() { _ = consumer.Close() })
		s := billing(t, open(t, consumer, file))
		var told []string
		defer s.Listen(func(all []instance, status discovery.Status) {
			told = append(told, show(all)+" "+status.State.String())
		})()
		shows(t, s, "a=x")
		if one, err := s.Pick(t.Context()); err != nil || one.Payload != "x" {
			t.Errorf("%+v, %v", one, err)
		}
		if now := s.Status(); now.State != cache.Stale || !errors.Is(now.Err, cache.ErrSnapshot) || now.Since.Sub(ended).Abs() > time.Second || now.Instances != 1 {
			t.Errorf("%+v", now)
		}
		if _, err := s.Fresh(within(t, time.Minute)); err == nil {
			t.Error("Fresh has not failed")
		}
		net.Heal()
		_, err = s.Fresh(t.Context())
		must(t, err)
		shows(t, s, "a=y")
		synctest.Wait()
		if len(told) != 2 || told[0] != "a=x STALE" || told[1] != "a=y SYNCED" {
			t.Errorf("told of %q", told)
		}
	})
}
