package page_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/framework"
	"github.com/zkrecipes/zkrecipes/inspect"
	"github.com/zkrecipes/zkrecipes/inspect/page"
	"github.com/zkrecipes/zkrecipes/internal/test/browser"
	"github.com/zkrecipes/zkrecipes/internal/test/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/leader"
	"github.com/zkrecipes/zkrecipes/recipes/locks"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/testutil"
)

// scene is an ensemble with a few clients, and a page about it.
type scene struct {
	t      *testing.T
	e      ensemble
	client *framework.Client // that reads
	page   *httptest.Server
}

// ensemble is an embedded or a real one.
type ensemble interface {
	Servers() string
	Members() int
	Leader() int
	Stop(member int) error
	Restart(member int) error
	ExpireSession(id int64) error
}

func newScene(t *testing.T, opts ...page.Option) *scene {
	t.Helper()
	return newSceneOn(t, testutil.Start(t, testutil.WithMembers(3)), opts...)
}

func newSceneOn(t *testing.T, e ensemble, opts ...page.Option) *scene {
	t.Helper()
	s := &scene{t: t, e: e}
	s.client = s.dial()
	p := page.New(e.Servers(), opts...)
	s.page = httptest.NewServer(http.StripPrefix("/debug/zk", p))
	t.Cleanup(func() { p.Close(); s.page.Close() })
	return s
}

