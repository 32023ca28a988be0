package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/look"
	"github.com/zkrecipes/zkrecipes/internal/test/browser"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/internal/test/untrusted"
	"github.com/zkrecipes/zkrecipes/internal/test/zkrtest"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/presence"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// TestBrowserRunsNothing: whatever names and data znodes have, on no page does
// a real browser run any of it, or try to.
func TestBrowserRunsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	t.Parallel()
	const more = "/more<img src=x onerror=window.ran=true>"
	watch := page.NewWatch()
	s := newScene(t, page.WithData(), page.WithWatch(watch), page.WithGroup("/group<script>", presence.LayoutMember), page.WithServices("/none"))
	log := watch.Tee(zap.NewNop())
	c, d := s.dial(watch.Option(), framework.WithLogger(log)), s.dial()
	create := func(path string, data string) {
		t.Helper()
		must(t, c.MakePersistentPath(t.Context(), path[:strings.LastIndex(path, "/")]))
		_, err := c.Create(t.Context(), path, []byte(data), zk.FlagEphemeral)
		must(t, err)
	}
	for i, data := range untrusted.Data {
		create(fmt.Sprintf("/data/%d/%slock-%010d", i/look.Details, zkrtest.SomeID, i), data)
		log.Info(data, zap.String(data, data))
	}
	data := func(i int) recipes.DataOption {
		return recipes.WithData([]byte(untrusted.Data[i%len(untrusted.Data)]))
	}
	for i, name := range untrusted.Names {
		s.hold(locks.NewMutex(c, "/name/"+name, data(i)))
		create("/group<script>/"+strings.ReplaceAll(name, "/", "|"), name)
	}
	first, second := "/name/"+untrusted.Names[0], "/name/"+untrusted.Names[1]
	s.hold(locks.NewMutex(d, "/other/"+untrusted.Names[0], data(1)))
	s.wait(locks.NewMutex(d, first, data(2)))
	s.wait(locks.NewMutex(c, "/other/"+untrusted.Names[0], data(3)))

	b := browser.Open(t, browser.Wide, false)
	withData := 1 + (len(untrusted.Data)-1)/look.Details
	lines := 2 + len(untrusted.Names) + withData
	dataOf := func(i int) (n int) { // of a line
		for _, data := range untrusted.Data[i*look.Details : min(len(untrusted.Data), (i+1)*look.Details)] {
			if data != "" {
				n++
			}
		}
		return n
	}
	see := func(at, ready string, args ...any) {
		t.Helper()
		s.open(b, at)
		b.Await(at, `return document.readyState === "complete" && document.getElementById("lost").hidden && (`+ready+`)`, args...)
		var ran bool
		if b.Run(&ran, `return window.ran !== undefined || document.querySelector("main img, main script, main b:not(.number b):not(.log b), main [onload]") !== null`); ran {
			t.Errorf("%s has run something, or has an element of a name", at)
		}
		if all := b.Complaints(); len(all) > 0 {
			t.Errorf("%s: the browser complains: %q", at, all)
		}
	}
	see("", `document.querySelectorAll("table.lines tbody tr").length === arguments[0]`, lines-1)
	s.hold(locks.NewMutex(c, more, data(4))) // the script changes the page
	b.Await("a change", `return document.querySelectorAll("table.lines tbody tr").length === arguments[0]`, lines)
	for _, name := range untrusted.Names {
		see("line?path="+url.QueryEscape("/name/"+name), `document.querySelector("svg.queue .box") !== null`)
	}
	for _, name := range untrusted.Names[:3] {
		see("?sort=age&filter="+url.QueryEscape(name), `document.querySelector("table.lines tr") !== null || document.querySelector(".empty") !== null`)
	}
	for i := range withData {
		see(fmt.Sprintf("line?path=/data/%d", i), `document.querySelectorAll(".data").length === arguments[0]`, dataOf(i))
	}
	for _, at := range []string{first, second, more} {
		s.open(b, strings.TrimPrefix(at, "/")) // there is no such page
		b.Await("an error", `return document.querySelector("h1") !== null && window.ran === undefined`)
	}
	b.Complaints() // that these are missing
	see("deadlocks", `document.querySelector("svg.circle") !== null`)
	see("ensemble", `document.querySelectorAll("tbody tr").length === 3`)
	see("process", `document.querySelectorAll(".log li").length >= arguments[0]`, len(untrusted.Data))
}

// TestBrowserKeepsItsPlace: what a reader has unfolded stays so, and the link
// that has the focus keeps it, wherever their line is after the next look.
func TestBrowserKeepsItsPlace(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	t.Parallel()
	s := newScene(t)
	c := s.dial()
	contend := func(dir string, from, to int) {
		t.Helper()
		must(t, c.MakePersistentPath(t.Context(), dir))
		var ops []any
		for i := from; i < to; i++ {
			ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/%slock-%010d", dir, zkrtest.SomeID, i), Flags: zk.FlagEphemeral, Data: []byte("web-1 pid 1")})
		}
		_, err := c.Multi(t.Context(), ops...)
		must(t, err)
	}
	contend("/app/x", 0, 6)
	contend("/app/y", 0, 6)
	b := browser.Open(t, browser.Phone, true)
	s.open(b, "")
	b.Await("two lines", `return document.querySelectorAll("details").length === 2`)
	b.Run(nil, `const row = document.querySelector("tr:has(details)");
		row.querySelector("details").open = true; row.querySelector("a").focus(); window.focused = 0;
		document.addEventListener("focusin", () => window.focused++)`)
	keeps := func(focused int, lines ...string) {
		t.Helper()
		shown := `[...document.querySelectorAll("tr:has(details) a")].map(a => a.textContent)`
		b.Await(strings.Join(lines, ", "), `return JSON.stringify(`+shown+`) === JSON.stringify(arguments[0])`, lines)
		var got []any
		b.Run(&got, `return [document.activeElement.textContent, ...[...document.querySelectorAll("tr:has(details[open]) a")].map(a => a.textContent), window.focused]`)
		if want := []any{"/app/x", "/app/x", float64(focused)}; !slices.Equal(got, want) {
			t.Errorf("%q: focus, unfolded, and times that a screen reader was told of a focus: %v, want %v", lines, got, want)
		}
	}
	contend("/app/z", 0, 9)
	keeps(0, "/app/z", "/app/x", "/app/y") // a row before it
	contend("/app/x", 6, 12)
	keeps(1, "/app/x", "/app/z", "/app/y") // it moves
}

