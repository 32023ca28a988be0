package page_test

import (
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes/cache"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
)

// TestProcessCachesAndPresences: the caches and presences of this process are
// shown with their state, and since when, until they are closed. What is not as
// it should be stands out.
func TestProcessCachesAndPresences(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		const none, alone = "No cache runs.", "No presence runs."
		watch := page.NewWatch()
		c := w.Connect("watched", watch.Option())
		must(t, w.ConnectNext().MakePersistentPath(t.Context(), "/app/config"))
		p := of(t, w, page.WithWatch(watch))
		sees(t, p, "/process", none, alone)

		config, err := cache.New(c, "/app/config")
		must(t, err)
		config.Start()
		_, err = config.Synced(t.Context())
		must(t, err)
		node, err := presence.Announce(t.Context(), c, "/app/here", nil)
		must(t, err)
		time.Sleep(bubble.Timeout / 4)
		is := func(state string, bad bool, path string, since time.Time) {
			t.Helper()
			body := sees(t, p, "/process")
			row := regexp.MustCompile(path + `</th><td data-label="State">(<span class="warn">)?(\w+)(?:</span>)?</td><td data-label="Since" class="age"><time datetime="([^"]*)">([^<]*)</time>`).FindStringSubmatch(body)
			if row == nil {
				t.Fatalf("no row of %s:\n%s", path, body)
			}
			if row[2] != state || (row[1] != "") != bad {
				t.Errorf("%s is %q, in warning %t; want %q, %t", path, row[2], row[1] != "", state, bad)
			}
			if at := since.UTC().Format(time.RFC3339Nano); row[3] != at || row[4] != ageText(since) {
				t.Errorf("%s is so since %s, for %s; want %s, %s", path, row[3], row[4], at, ageText(since))
			}
		}
		is("synced", false, "/app/config", config.Status().Since)
		is("standing", false, "/app/here", node.Status().Since)

		w.ClientNet("watched").Cut()
		time.Sleep(bubble.Timeout * 3 / 4)
		is("stale", true, "/app/config", config.Status().Since)
		is("suspended", true, "/app/here", node.Status().Since)

		w.ClientNet("watched").Heal()
		time.Sleep(3 * bubble.Timeout)
		is("synced", false, "/app/config", config.Status().Since)
		config.Close()
		synctest.Wait()
		is("standing", false, "/app/here", node.Status().Since)
		sees(t, p, "/process", none)
		must(t, node.Close(t.Context()))
		synctest.Wait()
		sees(t, p, "/process", none, alone)
	})
}

// TestLastAnswer: a client is shown with the time since the last answer of a
// server, also while the network is gone and nobody has noticed.
func TestLastAnswer(t *testing.T) {
	bubble.Run(t, func(t *testing.T, w *bubble.World) {
		watch := page.NewWatch()
		c := w.Connect("watched", watch.Option())
		p := of(t, w, page.WithWatch(watch))
		sees(t, p, "/process")
		var longest time.Duration
		is := func() {
			t.Helper()
			found := regexp.MustCompile(`last answer (\S+) ago`).FindStringSubmatch(sees(t, p, "/process"))
			if found == nil {
				t.Fatal("no last answer")
			}
			shown, err := time.ParseDuration(found[1])
			must(t, err)
			want := time.Since(w.Session(c).LastAnswer())
			if (shown - want).Abs() > 50*time.Millisecond {
				t.Errorf("the last answer was %v ago, want %v", shown, want)
			}
			longest = max(longest, want)
		}
		for range 10 {
			time.Sleep(700 * time.Millisecond)
			is()
		}
		w.ClientNet("watched").Cut()
		time.Sleep(time.Second)
		is()
		if longest < time.Second {
			t.Errorf("the last answer was %v ago at most", longest)
		}
	})
}

// ageText is how the page shows an age of less than an hour.
func ageText(since time.Time) string {
	d := time.Duration(time.Since(since).Seconds() * float64(time.Second)) // rounded as there
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
}