// dial returns a client whose session outlives a busy machine.
func (s *scene) dial(opts ...framework.Option) *framework.Client {
	s.t.Helper()
	c, err := framework.New(s.e.Servers(), append(opts, framework.WithSessionTimeout(40*time.Second))...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// open opens a page.
func (s *scene) open(b *browser.Browser, at string) { b.Go(s.page.URL + "/debug/zk/" + at) }

func (s *scene) hold(a recipes.Acquirer, err error) *recipes.Lease {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	lease, err := a.Acquire(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return lease
}

// wait lets somebody wait until the test ends, and returns when he stands in
// line.
func (s *scene) wait(a recipes.Acquirer, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	at := a.(interface{ Path() string }).Path()
	before := s.waiting(at)
	go func() { _, _ = a.Acquire(s.t.Context()) }() // the session's end releases it
	for end := time.Now().Add(5 * time.Minute); s.waiting(at) == before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("nobody waits for %s", at)
		}
	}
}

func (s *scene) waiting(at string) int {
	s.t.Helper()
	l, err := inspect.Read(s.t.Context(), s.client, at, inspect.WithoutDetails())
	if err != nil {
		s.t.Fatal(err)
	}
	return len(l.Waiting)
}

func who(format string, args ...any) recipes.DataOption {
	return recipes.WithData([]byte(fmt.Sprintf(format, args...)))
}

// row is what the browser shows of a line on Now, and what it should show.
type row struct {
	Path, Kind      string
	Holders, Tokens []string
	Permits         string // as a screen reader is told of them
	Filled          int    // of them
	Waiting         string
	Next            []string // those that wait, with their places
	Waits           []string // since when
	Since           string   // when it is held
	Most            bool     // for that time at most
	Wrong           []string // ages that are not of these times
}

// script has functions for those that follow.
const script = `const texts = (r, of) => [...r.querySelectorAll(of)].map(e => e.textContent), units = {d: 86400, h: 3600, m: 60, s: 1};
	const seconds = (text) => [...text.matchAll(/([\d.]+)([dhms])/g)].reduce((sum, [, n, unit]) => sum + n * units[unit], 0);
	const wrong = (r) => [...r.querySelectorAll("time")].filter(t => Math.abs(seconds(t.textContent) - (Date.now() - Date.parse(t.dateTime)) / 1000) > 3).map(t => t.outerHTML);
	const stamp = (t) => t ? t.dateTime : "", most = (t) => t !== null && "most" in t.dataset && t.textContent.startsWith("≤");
`

// rows returns what the browser shows of each line.
func rows(b *browser.Browser) (all []row) {
	b.Run(&all, script+`return [...document.querySelectorAll("table.lines tbody tr")].map(r => {
		const held = r.querySelector("td[data-label=For] time"), permits = r.querySelector(".permits");
		return {path: r.querySelector("a").textContent, kind: r.querySelector("th .kind").textContent,
			holders: texts(r, "td[data-label='Held by'] .who"), tokens: texts(r, "td[data-label='Held by'] .kind"),
			permits: permits ? permits.getAttribute("aria-label") : "", filled: r.querySelectorAll(".permits .full").length,
			waiting: r.querySelector("td.number").textContent, next: texts(r, "td[data-label='Next in line'] .who"),
			waits: [...r.querySelectorAll("td[data-label='Next in line'] time")].map(stamp), since: stamp(held), most: most(held), wrong: wrong(r)};
	})`)
	return all
}

// stampOf is how the page writes a time.
func stampOf(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// token is that of a holder, as far as the ensemble knows it.
func (s *scene) token(c *inspect.Contender) (string, error) {
	dir := path.Dir(c.Path)
	_, stat, err := s.client.Exists(s.t.Context(), dir)
	if err != nil || stat == nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	number, err := strconv.Atoi(c.Path[len(c.Path)-10:])
	return fmt.Sprintf("token %#x.%d.*", stat.Czxid, number), err
}

// rowOf is what the page should show of a line.
func (s *scene) rowOf(l *inspect.Line) (row, error) {
	r := row{Path: l.Path, Kind: l.Recipe, Waiting: fmt.Sprint(len(l.Waiting)), Holders: []string{}, Tokens: []string{}, Next: []string{}, Waits: []string{}, Wrong: []string{}}
	for i := range l.Holders {
		r.Holders = append(r.Holders, string(l.Holders[i].Data))
		if !l.Semaphore {
			token, err := s.token(&l.Holders[i])
			if err != nil {
				return r, err
			}
			r.Tokens = append(r.Tokens, token)
		}
	}
	if l.Semaphore {
		r.Filled, r.Permits = len(l.Holders), fmt.Sprint(len(l.Holders))
		if l.Limit > 0 {
			r.Permits += fmt.Sprint(" of ", l.Limit)
		}
		r.Permits += " permits held"
	}
	for i, c := range l.Waiting {
		r.Next, r.Waits = append(r.Next, fmt.Sprintf("%d. %s", i+1, c.Data)), append(r.Waits, stampOf(c.Since))
	}
	if len(l.Holders) > 0 {
		r.Since = stampOf(l.Holders[0].Since)
	}
	return r, nil
}

// fits reports whether a page may show that somebody holds since a time, who
// came at another one: it shows that one as the most, or when it has seen the
// grant.
func fits(since string, most bool, came string) bool {
	at, err := time.Parse(time.RFC3339Nano, since)
	then, _ := time.Parse(time.RFC3339Nano, came)
	return since == came || !most && err == nil && at.After(then) && at.Before(time.Now().Add(time.Second))
}

// same fails the test unless the browser comes to show what inspect says.
func (s *scene) same(b *browser.Browser) {
	s.t.Helper()
	var got, want []row
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		forest, err := inspect.Tree(s.t.Context(), s.client, "/")
		if err != nil {
			continue // between two connections
		}
		want = nil
		for i := range forest.Lines {
			var r row
			if r, err = s.rowOf(&forest.Lines[i]); err != nil {
				break
			}
			want = append(want, r)
		}
		if got = rows(b); err != nil || len(got) != len(want) {
			continue
		}
		byPath := func(a, b row) int { return strings.Compare(a.Path, b.Path) }
		slices.SortFunc(got, byPath)
		slices.SortFunc(want, byPath)
		for i := range got {
			if fits(got[i].Since, got[i].Most, want[i].Since) {
				want[i].Since, want[i].Most = got[i].Since, got[i].Most
			}
		}
		if reflect.DeepEqual(got, want) {
			return
		}
	}
	s.t.Errorf("the page shows %+v,\nwant %+v", got, want)
}

// place is what the page of a line shows of a contender, in order.
type place struct {
	Place, Who, Since, Mode, Note string
	Most                          bool
}

// sameLine follows the link to a line, and fails the test unless the browser
// comes to show what inspect says of it, in order, and these arrows: each from
// a contender to another one.
func (s *scene) sameLine(b *browser.Browser, at string, arrows [][2]int) {
	s.t.Helper()
	b.Await("the link to "+at, `const a = [...document.querySelectorAll("table.lines a")].find(a => a.textContent === arguments[0]); if (a) a.click(); return a !== undefined`, at)
	b.Await(at, `return document.querySelector("h1.path")?.textContent === arguments[0]`, at)
	type shown struct {
		Places []place
		Boxes  []string
		Arrows [][2]int
		Wrong  []string
	}
	var got, want shown
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		b.Run(&got, script+`const places = [...document.querySelectorAll("section[aria-labelledby=order] tbody tr")].map(r => {
				const time = r.querySelector("time");
				return {place: r.querySelector("td[data-label=Place]").textContent, who: r.querySelector(".who").textContent, since: stamp(time), most: most(time),
					mode: r.querySelector("td[data-label=Mode]").textContent, note: r.querySelector(".kind").textContent};
			});
			const boxes = [...document.querySelectorAll("svg.queue .box")].map(g => ({label: g.querySelector("text").textContent, y: +g.querySelector("rect").getAttribute("y"), height: +g.querySelector("rect").getAttribute("height")}));
			const of = (y) => boxes.findIndex(b => b.y <= y && y <= b.y + b.height + 5);
			const arrows = [...document.querySelectorAll("svg.queue path.arrow")].map(p => p.getAttribute("d").match(/-?\d+/g).map(Number)).map(n => [of(n[1]), of(n[n.length - 1])]);
			return {places, boxes: boxes.map(b => b.label), arrows, wrong: wrong(document.querySelector("main"))}`)
		l, err := inspect.Read(s.t.Context(), s.client, at)
		if err != nil {
			continue
		}
		want = shown{Arrows: arrows, Wrong: []string{}}
		for i, c := range append(slices.Clone(l.Holders), l.Waiting...) {
			p := place{Place: "holds", Who: string(c.Data), Since: stampOf(c.Since), Mode: "exclusive", Note: fmt.Sprintf("%s · session %#x", path.Base(c.Path), uint64(c.Session))}
			if c.Shared {
				p.Mode = "shared"
			}
			if i < len(l.Holders) {
				token, tokenErr := s.token(&c)
				if err = tokenErr; err != nil {
					break
				}
				p.Note += " · " + token
				if i < len(got.Places) && fits(got.Places[i].Since, got.Places[i].Most, p.Since) {
					p.Since, p.Most = got.Places[i].Since, got.Places[i].Most
				}
			} else {
				p.Place = fmt.Sprintf("%d.", i-len(l.Holders)+1)
			}
			want.Places, want.Boxes = append(want.Places, p), append(want.Boxes, p.Who)
		}
		if err == nil && reflect.DeepEqual(got, want) {
			return
		}
	}
	s.t.Errorf("the page of %s shows %+v,\nwant %+v", at, got, want)
}