// TestBrowserHidden: a tab that nobody sees has no stream, and when it is seen
// it has one again.
func TestBrowserHidden(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	t.Parallel()
	e := testutil.Start(t)
	p := page.New(e.Servers())
	var open, opened atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			opened.Add(1)
			open.Add(1)
			defer open.Add(-1)
		}
		p.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { p.Close(); server.Close() })
	streams := func(want int32) {
		t.Helper()
		for end := time.Now().Add(time.Minute); open.Load() != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d streams, want %d", open.Load(), want)
			}
		}
	}
	b := browser.Open(t, browser.Wide, false)
	b.Go(server.URL + "/")
	streams(1)
	show := b.Hide()
	streams(0)
	before := opened.Load()
	time.Sleep(3 * time.Second) // the script would open one a second after the end of another
	if n := opened.Load() - before; n != 0 || open.Load() != 0 {
		t.Errorf("%d streams were opened while the tab was hidden", n)
	}
	show()
	streams(1)
	b.Await("no complaint of lost news", `return document.getElementById("lost").hidden`)
}

// TestBrowserByKeyboard: on each page the key Tab comes to every link, filter
// and command, in the order of the page, and each shows that it has the focus.
// A screen reader is told of the landmarks, and of the headers of tables, on a
// phone, too.
func TestBrowserByKeyboard(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	watch := page.NewWatch()
	s := newScene(t, page.WithWatch(watch))
	c, d := s.dial(watch.Option()), s.dial()
	s.hold(locks.NewMutex(c, "/app/x", who("web-1 pid 1")))
	s.hold(locks.NewMutex(d, "/app/y", who("web-2 pid 2")))
	s.wait(locks.NewMutex(d, "/app/x", who("web-2 pid 2")))
	s.wait(locks.NewMutex(c, "/app/y", who("web-1 pid 1")))
	for i := range 4 {
		s.wait(locks.NewMutex(s.dial(), "/app/x", who("web-%d pid %[1]d", 3+i)))
	}
	for _, size := range []browser.Size{browser.Wide, browser.Phone} {
		b := browser.Open(t, size, false)
		for at, want := range map[string]struct {
			ready   string
			stops   int // of the key, at least
			columns string
		}{
			"":                  {"table.lines details", 5 + 3 + 2 + 1, "Line, Held by, For, Waiting, Next in line"},
			"line?path=/app/x":  {"svg.times rect", 5, "Place, Who, Since, Mode, Holder, Seen from, to, At, What, Hand-over"},
			"deadlocks":         {"svg.circle", 5 + 2 + 2, ""},
			"ensemble":          {"tbody tr", 5 + 1, "Server, Role, Release, Latency (min/avg/max), Connections"},
			"process":           {"table.facts", 5, "What, State, Since, Note"},
			"line?path=missing": {"h1", 2, ""},
		} {
			s.open(b, at)
			b.Await(at, `return document.querySelector(arguments[0]) !== null`, want.ready)
			var all int
			b.Run(&all, `window.stops = [...document.querySelectorAll("a, input, select, button, summary, pre")]; return window.stops.length`)
			if all < want.stops {
				t.Errorf("%q: %d places to go to, want %d", at, all, want.stops)
			}
			for i := range all {
				b.Press(browser.Tab)
				var wrong string
				b.Run(&wrong, `const at = document.activeElement, want = window.stops[arguments[0]], style = getComputedStyle(at);
					if (at !== want) return at.outerHTML.slice(0, 100) + ", want " + want.outerHTML.slice(0, 100);
					return style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2 ? "no outline of " + at.outerHTML.slice(0, 100) : ""`, i)
				if wrong != "" {
					t.Errorf("%q, at the %d. Tab: %s", at, i+1, wrong)
					break
				}
			}
			roles := map[string][]string{}
			for _, told := range b.Told() {
				roles[told.Role] = append(roles[told.Role], told.Name)
			}
			for _, landmark := range []string{"banner", "navigation", "main"} {
				if len(roles[landmark]) != 1 {
					t.Errorf("%q: %d times %s", at, len(roles[landmark]), landmark)
				}
			}
			if (len(roles["search"]) == 1) != (at == "") {
				t.Errorf("%q: searches %q", at, roles["search"])
			}
			if len(roles["heading"]) == 0 {
				t.Errorf("%q: no heading", at)
			}
			columns := slices.Compact(roles["columnheader"])
			if got := strings.Join(columns, ", "); !strings.HasPrefix(got, want.columns) {
				t.Errorf("%q, %v: columns %q, want %q", at, size, got, want.columns)
			}
			if len(columns) > 0 && slices.Contains(roles["table"], "") {
				t.Errorf("%q: tables %q", at, roles["table"])
			}
		}
	}
}