// leader returns the leader as soon as there is one.
func (s *scene) leader() int {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if member := s.e.Leader(); member >= 0 {
			return member
		}
	}
	s.t.Fatal("no leader within a minute")
	return -1
}

// faults compares what the browser shows with what inspect says while members
// stop, the leader first, and when the holder's session has expired.
func (s *scene) faults(b *browser.Browser) {
	s.t.Helper()
	name := func(i int) recipes.DataOption { return who("web-%d pid %d: sh", i, i) }
	c, d, e := s.dial(), s.dial(), s.dial()
	s.hold(locks.NewMutex(c, "/app/x", name(1)))
	s.hold(semaphore.New(c, "/app/pool", 2, name(1)))
	s.hold(leader.New(d, "/app/leader", leader.WithID("web-2 pid 2")))
	s.open(b, "")
	s.same(b)
	s.wait(locks.NewMutex(d, "/app/x", name(2)))
	s.wait(locks.NewMutex(e, "/app/x", name(3)))
	s.hold(semaphore.New(e, "/app/pool", 2, name(3)))
	s.same(b)
	for range s.e.Members() {
		member := s.leader()
		if err := s.e.Stop(member); err != nil {
			s.t.Fatal(err)
		}
		s.same(b)
		if err := s.e.Restart(member); err != nil {
			s.t.Fatal(err)
		}
	}
	sess, err := c.Session()
	if err == nil {
		err = s.e.ExpireSession(sess.ID())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	b.Await("the next holder", `return document.querySelector("table.lines td[data-label='Held by']:has(.kind)")?.textContent.startsWith("web-2 pid 2: sh")`)
	s.same(b)
}

// TestBrowserSmoke: a real browser shows what inspect says, follows changes
// without a reload, and has nothing to complain of.
func TestBrowserSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	t.Parallel()
	s := newScene(t)
	b := browser.Open(t, browser.Wide, false)
	c, d := s.dial(), s.dial()
	held := s.hold(locks.NewMutex(c, "/app/x", who("web-1 pid 1: sh")))
	s.open(b, "")
	s.same(b)
	s.wait(locks.NewMutex(d, "/app/x", who("web-2 pid 2")))
	s.same(b)
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Await("the next holder", `return document.querySelector("main").textContent.includes("web-2 pid 2")`)

	// The filter stands in the address while it is typed, and the focus stays.
	s.hold(locks.NewMutex(c, "/other", who("web-1 pid 1")))
	s.same(b)
	b.Run(nil, `const f = document.getElementById("filter"); f.focus(); f.value = "app/"; f.dispatchEvent(new Event("input", {bubbles: true}))`)
	b.Await("the filtered lines", `return document.querySelectorAll("table.lines tbody tr").length === 1 && location.search.includes("filter=app%2F") && document.activeElement.id === "filter" && document.activeElement.value === "app/"`)

	s.open(b, "#A2TOKEN")
	b.Await("no token in the address", `return location.hash === ""`)
	b.Run(nil, `location.hash = "A2TOKEN"`)
	b.Await("no token in the address later", `return location.hash === ""`)
	if all := b.Complaints(); len(all) > 0 {
		t.Errorf("the browser complains: %q", all)
	}
}

// TestBrowserFollowsALink: the page of a line is what inspect says: its order,
// who waits for whom, modes, tokens and times.
func TestBrowserFollowsALink(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	t.Parallel()
	s := newScene(t)
	c := []*framework.Client{s.dial(), s.dial(), s.dial(), s.dial()}
	name := func(i int) recipes.DataOption { return who("web-%d pid %[1]d", i+1) }
	s.hold(locks.NewMutex(c[0], "/app/x", name(0)))
	s.wait(locks.NewMutex(c[1], "/app/x", name(1)))
	s.wait(locks.NewMutex(c[2], "/app/x", name(2)))
	shared := func(i int) *rwlock.RWLock {
		l, err := rwlock.New(c[i], "/app/rw", name(i))
		must(t, err)
		return l
	}
	s.hold(shared(0).Reader(), nil)
	s.wait(shared(1).Writer(), nil)
	s.wait(shared(2).Reader(), nil)
	s.wait(shared(3).Reader(), nil)
	b := browser.Open(t, browser.Wide, false)
	for at, arrows := range map[string][][2]int{"/app/x": {{1, 0}, {2, 1}}, "/app/rw": {{1, 0}, {2, 1}, {3, 1}}} {
		s.open(b, "")
		s.same(b)
		s.sameLine(b, at, arrows)
	}
}

// TestBrowserOpensTheNextStream: a stream ends by itself, and what happens
// after that is seen on the same page, without a reload.
func TestBrowserOpensTheNextStream(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	e := testutil.Start(t)
	s := &scene{t: t, e: e}
	s.client = s.dial()
	p := page.New(e.Servers())
	began, ended := make(chan time.Time, 1000), make(chan time.Time, 1000)
	s.page = httptest.NewServer(http.StripPrefix("/debug/zk", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			began <- time.Now()
			defer func() { ended <- time.Now() }()
		}
		p.ServeHTTP(w, r)
	})))
	t.Cleanup(func() { p.Close(); s.page.Close() })
	b := browser.Open(t, browser.Wide, false)
	s.open(b, "")
	b.Run(nil, `window.loaded = "once"`)
	first := bubble.Await(t, "a stream", began)
	lasted := bubble.Await(t, "the end of it", ended).Sub(first)
	if lasted < 19*time.Second || lasted > 30*time.Second {
		t.Errorf("the stream has lasted %v", lasted)
	}
	time.Sleep(time.Until(first.Add(22 * time.Second)))
	s.hold(locks.NewMutex(s.dial(), "/app/x", who("web-1 pid 1")))
	s.same(b)
	var loaded string
	if b.Run(&loaded, `return window.loaded || ""`); loaded != "once" {
		t.Error("the page was loaded again")
	}
	if len(began) == 0 {
		t.Error("no other stream has begun")
	}
}

// TestBrowserAfterFaults: what the browser shows stays what inspect says.
func TestBrowserAfterFaults(t *testing.T) {
	bubble.Whole(t)
	t.Parallel()
	b := browser.Open(t, browser.Wide, false)
	newScene(t).faults(b)
}

// TestPictures shows every page in two sizes and both colors, and that none is
// wider than its window. It keeps them in ZKR_PICTURES.
func TestPictures(t *testing.T) {
	to := os.Getenv("ZKR_PICTURES")
	if to == "" {
		t.Skip("make pictures")
	}
	watch := page.NewWatch()
	s := newScene(t, page.WithWatch(watch), page.WithRoots("/shop"))
	log := watch.Tee(zap.NewNop())
	here := s.dial(watch.Option(), framework.WithLogger(log))
	clients := []*framework.Client{here, s.dial(), s.dial(), s.dial(), s.dial(), s.dial(), s.dial(), s.dial()}
	name := func(i int) recipes.DataOption { return who("web-%d pid %d: report", i+1, 4711+37*i) }
	s.hold(locks.NewMutex(clients[1], "/shop/locks/invoices", name(1)))
	for i := range 3 {
		s.wait(locks.NewMutex(clients[(i+2)%4], "/shop/locks/invoices", name((i+2)%4)))
	}
	rw, err := rwlock.New(clients[4], "/shop/locks/catalog", name(4))
	if err != nil {
		t.Fatal(err)
	}
	s.hold(rw.Reader(), nil)
	for _, i := range []int{5, 6} {
		other, err := rwlock.New(clients[i], "/shop/locks/catalog", name(i))
		if err != nil {
			t.Fatal(err)
		}
		s.wait(map[bool]recipes.Acquirer{true: other.Writer(), false: other.Reader()}[i == 5], nil)
	}
	s.hold(leader.New(clients[3], "/shop/scheduler", leader.WithID("web-4 pid 4822")))
	pool := func(i int) (*semaphore.Semaphore, error) {
		return semaphore.New(clients[i], "/shop/encoders", 5, name(i))
	}
	for _, i := range []int{0, 1, 2} {
		s.hold(pool(i))
	}
	s.hold(locks.NewMutex(here, "/shop/locks/x", name(0)))
	s.hold(locks.NewMutex(clients[7], "/shop/locks/y", name(7)))
	s.wait(locks.NewMutex(clients[7], "/shop/locks/x", name(7)))
	s.wait(locks.NewMutex(here, "/shop/locks/y", name(0)))
	short := s.hold(locks.NewMutex(here, "/shop/locks/daily", name(0)))
	pages := map[string]string{"now": "", "line": "line?path=/shop/locks/invoices", "deadlocks": "deadlocks", "ensemble": "ensemble", "process": "process"}
	ready := map[string]string{"now": "table.lines tr", "line": "svg.times rect", "deadlocks": "svg.circle", "ensemble": "tbody tr", "process": "tbody tr"}
	for _, size := range []browser.Size{browser.Wide, browser.Phone} {
		for _, dark := range []bool{false, true} {
			b := browser.Open(t, size, dark)
			for _, name := range slices.Sorted(func(yield func(string) bool) {
				for name := range pages {
					if !yield(name) {
						return
					}
				}
			}) {
				s.open(b, pages[name])
				b.Await(name, `return document.querySelector(arguments[0]) !== null`, ready[name])
				if short != nil && name == "line" {
					if err := short.Release(context.WithoutCancel(t.Context())); err != nil {
						t.Fatal(err)
					}
					short = nil
				}
				var wide bool
				if b.Run(&wide, `return document.documentElement.scrollWidth > innerWidth`); wide {
					t.Errorf("%s is wider than %d pixels", name, size.Width)
				}
				file := fmt.Sprintf("%s-%s-%s.png", name, map[bool]string{true: "phone", false: "wide"}[size == browser.Phone], map[bool]string{true: "dark", false: "light"}[dark])
				if err := os.WriteFile(filepath.Join(to, file), b.Picture(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if all := b.Complaints(); len(all) > 0 {
				t.Errorf("the browser complains: %q", strings.Join(all, "\n"))
			}
		}
	}
}

// TestBrowserSaysThatNewsAreLost: a page whose streams are refused says that it
// grows old, and takes that back with the next news.
func TestBrowserSaysThatNewsAreLost(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser, and waits for what a page does in 8s")
	}
	t.Parallel()
	e := testutil.Start(t)
	p := page.New(e.Servers())
	var refuse atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse.Load() && r.URL.Path == "/events" {
			http.Error(w, "refused", http.StatusServiceUnavailable)
			return
		}
		p.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { p.Close(); server.Close() })
	b := browser.Open(t, browser.Wide, false)
	refuse.Store(true)
	b.Go(server.URL + "/")
	b.Await("that news are lost", `return !document.getElementById("lost").hidden`)
	refuse.Store(false)
	b.Await("news", `return document.getElementById("lost").hidden`)
}
